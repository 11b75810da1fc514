"""Score runs of any tool against qrels without a corpus, into the frames that this package takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from pipeline.core import files
from pipeline.core.config import SHORT_ID, counted, digest
from pipeline.core.csr import pack
from pipeline.core.errors import InputError, require_known
from pipeline.core.progress import say, warn
from pipeline.core.schema import JUDGEMENTS
from pipeline.exchange.entries import MEMORY, Entries, labelled_file, name_of, read_entries
from pipeline.exchange.runs import check_distinct, rank_entries
from pipeline.measure.engines import evaluate_all
from pipeline.measure.inputs import Qrels, RankedRun
from pipeline.measure.measures import DEFAULT, Measure, parse_measures
from pipeline.scores.frames import RUNS, SCORES_SCHEMA, joined
from pipeline.scores.labels import labelled
from pipeline.sources.judgements import read_judgements
from pipeline.stages.score import counts_of

RunFile = Any
"""A run: a file, perhaps as the text ``LABEL=FILE`` (TREC, a table, ``.json``, ``.jsonl``,
``.parquet``); scores by query and document; or a frame of polars, pandas or Arrow, or a run of ranx."""

QrelsFile = Any
"""Judgements: a file (TREC, BEIR's ``.tsv``, ``.csv``, ``.json``, ``.jsonl``, ``.parquet``), grades by query and
document, a frame, or qrels of ranx."""

NO_POSITIVE = ("ignore", "zero")
"""Queries that a measure cannot rate: left out, or 0 as trec_eval has it."""

_DEPTH = 2**16 - 1


def evaluate(
    runs: RunFile | Sequence[RunFile] | Mapping[str, RunFile],
    qrels: QrelsFile,
    *,
    measures: str | None = None,
    no_positive: str = "ignore",
) -> pl.DataFrame:
    """Score runs against qrels, in the order of trec_eval 10: by score, then by document id, both descending.

    A judged query that a run lacks scores 0, as with ``trec_eval -c``. Queries without a relevant document (grade 1 or
    more, or that of the measure) are left out. A cutoff beyond the end of a list uses the whole list.

    Args:
        runs: one run or several, or runs by the names of their systems; else the name of a file without endings is its
            system's.
        qrels: the judgements.
        measures: measures in addition to the default ones, with commas.
        no_positive: one of :data:`NO_POSITIVE`.

    Returns:
        A row for each run, query and measure, columns :data:`pipeline.scores.frames.SCORES_SCHEMA`, with fractions.

    Raises:
        InputError: a file cannot be read, two runs have one name, or a run has no query of the qrels.
    """
    by_name = isinstance(runs, Mapping) and all(map(_is_run, runs.values()))
    given = runs if by_name or isinstance(runs, list | tuple) else [runs]
    return score_files(given, qrels, measures, no_positive=no_positive)[1]


def _is_run(value: Any) -> bool:
    """Return whether a value is a run, and not the scores of one query."""
    if isinstance(value, Mapping):
        return any(isinstance(scores, Mapping) for scores in value.values())
    return isinstance(value, str | Path) or any(hasattr(value, name) for name in ("__arrow_c_stream__", "to_dict"))


def score_files(
    runs: Sequence[RunFile] | Mapping[str, RunFile],
    qrels: QrelsFile,
    measures: str | None = None,
    *,
    no_positive: str = "ignore",
    memory: int = MEMORY,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return runs as a frame of rankings, columns :data:`RUNS`, and their scores; as :func:`evaluate`.

    ``memory`` limits the reading of each run, in bytes.
    """
    require_known(no_positive, NO_POSITIVE, f"--no-positive must be one of {', '.join(NO_POSITIVE)}")
    if isinstance(runs, Mapping):
        named = [(str(name), _plain(run)) for name, run in runs.items()]
    else:
        named = [
            labelled_file(run) if isinstance(run, str | Path) else (f"run {position}", _plain(run))
            for position, run in enumerate(runs, 1)
        ]
    if not named:
        raise InputError("runs must be one run or more, got none", "Give a file, or scores by query and document")
    names = [name for name, _ in named]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"two runs are named {repeated[0]!r}", "Give each a name with --run NAME=FILE")
    requested = {*DEFAULT, *(parse_measures(measures) if measures else ())}
    chosen = sorted(requested, key=lambda measure: measure.order)
    qrels = _plain(qrels)
    judgements = _judgements(qrels)
    entries = [read_entries(run, memory) for _, run in named]
    documents = {*(document for _, document in judgements), *(text for run in entries for text in set(run.documents))}
    rows = {text: row for row, text in enumerate(sorted(documents))}  # of Unicode, and so of UTF-8
    queries = {text: position for position, text in enumerate(dict.fromkeys(query for query, _ in judgements))}
    relevant = _qrels(judgements, queries, rows)
    collection = f"{name_of(qrels) if isinstance(qrels, Path) else 'qrels'}-{_digest(qrels)}"
    results = [
        _score(run, name, queries, rows, relevant, chosen, no_positive)
        for run, name in zip(entries, names, strict=True)
    ]
    counts, scores = zip(*results, strict=True)
    shared = {
        **dict.fromkeys(("corpus", "pool", "kind"), collection),
        **{name: [] for name in ("scores", "row_settings", "score_paths")},
        "sample": 1,
        "published": 0,
        "made": "",
        "replaced": False,
        "depth": max(
            of_run["depth"] for of_run in counts
        ),  # one depth, so that shorter lists are rows of the same table
        "size": len(rows),
        "measures": list(map(str, chosen)),
        "queries_are": "texts",  # given ones; the collection is the documents that the files name
        "no_positive": no_positive,
    }
    facts = [
        of_run
        | dict.fromkeys(("system", "label"), name)
        | dict.fromkeys(("ranking", "row", "variant"), f"{name}-{_digest(run)}")
        | shared
        for of_run, (name, run) in zip(counts, named, strict=True)
    ]
    frame = labelled(pl.DataFrame(facts, schema=RUNS, orient="row"))
    return frame, joined(frame, scores, SCORES_SCHEMA)


def _score(
    run: Entries,
    name: str,
    queries: Mapping[str, int],
    rows: Mapping[str, int],
    relevant: Qrels,
    measures: Sequence[Measure],
    no_positive: str,
) -> tuple[dict[str, Any], pl.DataFrame]:
    """Return the counts of a run, and a row for each query and measure."""
    query = np.fromiter((queries.get(text, -1) for text in run.queries), np.int64, len(run.queries))
    judged = np.flatnonzero(query >= 0)
    if not len(judged):
        raise InputError(f"{name} and the qrels have no query in common", "Compare the ids of queries in both")
    if unjudged := len({run.queries[entry] for entry in np.flatnonzero(query < 0).tolist()}):
        say(f"{name}: {counted(unjudged, 'query')} of the run without judgement left out")
    row = np.fromiter(map(rows.__getitem__, run.documents), np.int64, len(run.documents))
    if not np.isin(row[judged], relevant.rows).any():
        warn(f"{name} ranks no document that is relevant to any query: compare the ids of documents in both files")
    packed = pack(query[judged], row[judged])
    check_distinct(run, judged, packed)
    ranking, truncated = rank_entries(packed, run.scores[judged], _DEPTH)
    if truncated:
        raise InputError(f"{name} ranks more than {_DEPTH:,} documents of a query", "Keep the best of each query")
    indexed_run = RankedRun.from_table(ranking, len(queries))
    values = evaluate_all(relevant, indexed_run, measures)
    if no_positive == "zero":
        values = np.nan_to_num(values, nan=0.0)
    elif unrated := [measure for measure, row in zip(measures, values, strict=True) if np.isnan(row).all()]:
        raise InputError(
            f"{unrated[0]} must have a query with a document of grade {unrated[0].relevant}, got none",
            "Leave the measure out, or count such queries with --no-positive=zero",
        )
    of_measure, of_query = np.nonzero(~np.isnan(values))
    scores = pl.DataFrame(
        {
            "query": of_query.astype(np.uint32),
            "query_id": np.array(list(queries), object)[of_query].tolist(),
            "measure": [str(measures[index]) for index in of_measure.tolist()],
            "value": values[of_measure, of_query],
        },
        schema_overrides={"query_id": pl.String},
    )
    counts = counts_of(ranking, indexed_run, relevant)
    return {"queries": len(queries), "positives_not_in_collection": 0, **counts}, scores


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
    grades = dict[tuple[str, str], int]()
    name = qrels if isinstance(qrels, Path) else "qrels"
    for line, pair, grade in read_judgements(qrels):
        if pair in grades:
            raise InputError(f"{name}:{line} judges {pair[1]!r} again for query {pair[0]!r}", "Keep one judgement")
        grades[pair] = grade
    if not grades:
        raise InputError(f"{name} holds no judgement", "Give a file of TREC qrels, BEIR's .tsv, or .json")
    return grades


def _plain(given: Any) -> Any:
    """Return a path of a text, and what runs and qrels of ranx hold; anything else as it is."""
    if isinstance(given, str):
        return Path(given)
    return given.to_dict() if type(given).__module__.partition(".")[0] == "ranx" else given


def _digest(file: RunFile | QrelsFile) -> str:
    if isinstance(file, Path):
        return files.sha256(file).removeprefix("sha256:")[:SHORT_ID]
    content = repr(file) if isinstance(file, Mapping) else repr(pa.table(file).to_pydict())
    return digest(content).removeprefix("sha256:")[:SHORT_ID]
