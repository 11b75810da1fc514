"""The study ``card``: where one encoder is strong and weak against BM25, and its results for a model card."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.config import file_name
from pipeline.core.errors import InputError, nearest
from pipeline.encode import names, registry
from pipeline.measure.estimates import share_of_clusters
from pipeline.measure.inputs import query_of
from pipeline.measure.statistics import holm, paired_differences
from pipeline.scores.compare import most_different
from pipeline.scores.render import render_table
from pipeline.scores.store import artifact, open_pool, open_rankings
from pipeline.stages.systems import TUNED, fused_names
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.common import Measurement, interval_table, points
from pipeline.studies.leaderboard import study
from pipeline.studies.leaderboard.benchmarks import Benchmark
from pipeline.studies.leaderboard.benchmarks import Recipe as LeaderboardRecipe
from pipeline.studies.leaderboard.costs import costs, leak

CARD = "README.md"
_HIT = 30
"""Ranks among which a cited paper is found."""
_EXAMPLES = 5


@dataclass(frozen=True)
class Recipe(LeaderboardRecipe):
    """Settings of the study: those of the leaderboard, and the encoder."""

    model: str


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the encoder against BM25 and its fusions against their parts, cited papers, examples, and costs."""
    roots, every = study.benchmarks_of(workspace, recipe)
    model, benchmarks = recipe.model, [benchmark for benchmark in every if recipe.model in benchmark.systems]
    if not benchmarks:
        scored = sorted({name for benchmark in every for name in benchmark.systems})
        raise InputError(f"{model} must be scored beside another system", nearest(model, scored))
    (cost,) = costs(roots, benchmarks).filter(system=model).rows(named=True)
    tables = [_differences(benchmarks, model, cost, recipe), *_on_largest(benchmarks, model), _facts(model, cost)]
    shown = [f"# {model}", *(render_table(benchmark.table, "markdown") for benchmark in tables)]
    front = f"---\n{_evaluations(benchmarks, model).to_yaml()}\n---"
    return StudyResult(
        tables,
        files={CARD: "\n\n".join([front, *shown])},
        parts=list(study.queries_of(benchmarks, recipe.seed, (model, TUNED, "bm25"))),
        best=f"{model}: on {len(benchmarks)} benchmarks",
    )


def _bm25(benchmark: Benchmark) -> str | None:
    return next((name for name in (TUNED, "bm25") if name in benchmark.systems), None)


def _parts(benchmark: Benchmark) -> Iterator[tuple[str, Any]]:
    """Yield what is compared on a benchmark, and which of its queries: all of them, then each class of neighbours."""
    yield benchmark.name, np.ones(benchmark.values.shape[1], bool)
    if benchmark.kind == "neighbours" and benchmark.runs is not None and benchmark.scores is not None:
        classes = artifact(benchmark.runs.row(0, named=True), "pool").arrow("queries.arrow").column("field").to_pylist()
        of_query = np.array(classes)[benchmark.scores["query"].unique().sort()]
        yield from ((f"{benchmark.name}, {name}", of_query == name) for name in dict.fromkeys(classes))


def _differences(benchmarks: Sequence[Benchmark], model: str, cost: Mapping[str, Any], recipe: Recipe) -> StudyTable:
    """Return the encoder less BM25 on each benchmark and class, and fusions of the encoder less their best part."""
    rows = []
    for benchmark in benchmarks:
        systems = benchmark.systems
        parts_of = {name: fused_names(name) for name in systems}
        fusions = [name for name, parts in parts_of.items() if model in parts and {*parts} <= {*systems}]
        pairs = [(model, _bm25(benchmark)), *((name, min(parts_of[name], key=systems.index)) for name in fusions)]
        for (first, second), (name, queries) in itertools.product(pairs, list(_parts(benchmark))):
            number = systems.index(first)
            values, (rank, low, high) = benchmark.values[number, queries], benchmark.ranks(recipe.alpha)[:, number]
            row = {"benchmark": name, "system": first, "measure": benchmark.label, "value": 100 * float(values.mean())}
            if name == benchmark.name:
                row["value"] = 100 * float(benchmark.figures[0, number])
                row["rank"] = f"{rank:g} [{low:g}, {high:g}] of {len(systems)}"
            if second is not None:
                changes = {name: (values - benchmark.values[systems.index(second), queries])[None]}
                units = {name: list(itertools.compress(benchmark.units, queries))}
                differ = paired_differences(changes, recipe.seed, signs=benchmark.sign, units=units)
                change = points(figure[0] for figure in differ[:3])
                row |= {"less": second, "difference": change, "p": float(differ.p_value[0])}
                row |= {"wins, ties, losses": f"{differ.wins[0]}, {differ.ties[0]}, {differ.losses[0]}"}
            rows.append(row | {"leak": leak(cost, benchmark.year)})
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if "p" in frame.columns:
        frame = frame.sort(pl.col("p").is_null(), maintain_order=True)
        known = frame["p"].drop_nulls()
        frame = frame.with_columns(p=pl.Series(holm(known)).extend_constant(None, len(frame) - len(known)))
    notes = (
        "Values in percent, differences in points [95% interval]. p: paired permutation test, Holm's correction over "
        "the table. Rank [interval, of all systems together]. A fusion is less its part that is best on the benchmark.",
    )
    shown = frame.with_columns(pl.selectors.by_name("p", require_all=False).map_elements("{:.4f}".format, pl.String))
    return StudyTable.of("differences", f"{model} against BM25, and its fusions", frame, notes, shown=shown)


def _on_largest(benchmarks: Sequence[Benchmark], model: str) -> Iterator[StudyTable]:
    """Yield positives by length and age, and queries won and lost, on the largest drawn pool that BM25 ranked too."""
    usable = [benchmark for benchmark in benchmarks if benchmark.kind == "pools" and _bm25(benchmark)]
    benchmark = max(usable, key=lambda benchmark: benchmark.size or 0, default=None)
    if benchmark is None or benchmark.runs is None or benchmark.scores is None:
        return
    runs = benchmark.runs.filter(sample=benchmark.runs["sample"].min()).with_columns(label="system")
    pool = open_pool(runs.row(0, named=True))
    if pool is None:
        return
    systems = [str(_bm25(benchmark)), model]
    rankings = open_rankings(runs.filter(pl.col("system").is_in(systems)), pool)
    query, row = query_of(rankings.qrels.offsets), rankings.qrels.rows
    known = pool.corpus.attributes
    year, characters = known["year"].astype(np.int64), known["abstract_chars"].astype(np.int64)
    rows = []
    for what, numbers in {"characters": characters[row], "years": year[pool.query_rows[query]] - year[row]}.items():
        third = np.searchsorted(np.quantile(numbers, [1 / 3, 2 / 3]), numbers)
        for system, group in ((system, third == number) for number in np.unique(third) for system in systems):
            ranks = rankings.ranks[system][group]
            label = f"{numbers[group].min():,} to {numbers[group].max():,} {what} ({group.sum():,})"
            share = share_of_clusters((ranks > 0) & (ranks <= _HIT), query[group])
            rows.append(Measurement(label, system, *share))
    notes = (f"Percent of cited papers in the first {_HIT}, by thirds of abstract length and age (number of papers).",)
    yield interval_table("positives", f"By cited papers: {benchmark.name}", "cited papers", rows, notes)
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
    yield StudyTable.of("examples", title, frame, [f"{benchmark.label} in percent."])


def _facts(model: str, cost: Mapping[str, Any]) -> StudyTable:
    """Return recipe, prompts and costs."""
    entry = next((entry for entry in registry.known_models() if entry.name == names.parse(model)[0].base), None)
    facts = {**({} if entry is None else {"weights": entry.source, "revision": entry.revision, **entry.recipe}), **cost}
    rows = [
        (
            name.replace("_", " "),
            f"{value:,.{0 if value > 1_000 or value.is_integer() else 2}f}" if isinstance(value, float) else str(value),
        )
        for name, value in facts.items()
        if value not in (None, "")
    ]
    frame = pl.DataFrame(rows, ["fact", "value"], orient="row")
    return StudyTable.of("facts", "Recipe and cost", frame, ["Bytes and tokens are of a paper."])


def _evaluations(benchmarks: Sequence[Benchmark], model: str) -> Any:
    """Return the values of an encoder as metadata of a model card."""
    from huggingface_hub import EvalResult, ModelCardData

    evaluations = []
    for benchmark in benchmarks:
        value = 100 * float(benchmark.figures[0, benchmark.systems.index(model)])
        name = file_name(benchmark.name).lower()
        evaluations.append(EvalResult("Retrieval", name, benchmark.name, benchmark.measure, round(value, 2)))
    return ModelCardData(model_name=model, eval_results=evaluations)


def push(card: Path, target: str) -> str:
    """Write the results of a card into the model card of a folder or of a repository of the hub, and return its place.

    Its text and other results stay.
    """
    from huggingface_hub import ModelCard
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    results, file = ModelCard.load(card).data, Path(target).expanduser() / CARD
    local = file.parent.is_dir()
    try:
        theirs = ModelCard.load(card if local and not file.is_file() else file if local else target)
        known = theirs.data.eval_results or ()
        others = [result for result in known if not any(map(result.is_equal_except_value, results.eval_results))]
        theirs.data.model_name = theirs.data.model_name or results.model_name
        theirs.data.eval_results = [*others, *results.eval_results]
        if not local:
            return str(theirs.push_to_hub(target))
        theirs.save(file)
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        remedy = "Give a folder that exists, or log in: hf auth login"
        raise InputError(f"the model card of {target} cannot be written ({error})", remedy) from error
    return str(file)


STUDY = Study("card", "one encoder against BM25, on every benchmark", Recipe, study.no_tasks, results)
