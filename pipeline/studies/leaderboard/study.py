"""The study ``leaderboard``: all systems on all benchmarks, which differ significantly, and their costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.studies import kit
from pipeline.studies.clean import held_by
from pipeline.studies.leaderboard.benchmarks import Benchmark, Recipe, estimates, read_benchmarks
from pipeline.studies.leaderboard.costs import COSTS, Costs, costs, leak

_CLEAN = pl.Schema({
    "benchmark": pl.String, "system": pl.String, "clean": pl.Float64, "clean_low": pl.Float64, "clean_high": pl.Float64,
    "clean_queries": pl.Int64,
})  # fmt: skip
_COSTS: kit.Columns = {
    "parameters (M)": lambda row: None if row["parameters"] is None else f"{row['parameters'] / 1e6:,.4g}",
    "bytes per paper": "{bytes:,.4g}", "papers per second": "{papers_per_second:,.4g}", "licence": "{licence}",
}  # fmt: skip
RANK = "{rank:g} [{rank_low:g}, {rank_high:g}]"
_CHOOSERS = {"parameters (M)": "≤", "bytes per paper": "≤", "papers per second": "≥"} | dict.fromkeys(
    ("licence", "benchmark", "kind", "field", "candidates", "year"), "="
)
"""Comparison by which readers filter rows, by column."""


@kit.study("leaderboard", "every system on every benchmark, and which differ", Recipe)
def leaderboard(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return the standings with costs, all figures, and the queries."""
    yield ()
    benchmarks = read_benchmarks(workspace, recipe)
    cost_of = costs(workspace.root, benchmarks)
    return kit.Report(
        [*_standings(benchmarks, cost_of), _figures(benchmarks, cost_of, recipe)],
        sources=list(dict.fromkeys(benchmark.runs["corpus"][0] for benchmark in benchmarks)),
        parts=[*queries_of(benchmarks)],
        title=f"Leaderboard: citation recommendation, {datetime.now(UTC):%B %Y}",
    )


def _standings(benchmarks: Sequence[Benchmark], cost_of: Mapping[str, Costs]) -> Iterator[kit.Table]:
    """Yield the standings of each block of systems on benchmarks."""
    systems = list(cost_of)
    measured = np.array([[system in benchmark.names for system in systems] for benchmark in benchmarks])
    for number, (rows, columns) in enumerate(kit.coverage_blocks(measured), 1):
        of_block = [systems[column] for column in columns]
        found = kit.standings(np.stack([_ranks_among(of_block, benchmarks[row].systems) for row in rows]))
        suffix = "" if number == 1 else f"-{number}"
        order = np.argsort(found.mean_rank[0], kind="stable").tolist()
        names, chosen = [systems[columns[index]] for index in order], [benchmarks[row] for row in rows]
        of_ranks = {"rank": found.rank, "mean_rank": found.mean_rank, "borda": found.borda}
        columns_of = {
            f"{name}{end}": of[index]
            for name, of in of_ranks.items()
            for index, end in enumerate(("", "_low", "_high"))
        }
        frame = pl.DataFrame({"system": names, "benchmarks": [len(chosen)] * len(names)})
        frame = frame.with_columns(pl.Series(name, of[order]).fill_nan(None) for name, of in columns_of.items())
        frame = frame.hstack(pl.DataFrame([cost_of[system] for system in names], schema=COSTS).drop("system"))
        lacking = [benchmark.name for benchmark in benchmarks if benchmark not in chosen]
        yield _overall(f"overall{suffix}", frame, chosen, lacking)


def _ranks_among(names: Sequence[str], systems: pl.DataFrame) -> npt.NDArray[np.float64]:
    """Return the ranks of some systems of a benchmark among themselves, with their ends, float64 ``[3, systems]``."""
    of_names = pl.DataFrame({"system": names}).join(systems, on="system", maintain_order="left")
    apart = [
        [name != other and other not in similar for other in names]
        for name, similar in of_names.select("system", "similar").iter_rows()
    ]
    sign = kit.sign_of(of_names["measure"][0])
    return kit.ranks_with_ends(sign * of_names["value"].to_numpy(), np.array(apart))


def _overall(name: str, frame: pl.DataFrame, chosen: Sequence[Benchmark], lacking: Sequence[str]) -> kit.Table:
    """Return the standings of a block with costs."""
    systems, benchmarks = kit.counted(len(frame), "system"), kit.counted(len(chosen), "benchmark")
    notes = (
        f"{systems} on {benchmarks} that all of them have: {'; '.join(benchmark.name for benchmark in chosen)}."
        + (f" Not counted, as some lack them: {'; '.join(lacking)}. --benchmarks chooses." if lacking else ""),
        "Rank: systems by their mean rank over these benchmarks. Intervals of mean rank and Borda (percent of "
        "the other systems that it is above) are means of their ends. That of the rank holds the ranks that are "
        "possible among systems whose intervals of the mean rank overlap.",
        "Costs are sums over all parts of a system; –: one of them is unknown. Bytes: vectors or terms as they are "
        "stored. Papers per second: while they were made, whatever else ran; not tested.",
        *_bm25_note(chosen),
    )
    shown: kit.Columns = {
        "rank": RANK, "mean rank": "{mean_rank:.2f} [{mean_rank_low:.2f}, {mean_rank_high:.2f}]",
        "Borda": kit.figure("borda", "borda_low", "borda_high"),
        **_COSTS, "trained on": "{trained_on}",
    }  # fmt: skip
    return _chosen_by_readers(kit.table(name, f"{systems} on {benchmarks}", frame, "{system}", shown, notes))


def _bm25_note(benchmarks: Sequence[Benchmark]) -> Iterator[str]:
    """Yield where the row ``bm25`` is tuned and where it is not, if it is both."""
    places: dict[bool, list[str]] = {True: [], False: []}
    for benchmark in benchmarks:
        if "bm25" in benchmark.names:
            tuned = benchmark.runs.filter(pl.col("aliases").list.contains(kit.TUNED), system="bm25")
            places[len(tuned) > 0].append(benchmark.name)
    if all(places.values()):
        tuned_on, others = (", ".join(of) for of in places.values())
        yield f"The row bm25 is tuned on validation queries of {tuned_on}, and is {kit.UNTUNED} on {others}."


def _figures(benchmarks: Sequence[Benchmark], cost_of: Mapping[str, Costs], recipe: Recipe) -> kit.Table:
    """Return all figures with rank and group; each opens its provenance and command."""
    every = pl.concat(benchmark.systems for benchmark in benchmarks)
    leaks = [leak(cost_of[system], year) for system, year in every.select("system", "year").iter_rows()]
    every = every.with_columns(leak=pl.Series(leaks, dtype=pl.String))
    clean = pl.concat(
        [pl.DataFrame(schema=_CLEAN), *(_on_clean_queries(benchmark, recipe) for benchmark in benchmarks)]
    )
    every = every.join(clean, ["benchmark", "system"], "left", maintain_order="left")
    further, order = ["similar", "rankings", "drawn"], ["queries", "leak", "command"]
    frame = every.select(pl.all().exclude(*further, *order), *order)
    costs_of = pl.DataFrame([cost_of[system] for system in every["system"]], schema=COSTS).drop("system")
    best = (pl.col("rank") == pl.col("rank").min()).over("benchmark").alias("best")
    rows = frame.hstack(costs_of).with_columns(
        best, label=pl.col("measure").map_elements(kit.label_of, pl.String),
        candidates=pl.col("size").map_elements(kit.format_count, pl.String),
    )  # fmt: skip
    of_clean: kit.Columns = {
        "clean": kit.figure("clean", "clean_low", "clean_high"), "clean queries": "{clean_queries:,}",
    }  # fmt: skip
    shown: kit.Columns = {
        "benchmark": "{benchmark}", "measure": "{label}", "value": kit.figure(), "rank": RANK, "group": "{group}",
        "kind": "{kind}", "field": "{field}", "candidates": "{candidates}", "year": "{year}", **_COSTS,
        "leak": "{leak}", **(of_clean if recipe.training else {}),
    }  # fmt: skip
    runs = pl.concat(benchmark.runs for benchmark in benchmarks).unique("system", maintain_order=True)
    notes = (
        f"Percent [95% interval]; rank [{1 - recipe.alpha:.0%} interval, of all systems together]. A value opens its "
        "provenance and command. Systems of a benchmark that share a letter do not differ significantly: paired "
        f"permutation tests of all pairs, Holm's correction, p < {recipe.alpha:g}. The interval of a rank leaves out "
        "the places of significantly better and worse systems. Leak: training data with citations as late as the "
        "queries; –: unknown."
        + " Clean: the value over queries of drawn pools that are in no training data given."
        * bool(recipe.training),
        *filter(None, [kit.cut_note(runs)]),
    )
    made = _chosen_by_readers(kit.table("benchmarks", "Every benchmark", frame, "{system}", shown, notes, rows=rows))
    return replace(made, records=every.rename({"system": "label"}).with_columns(system="label").to_dicts())


def _on_clean_queries(benchmark: Benchmark, recipe: Recipe) -> pl.DataFrame:
    """Return the value of each system over the queries of a pool that are in no training data (:data:`_CLEAN`)."""
    if not recipe.training or benchmark.facts["kind"] != "pools":
        return pl.DataFrame(schema=_CLEAN)
    pool = kit.open_rankings(benchmark.runs.head(1)).pool
    papers = pool.query_papers[0]
    held = held_by(pool.corpus, np.unique(papers[papers >= 0]), recipe.training, recipe.contained)
    clean = np.flatnonzero(~np.isin(papers, held.filter("seen")["paper"]))
    scores, seed = benchmark.scores.filter(pl.col("query").is_in(clean)), kit.PROTOCOL.seed_of(benchmark.scores)
    found = estimates(scores, benchmark.facts["field"] or "", seed)
    return found.select(
        pl.lit(benchmark.name).alias("benchmark"), "system", clean="value", clean_low="low", clean_high="high",
        clean_queries=pl.lit(len(clean), pl.Int64),
    )  # fmt: skip


def _chosen_by_readers(table: kit.Table) -> kit.Table:
    columns = tuple(replace(column, choose=_CHOOSERS.get(column.label, "")) for column in table.columns)
    return replace(table, columns=columns)


def queries_of(benchmarks: Sequence[Benchmark], only: Sequence[str] = ()) -> Iterator[kit.Browser]:
    """Yield a browser of the queries in the first sample of each benchmark, to compare any two."""
    pools = dict[str, str]()
    for benchmark in benchmarks:
        names = [name for name in benchmark.names if not only or name in only]
        runs, scores = (frame.filter(pl.col("system").is_in(names)) for frame in (benchmark.runs, benchmark.scores))
        runs = runs.filter(sample=benchmark.runs["sample"].min()).sort(pl.col("system").cast(pl.Enum(names)))
        queries = kit.browser(runs, scores, [benchmark.facts["measure"]], top=0)
        pools |= zip([benchmark.name], queries.pools.values(), strict=False)
    if pools:
        yield kit.Browser("Queries", pools, "Of each benchmark the first sample. Choose two systems to compare them.")
