"""The study ``card``: where one encoder is strong and weak against BM25."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from pipeline.studies import kit
from pipeline.studies.leaderboard import study
from pipeline.studies.leaderboard.benchmarks import Benchmark, read_benchmarks
from pipeline.studies.leaderboard.benchmarks import Recipe as LeaderboardRecipe
from pipeline.studies.leaderboard.costs import costs, leak


@dataclass(frozen=True, kw_only=True)
class Recipe(LeaderboardRecipe):
    """Settings of the study: those of the leaderboard, and the encoder."""

    model: str = kit.required("the encoder")


@kit.study("card", "one encoder against BM25, on every benchmark", Recipe)
def card(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return comparisons of the encoder with BM25 and of its fusions with their parts, its recipe and its costs."""
    yield ()
    every = read_benchmarks(workspace, recipe)
    called = pl.col("aliases").list.contains(recipe.model) & (pl.col("system") != recipe.model)
    model = next((name for of in every for name in of.runs.filter(called)["system"]), recipe.model)
    benchmarks = [benchmark for benchmark in every if model in benchmark.names]
    if not benchmarks:
        scored = sorted({name for benchmark in every for name in benchmark.names})
        raise kit.InputError(f"{model} must be scored together with another system", kit.nearest(model, scored))
    cost = costs(workspace.root, benchmarks)[model]
    tables = [_differences(benchmarks, model, cost), _facts(model, cost)]
    return kit.Report(
        tables,
        files={"README.md": "\n\n".join([f"# {model}", *(kit.render_table(table, "markdown") for table in tables)])},
        parts=list(study.queries_of(benchmarks, (model, "bm25", kit.UNTUNED))),
        title=f"{model} against BM25, on {kit.counted(len(benchmarks), 'benchmark')}",
    )


def _pairs(benchmark: Benchmark, model: str) -> Iterator[tuple[str, str | None]]:
    """Yield the encoder with BM25, unless it is BM25, and each of its fusions with the best of its parts."""
    bm25 = next((name for name in ("bm25", kit.UNTUNED) if name in benchmark.names), None)
    yield model, None if bm25 == model else bm25
    for name in benchmark.names:
        parts = kit.fused_names(name)
        if model in parts and {*parts} <= {*benchmark.names}:
            yield name, min(parts, key=benchmark.names.index)


def _differences(benchmarks: Sequence[Benchmark], model: str, cost: Mapping[str, Any]) -> kit.Table:
    """Return the differences, by benchmark, of the encoder to BM25 and of its fusions to their best part."""
    compared = [(benchmark, *pair) for benchmark in benchmarks for pair in _pairs(benchmark, model)]
    draws, rows = replace(kit.PROTOCOL, tests=sum(second is not None for _, _, second in compared)), []
    for benchmark, first, second in compared:
        scores = benchmark.scores.filter(pl.col("system").is_in([first, second]))
        seed, field = kit.PROTOCOL.seed_of(benchmark.scores), benchmark.facts["field"] or ""
        values = scores.with_columns(group=pl.lit(field))
        design = kit.Design(row=("system",), item="query", group="group", over="sample")
        estimates = kit.estimate(values, design, seed, None if second is None else (second,), draws)
        found = estimates.row(by_predicate=pl.col("system") == first, named=True)
        rank = benchmark.systems.row(by_predicate=pl.col("system") == first, named=True)
        row: dict[str, Any] = {
            "benchmark": benchmark.name,
            "system": first,
            "measure": kit.label_of(benchmark.facts["measure"]),
        }
        row |= {"value": 100 * found["value"], "rank": f"{study.RANK.format_map(rank)} of {len(benchmark.names)}"}
        if second is not None:
            difference = kit.points("difference", "difference_low", "difference_high")
            row |= {"minus": second, "difference": difference(found), "p": found["p"]}
            row |= {"wins, ties, losses": "{wins}, {ties}, {losses}".format_map(found)}
        rows.append(row | {"leak": leak(cost, benchmark.facts["year"])})
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if "p" in frame.columns:
        frame = kit.corrected(frame.sort(pl.col("p").is_null(), maintain_order=True))
        frame = frame.with_columns(p="p_adjusted").drop("p_adjusted")
    notes = (
        "Values in percent, differences in points [95% interval]. p: paired permutation test, Holm's correction over "
        "the table. Rank [interval, of all systems together]. A fusion is compared with its best part there.",
    )
    shown = frame.with_columns(pl.selectors.by_name("p", require_all=False).map_elements("{:.4f}".format, pl.String))
    title = f"{model} against BM25, and its fusions"
    return kit.table("differences", title, frame, "{benchmark}", None, notes, rows=shown)


def _facts(model: str, cost: Mapping[str, Any]) -> kit.Table:
    """Return a table of the encoder's registry entry and costs."""
    base = kit.parse_one(model).base
    entry = next((entry for entry in kit.known_models() if entry.name == base), None)
    facts = {**({} if entry is None else {"weights": entry.source, "revision": entry.revision, **entry.recipe}), **cost}
    rows = [
        (name.replace("_", " "), f"{value:,.{0 if value >= 1_000 else 2}f}" if isinstance(value, float) else str(value))
        for name, value in facts.items()
        if value not in (None, "") and name != "training"
    ]
    frame = pl.DataFrame(rows, ["fact", "value"], orient="row")
    return kit.table("facts", "Recipe and cost", frame, "{fact}", None, ["Bytes are per paper."])
