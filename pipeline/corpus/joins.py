"""Second pass of corpus building, by DuckDB: papers in the order of their ids, joined with abstracts and citations.

It sorts and joins ids and keys within ``--memory`` and spills the rest to disk; texts stay where the first pass wrote
them.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from pipeline.core.csr import Keys
from pipeline.core.errors import StageError
from pipeline.core.resources import Resources, available_cores
from pipeline.core.schema import ATTRIBUTES
from pipeline.corpus.parts import texts_at
from pipeline.sources.base import WITHDRAWN

_HASHED = 1 << 63
"""Bit of the keys of DOIs (:func:`pipeline.core.text.reference_keys`)."""

_STREAMED, _COMPARED = 1 << 17, 8_192
"""Rows of results, and of texts that are compared, at a time."""

_SPILLED = "spilled-"
_THREAD_BYTES = 2**27

_NO_ROWS = {
    "abstracts": "SELECT 0::UBIGINT AS place, 0::UBIGINT AS key, 0 AS abstract_chars LIMIT 0",
    "citations": "SELECT 0::UBIGINT AS citing, 0::UBIGINT AS cited LIMIT 0",
}

_REPEATED = f"""
    CREATE TABLE repeated AS SELECT key, min(place) AS first FROM papers GROUP BY key HAVING count(*) > 1;
    CREATE TABLE repeats AS SELECT p.paper_id, f.paper_id AS first_id, p.ref, p.place, f.place AS first,
        f.year = {WITHDRAWN} AS is_withdrawn, p.year = f.year AS same_year, p.outbound = f.outbound AS same_outbound
    FROM papers p JOIN repeated USING (key) JOIN papers f ON f.place = first
    WHERE p.place <> first AND p.year <> {WITHDRAWN}"""
"""``repeated``: keys of several records, and the place of the first, which is the paper; ``repeats``: the others."""

_JOINED = f"""
    CREATE TABLE refs AS SELECT DISTINCT ref FROM papers;
    CREATE TABLE dois AS SELECT doi_key | {_HASHED}::UBIGINT AS key, arg_min(ref, place) AS ref FROM papers
        WHERE doi_key <> 0 AND $by_doi GROUP BY doi_key;
    CREATE TABLE listed AS SELECT citing, cited, count(*) AS times FROM (
        SELECT ref AS citing, unnest(outbound) AS cited FROM papers UNION ALL
        SELECT coalesce(a.ref, citing), coalesce(b.ref, cited) FROM citations
            LEFT JOIN dois a ON a.key = citing LEFT JOIN dois b ON b.key = cited) GROUP BY ALL;
    CREATE TABLE outbound AS SELECT citing AS ref, count(*) AS n FROM listed WHERE citing <> cited GROUP BY citing;
    CREATE TABLE inbound AS SELECT cited AS ref, count(*) AS n FROM listed WHERE citing <> cited GROUP BY cited;
    CREATE TABLE texts AS SELECT key AS ref, min(place) AS text, arg_min(abstract_chars, place) AS chars,
        count(*) AS times FROM abstracts GROUP BY key"""
"""``listed``: citations by the keys of papers, each once, from the papers, tables and a file of citations, which may
name papers by DOI; ``texts``: the first abstract of each paper in the tables."""

_NOTED = {
    "papers_without_abstract": "count(*) FROM papers ANTI JOIN texts USING (ref) WHERE abstract_chars = 0",
    "abstracts: dropped, of_no_paper": "sum(times) FROM texts ANTI JOIN refs USING (ref)",
    "abstracts: kept": "count(*) FROM texts SEMI JOIN refs USING (ref)",
    "citations: dropped, self": "sum(times) FROM listed WHERE citing = cited",
    "citations: dropped, citing_paper_unknown": "sum(times) FROM listed ANTI JOIN refs ON citing = ref "
    "WHERE citing <> cited",
    "citations: dropped, repeated": "sum(times - 1) FROM listed SEMI JOIN refs ON citing = ref WHERE citing <> cited",
    "citations: kept": "count(*) FROM listed SEMI JOIN refs ON citing = ref WHERE citing <> cited",
}

_CORPUS = f"""
    CREATE TABLE corpus AS SELECT $columns FROM papers p $joins
    WHERE year <> {WITHDRAWN} AND NOT EXISTS (FROM repeated r WHERE r.key = p.key AND first <> place)
    ORDER BY paper_id"""
"""Papers in order of id, so that ``rowid`` is the row; ``text`` is the place of the abstract."""

_OF_TABLES = {
    "n_outbound": "coalesce(o.n, 0)",
    "n_inbound": "greatest(n_inbound, coalesce(i.n, 0))",
    "abstract_chars": "coalesce(chars, abstract_chars)",
    "text": "coalesce(text, place)",
}
_LEFT_JOINS = "LEFT JOIN outbound o USING (ref) LEFT JOIN inbound i USING (ref) LEFT JOIN texts USING (ref)"

_LINKS = f"""
    CREATE TABLE names AS SELECT key, min(row) AS row FROM (SELECT key, rowid::UBIGINT AS row FROM corpus UNION ALL
        SELECT doi_key | {_HASHED}::UBIGINT, rowid::UBIGINT FROM corpus WHERE doi_key <> 0) GROUP BY key;
    CREATE TABLE links AS SELECT (citing << 32::UBIGINT) | row AS pair FROM ($references) JOIN names ON cited = key
        WHERE row <> citing"""
"""Citations within the corpus as pairs of rows; papers are cited by id or DOI."""


class Joins:
    """Tables of a release in DuckDB, and what is joined from them."""

    def __init__(self, scratch: Path, db: duckdb.DuckDBPyConnection, is_joined: bool, by_doi: bool) -> None:
        self._scratch, self._db, self._is_joined = scratch, db, is_joined
        folder = glob.escape(scratch.as_posix()).replace("'", "''")
        for kind in ("papers", "abstracts", "citations"):
            is_there = any(scratch.glob(f"{kind}-*.parquet"))
            rows = f"FROM read_parquet('{folder}/{kind}-*.parquet')" if is_there else _NO_ROWS[kind]
            db.execute(f"CREATE VIEW {kind} AS {rows}")
        db.execute(_REPEATED)
        if is_joined:
            db.execute(_JOINED.replace("$by_doi", str(by_doi)))
        for ids in db.sql("SELECT paper_id, first_id FROM repeats WHERE paper_id <> first_id LIMIT 1").fetchall():
            what = "two paper ids share one 64-bit key: {!r} and {!r}".format(*ids)
            raise StageError(what, "Rename one of them in the release")

    def noted(self) -> Counter[str]:
        """Return how many abstracts and citations were joined and dropped, by reason."""
        noted = Counter({name: self._number(f"SELECT {counted}") for name, counted in _NOTED.items()})
        pairs = "a.place, text AS first FROM abstracts a JOIN texts ON a.key = texts.ref SEMI JOIN refs USING (ref)"
        for same in self._same_texts(f"SELECT {pairs} WHERE a.place <> text", abstract=("place", "first")):
            noted["abstracts: dropped, repeated"] += int(same.sum())
            noted["abstracts: dropped, repeated_other_text"] += int((~same).sum())
        return noted

    def dropped(self) -> Counter[str]:
        """Return how many papers repeat an id, by whether texts, year and references equal those of the first."""
        dropped = Counter(withdrawn_later=self._number("SELECT count(*) FROM repeats WHERE is_withdrawn"))
        same = "same_year" if self._is_joined else "same_year AND same_outbound"
        text = "coalesce(text, place)" if self._is_joined else "place"
        first_text = text.replace("place", "first")
        source = "repeats LEFT JOIN texts USING (ref)" if self._is_joined else "repeats"
        sql = f"SELECT place, first, {text} AS text, {first_text} AS first_text FROM {source} WHERE NOT is_withdrawn"
        for equal in self._same_texts(f"{sql} AND {same}", title=("place", "first"), abstract=("text", "first_text")):
            dropped["duplicate_id"] += int(equal.sum())
        repeats = self._number("SELECT count(*) FROM repeats WHERE NOT is_withdrawn")
        return dropped + Counter(duplicate_id_other_text=repeats - dropped["duplicate_id"])

    def first_repeat(self) -> tuple[str, int] | None:
        """Return id and place of the first paper that repeats an id, in the order of ids; None if none does."""
        sql = "SELECT paper_id, place FROM repeats WHERE NOT is_withdrawn ORDER BY paper_id, place LIMIT 1"
        return next(iter(self._db.sql(sql).fetchall()), None)

    def papers(self) -> Iterator[list[Any]]:
        """Yield, in order of id, blocks of the papers' attributes, places and places of abstracts."""
        columns = {name: name for name in (*ATTRIBUTES.names, "place", "ref")} | {"text": "place"}
        columns |= _OF_TABLES if self._is_joined else {}
        listed = ", ".join(f"{expression} AS {name}" for name, expression in columns.items())
        self._db.execute(_CORPUS.replace("$columns", listed).replace("$joins", _LEFT_JOINS if self._is_joined else ""))
        yield from self._stream(f"SELECT {', '.join(ATTRIBUTES.names)}, place, text FROM corpus")

    def resolve(self) -> None:
        """Find the papers that are cited; after :meth:`papers`."""
        cited = "unnest(outbound) AS cited FROM papers JOIN corpus c USING (place)"
        if self._is_joined:
            cited = "l.cited FROM listed l JOIN corpus c ON l.citing = ref WHERE l.citing <> l.cited"
        references = f"SELECT c.rowid::UBIGINT AS citing, {cited}"
        self._db.execute("SET preserve_insertion_order = false")
        self._db.execute(_LINKS.replace("$references", references))

    def links(self, name: str) -> Iterator[Keys]:
        """Yield blocks of rising pairs of rows: citing and cited paper, or reversed, if ``name`` is ``incoming``."""
        pair = "pair" if name == "outgoing" else "((pair & 4294967295::UBIGINT) << 32::UBIGINT) | (pair >> 32::UBIGINT)"
        for block in self._stream(f"SELECT {pair} AS pair FROM links ORDER BY pair"):
            yield block[0]

    def _number(self, sql: str) -> int:
        return int(self._db.sql(sql).fetchall()[0][0] or 0)

    def _stream(self, sql: str) -> Iterator[list[Any]]:
        """Yield the columns of a result as arrays, a block of rows at a time."""
        for batch in self._db.sql(sql).to_arrow_reader(_STREAMED):
            yield [np.asarray(column) for column in batch.columns]

    def _same_texts(self, sql: str, **columns: tuple[str, str]) -> Iterator[Any]:
        """Yield, for blocks of rows, whether texts at two places are equal, bool ``[rows]``, by columns of texts."""
        for batch in self._db.sql(sql).to_arrow_reader(_COMPARED):
            same = np.ones(len(batch), bool)
            for column, places in columns.items():
                one, other = (texts_at(self._scratch, column, np.asarray(batch[place])) for place in places)
                same &= np.asarray(pa.compute.equal(one, other))
            yield same


@contextmanager
def connected(
    memory: int, workers: int | None = None, folder: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an empty database in memory.

    Args:
        memory: most bytes that it holds; it spills the rest to disk.
        workers: most threads, of which each needs some memory; None: all cores.
        folder: where it spills to; None: the folder for temporary files.

    Raises:
        StageError: memory or disk do not suffice.
    """
    with tempfile.TemporaryDirectory(prefix=_SPILLED, dir=folder) as spilled:
        threads = max(1, min(workers or available_cores(), memory // _THREAD_BYTES))
        settings: dict[str, Any] = {"memory_limit": f"{memory}B", "temp_directory": spilled, "threads": threads}
        try:
            with duckdb.connect(config=settings) as db:
                yield db
        except duckdb.OutOfMemoryException as error:
            reason = str(error).partition("\n")[0]
            raise StageError(f"papers cannot be joined ({reason})", "Give more --memory, or free some disk") from error
        except duckdb.IOException as error:
            if "No space left" not in str(error):
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), spilled) from error


@contextmanager
def joins(scratch: Path, resources: Resources, is_joined: bool, by_doi: bool) -> Iterator[Joins]:
    """Open the tables of the first pass in ``scratch``, within three quarters of ``resources.memory``.

    Args:
        scratch: folder of the tables.
        resources: limits.
        is_joined: whether the release has several tables, or a file of citations.
        by_doi: whether citations may name papers by DOI.

    Raises:
        StageError: memory or disk do not suffice, or two papers share a key.
    """
    for abandoned in scratch.glob(f"{_SPILLED}*"):
        shutil.rmtree(abandoned)
    with connected(resources.memory * 3 // 4, resources.workers, scratch) as db:
        yield Joins(scratch, db, is_joined, by_doi)
