"""Score runs of any tool against qrels without a corpus, into the frames that this package takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from pipeline.core import files
from pipeline.core.config import SHORT_ID, digest
from pipeline.core.csr import pack
from pipeline.core.errors import InputError
from pipeline.core.progress import warn
from pipeline.core.schema import JUDGEMENTS
from pipeline.exchange.runs import Entries, check_distinct, entries_of, rank_entries, read_entries
from pipeline.measure.engines import evaluate_all
from pipeline.measure.inputs import Qrels, Run
from pipeline.measure.measures import DEFAULT, Measure, parse_measures
from pipeline.measure.trec import unescape
from pipeline.scores.labels import labelled
from pipeline.scores.store import RUNS, as_json, with_facts
from pipeline.sources.beir import read_judgements
from pipeline.stages.score import counts_of

RunFile = Path | str | Mapping[str, Mapping[str, float]]
"""A run: a file (TREC, ``.json``, ``.lz4`` of ranx, ``.parquet``), or scores by query and document."""

QrelsFile = Path | str | Mapping[str, Mapping[str, int]]
"""Judgements: a file (TREC, BEIR's ``.tsv``, ``.json``), or grades by query and document."""

POOL_SETTINGS = {"queries_are": "texts", "documents": "named"}
"""Settings in place of those of a pool: queries are given, and the collection is the documents that the files name."""

_DEPTH = 2**16 - 1


def evaluate(runs: RunFile | Sequence[RunFile], qrels: QrelsFile, *, measures: str | None = None) -> pl.DataFrame:
    """Score runs against qrels, in the order of trec_eval: by score as float32, then by document id, both descending.

    A judged query that a run lacks scores 0, as with ``trec_eval -c``. Queries without a relevant document (grade 1 or
    more) are left out. A cutoff beyond the end of a list uses the whole list.

    Args:
        runs: one run or several; the name of a file without endings is the name of the system.
        qrels: the judgements.
        measures: measures in addition to the default ones, with commas.

    Returns:
        A row for each run, query and measure, columns :data:`pipeline.scores.store.SCORES_SCHEMA`, with fractions.

    Raises:
        InputError: a file cannot be read, two runs have one name, or a run has no query of the qrels.
    """
    run_list = runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    return score_files(run_list, qrels, measures)[1]


def score_files(
    runs: Sequence[RunFile], qrels: QrelsFile, measures: str | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return runs as a frame of rankings, columns :data:`RUNS`, and their scores; as :func:`evaluate`."""
    names = [name_of(run, f"run {position}") for position, run in enumerate(runs, 1)]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"two runs are named {repeated[0]!r}", "Rename one of the files")
    requested = {*DEFAULT, *(parse_measures(measures) if measures else ())}
    chosen = sorted(requested, key=lambda measure: measure.order)
    judgements = _judgements(qrels)
    entries = [entries_of(run) if isinstance(run, Mapping) else read_entries(Path(run)) for run in runs]
    entries = [_unescape_ids(run, {text for pair in judgements for text in pair}) for run in entries]
    documents = {*(document for _, document in judgements), *(text for run in entries for text in set(run.documents))}
    rows = {text: row for row, text in enumerate(sorted(documents))}  # of Unicode, and so of UTF-8
    queries = {text: position for position, text in enumerate(dict.fromkeys(query for query, _ in judgements))}
    relevant = _qrels(judgements, queries, rows)
    collection = f"{name_of(qrels, 'qrels')}-{_digest(qrels)}"
    results = [_score(run, name, queries, rows, relevant, chosen) for run, name in zip(entries, names, strict=True)]
    counts, scores = zip(*results, strict=True)
    shared = {
        "depth": max(
            of_run["depth"] for of_run in counts
        ),  # one depth, so that shorter lists are rows of the same table
        "size": len(rows),
        "measures": list(map(str, chosen)),
    }
    facts = [
        of_run | _identity(name, f"{name}-{_digest(run)}", collection) | shared
        for of_run, name, run in zip(counts, names, runs, strict=True)
    ]
    frame = labelled(pl.DataFrame(facts, schema=RUNS, orient="row"))
    return frame, with_facts(frame, scores)


def name_of(file: RunFile | QrelsFile, otherwise: str) -> str:
    """Return the name of a file without its endings."""
    if isinstance(file, Mapping):
        return otherwise
    stem = Path(file).name.removesuffix(".gz")
    return stem.rpartition(".")[0] or stem


def _score(
    run: Entries,
    name: str,
    queries: Mapping[str, int],
    rows: Mapping[str, int],
    relevant: Qrels,
    measures: Sequence[Measure],
) -> tuple[dict[str, Any], pl.DataFrame]:
    """Return the counts of a run, and a row for each query and measure."""
    query = np.fromiter((queries.get(text, -1) for text in run.queries), np.int64, len(run.queries))
    judged = np.flatnonzero(query >= 0)
    if not len(judged):
        raise InputError(f"{name} and the qrels have no query in common", "Compare the ids of queries in both")
    row = np.fromiter(map(rows.__getitem__, run.documents), np.int64, len(run.documents))
    if not np.isin(row[judged], relevant.rows).any():
        warn(f"{name} ranks no document that is relevant to any query: compare the ids of documents in both files")
    packed = pack(query[judged], row[judged])
    check_distinct(run, judged, packed)
    ranking, truncated = rank_entries(packed, run.scores[judged], _DEPTH)
    if truncated:
        raise InputError(f"{name} ranks more than {_DEPTH:,} documents of a query", "Keep the best of each query")
    indexed_run, scored_queries = Run.from_table(ranking, len(queries)), np.flatnonzero(relevant.positives())
    ids = list(queries)
    scores = pl.DataFrame(
        {
            "query": np.tile(scored_queries, len(measures)).astype(np.uint32),
            "query_id": [ids[position] for position in scored_queries] * len(measures),
            "measure": [str(measure) for measure in measures for _ in scored_queries],
            "value": evaluate_all(relevant, indexed_run, measures)[:, scored_queries].ravel(),
        }
    )
    counts = counts_of(ranking, indexed_run, relevant)
    return {"queries": len(queries), "positives_not_in_collection": 0, **counts}, scores


def _identity(name: str, identity: str, collection: str) -> dict[str, Any]:
    """Return the columns that identify a run in a frame of rankings."""
    return {
        **dict.fromkeys(("system", "label"), name),
        **dict.fromkeys(("ranking", "row", "variant"), identity),
        **dict.fromkeys(("corpus", "pool", "kind"), collection),
        **dict.fromkeys(("settings", "row_settings", "metadata_gaps"), "{}"),
        "scores": [],
        "score_paths": [],
        "pool_settings": as_json(POOL_SETTINGS),
        "sample": 1,
        "published": 0,
        "replaced": False,
    }


def _qrels(judgements: Mapping[tuple[str, str], int], queries: Mapping[str, int], rows: Mapping[str, int]) -> Qrels:
    entries = sorted((queries[query], rows[document], grade) for (query, document), grade in judgements.items())
    columns = np.array(entries, np.int64).reshape(-1, 3).T
    table = [pa.array(values).cast(kind) for values, kind in zip(columns, JUDGEMENTS.types, strict=True)]
    qrels = Qrels.from_table(pa.Table.from_arrays(table, schema=JUDGEMENTS), len(queries))
    if not len(qrels.rows):
        raise InputError("the qrels must have a relevant document, got none", "A grade of 1 or more is relevant")
    return qrels


def _judgements(qrels: QrelsFile) -> dict[tuple[str, str], int]:
    """Return the grade of each query and document; a pair judged twice is refused."""
    if isinstance(qrels, Mapping):
        return {(query, document): int(grade) for query, grades in qrels.items() for document, grade in grades.items()}
    path, grades = Path(qrels), dict[tuple[str, str], int]()
    for line, pair, grade in _graded_pairs(path):
        if pair in grades:
            raise InputError(f"{path}:{line} judges {pair[1]!r} again for query {pair[0]!r}", "Keep one judgement")
        grades[pair] = grade
    if not grades:
        raise InputError(f"{path} holds no judgement", "Give a file of TREC qrels, BEIR's .tsv, or .json")
    return grades


def _graded_pairs(path: Path) -> Iterable[tuple[int, tuple[str, str], int]]:
    if not path.is_file():
        raise InputError(f"there is no file {path}", "Give a file of TREC qrels, BEIR's .tsv, or .json")
    if path.suffix != ".json":
        return read_judgements(path)
    try:
        nested = files.given_json(path).items()
        flattened = [((query, document), grade) for query, grades in nested for document, grade in grades.items()]
    except AttributeError as error:
        raise InputError(f"{path} must be {{query: {{document: grade}}}} ({error})", "Write it again") from error
    if invalid := [grade for _, grade in flattened if not isinstance(grade, int)]:
        raise InputError(f"{path}: a grade must be a whole number, got {invalid[0]!r}", "Write it again")
    return [(position, pair, grade) for position, (pair, grade) in enumerate(flattened, 1)]


def _unescape_ids(run: Entries, judged: Collection[str]) -> Entries:
    """Return a run whose percent-encoded ids are decoded if the qrels have them decoded."""
    escaped_ids = {text for text in (*run.queries, *run.documents) if "%" in text} if run.escaped else set()
    plain_ids = {text: plain for text in escaped_ids if (plain := unescape(text)) in judged}
    if not plain_ids:
        return run
    queries, documents = ([plain_ids.get(text, text) for text in ids] for ids in (run.queries, run.documents))
    return replace(run, queries=queries, documents=documents)


def _digest(file: RunFile | QrelsFile) -> str:
    if isinstance(file, Mapping):
        return digest({query: dict(documents) for query, documents in file.items()}).removeprefix("sha256:")[:SHORT_ID]
    return files.sha256(Path(file)).removeprefix("sha256:")[:SHORT_ID]
