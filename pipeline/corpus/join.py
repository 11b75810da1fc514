"""External hash join of a release in several tables: partition all of them by paper, then join partition by partition.

Only a partition has to fit in memory, and there are as many partitions as that takes. The parts of the result
are the partitions, so the rest of corpus building does not know about tables.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.csr import Ints, distinct_pairs, offsets_of, places
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress, warn
from pipeline.core.resources import Resources
from pipeline.core.text import Keys, id_keys
from pipeline.corpus.extract import grouped, unless_empty
from pipeline.sources.base import (
    BATCH_ROWS,
    RAW_PAPERS,
    Abstracts,
    Batch,
    Citations,
    JoinedRelease,
    PaperBatch,
    Release,
)

_KEY = pa.field("key", pa.uint64(), nullable=False)
_OTHER = pa.field("other", pa.uint64(), nullable=False)
_TABLES = {
    "papers": RAW_PAPERS,
    "abstracts": pa.schema([_KEY, pa.field("text", pa.large_string(), nullable=False)]),
    "outgoing": pa.schema([_KEY, _OTHER]),
    "incoming": pa.schema([_KEY, _OTHER]),
}
_KINDS = ("papers", "abstracts", "citations")
_MOST_PARTITIONS = 4_096
_HELD_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Joined(Release):
    """The partitions of a release in ``folder``: part ``i`` has the papers of partition ``i`` with all their data."""

    folder: Path
    partitions: int
    source = "joined tables"

    def identity(self) -> Mapping[str, Any]:
        """Return nothing: the corpus is that of the release."""
        return {}

    def parts(self) -> Sequence[str]:
        """Return the numbers of the partitions."""
        return [*map(str, range(self.partitions))]

    def read(self, part: str) -> Iterator[PaperBatch]:
        """Yield the papers of one partition, in the release's order, with their abstracts and references."""
        papers = self._table("papers", part)
        keys, place = np.unique(id_keys(papers.column("paper_id").combine_chunks()), return_inverse=True)
        noted: Counter[str] = Counter()
        inline = papers.column("abstract").combine_chunks()
        texts = _abstracts_of(inline, keys, place, self._table("abstracts", part), noted)
        references = _references_of(keys, self._table("outgoing", part), noted)
        inbound = _inbound_of(keys, self._table("incoming", part))
        noted["papers_without_abstract"] += pc.equal(texts, "").true_count
        for start in range(0, max(len(papers), 1), BATCH_ROWS):
            rows = place[start : start + BATCH_ROWS]
            columns = {
                name: papers.column(name).slice(start, BATCH_ROWS).combine_chunks() for name in papers.column_names
            }
            columns["abstract"] = texts.slice(start, BATCH_ROWS)
            columns["outbound"] = references.take(rows)
            columns["n_inbound"] = pa.array(inbound[rows])
            batch = pa.RecordBatch.from_arrays([columns[f.name] for f in RAW_PAPERS], schema=RAW_PAPERS)
            yield PaperBatch(batch, read=batch.num_rows, noted=noted if start == 0 else Counter())

    def counts(self) -> Batch:
        """Return what was counted while the tables were partitioned."""
        total = Batch(read=0)
        for _, part in self._records():
            for kind in _KINDS:
                counts = part[kind]
                total.noted += counts["noted"]
                total.examples += counts["examples"]
                if kind == "papers":
                    total.dropped += counts["dropped"]
                else:
                    total.noted[f"{kind}: read"] += counts["read"]
                    total.noted += Counter({f"{kind}: dropped, {reason}": n for reason, n in counts["dropped"].items()})
        total.read = total.dropped.total()
        return total

    def _records(self) -> list[tuple[Path, dict[str, Any]]]:
        return [(path, json.loads(path.read_text())) for path in sorted(self.folder.glob("part-*.json"))]

    def _table(self, name: str, part: str) -> pa.Table:
        """Return the rows of one partition of a table, in the release's order."""
        slices = [_TABLES[name].empty_table()]
        for record, counts in self._records():
            for run in range(counts["runs"]):
                path = _table_file(record, run, name)
                if path.is_file():
                    start, stop = np.load(path.with_suffix(".npy"))[int(part) : int(part) + 2]
                    slices.append(files.read_arrow(path).slice(start, stop - start))
        return pa.concat_tables(slices)

    def discard(self) -> None:
        """Remove the partitions, once every part is read."""
        for path in (*self.folder.glob("part-*.arrow"), *self.folder.glob("part-*.npy")):
            path.unlink()


_FEW = 0.8
"""Share of the rows a release states from which on nothing is said."""


def join(release: JoinedRelease, scratch: Path, resources: Resources) -> Joined:
    """Partition the tables of a release, in several processes, and return it as one that can be read part by part.

    Holds at most about half of ``resources.memory``; parts that an earlier, killed run finished are kept.
    """
    folder = scratch / "tables"
    folder.mkdir(exist_ok=True)
    record = folder / "partitions.json"
    if not record.is_file():
        wanted = -(-release.joined_bytes() // max(1, resources.memory // (4 * resources.workers)))
        files.write_text(record, json.dumps(min(max(1, wanted), _MOST_PARTITIONS)))
    partitions: int = json.loads(record.read_text())
    memory = min(_HELD_BYTES, resources.memory // (8 * resources.workers))
    parts = list(enumerate(release.parts()))
    partition = functools.partial(_partition, release, folder, partitions, memory)
    with Progress(len(parts), f"corpus: partition {release.source} by paper", "parts") as progress:
        for _ in unordered(partition, parts, resources.workers):
            progress.add(1)
    counted = [json.loads(path.read_text()) for path in folder.glob("part-*.json")]
    for table, stated in release.stated().items():
        rows = sum(part[table]["read"] for part in counted)
        if rows < _FEW * stated:
            warn(f"{table} has {rows:,} rows, and its release states {stated:,}: papers lack what is missing")
    return Joined(folder, partitions)


def _partition(release: JoinedRelease, folder: Path, partitions: int, memory: int, numbered: tuple[int, str]) -> None:
    """Partition one part of a release, in runs of about ``memory`` bytes, and last write a record with its counts.

    A run of a table is a file with its rows in the order of their partitions, and beside it where each begins.
    """
    number, part = numbered
    record = folder / f"part-{number:05d}.json"
    if isinstance(files.read_json(record), dict):
        return
    for abandoned in folder.glob(f"{record.stem}-*"):  # of a killed run, whose own runs may have been others
        abandoned.unlink()
    totals = {kind: Batch(read=0) for kind in _KINDS}

    def parts_of_tables() -> Iterator[_Rows]:
        for batch in unless_empty(release.read(part), release.allow_empty):
            kind, tables = _rows_of(batch)
            totals[kind].add_counts(batch)
            yield from tables

    runs = 0
    for group in grouped(parts_of_tables(), lambda rows: rows.batch.nbytes, memory):
        for table, schema in _TABLES.items():
            if mine := [rows for rows in group if rows.table == table]:
                partition = partition_of(np.concatenate([rows.keys for rows in mine]), partitions)
                order = np.argsort(partition, kind="stable")
                sorted_rows = pa.Table.from_batches([rows.batch for rows in mine]).take(order).combine_chunks()
                path = _table_file(record, runs, table)
                files.write_arrow(path, sorted_rows.to_batches(), schema)
                np.save(path.with_suffix(".npy"), offsets_of(partition[order], partitions))
                files.sync(path)
        runs += 1
    files.write_text(record, json.dumps({"runs": runs, **{kind: vars(total) for kind, total in totals.items()}}))


def _table_file(record: Path, run: int, table: str) -> Path:
    return record.with_name(f"{record.stem}-{run}.{table}.arrow")


class _Rows(NamedTuple):
    """Rows of a table and the keys of the papers they belong to."""

    table: str
    batch: pa.RecordBatch
    keys: Keys


def _rows_of(batch: PaperBatch | Abstracts | Citations) -> tuple[str, list[_Rows]]:
    """Return the kind of a batch, and its rows."""
    if isinstance(batch, PaperBatch):
        return "papers", [_Rows("papers", batch.papers, id_keys(batch.papers.column("paper_id")))]
    if isinstance(batch, Abstracts):
        texts = pa.RecordBatch.from_arrays([pa.array(batch.keys), batch.texts], schema=_TABLES["abstracts"])
        return "abstracts", [_Rows("abstracts", texts, batch.keys)]
    apart = batch.citing != batch.cited
    ends = (("outgoing", batch.citing, batch.cited), ("incoming", batch.cited[apart], batch.citing[apart]))
    return "citations", [
        _Rows(table, pa.RecordBatch.from_arrays([pa.array(keys), pa.array(others)], schema=_TABLES[table]), keys)
        for table, keys, others in ends
    ]


def _abstracts_of(
    inline: pa.LargeStringArray, keys: Keys, place: Ints, table: pa.Table, noted: Counter[str]
) -> pa.LargeStringArray:
    """Return the abstract of the paper of each ``keys[place]``: the first of the table, else the paper's own."""
    theirs, texts = (table.column(name).combine_chunks() for name in ("key", "text"))
    owner, known = places(keys, theirs.to_numpy())
    rows = np.flatnonzero(known)
    first = np.full(len(keys), -1)
    first[owner[rows[::-1]]] = rows[::-1]
    again = rows[first[owner[rows]] != rows]
    same = pc.equal(texts.take(again), texts.take(first[owner[again]]))
    noted["abstracts: dropped, of_no_paper"] += len(known) - len(rows)
    noted["abstracts: dropped, repeated"] += same.true_count
    noted["abstracts: dropped, repeated_other_text"] += same.false_count
    noted["abstracts: kept"] += len(rows) - len(again)
    chosen = first[place]
    return pc.coalesce(texts.take(pa.array(chosen, mask=chosen < 0)), inline)


def _references_of(keys: Keys, table: pa.Table, noted: Counter[str]) -> pa.LargeListArray:
    """Return the distinct papers that the paper of each key cites, without itself."""
    citing, cited = (table.column(name).combine_chunks().to_numpy() for name in ("key", "other"))
    apart = citing != cited
    owner, known = places(keys, citing[apart])
    noted["citations: dropped, self"] += len(citing) - len(owner)
    noted["citations: dropped, citing_paper_unknown"] += int(np.count_nonzero(~known))
    owners, cited = distinct_pairs(owner[known], cited[apart][known])
    noted["citations: dropped, repeated"] += int(np.count_nonzero(known)) - len(owners)
    noted["citations: kept"] += len(owners)
    return pa.LargeListArray.from_arrays(offsets_of(owners, len(keys)), cited, type=RAW_PAPERS.field("outbound").type)


def _inbound_of(keys: Keys, table: pa.Table) -> npt.NDArray[np.int32]:
    """Return how many distinct papers cite the paper of each key."""
    cited, citing = (table.column(name).combine_chunks().to_numpy() for name in ("key", "other"))
    owner, known = places(keys, cited)
    owners, _ = distinct_pairs(owner[known], citing[known])
    return np.bincount(owners, minlength=len(keys)).astype(np.int32)


def partition_of(keys: Keys, partitions: int) -> Ints:
    """Return the partition of each key, from 0 to ``partitions`` - 1; neighbouring keys go to different ones."""
    with np.errstate(over="ignore"):
        mixed = keys * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(32)) % np.uint64(partitions)).astype(np.int64)
