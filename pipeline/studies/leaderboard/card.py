"""The study ``card``: where one encoder is strong and weak against BM25, and its results for a model card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.config import file_name
from pipeline.core.errors import InputError, nearest
from pipeline.encode import names, registry
from pipeline.measure.estimates import share_of_clusters
from pipeline.measure.inputs import query_of
from pipeline.measure.ranks import ends
from pipeline.measure.statistics import Floats, holm, paired_differences
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

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

CARD = "README.md"
_HIT = 30
"""Ranks among which a positive is found."""
_EXAMPLES = 5


@dataclass(frozen=True)
class Recipe(benchmarks.Recipe):
    """Settings of the study, beside those of the leaderboard.

    Attributes:
        model: the encoder.
    """

    model: str


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the encoder against BM25 on each benchmark, by class and positives, its fusions, examples and costs."""
    roots, every = study.found_in(workspace, recipe)
    model, found = recipe.model, [one for one in every if recipe.model in one.systems]
    if not found:
        scored = sorted({name for one in every for name in one.systems})
        raise InputError(f"{model} must be scored beside another system", nearest(model, scored))
    (cost,) = costs(roots, found).filter(system=model).rows(named=True)
    against = _against(found, model, cost, recipe.seed)
    tables = [against, *_by_class(found, model, recipe.seed), *_on_largest(found, model)]
    tables += [*_fusions(found, model, recipe.seed), _facts(model, cost)]
    front = f"---\n{_evaluations(found, model).to_yaml()}\n---"
    text = "\n\n".join([front, f"# {model}", *(render_table(one.table, "markdown") for one in tables)])
    parts = study.queries_of(found, recipe.seed, (model, TUNED, "bm25"))
    best = against.frame.row(0, named=True)
    return StudyResult(
        tables,
        files={CARD: text},
        parts=list(parts),
        best=f"{model}: {best['less BM25']} over BM25, {best['benchmark']}",
    )


def _bm25(one: Benchmark) -> str | None:
    return next((name for name in (TUNED, "bm25") if name in one.systems), None)


def _of(one: Benchmark, system: str) -> Floats:
    values: Floats = one.values[one.systems.index(system)]
    return values


def _less(one: Benchmark, changes: Floats, item: str, seed: int) -> dict[str, Any]:
    """Return differences by query in points with their interval, p-value, and numbers of queries."""
    differ = paired_differences({item: changes[None]}, seed, signs=one.sign)
    ends_of = {
        name: float(getattr(differ, name if name != "difference" else "value")[0])
        for name in ("difference", "low", "high")
    }
    counts = f"{differ.wins[0]}, {differ.ties[0]}, {differ.losses[0]}"
    return {"less": points(ends_of), "p": float(differ.p_value[0]), "wins, ties, losses": counts}


def _against(found: Sequence[Benchmark], model: str, cost: Mapping[str, Any], seed: int) -> StudyTable:
    """Return the encoder's value and rank on each benchmark, and its difference from BM25, the largest first."""
    rows = []
    for one in found:
        place, base = one.systems.index(model), _bm25(one)
        (low,), (high,) = ends(one.ranked[[place]])
        less = _less(one, _of(one, model) - _of(one, base), one.name, seed) if base else {}
        rows.append({
            "benchmark": one.name, "measure": one.label, "value": 100 * float(one.figures[0, place]),
            "BM25": 100 * float(_of(one, base).mean()) if base else None, "less BM25": less.pop("less", None), **less,
            "rank": f"{one.ranked[place, 0]:g} [{low:g}, {high:g}] of {len(one.systems)}", "leak": leak(cost, one.year),
        })  # fmt: skip
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if "p" in frame.columns:
        frame = frame.sort(pl.col("value") - pl.col("BM25"), descending=True, nulls_last=True)
        known = holm(frame["p"].drop_nulls())  # nulls are last
        frame = frame.with_columns(
            p=pl.Series([f"{p:.4f}" for p in known]).extend_constant(None, len(frame) - len(known))
        )
    notes = (
        "Percent; less BM25 (tuned where it was) in points [95% interval]. p: paired permutation test, Holm's correction "
        "over benchmarks. Rank [95% of the resamples of queries].",
    )
    return StudyTable("benchmarks", frame_table(f"{model} against BM25", frame, notes), frame)


def _by_class(found: Sequence[Benchmark], model: str, seed: int) -> Iterator[StudyTable]:
    """Yield the difference from BM25 by class of textual neighbour."""
    for one in found:
        if one.kind == "neighbours" and (base := _bm25(one)) and one.runs is not None and one.scores is not None:
            pool = artifact(one.runs.row(0, named=True), "pool")
            classes = np.array(pool.arrow("queries.arrow").column("field").to_pylist())[
                one.scores["query"].unique().sort()
            ]
            changes = _of(one, model) - _of(one, base)
            rows = [
                {"class": name, **_less(one, changes[classes == name], name, seed)} for name in dict.fromkeys(classes)
            ]
            notes = [f"{one.label} less BM25 in points [95% interval]; p is not corrected."]
            frame = pl.DataFrame(rows)
            yield StudyTable("classes", frame_table(f"By class: {one.name}", frame, notes, 4), frame)


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
        pl.col("title").str.head(60), "query_id", pl.col("second").alias(model), pl.col("first").alias(systems[0])
    )
    title = f"Queries it wins and loses most: {one.name}"
    yield StudyTable("examples", frame_table(title, frame, [f"{one.label} in percent."]), frame)


def _fusions(found: Sequence[Benchmark], model: str, seed: int) -> Iterator[StudyTable]:
    """Yield what fusions of the encoder add to their best part."""
    rows = []
    for one in found:
        for name in one.systems:
            parts = fused_names(name)
            if model in parts and {*parts} <= {*one.systems}:
                best = min(parts, key=one.systems.index)
                rows.append(
                    {
                        "benchmark": one.name,
                        "fusion": name,
                        "best part": best,
                        **_less(one, _of(one, name) - _of(one, best), name, seed),
                    }
                )
    if rows:
        frame = pl.DataFrame(rows)
        note = "Points over the part that is best on the benchmark [95% interval]; p is not corrected."
        yield StudyTable("fusions", frame_table("What fusion adds", frame, [note], 4), frame)


def _facts(model: str, cost: Mapping[str, Any]) -> StudyTable:
    """Return costs, recipe and prompts."""
    entries = {entry.name: entry for entry in registry.known_models()}
    entry = entries.get(names.parse(model)[0].base)
    recipe = {} if entry is None else {"weights": entry.source, "revision": entry.revision, **entry.recipe}
    facts = {
        name: f"{value:,.4g}" if isinstance(value, float) else str(value)
        for name, value in {**recipe, **cost}.items()
        if value not in (None, "")
    }
    frame = pl.DataFrame({"fact": [name.replace("_", " ") for name in facts], "value": list(facts.values())})
    return StudyTable("facts", frame_table("Recipe and cost", frame, ["Bytes and tokens are of a paper."]), frame)


def _evaluations(found: Sequence[Benchmark], model: str) -> ModelCardData:
    """Return the values of an encoder as the metadata of a model card."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            "Retrieval",
            file_name(one.name).lower(),
            one.name,
            one.measure,
            round(100 * float(_of(one, model).mean()), 2),
        )
        for one in found
    ]
    return ModelCardData(model_name=model, eval_results=results)


def push(card: Path, target: str) -> str:
    """Write the results of a card into the model card of a folder or of a repository of the hub; its text stays.

    Raises:
        InputError: the hub does not have the repository, or refuses.
    """
    from huggingface_hub import ModelCard
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    ours, folder = ModelCard.load(card), Path(target).expanduser()
    try:
        theirs = (
            ModelCard.load(folder / CARD if folder.is_dir() else target)
            if not folder.is_dir() or (folder / CARD).is_file()
            else ours
        )
        results = ours.data.eval_results
        kept = [one for one in theirs.data.eval_results or () if not any(map(one.is_equal_except_value, results))]
        theirs.data.model_name, theirs.data.eval_results = (
            theirs.data.model_name or ours.data.model_name,
            [*kept, *results],
        )
        if not folder.is_dir():
            return str(theirs.push_to_hub(target))
        theirs.save(folder / CARD)
        return str(folder / CARD)
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise InputError(
            f"the model card of {target} cannot be written ({error})", "Give a folder, or: hf auth login"
        ) from error


STUDY = Study("card", "one encoder against BM25, on every benchmark", Recipe, study.no_tasks, results)
