"""Stages ``labels`` and ``judged``: what annotators and models say about drawn pairs, and the measures that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.schema import LABELS, SCORES
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import JUDGED
from pipeline.exchange.entries import name_of
from pipeline.measure.engines import evaluate_all
from pipeline.measure.inputs import Qrels, ranks_of
from pipeline.measure.judged import Sample, check_measures, judged_values
from pipeline.measure.measures import parse_measures
from pipeline.sources.judgements import read_judgements
from pipeline.stages.judge import pairs_of, runs_of
from pipeline.stages.ranking_file import open_pool
from pipeline.stages.score import score_table

VALUES, BY_CITATIONS = "values.arrow", "citations.arrow"
"""Files of stage ``judged``: measures by judgements and, of the same queries, by citations."""


@dataclass(frozen=True)
class LabelsConfig:
    """Names and SHA-256 of the files of labels: of people, and of a model."""

    people: tuple[tuple[str, str], ...]
    machine: tuple[tuple[str, str], ...]


def labels_task(draw: Artifact, people: Sequence[Path], machine: Path | None) -> Task:
    """Return the task that reads the labels of a draw.

    A file is read as qrels are (:func:`pipeline.sources.judgements.read_judgements`), and its name is the annotator's.
    Rows without a label are left out.

    Raises:
        InputError: a file cannot be read. When run: a row names a pair that is not in the draw, repeats one of its
            annotator, or has another grade.
    """
    models = [machine] if machine else []
    for path in (*people, *models):
        if not files.given(path).is_file():
            raise InputError(f"there is no file {path}", "Give files of labels")
    digests = ([(name_of(path), files.sha256(path)) for path in paths] for paths in (people, models))

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        pairs, grades = pairs_of(inputs["draw"]), int(inputs["draw"].manifest.config["grades"])
        frames = [_read(path, pairs, grades, machine=False) for path in people]
        frames += [_read(path, pairs, grades, machine=True) for path in models]
        labels = pl.concat(frames).sort("query", "row", "machine", "annotator")
        repeated = labels.filter(pl.struct("query", "row", "annotator", "machine").is_duplicated())
        if len(repeated):
            one, other = repeated.head(2).rows(named=True)
            raise InputError(
                f"{other['place']}: {one['annotator']} has two labels of query {one['query_id']!r} with paper "
                f"{one['paper_id']!r}, {other['grade']} and, at {one['place']}, {one['grade']}",
                "Keep one of them",
            )
        out.arrow("labels.arrow", labels.select(LABELS.names).to_arrow().cast(LABELS), LABELS)
        by_people = labels.filter(~pl.col("machine"))
        return {
            "labels": len(by_people),
            "pairs": by_people.select("query", "row").n_unique(),
            "annotators": by_people["annotator"].n_unique(),
            "machine": len(labels) - len(by_people),
        }

    slug = draw.manifest.slug.replace("draw", "labels", 1)
    return Task("labels", 1, JUDGED, slug, LabelsConfig(*map(tuple, digests)), {"draw": draw}, run)


def _read(path: Path, pairs: pl.DataFrame, grades: int, *, machine: bool) -> pl.DataFrame:
    """Return the labels of a file, checked against the pairs of a draw: columns of :data:`LABELS`, place and ids."""
    found = [(f"{path}:{number}", *ids, grade) for number, ids, grade in read_judgements(path, blank=True)]
    labels = pl.DataFrame(found, ["place", "query_id", "paper_id", "grade"], orient="row", infer_schema_length=None)
    if labels.is_empty():
        raise InputError(f"{path} has no label", "Fill in its column label with whole numbers")
    known = pairs.filter(pl.lit(machine) | pl.col("drawn")).select("query", "row", "query_id", "paper_id")
    labels = labels.join(known, on=["query_id", "paper_id"], how="left", maintain_order="left")
    for place, query_id, paper_id, grade, _, row in labels.filter(
        pl.col("row").is_null() | ~pl.col("grade").is_between(0, grades)
    ).head(1).rows():  # fmt: skip
        if row is None:
            problem = f"query {query_id!r} with paper {paper_id!r} is not a pair of this draw"
            raise InputError(f"{place}: {problem}", "Give labels of this draw, or name theirs with --draw")
        raise InputError(f"{place}: a label must be from 0 to {grades}, got {grade}", "Correct it")
    return labels.with_columns(annotator=pl.lit(name_of(path)), machine=pl.lit(machine))


def labels_of(labels: Artifact) -> pl.DataFrame:
    """Return labels, columns :data:`pipeline.core.schema.LABELS`."""
    return pl.DataFrame(labels.arrow("labels.arrow"))


def sample_of(draw: Artifact, labels: Artifact, queries: int) -> Sample:
    """Return the pairs of a draw with their labels.

    Pairs that were drawn and left without a label count as missing at random within their stratum: the probability of
    the labelled ones is multiplied by their share.
    """
    pairs, found, grades = pairs_of(draw), labels_of(labels), int(draw.manifest.config["grades"])
    of_grades = [(pl.col("grade") >= grade).mean().alias(f"grade-{grade}") for grade in range(1, grades + 1)]

    def shares(*, machine: bool) -> npt.NDArray[np.float64]:
        of_pairs = found.filter(machine=machine).group_by("query", "row").agg(of_grades)
        joined = pairs.join(of_pairs, on=["query", "row"], how="left", maintain_order="left")
        levels = joined.select(pl.col("^grade-.*$").cast(pl.Float64).fill_null(np.nan))
        return np.ascontiguousarray(levels.to_numpy().T)

    relevance, machine = shares(machine=False), shares(machine=True)
    of_model = ~np.isnan(machine[0])
    if of_model.any() and not (of_model & np.isnan(relevance[0])).any():
        raise InputError(
            "the labels of a model must be of more pairs than those of people", "Let it judge all of machine.jsonl"
        )
    stratum = pairs.select(pl.struct("cited", "band", "system").rank("dense") - 1).to_series().to_numpy()
    stratum, drawn = stratum.astype(np.int64), pairs["drawn"].to_numpy()
    has, given = (np.bincount(stratum, weights=of) for of in (drawn & ~np.isnan(relevance[0]), drawn))
    answered = np.divide(has, given, out=np.ones_like(has), where=given > 0)[stratum]
    query, probability = pairs["query"].to_numpy().astype(np.int64), pairs["probability"].to_numpy() * answered
    return Sample(queries, query, stratum, probability, relevance, machine)


@dataclass(frozen=True)
class JudgedConfig:
    """Settings of stage ``judged``: names of the systems, in order of the rankings, and measures."""

    systems: tuple[str, ...]
    measures: tuple[str, ...]


def judged_task(
    corpus: Artifact, pool: Task, draw: Artifact, labels: Artifact, rankings: Mapping[str, Task], measures: str
) -> Task:
    """Return the task that estimates measures of systems by judgements, and measures them by citations.

    Args:
        corpus: the corpus.
        pool: the pool.
        draw: the pairs that could be judged.
        labels: what annotators said about them.
        rankings: the rankings by the names of their systems.
        measures: measures with commas, of :data:`pipeline.measure.judged.SUPPORTED`.
    """
    parsed = parse_measures(measures)
    check_measures(parsed)
    config = JudgedConfig(tuple(rankings), tuple(map(str, parsed)))

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened_pool = open_pool(inputs)
        sample = sample_of(inputs["draw"], inputs["labels"], len(opened_pool.query_rows))
        row, runs = pairs_of(inputs["draw"])["row"].to_numpy(), runs_of(inputs, opened_pool)
        ranks = np.stack([ranks_of(ranked, sample.query, row) for ranked in runs])
        values = judged_values(sample, ranks, parsed)
        qrels = Qrels.from_table(opened_pool.qrels, opened_pool)
        cited = np.stack([evaluate_all(qrels, ranked, parsed) for ranked in runs])
        for name, array in ((VALUES, values), (BY_CITATIONS, cited)):
            out.arrow(name, score_table(opened_pool, config.systems, config.measures, array), SCORES)
        top = int(inputs["draw"].manifest.config["ranks"])
        first = [int(np.minimum(ranked.retrieved(), top).sum()) for ranked in runs]
        outside = first - ((ranks > 0) & (ranks <= top)).sum(axis=1)
        return {
            "pairs": len(row),
            "judged": int((~np.isnan(sample.relevance[0])).sum()),
            "by_model": int((~np.isnan(sample.machine[0])).sum()),
            "annotators": inputs["labels"].manifest.counts["annotators"],
            "ranks": top,
            "outside": dict(zip(rankings, outside.tolist(), strict=True)),
        }

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, "draw": draw, "labels": labels}
    inputs |= {f"ranking-{number}": ranking for number, ranking in enumerate(rankings.values())}
    return Task("judged", 1, JUDGED, f"judged-{pool.slug}", config, inputs, run)
