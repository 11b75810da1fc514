"""The study ``leaderboard``: every system on every benchmark that was scored, which can be told apart, and costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.config import format_count
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.measure.ranks import letters, standings
from pipeline.scores.average import Draws
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import Browser, Chart, Series
from pipeline.scores.tables import Cell, Column, Table, TableRow, Value, frame_table
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.leaderboard.benchmarks import Benchmark, Recipe, benchmarks
from pipeline.studies.leaderboard.costs import costs, leak

_LIMITS = {
    "parameters": ("parameters (M)", 1e6, "≤"),
    "bytes": ("bytes a paper", 1, "≤"),
    "papers_per_second": ("papers a second", 1, "≥"),
}
"""Costs by which a reader chooses: heading, unit, and the side of a limit that is wanted."""

_FACTS = {"licence": "licence", "trained_until": "data to"}
_MORE = {"dimension": "dimension", "tokens": "tokens a paper", "machine": "machine", "trained_on": "trained on"}
_CHOOSERS = {head: side for head, _, side in _LIMITS.values()} | dict.fromkeys(_FACTS.values(), "=")
_OF_BENCHMARK = ("kind", "field", "candidates", "year")


def found_in(workspace: Workspace, recipe: Recipe) -> tuple[list[Path], list[Benchmark]]:
    """Return the workspaces and the benchmarks of a recipe."""
    roots = [workspace.root, *(Path(text).expanduser() for text in recipe.workspaces)]
    if found := benchmarks(roots, recipe):
        return roots, found
    where = ", ".join(map(str, roots))
    raise InputError(f"two systems must be scored on one benchmark, got none in {where}", "Run mdcr demo or mdcr eval")


def no_tasks(_workspace: Workspace, _recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield nothing: what is read was scored by other commands."""
    yield from ()


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the standings with costs, every figure, and the order without each benchmark."""
    roots, found = found_in(workspace, recipe)
    cost_of = {row["system"]: row for row in costs(roots, found).iter_rows(named=True)}
    overall, *without = _standings(found, cost_of, recipe.alpha)
    best = overall.frame.row(0, named=True)
    corpora = (one.runs["corpus"][0] for one in found if one.runs is not None)
    return StudyResult(
        [overall, _figures(found, cost_of, recipe), *without],
        sources=list(dict.fromkeys(corpora)),
        parts=[*cost_charts(found, cost_of), *queries_of(found, recipe.seed)],
        best=f"{best['system']}: mean rank {best['mean_rank']:.1f} over {len(found)} benchmarks",
        tables_first=True,
    )


def _standings(found: Sequence[Benchmark], cost_of: Mapping[str, dict[str, Any]], alpha: float) -> Iterator[StudyTable]:
    """Yield how systems stand over all benchmarks, with their costs; then their ranks without each benchmark."""
    systems = list(cost_of)
    ranked = np.full((len(found), 3, len(systems)), np.nan)
    for place, one in enumerate(found):
        ranked[place][:, [systems.index(name) for name in one.systems]] = one.ranks(alpha)
    placed = standings(ranked)
    order = np.lexsort((placed.mean_rank[0], -placed.benchmarks)).tolist()
    rows, lines = [], []
    for place in order:
        row: dict[str, Any] = {"system": systems[place], "benchmarks": int(placed.benchmarks[place])}
        for name in ("rank", "mean_rank", "borda"):
            row |= zip((name, f"{name}_low", f"{name}_high"), map(float, getattr(placed, name)[:, place]), strict=True)
        least, most = placed.without[:, place].min(), placed.without[:, place].max()
        borda = Cell(row["borda"], row["borda_low"], row["borda_high"])
        cells: list[Value] = [
            None,
            "{mean_rank:.2f} [{mean_rank_low:.2f}, {mean_rank_high:.2f}]".format(**row),
            borda,
            None,
        ]
        if not np.isnan(least):
            cells[0], cells[3] = "{rank:g} [{rank_low:g}, {rank_high:g}]".format(**row), f"{least:g} to {most:g}"
        cost = cost_of[systems[place]]
        cells += [f"{row['benchmarks']} of {len(found)}", *_limits(cost), *_texts(cost, _FACTS | _MORE)]
        lines.append(TableRow(systems[place], tuple(cells)))
        rows.append(row | {"without_least": least, "without_most": most} | cost)
    heads = ("rank", "mean rank", "Borda", "rank without one", "benchmarks", *_CHOOSERS, *_MORE.values())
    notes = (
        "Rank: by the mean of ranks, among the systems that were scored on all benchmarks; without one: the least and "
        "the greatest with one benchmark left out. Mean rank and Borda (percent of the other systems that it is above) "
        "are over the benchmarks that a system was scored on. Brackets: means of the ends of its intervals on them, "
        "and the ranks that these leave.",
        "Costs of a fusion are the sum of its parts. Papers a second: while vectors or terms were made, whatever else "
        "ran; not tested. Bytes: vectors as they are compared, or terms. Data to: last year of the training data.",
    )
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.selectors.float().fill_nan(None))
    yield StudyTable("overall", _table("Leaderboard", heads, lines, notes), frame, _CHOOSERS)
    complete = {systems[place]: placed.without[:, place] for place in order if not np.isnan(placed.rank[0, place])}
    if len(found) > 1 and complete:
        frame = pl.DataFrame({"left out": [one.name for one in found], **complete})
        yield StudyTable("without", frame_table("Ranks without one benchmark", frame), frame)


def _figures(found: Sequence[Benchmark], cost_of: Mapping[str, dict[str, Any]], recipe: Recipe) -> StudyTable:
    """Return every figure with its rank and group; each opens its provenance."""
    rows, lines, records = [], [], []
    for one in found:
        groups, ranked = letters(one.p_values < recipe.alpha), one.ranks(recipe.alpha)
        for place, system in enumerate(one.systems):
            value, *interval = map(float, one.figures[:, place])
            rank, low, high = map(float, ranked[:, place])
            cost = cost_of[system]
            row = {
                "system": system, "kind": one.kind, "benchmark": one.name, "field": one.field, "size": one.size,
                "year": one.year, "measure": one.measure, "value": value, "low": interval[0], "high": interval[1],
                "rank": rank, "rank_low": low, "rank_high": high,
                "group": groups[place], "queries": one.values.shape[1], "leak": leak(cost, one.year),
                "command": one.commands[place],
            }  # fmt: skip
            figure = Cell(value, interval[0], interval[1], best=rank == float(ranked[0].min()))
            placed = f"{rank:g} [{low:g}, {high:g}]"
            size = None if one.size is None else format_count(one.size)
            year = None if one.year is None else str(one.year)
            cells: list[Value] = [one.name, one.label, figure, placed, groups[place], one.kind, one.field, size, year]
            lines.append(TableRow(system, (*cells, *_limits(cost), *_texts(cost, _FACTS), row["leak"])))
            rows.append(row)
            alike = [name for name, p in zip(one.systems, one.p_values[place], strict=True) if p >= recipe.alpha]
            records.append({"label": system} | row | {
                "not told apart from": [name for name in alike if name != system], "rankings": one.sources[place],
                "drawn": f"{recipe.resamples:,} resamples of queries, seed {recipe.seed}",
            })  # fmt: skip
    heads = ("benchmark", "measure", "value", "rank", "group", *_OF_BENCHMARK, *_CHOOSERS, "leak")
    notes = (
        f"Percent [95% interval]; rank [{1 - recipe.alpha:.0%} interval, of all systems together]. A value opens its "
        "provenance and command. Systems of a benchmark that share a letter are not told apart: paired permutation "
        f"tests of all pairs, Holm's correction, p < {recipe.alpha:g}. The interval of a rank leaves out who is told "
        "apart. Leak: training data with citations as late as the queries; –: unknown.",
    )
    choosers = dict.fromkeys(("benchmark", *_OF_BENCHMARK), "=") | _CHOOSERS
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return StudyTable("benchmarks", _table("Every benchmark", heads, lines, notes), frame, choosers, records)


def _table(title: str, heads: Sequence[str], lines: Sequence[TableRow], notes: Sequence[str]) -> Table:
    return Table(title, "system", tuple(Column("", head) for head in heads), tuple(lines), tuple(notes))


def _limits(cost: Mapping[str, Any]) -> list[str | None]:
    return [None if cost[name] is None else f"{cost[name] / unit:,.4g}" for name, (_, unit, _) in _LIMITS.items()]


def _texts(cost: Mapping[str, Any], names: Mapping[str, str]) -> list[str | None]:
    values = (cost[name] for name in names)
    return [None if value is None else f"{value:,.0f}" if isinstance(value, float) else str(value) for value in values]


def cost_charts(found: Sequence[Benchmark], cost_of: Mapping[str, dict[str, Any]]) -> Iterator[Chart]:
    """Yield the value on each benchmark against each cost, with the Pareto front."""
    for name, (head, unit, side) in _LIMITS.items():
        views = {}
        for one in found:
            known = [
                (place, cost / unit) for place, system in enumerate(one.systems) if (cost := cost_of[system][name])
            ]
            front, value = list[tuple[float, float]](), one.figures[0]
            for place, cost in sorted(known, key=lambda of: (of[1] * (-1 if side == "≥" else 1), of[0])):
                if not front or one.sign * value[place] > one.sign * front[-1][1]:
                    front.append((cost, float(value[place])))
            points = [Series(one.systems[place], [cost], *one.figures[:, [place]].tolist()) for place, cost in known]
            if len(points) > 1:
                line = Series("Pareto front", [], [], curve=front)
                views[f"{one.name}, {one.label}"] = [*points, line]
        if views:
            yield Chart(f"Value against {head}", head, "%", views, log=True)


def queries_of(found: Sequence[Benchmark], seed: int, only: Sequence[str] = ()) -> Iterator[Browser]:
    """Yield the queries of the first sample of each benchmark whose corpus is there, for any two systems."""
    pools = dict[str, str]()
    for one in found:
        if one.runs is not None and one.scores is not None:
            kept = [name for name in one.systems if not only or name in only]
            place = pl.col("system").replace_strict({name: place for place, name in enumerate(kept)}, default=None)
            runs = one.runs.filter(pl.col("system").is_in(kept), sample=one.runs["sample"].min()).sort(place)
            scores = one.scores.filter(pl.col("system").is_in(kept))
            shown = browser(runs, scores, [one.measure], Draws(seed=seed), top=0)
            pools |= zip([one.name], shown.pools.values(), strict=False)
    if pools:
        yield Browser("Queries", pools, "Of each benchmark the first sample. Choose two systems to compare them.")


STUDY = Study("leaderboard", "every system on every benchmark, and which can be told apart", Recipe, no_tasks, results)
