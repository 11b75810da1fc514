"""The study ``leaderboard``: all systems on all benchmarks, which differ significantly, and their costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.config import counted, format_count
from pipeline.measure.design import Draws
from pipeline.measure.ranks import Standings, coverage_blocks, letters, standings
from pipeline.scores.page.browse import browser
from pipeline.scores.page.parts import Browser, Chart, Series
from pipeline.scores.sources import cut_note
from pipeline.scores.tables import Cell, Column, Table, TableRow, Value, frame_table
from pipeline.stages.systems import DEFAULT_B, DEFAULT_K1, TUNED
from pipeline.studies.base import StudyResult, no_tasks, old_study
from pipeline.studies.leaderboard.benchmarks import Benchmark, Recipe, read_benchmarks
from pipeline.studies.leaderboard.costs import COSTS, Costs, costs, leak

_LIMITS = {
    "parameters": ("parameters (M)", 1e6, "≤"),
    "bytes": ("bytes per paper", 1, "≤"),
    "papers_per_second": ("papers per second", 1, "≥"),
}
"""Costs that readers can filter by: heading, unit, and whether values up to or from a limit are kept."""

_FACTS = {"licence": "licence"}
_MORE = {"dimension": "dimension", "tokens": "tokens per paper", "machine": "machine", "trained_on": "trained on"}
_COSTS = (*(head for head, _, _ in _LIMITS.values()), *_FACTS.values())
_OF_BENCHMARK = ("kind", "field", "candidates", "year")
_CHOOSERS = {head: side for head, _, side in _LIMITS.values()} | dict.fromkeys(
    (*_FACTS.values(), "benchmark", *_OF_BENCHMARK), "="
)
"""Comparison by which readers filter rows, by column."""

_FIGURES = ("value", "low", "high", "rank", "rank_low", "rank_high")


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the standings with costs, all figures, and the ranks with each benchmark left out."""
    benchmarks, roots = read_benchmarks(workspace, recipe)
    cost_of = costs(roots, benchmarks)
    overall, without = zip(*_standings(benchmarks, cost_of, recipe.alpha), strict=True)
    best = overall[0].frame.row(0, named=True)
    corpora = (benchmark.runs["corpus"][0] for benchmark in benchmarks if benchmark.runs is not None)
    return StudyResult(
        [*overall, _figures(benchmarks, cost_of, recipe), *filter(None, without)],
        sources=list(dict.fromkeys(corpora)),
        parts=[*cost_charts(benchmarks, cost_of), *queries_of(benchmarks, recipe.seed)],
        best=f"{best['system']}: mean rank {best['mean_rank']:.1f} over {counted(best['benchmarks'], 'benchmark')}",
        tables_first=True,
    )


def _standings(
    benchmarks: Sequence[Benchmark], cost_of: Mapping[str, Costs], alpha: float
) -> Iterator[tuple[Table, Table | None]]:
    """Yield the standings of each block of systems on benchmarks, and their ranks with each benchmark left out."""
    systems = list(cost_of)
    ranked = np.full((len(benchmarks), 3, len(systems)), np.nan)
    for ranks_of, benchmark in zip(ranked, benchmarks, strict=True):
        ranks_of[:, [systems.index(name) for name in benchmark.systems]] = benchmark.ranks(alpha)
    for number, (rows, columns) in enumerate(coverage_blocks(~np.isnan(ranked[:, 0])), 1):
        chosen, names = [benchmarks[row] for row in rows], [systems[column] for column in columns]
        lacking = [benchmark.name for benchmark in benchmarks if benchmark not in chosen]
        suffix = "" if number == 1 else f"-{number}"
        found = standings(ranked[np.ix_(rows, range(3), columns)])
        order = np.argsort(found.mean_rank[0], kind="stable").tolist()
        yield (
            _overall(f"overall{suffix}", found, chosen, [names[index] for index in order], order, cost_of, lacking),
            _without(f"without{suffix}", found, chosen, names, order) if len(chosen) > 1 else None,
        )


def _overall(
    name: str, found: Standings, chosen: Sequence[Benchmark], names: Sequence[str], order: Sequence[int],
    cost_of: Mapping[str, Costs], lacking: Sequence[str],
) -> Table:  # fmt: skip
    """Return the standings of a block with costs."""
    figures = {
        f"{figure}{end}": getattr(found, figure)[index][order]
        for figure in ("rank", "mean_rank", "borda")
        for index, end in enumerate(("", "_low", "_high"))
    }
    without = {"without_least": found.without.min(axis=0)[order], "without_most": found.without.max(axis=0)[order]}
    frame = pl.DataFrame({"system": names, "benchmarks": [len(chosen)] * len(names), **figures, **without})
    of_costs = pl.DataFrame([{key: cost_of[system][key] for key in COSTS} for system in names], schema=COSTS)
    frame, lines = frame.hstack(of_costs.drop("system")).with_columns(pl.selectors.float().fill_nan(None)), []
    for row in frame.iter_rows(named=True):
        cells: tuple[Value, ...] = (
            _rank(row, "rank", "g"), _rank(row, "mean_rank", ".2f"),
            Cell(row["borda"], row["borda_low"], row["borda_high"]),
            "{without_least:g} to {without_most:g}".format(**row) if len(chosen) > 1 else None,
            *_limits(row), *_texts(row, _FACTS | _MORE),
        )  # fmt: skip
        lines.append(TableRow(row["system"], cells))
    heads = ("rank", "mean rank", "Borda", "rank, one benchmark left out", *_COSTS, *_MORE.values())
    notes = (
        f"{counted(len(names), 'system')} on {counted(len(chosen), 'benchmark')} that all of them have: "
        f"{'; '.join(benchmark.name for benchmark in chosen)}."
        + (f" Not counted, as some lack them: {'; '.join(lacking)}. --benchmarks chooses." if lacking else ""),
        "Rank: systems by their mean rank over these benchmarks. One benchmark left out: the least and the greatest "
        "rank on the others. Intervals of mean rank and Borda (percent of the other systems that it is above) go from "
        "the mean of the lower ends to that of the upper ends. The interval of the rank holds the ranks that are "
        "possible among systems whose intervals of the mean rank overlap.",
        "Costs are sums over all parts of a system, of which a mean of encoders is one; –: one of them is unknown. "
        "Papers per second: while vectors or terms were made or pairs were reranked, whatever else ran; not tested. "
        "Bytes: vectors as they are compared, or terms.",
        *_bm25_note(chosen),
    )
    title = f"Leaderboard: {len(names)} systems, {counted(len(chosen), 'benchmark')}"
    return _table(name, title, heads, lines, notes, frame)


def _without(
    name: str, found: Standings, chosen: Sequence[Benchmark], names: Sequence[str], order: Sequence[int]
) -> Table:
    ranks = {names[index]: found.without[:, index] for index in order}
    frame = pl.DataFrame({"left out": [benchmark.name for benchmark in chosen], **ranks})
    return frame_table(name, "Ranks without one benchmark", frame)


def _bm25_note(benchmarks: Sequence[Benchmark]) -> Iterator[str]:
    """Yield where the row ``bm25`` is tuned and where it is not, if it is both."""
    tuned, others = list[str](), list[str]()
    for benchmark in benchmarks:
        if benchmark.runs is not None and "bm25" in benchmark.systems:
            is_tuned = benchmark.runs.filter(pl.col("aliases").list.contains(TUNED), system="bm25")
            (others if is_tuned.is_empty() else tuned).append(benchmark.name)
    if tuned and others:
        untuned = f"k1={DEFAULT_K1:g}, b={DEFAULT_B:g}"
        places = [", ".join(of) for of in (tuned, others)]
        yield f"The row bm25 is tuned on validation queries of {places[0]}, and has {untuned} on {places[1]}."


def _figures(benchmarks: Sequence[Benchmark], cost_of: Mapping[str, Costs], recipe: Recipe) -> Table:
    """Return all figures with rank and group; each links to its provenance."""
    rows, lines, records = [], [], []
    runs = [benchmark.runs.with_columns(label="system") for benchmark in benchmarks if benchmark.runs is not None]
    for benchmark in benchmarks:
        groups, ranked = letters(benchmark.p_values < recipe.alpha), benchmark.ranks(recipe.alpha)
        shared = {name: getattr(benchmark, name) for name in ("kind", "field", "size", "year", "measure")}
        size = None if benchmark.size is None else format_count(benchmark.size)
        texts = (benchmark.kind, benchmark.field, size, None if benchmark.year is None else str(benchmark.year))
        for index, system in enumerate(benchmark.systems):
            cost, figures = cost_of[system], (*benchmark.figures[:, index], *ranked[:, index])
            row = {
                "system": system, "kind": benchmark.kind, "benchmark": benchmark.name, **shared,
                **{name: None if np.isnan(of) else float(of) for name, of in zip(_FIGURES, figures, strict=True)},
                "group": groups[index],
                "queries": benchmark.values.shape[1], "leak": leak(cost, benchmark.year),
                "command": benchmark.commands[index],
            }  # fmt: skip
            figure = Cell(row["value"], row["low"], row["high"], best=row["rank"] == float(ranked[0].min()))
            cells = (benchmark.name, benchmark.label, figure, _rank(row, "rank", "g"), groups[index], *texts)
            lines.append(TableRow(system, (*cells, *_limits(cost), *_texts(cost, _FACTS), row["leak"])))
            rows.append(row)
            comparisons = zip(benchmark.systems, benchmark.p_values[index] >= recipe.alpha, strict=True)
            records.append({"label": system} | row | {
                "similar": [name for name, is_similar in comparisons if is_similar and name != system],
                "rankings": benchmark.sources[index],
                "drawn": f"{benchmark.resamples:,} resamples of queries, seed {benchmark.seed}",
            })  # fmt: skip
    heads = ("benchmark", "measure", "value", "rank", "group", *_OF_BENCHMARK, *_COSTS, "leak")
    notes = (
        f"Percent [95% interval]; rank [{1 - recipe.alpha:.0%} interval, of all systems together]. A value opens its "
        "provenance and command. Systems of a benchmark that share a letter do not differ significantly: paired "
        f"permutation tests of all pairs, Holm's correction, p < {recipe.alpha:g}. The interval of a rank leaves out "
        "the places of significantly better and worse systems. Leak: training data with citations as late as the "
        "queries; –: unknown.",
        *filter(None, [cut_note(pl.concat(runs).unique("system", maintain_order=True)) if runs else ""]),
    )
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return replace(_table("benchmarks", "Every benchmark", heads, lines, notes, frame), records=records)


def _table(
    name: str, title: str, heads: Sequence[str], lines: Sequence[TableRow], notes: Sequence[str], frame: pl.DataFrame
) -> Table:
    columns = tuple(Column("", head, choose=_CHOOSERS.get(head, "")) for head in heads)
    return Table(title, "system", columns, tuple(lines), tuple(notes), name, frame)


def _rank(row: Mapping[str, Any], name: str, form: str) -> str:
    return f"{row[name]:{form}} [{row[f'{name}_low']:{form}}, {row[f'{name}_high']:{form}}]"


def _limits(cost: Mapping[str, Any]) -> list[str | None]:
    return [None if cost[name] is None else f"{cost[name] / unit:,.4g}" for name, (_, unit, _) in _LIMITS.items()]


def _texts(cost: Mapping[str, Any], names: Mapping[str, str]) -> list[str | None]:
    values = (cost[name] for name in names)
    return [None if value is None else f"{value:,.0f}" if isinstance(value, float) else str(value) for value in values]


def cost_charts(benchmarks: Sequence[Benchmark], cost_of: Mapping[str, Costs]) -> Iterator[Chart]:
    """Yield a chart of value against each cost, a view per benchmark, with the Pareto front."""
    for name, (head, unit, side) in _LIMITS.items():
        views = {}
        for benchmark in benchmarks:
            costs_of = [cost_of[system][name] for system in benchmark.systems]
            priced = [index for index, cost in enumerate(costs_of) if cost]
            cost_at = {index: costs_of[index] / unit for index in priced}
            worth, front = benchmark.sign * benchmark.figures[0], list[int]()
            for index in sorted(priced, key=lambda index: (cost_at[index] * (-1 if side == "≥" else 1), index)):
                if not front or worth[index] > worth[front[-1]]:
                    front.append(index)
            if len(priced) > 1:
                curve = [(cost_at[index], float(benchmark.figures[0, index])) for index in front]
                views[f"{benchmark.name}, {benchmark.label}"] = [
                    *(Series(benchmark.systems[i], [cost_at[i]], *benchmark.figures[:, [i]].tolist()) for i in priced),
                    Series("Pareto front", [], [], curve=curve),
                ]
        if views:
            yield Chart(f"Value against {head}", head, "%", views, log=True)


def queries_of(benchmarks: Sequence[Benchmark], seed: int, only: Sequence[str] = ()) -> Iterator[Browser]:
    """Yield a browser of the queries in the first sample of each benchmark, to compare any two systems."""
    pools = dict[str, str]()
    for benchmark in benchmarks:
        if benchmark.runs is not None and benchmark.scores is not None:
            names = [name for name in benchmark.systems if not only or name in only]
            order = pl.col("system").replace_strict({name: index for index, name in enumerate(names)}, default=None)
            runs, scores = (frame.filter(pl.col("system").is_in(names)) for frame in (benchmark.runs, benchmark.scores))
            runs = runs.filter(sample=benchmark.runs["sample"].min()).sort(order)
            queries = browser(runs, scores, [benchmark.measure], Draws(seed=seed), top=0)
            pools |= zip([benchmark.name], queries.pools.values(), strict=False)
    if pools:
        yield Browser("Queries", pools, "Of each benchmark the first sample. Choose two systems to compare them.")


STUDY = old_study("leaderboard", "every system on every benchmark, and which differ", Recipe, no_tasks, results)
