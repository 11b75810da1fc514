"""The study ``card``: where one encoder is strong and weak against BM25."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.api import Workspace
from pipeline.core.config import counted
from pipeline.core.errors import InputError, nearest
from pipeline.core.schema import NO_YEAR
from pipeline.core.settings import required
from pipeline.encode import names
from pipeline.encode.known import known_models
from pipeline.measure.design import Design, Draws, corrected, estimate
from pipeline.measure.estimates import POWER, share_of_clusters, tall
from pipeline.measure.inputs import query_of
from pipeline.scores.choose import is_called
from pipeline.scores.compare import most_different
from pipeline.scores.facts import artifact_of
from pipeline.scores.render import render_table
from pipeline.scores.store import open_pool, open_rankings, readable_runs
from pipeline.scores.tables import Table, cell, frame_table, grid, points
from pipeline.stages.titles import UNTUNED, fused_names
from pipeline.studies.base import StudyResult, no_tasks, old_study
from pipeline.studies.common import BRACKETS
from pipeline.studies.leaderboard import study
from pipeline.studies.leaderboard.benchmarks import Benchmark, read_benchmarks
from pipeline.studies.leaderboard.benchmarks import Recipe as LeaderboardRecipe
from pipeline.studies.leaderboard.costs import costs, leak

_HIT = 30
"""Rank cutoff: cited papers at these ranks count as found."""
_EXAMPLES = 5
_UNKNOWN = 3
"""In place of a third: papers whose age is unknown."""


@dataclass(frozen=True, kw_only=True)
class Recipe(LeaderboardRecipe):
    """Settings of the study: those of the leaderboard, and the encoder."""

    model: str = required("the encoder")


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return comparisons of the encoder with BM25 and of its fusions with their parts, examples, and costs."""
    all_benchmarks, roots = read_benchmarks(workspace, recipe)
    model = _scored_as(recipe.model, all_benchmarks)
    benchmarks = [benchmark for benchmark in all_benchmarks if model in benchmark.systems]
    if not benchmarks:
        scored = sorted({name for benchmark in all_benchmarks for name in benchmark.systems})
        raise InputError(f"{model} must be scored together with another system", nearest(model, scored))
    cost = costs(roots, benchmarks)[model]
    differences = _differences(benchmarks, model, cost, recipe)
    tables = [differences, *_on_largest(benchmarks, model), _facts(model, cost)]
    sections = [f"# {model}", *(render_table(table, "markdown") for table in tables)]
    return StudyResult(
        tables,
        files={"README.md": "\n\n".join(sections)},
        parts=list(study.queries_of(benchmarks, recipe.seed, (model, "bm25", UNTUNED))),
        best=f"{model}: on {counted(len(benchmarks), 'benchmark')}",
    )


def _scored_as(name: str, benchmarks: Sequence[Benchmark]) -> str:
    """Return the name in tables of a system, which has further names."""
    rows = [run for benchmark in benchmarks if benchmark.runs is not None for run in benchmark.runs.rows(named=True)]
    return next((run["system"] for run in rows if name != run["system"] and is_called(run, name)), name)


def _bm25(benchmark: Benchmark) -> str | None:
    return next((name for name in ("bm25", UNTUNED) if name in benchmark.systems), None)


def _query_groups(benchmark: Benchmark) -> Iterator[tuple[str, Any]]:
    """Yield (name, mask of queries) of a benchmark and then of each of its classes of neighbours, if any."""
    yield benchmark.name, np.ones(benchmark.values.shape[1], bool)
    if benchmark.kind == "neighbours" and benchmark.runs is not None and benchmark.scores is not None:
        classes = (
            artifact_of(benchmark.runs.row(0, named=True), "pool").arrow("queries.arrow").column("field").to_pylist()
        )
        class_of_query = np.array(classes)[benchmark.scores["query"].unique().sort()]
        yield from ((f"{benchmark.name}, {name}", class_of_query == name) for name in dict.fromkeys(classes))


_ENDS = ("difference", "difference_low", "difference_high")


def _pairs(benchmark: Benchmark, model: str) -> Iterator[tuple[str, str | None]]:
    """Yield the encoder with BM25, and each of its fusions with the best of its parts."""
    yield model, _bm25(benchmark)
    for name in benchmark.systems:
        parts = fused_names(name)
        if model in parts and {*parts} <= {*benchmark.systems}:
            yield name, min(parts, key=benchmark.systems.index)


def _difference(
    benchmark: Benchmark, pair: tuple[str, str], name: str, queries: npt.NDArray[np.bool_], tests: int
) -> dict[str, Any]:
    """Return the estimate of a system against another on some queries, in a family of so many ``tests``."""
    both = benchmark.values[[benchmark.systems.index(system) for system in pair]][:, queries]
    item, units = benchmark.item if name == benchmark.name else name, pl.Series(benchmark.units).filter(queries)
    values = tall({item: both}, pl.DataFrame({"side": ["first", "second"]}))
    values = values.with_columns(unit=units.gather(values["item"]), measure=pl.lit(benchmark.measure))
    design = Design(row=("side",), item="item", group="group", unit="unit")
    draws = Draws(resamples=benchmark.resamples, tests=tests)
    test: dict[str, Any] = estimate(values, design, benchmark.seed, ("second",), draws).row(0, named=True)
    return test


def _differences(benchmarks: Sequence[Benchmark], model: str, cost: Mapping[str, Any], recipe: Recipe) -> Table:
    """Return the differences, by benchmark and class, of the encoder to BM25 and of its fusions to their best part."""
    compared = [
        (benchmark, *pair, *group)
        for benchmark in benchmarks
        for pair, group in itertools.product(_pairs(benchmark, model), list(_query_groups(benchmark)))
    ]
    tests, rows = sum(second is not None for _, _, second, *_ in compared), []
    for benchmark, first, second, name, queries in compared:
        index = benchmark.systems.index(first)
        value, (rank, low, high) = benchmark.values[index, queries].mean(), benchmark.ranks(recipe.alpha)[:, index]
        row = {"benchmark": name, "system": first, "measure": benchmark.label, "value": 100 * float(value)}
        if name == benchmark.name:
            row["value"] = 100 * float(benchmark.figures[0, index])
            row["rank"] = f"{rank:g} [{low:g}, {high:g}] of {len(benchmark.systems)}"
        if second is not None:
            test = _difference(benchmark, (first, second), name, queries, tests)
            row |= {"less": second, "difference": points(test[end] for end in _ENDS), "p": test["p"]}
            row |= {"wins, ties, losses": f"{test['wins']}, {test['ties']}, {test['losses']}"}
            row["detectable"] = None if test["detectable"] is None else 100 * test["detectable"]
        rows.append(row | {"leak": leak(cost, benchmark.year)})
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if "p" in frame.columns:
        frame = corrected(frame.sort(pl.col("p").is_null(), maintain_order=True))
        frame = frame.with_columns(p="p_adjusted").drop("p_adjusted")
    notes = (
        "Values in percent, differences in points [95% interval]. p: paired permutation test, Holm's correction over "
        "the table. Rank [interval, of all systems together]. A fusion is less its part that is best on the benchmark. "
        f"detectable: smallest true difference they reveal with power {POWER:g} at the corrected level.",
    )
    shown = frame.with_columns(pl.selectors.by_name("p", require_all=False).map_elements("{:.4f}".format, pl.String))
    return frame_table("differences", f"{model} against BM25, and its fusions", frame, notes, shown=shown)


def _on_largest(benchmarks: Sequence[Benchmark], model: str) -> Iterator[Table]:
    """Yield recall by length and age of cited papers, and example queries, on the largest drawn pool of BM25."""
    usable = [benchmark for benchmark in benchmarks if benchmark.kind == "pools" and _bm25(benchmark)]
    benchmark = max(usable, key=lambda benchmark: benchmark.size or 0, default=None)
    if benchmark is None or benchmark.runs is None or benchmark.scores is None:
        return
    runs = benchmark.runs.filter(sample=benchmark.runs["sample"].min()).with_columns(label="system")
    pool = open_pool(runs.row(0, named=True))
    if pool is None:
        return
    systems = [str(_bm25(benchmark)), model]
    ranked = readable_runs(runs.filter(pl.col("system").is_in(systems)))
    if len(ranked) < len(systems):
        return
    rankings = open_rankings(ranked, pool)
    query, row = query_of(rankings.qrels.offsets), rankings.qrels.rows
    attributes = pool.corpus.attributes
    year, characters = attributes["year"].astype(np.int64), attributes["abstract_chars"].astype(np.int64)
    citing = year[pool.query_rows[query]] if pool.queries_are_papers else np.full(len(row), NO_YEAR)
    dated = (year[row] != NO_YEAR) & (citing != NO_YEAR)
    facts = {"characters": (characters[row], np.ones(len(row), bool)), "years": (citing - year[row], dated)}
    cells = {}
    for unit, (numbers, known) in facts.items():
        ends = np.quantile(numbers[known], [1 / 3, 2 / 3]) if known.any() else [0, 0]
        thirds = np.where(known, np.searchsorted(ends, numbers), _UNKNOWN)
        for system, index in ((system, index) for index in np.unique(thirds) for system in systems):
            mask = thirds == index
            ranks = rankings.ranks[system][mask]
            span = (
                "without a year" if index == _UNKNOWN else f"{numbers[mask].min():,} to {numbers[mask].max():,} {unit}"
            )
            label = f"{span} ({mask.sum():,})"
            share = share_of_clusters((ranks > 0) & (ranks <= _HIT), query[mask])
            cells[label, system] = cell(*share)
    note = f"Percent of cited papers in the first {_HIT}, by thirds of abstract length and age (number of papers)."
    yield grid("positives", f"By cited papers: {benchmark.name}", "cited papers", cells, [note, BRACKETS])
    scores = benchmark.scores.with_columns(label="system").filter(
        pl.col("pool") == runs["pool"][0], pl.col("system").is_in(systems)
    )
    queries = most_different(scores, runs, systems, benchmark.measure, len(pool.query_rows))
    gain = (pl.col("second") - pl.col("first")) * benchmark.sign
    order = queries.sort(gain, descending=True).with_columns(pl.col("first", "second") * 100)
    frame = pl.concat([order.head(_EXAMPLES), order.tail(_EXAMPLES)]).unique("query_id", maintain_order=True)
    frame = frame.select(
        pl.col("title").str.replace("^(.{60}).+", "$1…"),
        pl.col("query_id").alias("query"),
        pl.col("second").alias(model),
        pl.col("first").alias(systems[0]),
    )
    title = f"Queries it wins and loses most: {benchmark.name}"
    yield frame_table("examples", title, frame, [f"{benchmark.label} in percent."])


def _facts(model: str, cost: Mapping[str, Any]) -> Table:
    """Return a table of the encoder's registry entry and costs."""
    entry = next((entry for entry in known_models() if entry.name == names.parse(model)[0].base), None)
    facts = {**({} if entry is None else {"weights": entry.source, "revision": entry.revision, **entry.recipe}), **cost}
    rows = [
        (
            name.replace("_", " "),
            f"{value:,.{0 if value > 1_000 or value.is_integer() else 2}f}" if isinstance(value, float) else str(value),
        )
        for name, value in facts.items()
        if value not in (None, "") and name != "training"
    ]
    frame = pl.DataFrame(rows, ["fact", "value"], orient="row")
    return frame_table("facts", "Recipe and cost", frame, ["Bytes and tokens are per paper."])


STUDY = old_study("card", "one encoder against BM25, on every benchmark", Recipe, no_tasks, results)
