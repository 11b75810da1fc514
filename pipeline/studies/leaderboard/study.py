"""The study ``leaderboard``: every system on every benchmark that was scored, what cannot be told apart, and the costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.config import format_count
from pipeline.core.errors import InputError
from pipeline.core.task import Task
from pipeline.measure.ranks import Standings, ends, standings
from pipeline.scores.average import Draws
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import Browser, Chart, Series
from pipeline.scores.tables import Cell, Column, Table, TableRow, Value, label_of, percent
from pipeline.stages.systems import stored_names
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.leaderboard.benchmarks import SCIREPEVAL, Benchmark, Chosen, benchmarks
from pipeline.studies.leaderboard.costs import costs, leak

_COSTS = {
    "parameters": ("parameters (M)", 1e6, "≤"),
    "bytes": ("bytes a paper", 1, "≤"),
    "papers_per_second": ("papers a second", 1, "≥"),
}
"""Columns of costs by which a reader chooses: label, unit, and which side of a limit is wanted."""

_BY = ("kind", "benchmark", "field", "candidates", "year", "licence", "data to")


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        workspaces: folders of further workspaces whose scores count.
        kinds: kinds of benchmarks (:attr:`Benchmark.kind`); empty: all.
        systems: that count, with commas; empty: all.
        measures: what each kind of benchmark is ranked by.
        alpha: systems whose adjusted p-value is below it are told apart.
        seed: of the bootstrap and the tests.
        resamples: of the bootstrap.
    """

    workspaces: tuple[str, ...]
    kinds: tuple[str, ...]
    systems: str
    measures: Mapping[str, str]
    alpha: float
    seed: int
    resamples: int

    @property
    def chosen(self) -> Chosen:
        """Which benchmarks and systems count."""
        return Chosen(self.kinds, stored_names(self.systems), self.measures, self.seed, self.resamples)


def found_in(workspace: Workspace, recipe: Recipe) -> tuple[list[Path], list[Benchmark]]:
    """Return the workspaces and the benchmarks of a recipe.

    Raises:
        InputError: no benchmark has two systems.
    """
    roots = [workspace.root, *(Path(text).expanduser() for text in recipe.workspaces)]
    if found := benchmarks(roots, recipe.chosen):
        return roots, found
    where = ", ".join(map(str, roots))
    raise InputError(f"no benchmark in {where} has two systems that count", "Score them first, as mdcr demo does")


def no_tasks(_workspace: Workspace, _recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield nothing: the study reads what others stored."""
    yield from ()


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the overall standings, every figure, the order without each benchmark, and the costs."""
    roots, found = found_in(workspace, recipe)
    priced = costs(roots, found)
    systems = priced["system"].to_list()
    placed = standings([_placed(one, systems) for one in found])
    order = np.lexsort((placed.mean_rank[:, 0], -placed.benchmarks))
    cost_of = {row["system"]: row for row in priced.iter_rows(named=True)}
    overall = overall_table(placed, systems, order, len(found))
    first = overall.frame.row(0, named=True)
    return StudyResult(
        [overall, figures_table(found, cost_of, recipe), without_table(found, placed, systems, order),
         cost_table(priced[order.tolist()])],
        sources=list(dict.fromkeys(one.runs["corpus"][0] for one in found if len(one.runs))),
        parts=[*cost_charts(found, cost_of), *queries_of(found, recipe.seed)],
        best=f"{first['system']}: mean rank {first['mean_rank']:.1f} over {len(found)} benchmarks",
        tables_first=True,
    )  # fmt: skip


def _placed(one: Benchmark, systems: Sequence[str]) -> np.ndarray:
    """Return the ranks of all systems on a benchmark; NaN: not measured."""
    ranked = np.full((len(systems), one.ranked.shape[1]), np.nan)
    ranked[[systems.index(name) for name in one.systems]] = one.ranked
    return ranked


def overall_table(placed: Standings, systems: Sequence[str], order: np.ndarray, count: int) -> StudyTable:
    """Return how systems stand over all benchmarks."""
    rows = []
    for place in order.tolist():
        row: dict[str, Any] = {"system": systems[place], "benchmarks": int(placed.benchmarks[place])}
        for name in ("rank", "mean_rank", "borda"):
            drawn = getattr(placed, name)[[place]]
            (low,), (high,) = ends(drawn)
            row |= {name: drawn[0, 0], f"{name}_low": low, f"{name}_high": high}
        without = placed.without[:, place]
        rows.append(row | {"without_least": without.min(), "without_most": without.max()})
    frame = pl.DataFrame(rows).with_columns(pl.selectors.float().fill_nan(None))
    lines = []
    for row in frame.iter_rows(named=True):
        ranked = None if row["rank"] is None else f"{row['rank']:g} [{row['rank_low']:g}, {row['rank_high']:g}]"
        kept = None if row["rank"] is None else f"{row['without_least']:g} to {row['without_most']:g}"
        mean = f"{row['mean_rank']:.2f} [{row['mean_rank_low']:.2f}, {row['mean_rank_high']:.2f}]"
        borda = Cell(row["borda"], None, row["borda_low"], row["borda_high"], best=False, marked=False)
        lines.append(TableRow(row["system"], (ranked, mean, borda, kept, f"{row['benchmarks']} of {count}")))
    heads = ("rank", "mean rank", "Borda", "rank without one benchmark", "benchmarks")
    notes = (
        f"Rank: by the mean of ranks, among systems that were scored on all {count} benchmarks. Mean rank and Borda (share "
        "of the other systems that it is above, percent) are over the benchmarks that a system was scored on. Brackets: 95% "
        "of the resamples of queries, all systems together.",
    )
    table = Table("Leaderboard", "system", tuple(Column("", head) for head in heads), tuple(lines), notes)
    return StudyTable("overall", table, frame)


def figures_table(found: Sequence[Benchmark], cost_of: Mapping[str, Mapping[str, Any]], recipe: Recipe) -> StudyTable:
    """Return every figure with its rank and group; each opens its provenance."""
    heads = (*_BY[:5], "measure", "value", "rank", "group", *(head for head, _, _ in _COSTS.values()), *_BY[5:], "leak")
    rows, lines, records = [], [], []
    for one in found:
        groups = one.groups(recipe.alpha)
        for place, system in enumerate(one.systems):
            (value, low, high), (rank, first, last), cost = one.figures[:, place], one.rank(place), cost_of[system]
            leaks = leak(system, one.year)
            row = {
                "system": system, "kind": one.kind, "benchmark": one.name, "field": one.field, "size": one.size,
                "year": one.year, "measure": one.measure, "value": value, "low": low, "high": high, "rank": rank,
                "rank_low": first, "rank_high": last, "group": groups[place], "queries": one.values.shape[1],
            }  # fmt: skip
            rows.append(row | {"leak": leaks, "command": one.commands[place]})
            best = bool(rank == one.ranked[:, 0].min())
            limits = [
                None if cost[name] is None else f"{cost[name] / unit:,.4g}" for name, (_, unit, _) in _COSTS.items()
            ]
            cells: list[Value] = [one.kind, one.name, one.field, one.size and format_count(one.size), _text(one.year)]
            cells += [one.measure if one.kind == SCIREPEVAL else label_of(one.measure)]
            cells += [
                Cell(value, None, low, high, best, marked=False),
                f"{rank:g} [{first:g}, {last:g}]",
                groups[place],
            ]
            lines.append(TableRow(system, (*cells, *limits, cost["licence"], _text(cost["trained_until"]), leaks)))
            alike = [name for name, p in zip(one.systems, one.apart[place], strict=True) if p >= recipe.alpha]
            records.append({
                "label": system, **{name: row[name] for name in row if name != "system"},
                "not told apart from": [name for name in alike if name != system], "leak": leaks or None,
                "command": one.commands[place], "rankings": one.sources[place].split("; "),
                "drawn": f"{recipe.resamples:,} resamples, seed {recipe.seed}; paired permutation tests of all pairs, Holm",
            })  # fmt: skip
    notes = (
        f"Percent [95% interval]. Rank [95% of the resamples of queries]. Systems of one benchmark that share a letter are "
        f"not told apart (paired permutation tests of all pairs, Holm's correction, p < {recipe.alpha:g}). Leak: encoders "
        "trained on citations of the queries' year or later; –: unknown. Each value opens its provenance and command.",
    )
    table = Table("Every benchmark", "system", tuple(Column("", head) for head in heads), tuple(lines), notes)
    choosers = dict.fromkeys(_BY, "=") | {head: side for head, _, side in _COSTS.values()}
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return StudyTable("benchmarks", table, frame, choosers, records)


def without_table(
    found: Sequence[Benchmark], placed: Standings, systems: Sequence[str], order: np.ndarray
) -> StudyTable:
    """Return the rank of each system with each benchmark left out."""
    shown = [place for place in order.tolist() if not np.isnan(placed.rank[place, 0])]
    columns = {systems[place]: placed.without[:, place] for place in shown}
    frame = pl.DataFrame({"benchmark": [one.name for one in found], **columns})
    lines = [TableRow(name, tuple(f"{rank:g}" for rank in row)) for name, *row in frame.iter_rows()]
    heads = tuple(Column("", systems[place]) for place in shown)
    notes = ("Rank by the mean of ranks over the other benchmarks, among systems that were scored on all of them.",)
    return StudyTable("without", Table("Order without one benchmark", "left out", heads, tuple(lines), notes), frame)


def cost_table(priced: pl.DataFrame) -> StudyTable:
    """Return what each system costs."""
    names = {"dimension": "dimension", "tokens": "tokens a paper", "machine": "machine", "licence": "licence"}
    names |= {"trained_until": "data to", "trained_on": "trained on"}
    lines = []
    for row in priced.iter_rows(named=True):
        limits = [None if row[name] is None else f"{row[name] / unit:,.4g}" for name, (_, unit, _) in _COSTS.items()]
        lines.append(TableRow(row["system"], (*limits, *(_text(row[name]) for name in names))))
    heads = tuple(Column("", head) for head in (*(head for head, _, _ in _COSTS.values()), *names.values()))
    notes = (
        "Of a fusion the sum of its parts. Papers a second while vectors or terms were made, whatever else ran on the "
        "machine; not tested. Bytes: vectors as they are compared, or terms. Data to: last year of the training data.",
    )
    return StudyTable("costs", Table("Costs", "system", heads, tuple(lines), notes), priced)


def _text(value: Any) -> str | None:
    return None if value is None else f"{value:,.0f}" if isinstance(value, float) else str(value)


def cost_charts(found: Sequence[Benchmark], cost_of: Mapping[str, Mapping[str, Any]]) -> Iterator[Chart]:
    """Yield each cost against the value on each benchmark, with the Pareto front."""
    for name, (head, unit, side) in _COSTS.items():
        views = {}
        for one in found:
            places = [place for place, system in enumerate(one.systems) if cost_of[system][name]]
            x = [cost_of[one.systems[place]][name] / unit for place in places]
            if len(places) > 1:
                front = frontier([-cost if side == "≥" else cost for cost in x], one.figures[0, places].tolist())
                line = [(x[at], float(one.figures[0, places[at]])) for at in front]
                measure = one.measure if one.kind == SCIREPEVAL else label_of(one.measure)
                views[f"{one.name}, {measure}"] = [
                    *(Series(one.systems[place], [cost], *one.figures[:, [place]].tolist())
                      for place, cost in zip(places, x, strict=True)),
                    Series("Pareto front", *map(list, zip(*sorted(line), strict=True))),
                ]  # fmt: skip
        if views:
            yield Chart(f"Value against {head}", head, "%", views, log=True)


def frontier(cost: Sequence[float], value: Sequence[float]) -> list[int]:
    """Return the places that no other is at least as good as at no higher cost, by rising cost (the Pareto front)."""
    front, best = list[int](), -np.inf
    for place in sorted(range(len(cost)), key=lambda place: (cost[place], -value[place])):
        if value[place] > best:
            front.append(place)
            best = value[place]
    return front


def queries_of(found: Sequence[Benchmark], seed: int) -> Iterator[Browser]:
    """Yield the queries of the first sample of each benchmark whose corpus is there, for any two of its systems."""
    pools = {}
    for one in (one for one in found if len(one.runs)):
        place = pl.col("system").replace_strict({name: place for place, name in enumerate(one.systems)})
        runs = one.runs.filter(sample=one.runs["sample"].min()).sort(place)
        pools |= {
            one.name: block for block in browser(runs, one.scores, [one.measure], Draws(seed=seed), 0).pools.values()
        }
    if pools:
        yield Browser("Queries", pools, "Of each benchmark the first sample. Choose two systems to compare them.")


STUDY = Study("leaderboard", "every system on every benchmark, and which can be told apart", Recipe, no_tasks, results)
