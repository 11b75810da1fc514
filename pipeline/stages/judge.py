"""Judgements of the pairs of a pool: which are judged, what annotators and models say, and the measures that follow.

Stage ``draw`` chooses pairs of query and paper that are worth judging, and writes the files that annotators fill in;
``labels`` reads these; ``judged`` estimates measures. :mod:`pipeline.measure.judged` explains the two designs.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from pipeline.core.schema import JUDGED_PAIRS, LABELS
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import JUDGED
from pipeline.corpus.pool import Pool
from pipeline.exchange.entries import name_of
from pipeline.exchange.export import as_csv
from pipeline.measure.engines import evaluate_all
from pipeline.measure.inputs import Qrels, RankedRun, query_of, ranks_of, within
from pipeline.measure.judged import (
    draw_queries,
    inclusion,
    random_numbers,
    stratify,
)
from pipeline.measure.measures import Measure, parse_measures
from pipeline.sources.judgements import read_judgements
from pipeline.stages.ranking_file import FILE, open_pool

PEOPLE, SECOND, MACHINE, INSTRUCTIONS = "people.csv", "people-2.csv", "machine.jsonl", "instructions.md"
"""Files of a draw: pairs for people, for a second annotator and for a model, and how to judge them."""

_INSTRUCTIONS = """# How to judge

Each row of `{people}` has a query and another paper. Is the other paper relevant to the query: would one cite it, or
want to read it, for the same work? Write into `label`: {scale}.

- Judge by titles and abstracts alone, in the order of the file. {empty}
- Leave the other columns as they are. Each annotator has a file, whose name is theirs.
- `{second}` repeats some pairs for a second annotator, who does not see the labels of the first.
- A model judges all pairs of `{machine}`, whatever people judge: the same fields, with `label` filled in.
"""
_TEXT = ("title", "abstract")
_SCALES = {1: "0 not relevant, 1 relevant", 2: "0 not relevant, 1 partly, 2 relevant"}
_EMPTY = {
    "pairs": "Leave a row empty rather than guess.",
    "queries": "Fill in every row of a query: a query with an empty row does not count.",
}


@dataclass(frozen=True)
class DrawConfig:
    """Settings that decide which pairs are judged.

    ``systems`` are in order of the rankings; ``design`` is ``pairs`` or ``queries``; ``size`` the expected number of
    pairs for people, or of queries judged in full; ``ranks`` the first ranks of each system that can be drawn;
    ``grades`` the highest grade; ``words`` labels in words, best first (empty: numbers); ``seed`` that of the draw.
    """

    systems: tuple[str, ...]
    design: str
    size: int
    ranks: int
    grades: int
    words: tuple[str, ...]
    seed: int


def parse_grades(text: str) -> tuple[int, tuple[str, ...]]:
    """Return the highest grade and the words of a scale: a number, or words with commas, best first (``yes,no``).

    Raises:
        InputError: the scale has one grade, repeats a word, or begins with one that means not relevant.
    """
    words = tuple(word.strip().casefold() for word in text.split(","))
    if len(words) == 1 and words[0].isdecimal() and int(words[0]) > 0:
        return int(words[0]), ()
    if len({*words}) < max(len(words), 2) or words[0] in ("no", "none", "0", "false") or "irrelevant" in words[0]:
        remedy = "Give the highest grade, such as 2, or words from most to least relevant, such as yes,partly,no"
        raise InputError(f"--grades must be a scale, got {text!r}", remedy)
    return len(words) - 1, words


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
        query_rows = opened_pool.query_rows
        if config.design == "queries":
            precision = by_citations(opened_pool, runs, parse_measures("map"))[:, 0].mean(axis=0)
            count = min(config.size, len(query_rows))
            probability = np.full(len(pairs), count / len(query_rows))
            drawn = draw_queries(precision, query_rows, count, config.seed)[query]
        else:
            probability = inclusion(strata, config.size)
            drawn = random_numbers(query_rows[query], row, config.seed) < probability
        ids = np.array(opened_pool.query_ids(), object)[query], opened_pool.corpus.ids(row)
        columns = [query, row, *ids, strata[0].astype(bool), *strata[1:], probability, drawn]
        arrays = [pa.array(values).cast(kind) for values, kind in zip(columns, JUDGED_PAIRS.types, strict=True)]
        out.arrow("pairs.arrow", pa.Table.from_arrays(arrays, schema=JUDGED_PAIRS), JUDGED_PAIRS)
        queries = len(np.unique(query[drawn]))
        return {"pairs": len(pairs), "cited": int(strata[0].sum()), "drawn": int(drawn.sum()), "queries": queries}

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    inputs |= {f"ranking-{number}": ranking for number, ranking in enumerate(rankings)}
    return Task("draw", 2, JUDGED, f"draw-{pool.slug}", config, inputs, run)


def runs_of(inputs: Inputs, pool: Pool) -> list[RankedRun]:
    """Return the rankings among a task's inputs, in their order."""
    count = sum(name.startswith("ranking-") for name in inputs)
    return [RankedRun.from_table(inputs[f"ranking-{number}"].arrow(FILE), pool) for number in range(count)]


def by_citations(pool: Pool, runs: Sequence[RankedRun], measures: Sequence[Measure]) -> npt.NDArray[np.float64]:
    """Return measures by the pool's positives, float64 ``[systems, measures, queries]``; 0 for a query without one."""
    qrels = Qrels.from_table(pool.qrels, pool)
    return np.nan_to_num(np.stack([evaluate_all(qrels, ranked, measures) for ranked in runs]))


def pairs_of(draw: Artifact) -> pl.DataFrame:
    """Return the pairs of a draw, columns :data:`pipeline.core.schema.JUDGED_PAIRS`."""
    return pl.DataFrame(draw.arrow("pairs.arrow"))


def write_pairs(draw: Artifact, pool: Pool, folder: Path, second: float) -> list[Path]:
    """Write the files of a draw, blind to system, rank and citation and in random order, and return their paths.

    Pairs of a query that is judged in full are together. A second annotator gets the share ``second`` of drawn pairs.
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
    scale = _SCALES.get(config["grades"], f"a whole number from 0 (not relevant) to {config['grades']} (most relevant)")
    scale = " or ".join(config["words"]) + ", from most to least relevant" if config["words"] else scale
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, selected in chosen.items():
            order = np.argsort(numbers(f"order {name}"), kind="stable")
            if config["design"] == "queries":
                first = random_numbers(pool.query_rows, pool.query_rows, config["seed"], f"order {name}")
                order = order[np.argsort(first[pairs["query"].to_numpy()[order]], kind="stable")]
            part = shown[order[selected[order]]]
            files.write_text(folder / name, part.write_ndjson() if name == MACHINE else as_csv(part))
        of_files = {"people": PEOPLE, "second": SECOND, "machine": MACHINE, "empty": _EMPTY[config["design"]]}
        files.write_text(folder / INSTRUCTIONS, _INSTRUCTIONS.format(**of_files, scale=scale))
    return [folder / name for name in (*chosen, INSTRUCTIONS)]


@dataclass(frozen=True)
class LabelsConfig:
    """Names and SHA-256 of the files of labels, of people and of a model; words of grades; what other pairs are."""

    people: tuple[tuple[str, str], ...]
    machine: tuple[tuple[str, str], ...]
    words: tuple[str, ...]
    extra: str


def labels_task(
    draw: Artifact, people: Sequence[Path], machine: Path | None, words: Sequence[str] = (), extra: str = "refuse"
) -> Task:
    """Return the task that reads the labels of a draw by people and, from one file, by a model.

    A file is read as qrels are (:func:`pipeline.sources.judgements.read_judgements`), and its name is the annotator's.
    Rows without a label are left out. ``words`` are labels in words, best first (empty: those of the draw); ``extra``
    says whether labels of pairs that were not drawn are refused (``refuse``) or left out (``ignore``).

    Raises:
        InputError: a file cannot be read. When run: a row names a pair that is not in the draw, repeats one of its
            annotator, or has another grade.
    """
    models = [machine] if machine else []
    for path in (*people, *models):
        if not files.given(path).is_file():
            raise InputError(f"there is no file {path}", "Give files of labels")
    by_people, by_model = (tuple((name_of(one), files.sha256(one)) for one in paths) for paths in (people, models))
    known = tuple(words) or tuple(draw.manifest.config["words"])
    if words and len(words) != int(draw.manifest.config["grades"]) + 1:
        raise InputError(
            f"--grades must have {draw.manifest.config['grades'] + 1} words, as the draw has grades, got "
            f"{','.join(words)}",
            "Name one for each grade, best first",
        )
    config = LabelsConfig(by_people, by_model, known, extra)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        pairs, grades = pairs_of(inputs["draw"]), int(inputs["draw"].manifest.config["grades"])
        ignored, frames = 0, []
        for path, is_model in [*((path, False) for path in people), *((path, True) for path in models)]:
            found, extras = _read(path, pairs, grades, config, resources.memory, machine=is_model)
            frames.append(found)
            ignored += extras
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
            "ignored": ignored,
        }

    slug = draw.manifest.slug.replace("draw", "labels", 1)
    return Task("labels", 2, JUDGED, slug, config, {"draw": draw}, run)


def _read(
    path: Path, pairs: pl.DataFrame, grades: int, config: LabelsConfig, memory: int, *, machine: bool
) -> tuple[pl.DataFrame, int]:
    """Return the labels of a file, checked against the pairs of a draw, and how many of other pairs are ignored.

    Columns of :data:`LABELS`, place and ids.
    """
    words = {word: grade for grade, word in enumerate(reversed(config.words))}
    judgements = read_judgements(path, blank=True, words=words, memory=memory)
    found = [(f"{path}:{number}", *ids, grade) for number, ids, grade in judgements]
    labels = pl.DataFrame(found, ["place", "query_id", "paper_id", "grade"], orient="row", infer_schema_length=None)
    if labels.is_empty():
        raise InputError(f"{path} has no label", "Fill in its column label")
    known = pairs.filter(pl.lit(machine) | pl.col("drawn")).select("query", "row", "query_id", "paper_id")
    labels = labels.join(known, on=["query_id", "paper_id"], how="left", maintain_order="left")
    extra = labels.filter(pl.col("row").is_null())
    if config.extra == "ignore" and len(extra) < len(labels):
        labels, extra = labels.drop_nulls("row"), extra
    elif len(extra):
        place, query_id, paper_id = extra.select("place", "query_id", "paper_id").row(0)
        problem = f"query {query_id!r} with paper {paper_id!r} is not a pair of this draw"
        remedy = "Give labels of this draw, name theirs with --draw, or leave out other pairs by --extra=ignore"
        raise InputError(f"{place}: {problem}", remedy)
    for place, grade in labels.filter(~pl.col("grade").is_between(0, grades)).select("place", "grade").head(1).rows():
        raise InputError(f"{place}: a label must be from 0 to {grades}, got {grade}", "Correct it")
    return labels.with_columns(annotator=pl.lit(name_of(path)), machine=pl.lit(machine)), len(extra)


def labels_of(labels: Artifact) -> pl.DataFrame:
    """Return labels, columns :data:`pipeline.core.schema.LABELS`."""
    return pl.DataFrame(labels.arrow("labels.arrow"))
