"""Export to other tools: pools as BEIR folder or TREC files, rankings as TREC run or JSON, frames as CSV or Parquet.

Tools that sort by score alone order ties differently. So rankings in JSON have float64 scores that decrease within a
tie by the smallest step; rounded to float32 they are the original scores. Readers of TREC runs break ties as we do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.text import csv_cell
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Rows
from pipeline.measure import trec
from pipeline.measure.inputs import column, query_of

FRAME_FORMATS, RANKING_FORMATS = ("csv", "parquet"), ("trec", "json")
"""Formats of frames and of rankings; ranx reads ``json``."""

_CARD = """\
---
configs:
- config_name: corpus
  data_files: [{split: corpus, path: corpus.jsonl}]
- config_name: queries
  data_files: [{split: queries, path: queries.jsonl}]
- config_name: default
  data_files: [{split: test, path: qrels/test.jsonl}]
dataset_info:
- config_name: default
  features: [{name: query-id, dtype: string}, {name: corpus-id, dtype: string}, {name: score, dtype: int32}]
---
"""
"""Data set card with which ``datasets``, and so ``mteb``, finds the JSON tables of a BEIR folder."""

_JSON = msgspec.json.Encoder()
_NOT_IN_TSV = re.compile(r'[\t\r\n]|\A"|\A\Z')
"""Ids that a TSV file cannot represent."""

_ID_COLUMNS = ("query_id", "paper_id")
"""Columns that other tools join on: written unchanged, even if a spreadsheet would run them as a formula."""


def as_csv(frame: pl.DataFrame) -> str:
    """Return a frame as CSV: lists joined by ``;``, texts other than ids by :func:`pipeline.core.text.csv_cell`."""
    lists = pl.selectors.list()
    frame = frame.with_columns(lists.list.eval(pl.element().cast(pl.String)).list.join(";"))
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String and name not in _ID_COLUMNS]
    cells = (pl.col(name).replace("", None).map_elements(csv_cell, pl.String) for name in texts)
    text: str = frame.with_columns(cells).write_csv()
    return text


def write_frame(path: Path, frame: pl.DataFrame, output: str = "csv") -> None:
    """Write a frame atomically in one of :data:`FRAME_FORMATS`."""
    if output == "csv":
        trec.write(path, [as_csv(frame).encode()])
    else:
        with files.disk_errors(path), files.replacing(path) as temporary:
            frame.write_parquet(temporary)


def write_pool(folder: Path, pool: Pool, output: str = "beir") -> list[Path]:
    """Write a pool into a folder in one of :data:`POOL_FORMATS` and return the files; existing files are replaced."""
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        contents = POOL_FORMATS[output](pool)
        for name, blocks in contents.items():
            (folder / name).parent.mkdir(exist_ok=True)
            trec.write(folder / name, blocks)
    return [folder / name for name in contents]


_Files = dict[str, Iterable[bytes]]


def _beir(pool: Pool) -> _Files:
    """Return ``corpus.jsonl``, ``queries.jsonl``, ``qrels/test.tsv`` (for mteb also as JSON) and ``exclusions.tsv``.

    The exclusions, which BEIR lacks, are candidates that rankings exclude: the query itself and papers with its title.
    """
    qrels = qrels_table(pool).rename_columns(["query-id", "corpus-id", "score"])
    offsets, excluded = pool.exclusions
    exclusions = _pairs(pool, query_of(offsets), excluded).rename_columns(["query-id", "corpus-id"])
    return {
        "corpus.jsonl": _documents(pool),
        "queries.jsonl": _queries(pool),
        "qrels/test.tsv": _tsv(qrels),
        "qrels/test.jsonl": [_JSON.encode_lines(qrels.to_pylist())],
        "README.md": [_CARD.encode()],
        **({"exclusions.tsv": _tsv(exclusions)} if len(excluded) else {}),
    }


def _trec(pool: Pool) -> _Files:
    return {"topics.tsv": trec.topic_lines(pool), "qrels.txt": trec.qrels_lines(pool)}


POOL_FORMATS: dict[str, Callable[[Pool], _Files]] = {"beir": _beir, "trec": _trec}
"""Content of the files of each format of a pool, by name."""


def qrels_table(pool: Pool) -> pa.Table:
    """Return the judgements: query_id, paper_id and grade."""
    query, row = column(pool.qrels, "query"), column(pool.qrels, "row")
    return _pairs(pool, query, row).append_column("grade", pool.qrels.column("grade"))


def _pairs(pool: Pool, query: npt.NDArray[np.integer], row: Rows) -> pa.Table:
    queries = pa.array(pool.query_ids(), pa.large_string())
    papers = pa.array(pool.corpus.ids(row), pa.large_string())
    return pa.table({"query_id": queries.take(pa.array(query)), "paper_id": papers})


def _documents(pool: Pool) -> Iterator[bytes]:
    ids = iter(pool.corpus.ids(pool.candidates))
    for block in pool.candidate_texts():
        yield _JSON.encode_lines({"_id": next(ids), "title": text.title, "text": str(text.abstract)} for text in block)


def _queries(pool: Pool) -> Iterator[bytes]:
    ids = iter(pool.query_ids())
    for block in pool.query_texts():
        yield _JSON.encode_lines({"_id": next(ids), "text": " ".join(text).strip()} for text in block)


def _tsv(table: pa.Table) -> Iterator[bytes]:
    columns = [list(map(str, values.to_pylist())) for values in table.columns]
    lines = [table.column_names, *zip(*columns, strict=True)]
    for text in dict.fromkeys(text for line in lines for text in line):
        if _NOT_IN_TSV.search(text):
            raise InputError(
                f"an id in a BEIR folder must be without tabs, line ends and a leading quote, got {text!r}",
                "Export it with --format=trec",
            )
    yield "".join("\t".join(line) + "\n" for line in lines).encode()


def unjudged(pool: Pool) -> int:
    """Return the number of queries without judgement, which readers of BEIR folders skip."""
    return len(pool.query_rows) - len(np.unique(column(pool.qrels, "query")))


def _run_dict(ranking: pa.Table, pool: Pool) -> dict[str, dict[str, float]]:
    """Return a ranking as a dictionary of all queries, with scores that decrease strictly.

    A query without results has an empty dictionary.
    """
    query, score = column(ranking, "query"), column(ranking, "score").astype(np.float64)
    names = pool.query_ids()
    rows, inverse = np.unique(column(ranking, "row"), return_inverse=True)
    ids = pool.corpus.ids(rows)
    is_first = np.ones(len(query), dtype=bool)
    is_first[1:] = (query[1:] != query[:-1]) | (score[1:] != score[:-1])
    position_in_tie = np.arange(len(query)) - np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    strict_scores = score - position_in_tie * np.spacing(np.abs(score))
    run: dict[str, dict[str, float]] = {query_id: {} for query_id in names}
    for position, index, value in zip(query.tolist(), inverse.tolist(), strict_scores.tolist(), strict=True):
        run[names[position]][ids[index]] = value
    return run


def write_ranking(path: Path, ranking: pa.Table, pool: Pool, tag: str, output: str = "trec") -> None:
    """Write a ranking atomically in one of :data:`RANKING_FORMATS`; a path that ends in ``.gz`` is compressed.

    ``tag`` is the name of the run in a TREC file.
    """
    if output == "trec":
        trec.write(path, trec.run_lines(ranking, pool, tag))
    else:
        trec.write(path, [msgspec.json.encode(_run_dict(ranking, pool))])
