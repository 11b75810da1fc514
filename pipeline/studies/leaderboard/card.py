"""The study ``card``: where one encoder is strong and weak against BM25, and its results for a model card."""

from __future__ import annotations

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
from pipeline.scores.store import artifact, open_rankings, opened_pool
from pipeline.scores.tables import frame_table
from pipeline.stages.systems import TUNED, fused_names
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.leaderboard import benchmarks, study
from pipeline.studies.leaderboard.benchmarks import Benchmark
from pipeline.studies.leaderboard.costs import costs, leak
from pipeline.studies.tables import Measurement, interval_table, points

CARD = "README.md"
_HIT = 30
"""Ranks among which a cited paper is found."""
_EXAMPLES = 5


@dataclass(frozen=True)
class Recipe(benchmarks.Recipe):
    """Settings of the study, beside those of the leaderboard.

    Attributes:
        model: the encoder.
    """

    model: str


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the encoder against BM25 and its fusions against their parts, cited papers, examples, and costs."""
    roots, every = study.found_in(workspace, recipe)
    model, found = recipe.model, [one for one in every if recipe.model in one.systems]
    if not found:
        scored = sorted({name for one in every for name in one.systems})
        raise InputError(f"{model} must be scored beside another system", nearest(model, scored))
    (cost,) = costs(roots, found).filter(system=model).rows(named=True)
    tables = [_differences(found, model, cost, recipe), *_on_largest(found, model), _facts(model, cost)]
    shown = [f"# {model}", *(render_table(one.table, "markdown") for one in tables)]
    front = f"---\n{_evaluations(found, model).to_yaml()}\n---"
    return StudyResult(
        tables,
        files={CARD: "\n\n".join([front, *shown])},
        parts=list(study.queries_of(found, recipe.seed, (model, TUNED, "bm25"))),
        best=f"{model}: on {len(found)} benchmarks",
    )


def _bm25(one: Benchmark) -> str | None:
    return next((name for name in (TUNED, "bm25") if name in one.systems), None)


def _parts(one: Benchmark) -> Iterator[tuple[str, Any]]:
    """Yield what is compared on a benchmark, and which of its queries: all of them, then each class of neighbours."""
    yield one.name, np.ones(one.values.shape[1], bool)
    if one.kind == "neighbours" and one.runs is not None and one.scores is not None:
        classes = artifact(one.runs.row(0, named=True), "pool").arrow("queries.arrow").column("field").to_pylist()
        of_query = np.array(classes)[one.scores["query"].unique().sort()]
        yield from ((f"{one.name}, {name}", of_query == name) for name in dict.fromkeys(classes))


def _differences(found: Sequence[Benchmark], model: str, cost: Mapping[str, Any], recipe: Recipe) -> StudyTable:
    """Return the encoder less BM25 on each benchmark and class, and fusions of the encoder less their best part."""
    rows = []
    for one in found:
        fusions = [
            name for name in one.systems if model in fused_names(name) and {*fused_names(name)} <= {*one.systems}
        ]
        pairs = [(model, _bm25(one)), *((name, min(fused_names(name), key=one.systems.index)) for name in fusions)]
        for (first, second), (name, queries) in ((pair, part) for pair in pairs for part in _parts(one)):
            place = one.systems.index(first)
            values, (rank, low, high) = one.values[place, queries], one.ranks(recipe.alpha)[:, place]
            row = {"benchmark": name, "system": first, "measure": one.label, "value": 100 * float(values.mean())}
            if name == one.name:
                row["value"] = 100 * float(one.figures[0, place])
                row["rank"] = f"{rank:g} [{low:g}, {high:g}] of {len(one.systems)}"
            if second is not None:
                changes = {name: (values - one.values[one.systems.index(second), queries])[None]}
                units = {name: [unit for unit, chosen in zip(one.units, queries, strict=True) if chosen]}
                differ = paired_differences(changes, recipe.seed, signs=one.sign, units=units)
                ends_of = zip(("difference", "low", "high"), (float(part[0]) for part in differ[:3]), strict=True)
                row |= {"less": second, "difference": points(dict(ends_of)), "p": float(differ.p_value[0])}
                row |= {"wins, ties, losses": f"{differ.wins[0]}, {differ.ties[0]}, {differ.losses[0]}"}
            rows.append(row | {"leak": leak(cost, one.year)})
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
    return StudyTable("differences", frame_table(f"{model} against BM25, and its fusions", shown, notes), frame)


def _on_largest(found: Sequence[Benchmark], model: str) -> Iterator[StudyTable]:
    """Yield positives by length and age, and queries won and lost, on the largest drawn pool that BM25 ranked too."""
    usable = [one for one in found if one.kind == "pools" and _bm25(one)]
    one = max(usable, key=lambda one: one.size or 0, default=None)
    if one is None or one.runs is None or one.scores is None:
        return
    runs = one.runs.filter(sample=one.runs["sample"].min()).with_columns(label="system")
    pool = opened_pool(runs.row(0, named=True))
    if pool is None:
        return
    systems = [str(_bm25(one)), model]
    rankings = open_rankings(runs.filter(pl.col("system").is_in(systems)), pool)
    query, row = query_of(rankings.qrels.offsets), rankings.qrels.rows
    known = pool.corpus.attributes
    year, characters = known["year"].astype(np.int64), known["abstract_chars"].astype(np.int64)
    rows = []
    for what, numbers in {"characters": characters[row], "years": year[pool.query_rows[query]] - year[row]}.items():
        third = np.searchsorted(np.quantile(numbers, [1 / 3, 2 / 3]), numbers)
        for system, group in ((system, third == place) for place in np.unique(third) for system in systems):
            ranks = rankings.ranks[system][group]
            label = f"{numbers[group].min():,} to {numbers[group].max():,} {what} ({group.sum():,})"
            share = share_of_clusters((ranks > 0) & (ranks <= _HIT), query[group])
            rows.append(Measurement(label, system, *share))
    notes = (f"Percent of cited papers in the first {_HIT}, by thirds of abstract length and age (number of papers).",)
    yield interval_table("positives", f"By cited papers: {one.name}", "cited papers", rows, notes)
    scores = one.scores.with_columns(label="system").filter(
        pl.col("pool") == runs["pool"][0], pl.col("system").is_in(systems)
    )
    queries = most_different(scores, runs, systems, one.measure, len(pool.query_rows))
    gain = (pl.col("second") - pl.col("first")) * one.sign
    order = queries.sort(gain, descending=True).with_columns(pl.col("first", "second") * 100)
    frame = pl.concat([order.head(_EXAMPLES), order.tail(_EXAMPLES)]).unique("query_id", maintain_order=True)
    frame = frame.select(
        pl.col("title").str.replace("^(.{60}).+", "$1…"),
        pl.col("query_id").alias("query"),
        pl.col("second").alias(model),
        pl.col("first").alias(systems[0]),
    )
    title = f"Queries it wins and loses most: {one.name}"
    yield StudyTable("examples", frame_table(title, frame, [f"{one.label} in percent."]), frame)


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
    return StudyTable("facts", frame_table("Recipe and cost", frame, ["Bytes and tokens are of a paper."]), frame)


def _evaluations(found: Sequence[Benchmark], model: str) -> Any:
    """Return the values of an encoder as metadata of a model card."""
    from huggingface_hub import EvalResult, ModelCardData

    evaluations = [
        EvalResult("Retrieval", file_name(one.name).lower(), one.name, one.measure, round(100 * float(value), 2))
        for one in found
        for value in one.figures[0, [one.systems.index(model)]]
    ]
    return ModelCardData(model_name=model, eval_results=evaluations)


def push(card: Path, target: str) -> str:
    """Write the results of a card into the model card of a folder or of a repository of the hub, and return its place.

    Its text and other results stay.

    Raises:
        InputError: there is neither, or the hub refuses.
    """
    from huggingface_hub import ModelCard
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    results, file = ModelCard.load(card).data, Path(target).expanduser() / CARD
    local = file.parent.is_dir()
    try:
        theirs = ModelCard.load(card if local and not file.is_file() else file if local else target)
        others = [
            one
            for one in theirs.data.eval_results or ()
            if not any(map(one.is_equal_except_value, results.eval_results))
        ]
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
