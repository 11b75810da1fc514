"""Judgements of the pairs of a pool: which are judged, what annotators and models say, and the measures that follow.

Stage ``draw`` chooses pairs of query and paper that are worth judging, and writes the files that annotators fill in;
``labels`` reads these; ``judged`` estimates measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.csr import pack
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.schema import JUDGED_PAIRS, LABELS, SCORES
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import JUDGED
from pipeline.corpus.pool import Pool
from pipeline.exchange.entries import name_of
from pipeline.exchange.frames import as_csv
from pipeline.measure.engines import evaluate_all
from pipeline.measure.inputs import Qrels, RankedRun, query_of, ranks_of, within
from pipeline.measure.judged import (
    Sample,
    check_measures,
    inclusion,
    judged_values,
    random_numbers,
    stratify,
)
from pipeline.measure.measures import parse_measures
from pipeline.sources.judgements import read_judgements
from pipeline.stages.ranking_file import FILE, open_pool
from pipeline.stages.score import score_table

PEOPLE, SECOND, MACHINE, INSTRUCTIONS = "people.csv", "people-2.csv", "machine.jsonl", "instructions.md"
"""Files of a draw: pairs for people, for a second annotator and for a model, and how to judge them."""

VALUES, BY_CITATIONS = "values.arrow", "citations.arrow"
"""Files of stage ``judged``: measures by judgements and, of the same queries, by citations."""

_INSTRUCTIONS = """# How to judge

Each row of `{people}` has a query and another paper. Is the other paper relevant to the query: would one cite it, or
want to read it, for the same work? Write a whole number from 0 to {grades} into `label`: {scale}.

- Judge by titles and abstracts alone, in the order of the file. Leave a row empty rather than guess.
- Leave the other columns as they are. Each annotator has a file, whose name is theirs.
- `{second}` repeats some pairs for a second annotator, who does not see the labels of the first.
- A model judges all pairs of `{machine}`, whatever people judge: the same fields, with `label` filled in.
"""
_TEXT = ("title", "abstract")
_SCALES = {1: "0 not relevant, 1 relevant", 2: "0 not relevant, 1 partly, 2 relevant"}


@dataclass(frozen=True)
class DrawConfig:
    """Settings that decide which pairs are judged.

    Attributes:
        systems: names of the systems, in order of the rankings.
        pairs: expected number of pairs for people.
        ranks: first ranks of each system that can be drawn.
        grades: highest grade.
        seed: seed of the permanent random numbers.
    """

    systems: tuple[str, ...]
    pairs: int
    ranks: int
    grades: int
    seed: int


def draw_task(corpus: Artifact, pool: Task, rankings: Sequence[Task], config: DrawConfig) -> Task:
    """Return the task that draws pairs from the first ranks of the rankings and the positives of a pool."""

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened_pool = open_pool(inputs)
        runs = runs_of(inputs, opened_pool)
        positives = Qrels.from_table(opened_pool.qrels, opened_pool)
        cited = pack(query_of(positives.offsets), positives.rows)
        tops = [within(ranked.offsets) < config.ranks for ranked in runs]
        ranked = [pack(query_of(r.offsets)[top], r.rows[top]) for r, top in zip(runs, tops, strict=True)]
        pairs = np.unique(np.concatenate([cited, *ranked]))
        query, row = (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(2**32 - 1)).astype(np.int64)
        strata = stratify(np.stack([ranks_of(r, query, row) for r in runs]), np.isin(pairs, cited), config.ranks)
        probability = inclusion(strata, config.pairs)
        drawn = random_numbers(opened_pool.query_rows[query], row, config.seed) < probability
        ids = np.array(opened_pool.query_ids(), object)[query], opened_pool.corpus.ids(row)
        columns = [query, row, *ids, strata[0].astype(bool), *strata[1:], probability, drawn]
        arrays = [pa.array(values).cast(kind) for values, kind in zip(columns, JUDGED_PAIRS.types, strict=True)]
        out.arrow("pairs.arrow", pa.Table.from_arrays(arrays, schema=JUDGED_PAIRS), JUDGED_PAIRS)
        return {"pairs": len(pairs), "cited": int(strata[0].sum()), "drawn": int(drawn.sum())}

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    inputs |= {f"ranking-{number}": ranking for number, ranking in enumerate(rankings)}
    return Task("draw", 1, JUDGED, f"draw-{pool.slug}", config, inputs, run)


def runs_of(inputs: Inputs, pool: Pool) -> list[RankedRun]:
    """Return the rankings among a task's inputs, in their order."""
    count = sum(name.startswith("ranking-") for name in inputs)
    return [RankedRun.from_table(inputs[f"ranking-{number}"].arrow(FILE), pool) for number in range(count)]


def pairs_of(draw: Artifact) -> pl.DataFrame:
    """Return the pairs of a draw, columns :data:`pipeline.core.schema.JUDGED_PAIRS`."""
    return pl.DataFrame(draw.arrow("pairs.arrow"))


def write_pairs(draw: Artifact, pool: Pool, folder: Path, second: float) -> list[Path]:
    """Write the files of a draw, blind to system, rank and citation and in random order, and return their paths.

    Args:
        draw: the draw.
        pool: its pool.
        folder: where to write.
        second: share of the drawn pairs that a second annotator gets.
    """
    config, pairs = draw.manifest.config, pairs_of(draw)
    rows = pairs["row"].unique().sort().to_numpy()
    papers = pl.DataFrame([text for block in pool.corpus.texts(rows) for text in block], _TEXT, orient="row")
    queries = pl.DataFrame([text for block in pool.query_texts() for text in block], _TEXT, orient="row")
    queries = queries.rename(lambda name: f"query_{name}").with_row_index("query")
    shown = pairs.join(queries, "query", maintain_order="left").join(
        papers.with_columns(row=rows), "row", maintain_order="left"
    )
    one_line = pl.selectors.ends_with("abstract").str.replace_all(r"\s+", " ")
    shown = shown.select("query_id", "paper_id", *queries.columns[1:], *_TEXT, label=None).with_columns(one_line)

    def numbers(purpose: str) -> npt.NDArray[np.float64]:
        return random_numbers(pool.query_rows[pairs["query"]], pairs["row"].to_numpy(), config["seed"], purpose)

    drawn = pairs["drawn"].to_numpy()
    chosen = {PEOPLE: drawn, SECOND: drawn & (numbers("second") < second), MACHINE: np.full(len(pairs), True)}
    scale = _SCALES.get(config["grades"], f"0 not relevant, {config['grades']} most relevant")
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, selected in chosen.items():
            order = np.argsort(numbers(f"order {name}"), kind="stable")
            part = shown[order[selected[order]]]
            files.write_text(folder / name, part.write_ndjson() if name == MACHINE else as_csv(part))
        of_files = {"people": PEOPLE, "second": SECOND, "machine": MACHINE, "grades": config["grades"], "scale": scale}
        files.write_text(folder / INSTRUCTIONS, _INSTRUCTIONS.format(**of_files))
    return [folder / name for name in (*chosen, INSTRUCTIONS)]


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
