"""Export pools to other tools: a BEIR folder, TREC files, or Parquet tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Rows
from pipeline.measure import trec
from pipeline.measure.inputs import column, query_of

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


def write_pool(folder: Path, pool: Pool, output: str = "beir") -> list[Path]:
    """Write a pool into a folder in one of :data:`FORMATS` and return the files; existing files are replaced."""
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return FORMATS[output](folder, pool)


def _beir(folder: Path, pool: Pool) -> list[Path]:
    """Write ``corpus.jsonl``, ``queries.jsonl``, ``qrels/test.tsv`` (for mteb also as JSON) and ``exclusions.tsv``.

    The exclusions, which BEIR lacks, are candidates that rankings exclude: the query itself and papers with its title.
    """
    (folder / "qrels").mkdir(exist_ok=True)
    qrels = qrels_table(pool).rename_columns(["query-id", "corpus-id", "score"])
    exclusions = exclusion_table(pool).rename_columns(["query-id", "corpus-id"])
    contents = {
        "corpus.jsonl": _documents(pool),
        "queries.jsonl": _queries(pool),
        "qrels/test.tsv": _tsv(qrels),
        "qrels/test.jsonl": [_JSON.encode_lines(qrels.to_pylist())],
        "README.md": [_CARD.encode()],
        **({"exclusions.tsv": _tsv(exclusions)} if len(pool.exclusions[1]) else {}),
    }
    return _write(folder, contents)


def _trec(folder: Path, pool: Pool) -> list[Path]:
    """Write ``topics.tsv`` and ``qrels.txt``."""
    return _write(folder, {"topics.tsv": trec.topic_lines(pool), "qrels.txt": trec.qrels_lines(pool)})


def _write(folder: Path, contents: Mapping[str, Iterable[bytes]]) -> list[Path]:
    for name, blocks in contents.items():
        trec.write(folder / name, blocks)
    return [folder / name for name in contents]


def _parquet(folder: Path, pool: Pool) -> list[Path]:
    tables = {
        "queries": query_table(pool),
        "candidates": candidate_table(pool),
        "qrels": qrels_table(pool),
        "exclusions": exclusion_table(pool),
    }
    for name, table in tables.items():
        with files.replacing(folder / f"{name}.parquet") as temporary:
            pq.write_table(table, temporary)
    return [folder / f"{name}.parquet" for name in tables]


_Writer = Callable[[Path, Pool], list[Path]]
FORMATS: dict[str, _Writer] = {"beir": _beir, "mteb": _beir, "trec": _trec, "parquet": _parquet}
"""Writer of each format of a pool."""


def query_table(pool: Pool) -> pa.Table:
    """Return the queries: query_id, title, abstract, year, field; an ad-hoc query has only a title."""
    texts = [text for block in pool.query_texts() for text in block]
    return pa.table(
        {
            "query_id": pa.array(pool.query_ids(), pa.large_string()),
            "title": pa.array([text.title for text in texts], pa.large_string()),
            "abstract": pa.array([text.abstract for text in texts], pa.large_string()),
            "year": _years(pool, pool.query_rows) if pool.queries_are_papers else pa.nulls(len(texts), pa.int16()),
            "field": pool.artifact.arrow("queries.arrow").column("field"),
        }
    )


def candidate_table(pool: Pool) -> pa.Table:
    """Return the candidates in order of id: doc_id, title, abstract and year."""
    table = pool.corpus.take(pool.candidates, ["paper_id", "title", "abstract"])
    return table.rename_columns(["doc_id", "title", "abstract"]).append_column("year", _years(pool, pool.candidates))


def qrels_table(pool: Pool) -> pa.Table:
    """Return the judgements: query_id, doc_id and grade."""
    query, row = column(pool.qrels, "query"), column(pool.qrels, "row")
    return _pairs(pool, query, row).append_column("grade", pool.qrels.column("grade"))


def exclusion_table(pool: Pool) -> pa.Table:
    """Return the candidates excluded from rankings: query_id and doc_id."""
    offsets, row = pool.exclusions
    return _pairs(pool, query_of(offsets), row)


def _pairs(pool: Pool, query: npt.NDArray[np.integer], row: Rows) -> pa.Table:
    queries = pa.array(pool.query_ids(), pa.large_string())
    documents = pa.array(pool.corpus.ids(row), pa.large_string())
    return pa.table({"query_id": queries.take(pa.array(query)), "doc_id": documents})


def _years(pool: Pool, rows: Rows) -> pa.Array:
    years = pool.corpus.attributes["year"][rows]
    return pa.array(years, pa.int16(), mask=years == NO_YEAR)


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
                "Export it with --format=trec or parquet",
            )
    yield "".join("\t".join(line) + "\n" for line in lines).encode()


def unjudged(pool: Pool) -> int:
    """Return the number of queries without judgement, which readers of BEIR folders skip."""
    return len(pool.query_rows) - len(np.unique(column(pool.qrels, "query")))
