"""The study ``card``: where one encoder is strong and weak against BM25."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline.studies import kit
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

    model: str = kit.required("the encoder")


@kit.study("card", "one encoder against BM25, on every benchmark", Recipe)
def card(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return comparisons of the encoder with BM25 and of its fusions with their parts, examples, and costs."""
    yield ()
    all_benchmarks, roots = read_benchmarks(workspace, recipe)
    called = pl.col("aliases").list.contains(recipe.model) & (pl.col("system") != recipe.model)
    runs = [benchmark.runs for benchmark in all_benchmarks if benchmark.runs is not None]
    model = next((name for of in runs for name in of.filter(called)["system"]), recipe.model)
    benchmarks = [benchmark for benchmark in all_benchmarks if model in benchmark.names]
    if not benchmarks:
        scored = sorted({name for benchmark in all_benchmarks for name in benchmark.names})
        raise kit.InputError(f"{model} must be scored together with another system", kit.nearest(model, scored))
    cost = costs(roots, benchmarks)[model]
    tables = [_differences(benchmarks, model, cost), *_on_largest(benchmarks, model), _facts(model, cost)]
    return kit.Report(
        tables,
        files={"README.md": "\n\n".join([f"# {model}", *(kit.render_table(table, "markdown") for table in tables)])},
        parts=list(study.queries_of(benchmarks, (model, "bm25", kit.UNTUNED))),
        title=f"{model} against BM25, on {kit.counted(len(benchmarks), 'benchmark')}",
    )


def _bm25(benchmark: Benchmark) -> str | None:
    return next((name for name in ("bm25", kit.UNTUNED) if name in benchmark.names), None)


def _pairs(benchmark: Benchmark, model: str) -> Iterator[tuple[str, str | None]]:
    """Yield the encoder with BM25, unless it is BM25, and each of its fusions with the best of its parts."""
    bm25 = _bm25(benchmark)
    yield model, None if bm25 == model else bm25
    for name in benchmark.names:
        parts = kit.fused_names(name)
        if model in parts and {*parts} <= {*benchmark.names}:
            yield name, min(parts, key=benchmark.names.index)


def _differences(benchmarks: Sequence[Benchmark], model: str, cost: Mapping[str, Any]) -> kit.Table:
    """Return the differences, by benchmark and class, of the encoder to BM25 and of its fusions to their best part."""
    compared = [
        (benchmark, *pair, of_class)
        for benchmark in benchmarks
        for pair, of_class in itertools.product(
            _pairs(benchmark, model), [None, *benchmark.values["class"].drop_nulls().unique(maintain_order=True)]
        )
    ]
    tests, rows = sum(second is not None for _, _, second, _ in compared), []
    for benchmark, first, second, of_class in compared:
        values = benchmark.values if of_class is None else benchmark.values.filter(pl.col("class") == of_class)
        name = benchmark.name if of_class is None else f"{benchmark.name}, {of_class}"
        values = values.with_columns(group=pl.lit(benchmark.group if of_class is None else name))
        of_first = pl.col("system") == first
        design = kit.Design(row=("system",), item="item", group="group", unit="unit", over="sample")
        draws = kit.Draws(resamples=benchmark.draws.resamples, tests=tests)
        both = values.filter(pl.col("system").is_in([first, second]))
        estimates = kit.estimate(both, design, benchmark.seed, None if second is None else (second,), draws)
        found = estimates.row(by_predicate=of_first, named=True)
        row: dict[str, Any] = {"benchmark": name, "system": first, "measure": kit.label_of(benchmark.facts["measure"])}
        row["value"] = 100 * found["value"]
        if of_class is None:
            rank = benchmark.systems.row(by_predicate=of_first, named=True)
            row["rank"] = f"{study.RANK.format_map(rank)} of {len(benchmark.names)}"
        if second is not None:
            difference = kit.points("difference", "difference_low", "difference_high")
            row |= {"minus": second, "difference": difference(found), "p": found["p"]}
            row |= {"wins, ties, losses": "{wins}, {ties}, {losses}".format_map(found)}
            row["detectable"] = None if found["detectable"] is None else 100 * found["detectable"]
        rows.append(row | {"leak": leak(cost, benchmark.facts["year"])})
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if "p" in frame.columns:
        frame = kit.corrected(frame.sort(pl.col("p").is_null(), maintain_order=True))
        frame = frame.with_columns(p="p_adjusted").drop("p_adjusted")
    notes = (
        "Values in percent, differences in points [95% interval]. p: paired permutation test, Holm's correction over "
        "the table. Rank [interval, of all systems together]. A fusion is compared with its best part there. "
        f"detectable: smallest true difference they reveal with power {kit.POWER:g} at the corrected level.",
    )
    shown = frame.with_columns(pl.selectors.by_name("p", require_all=False).map_elements("{:.4f}".format, pl.String))
    title = f"{model} against BM25, and its fusions"
    return kit.table("differences", title, frame, "{benchmark}", None, notes, rows=shown)


def _on_largest(benchmarks: Sequence[Benchmark], model: str) -> Iterator[kit.Table]:
    """Yield recall by length and age of cited papers, and example queries, on the largest drawn pool of BM25."""
    usable = [benchmark for benchmark in benchmarks if benchmark.facts["kind"] == "pools" and _bm25(benchmark)]
    benchmark = max(usable, key=lambda benchmark: benchmark.facts["size"] or 0, default=None)
    if benchmark is None or benchmark.runs is None or benchmark.scores is None:
        return
    runs, systems = benchmark.runs.filter(sample=benchmark.runs["sample"].min()), [str(_bm25(benchmark)), model]
    pool = kit.open_pool(runs.row(0, named=True))
    ranked = kit.readable_runs(runs.filter(pl.col("system").is_in(systems)))
    if pool is None or len(ranked) < len(systems):
        return
    yield _by_cited_papers(benchmark.name, kit.open_rankings(ranked, pool), systems)
    scores = benchmark.scores.filter(pl.col("pool") == runs["pool"][0], pl.col("system").is_in(systems))
    measure = benchmark.facts["measure"]
    queries = kit.most_different(scores, runs, systems, measure, len(pool.query_rows))
    gain = (pl.col("second") - pl.col("first")) * kit.sign_of(measure)
    order = queries.sort(gain, descending=True).with_columns(pl.col("first", "second") * 100)
    frame = pl.concat([order.head(_EXAMPLES), order.tail(_EXAMPLES)]).unique("query_id", maintain_order=True)
    title = pl.col("title").str.replace("^(.{60}).+", "$1…")
    frame = frame.select(title, query="query_id", **{model: "second", systems[0]: "first"})
    heading, notes = f"Queries it wins and loses most: {benchmark.name}", [f"{kit.label_of(measure)} in percent."]
    yield kit.table("examples", heading, frame, "{title}", None, notes)


def _by_cited_papers(name: str, rankings: kit.Rankings, systems: Sequence[str]) -> kit.Table:
    """Return recall by thirds of the length of abstracts and of the age of cited papers."""
    pool, query, row = rankings.pool, kit.query_of(rankings.qrels.offsets), rankings.qrels.rows
    attributes = pool.corpus.attributes
    year, characters = attributes["year"].astype(np.int64), attributes["abstract_chars"].astype(np.int64)
    citing = year[pool.query_rows[query]] if pool.queries_are_papers else np.full(len(row), kit.NO_YEAR)
    dated = (year[row] != kit.NO_YEAR) & (citing != kit.NO_YEAR)
    facts = {"characters": (characters[row], np.ones(len(row), bool)), "years": (citing - year[row], dated)}
    rows = []
    for unit, (numbers, known) in facts.items():
        ends = np.quantile(numbers[known], [1 / 3, 2 / 3]) if known.any() else [0, 0]
        thirds = np.where(known, np.searchsorted(ends, numbers), _UNKNOWN)
        for index, system in itertools.product(np.unique(thirds), systems):
            mask = thirds == index
            ranks = rankings.ranks[system][mask]
            span = f"{numbers[mask].min():,} to {numbers[mask].max():,} {unit}"
            label = f"{'without a year' if index == _UNKNOWN else span} ({mask.sum():,})"
            rows.append((label, system, *kit.share_of_clusters((ranks > 0) & (ranks <= _HIT), query[mask])))
    note = f"Percent of cited papers in the first {_HIT}, by thirds of abstract length and age (number of papers)."
    frame = pl.DataFrame(rows, ["cited papers", "column", "value", "low", "high"], orient="row").fill_nan(None)
    title, notes = f"By cited papers: {name}", [note, "Brackets: 95% interval."]
    return kit.table("positives", title, frame, "{cited papers}", kit.figure(), notes, across="{column}")


def _facts(model: str, cost: Mapping[str, Any]) -> kit.Table:
    """Return a table of the encoder's registry entry and costs."""
    base = kit.parse_one(model).base
    entry = next((entry for entry in kit.known_models() if entry.name == base), None)
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
    return kit.table("facts", "Recipe and cost", frame, "{fact}", None, ["Bytes and tokens are per paper."])
