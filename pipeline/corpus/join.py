"""External hash join of a release in several tables: partition all of them by paper, then join partition by partition.

Only a partition has to fit in memory, and there are as many partitions as that takes. The parts of the result
are the partitions, so the rest of corpus building does not know about tables.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.csr import offsets_of, ranges
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.text import Keys, id_keys
from pipeline.corpus.extract import unless_empty
from pipeline.corpus.partition import PartitionWriter, read_partition
from pipeline.sources.base import BATCH_ROWS, RAW_PAPERS, Abstracts, Citations, JoinedRelease, PaperBatch

_KEY = pa.field("key", pa.uint64(), nullable=False)
_OTHER = pa.field("other", pa.uint64(), nullable=False)
_TABLES = {
    "papers": RAW_PAPERS,
    "abstracts": pa.schema([_KEY, pa.field("text", pa.large_string(), nullable=False)]),
    "outgoing": pa.schema([_KEY, _OTHER]),
    "incoming": pa.schema([_KEY, _OTHER]),
}
_NO_PAPERS = pa.RecordBatch.from_pylist([], schema=RAW_PAPERS)
_MOST_PARTITIONS = 4_096
_HELD_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Joined:
    """The partitions of a release: part ``i`` has the papers of partition ``i`` with all their data.

    Attributes:
        source: name of the release's source.
        folder: where the partitions are.
        partitions: how many there are.
    """

    source: str
    folder: Path
    partitions: int

    def parts(self) -> Sequence[str]:
        """Return the numbers of the partitions, after a part that holds only the counts of partitioning."""
        return ["counts", *map(str, range(self.partitions))]

    def read(self, part: str) -> Iterator[PaperBatch]:
        """Yield the papers of one partition, in the release's order, with their abstracts and references."""
        if part == "counts":
            yield _counts([json.loads(path.read_text()) for path in sorted(self.folder.glob("part-*.json"))])
            return
        papers = self._table("papers", part)
        keys = id_keys(papers.column("paper_id").combine_chunks())
        noted: Counter[str] = Counter()
        texts = _abstracts_of(papers.column("abstract").combine_chunks(), keys, self._table("abstracts", part), noted)
        references = _references_of(keys, self._table("outgoing", part), noted)
        inbound = _inbound_of(keys, self._table("incoming", part))
        noted["papers_without_abstract"] += int(np.count_nonzero(np.asarray(pc.equal(texts, ""))))
        for start in range(0, len(papers), BATCH_ROWS):
            rows = slice(start, min(start + BATCH_ROWS, len(papers)))
            columns = {
                name: papers.column(name).slice(start, BATCH_ROWS).combine_chunks() for name in papers.column_names
            }
            columns["abstract"] = texts.slice(start, BATCH_ROWS)
            columns["outbound"] = references.lists(rows)
            columns["n_inbound"] = pa.array(inbound[rows])
            batch = pa.RecordBatch.from_arrays([columns[f.name] for f in RAW_PAPERS], schema=RAW_PAPERS)
            yield PaperBatch(batch, read=batch.num_rows, noted=noted if start == 0 else Counter())
        if not len(papers):
            yield PaperBatch(_NO_PAPERS, read=0, noted=noted)

    def _table(self, table: str, part: str) -> pa.Table:
        stems = [path.with_suffix("") for path in sorted(self.folder.glob("part-*.json"))]
        return read_partition(stems, table, _TABLES[table], int(part))

    def discard(self) -> None:
        """Remove the partitions, once every part is read."""
        for path in (*self.folder.glob("part-*.arrow"), *self.folder.glob("part-*.npy")):
            path.unlink()


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
    return Joined(release.source, folder, partitions)


def _partition(release: JoinedRelease, folder: Path, partitions: int, memory: int, numbered: tuple[int, str]) -> None:
    """Partition one part of a release: ``part-NUMBER.TABLE.arrow``, and last ``part-NUMBER.json`` with its counts."""
    number, part = numbered
    record = folder / f"part-{number:05d}.json"
    if isinstance(files.read_json(record), dict):
        return
    counts = {kind: {"read": 0, "kept": 0, "dropped": Counter[str]()} for kind in ("papers", "abstracts", "citations")}
    total: dict[str, Any] = {**counts, "noted": Counter[str](), "examples": []}
    with PartitionWriter(folder / f"part-{number:05d}", _TABLES, partitions, memory) as writer:
        for batch in unless_empty(release.read_table(part), release.allow_empty):
            kind, kept = _write(writer, batch)
            total[kind]["read"] += batch.read
            total[kind]["kept"] += kept
            total[kind]["dropped"] += batch.dropped
            total["examples"] += batch.examples
            total["noted"] += batch.noted
    files.write_text(record, json.dumps(total))


def _write(writer: PartitionWriter, batch: PaperBatch | Abstracts | Citations) -> tuple[str, int]:
    if isinstance(batch, PaperBatch):
        writer.add("papers", batch.papers, id_keys(batch.papers.column("paper_id")))
        return "papers", batch.papers.num_rows
    if isinstance(batch, Abstracts):
        rows = pa.RecordBatch.from_arrays([pa.array(batch.keys), batch.texts], schema=_TABLES["abstracts"])
        writer.add("abstracts", rows, batch.keys)
        return "abstracts", len(batch.keys)
    apart = batch.citing != batch.cited
    for table, keys, others in (
        ("outgoing", batch.citing, batch.cited),
        ("incoming", batch.cited[apart], batch.citing[apart]),
    ):
        rows = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(others)], schema=_TABLES[table])
        writer.add(table, rows, keys)
    return "citations", len(batch.citing)


def _counts(parts: list[dict[str, Any]]) -> PaperBatch:
    """Return a batch without papers that carries what was counted while the tables were partitioned."""
    dropped: Counter[str] = Counter()
    noted: Counter[str] = Counter()
    examples: list[str] = []
    for part in parts:
        dropped.update(part["papers"]["dropped"])
        noted.update(part["noted"])
        examples += part["examples"]
        for kind in ("abstracts", "citations"):
            noted[f"{kind}: read"] += part[kind]["read"]
            for reason, count in part[kind]["dropped"].items():
                noted[f"{kind}: dropped, {reason}"] += count
    return PaperBatch(_NO_PAPERS, read=dropped.total(), dropped=dropped, noted=noted, examples=examples)


def _abstracts_of(inline: pa.LargeStringArray, keys: Keys, table: pa.Table, noted: Counter[str]) -> pa.LargeStringArray:
    """Return the abstract of each paper: the first of the table, else the paper's own."""
    theirs = table.column("key").combine_chunks().to_numpy()
    first, place = np.unique(theirs, return_index=True)
    unknown = int(np.count_nonzero(~np.isin(theirs, keys)))
    noted["abstracts: dropped, of_no_paper"] += unknown
    known = np.isin(first, keys)
    texts = table.column("text").combine_chunks()
    again = np.flatnonzero(np.isin(theirs, keys))
    again = again[place[np.searchsorted(first, theirs[again])] != again]
    same = pc.equal(texts.take(again), texts.take(place[np.searchsorted(first, theirs[again])]))
    noted["abstracts: dropped, repeated"] += same.true_count
    noted["abstracts: dropped, repeated_other_text"] += same.false_count
    noted["abstracts: kept"] += int(np.count_nonzero(known))
    if not len(first):
        return inline
    at = np.minimum(np.searchsorted(first, keys), len(first) - 1)
    rows = pa.array(place[at], mask=first[at] != keys)
    return pc.coalesce(texts.take(rows), inline)


@dataclass(frozen=True)
class _References:
    """References in CSR form over distinct papers, and the place of each paper's among them."""

    offsets: npt.NDArray[np.int64]
    cited: Keys
    place: npt.NDArray[np.int64]

    def lists(self, rows: slice) -> pa.LargeListArray:
        """Return what some papers cite."""
        starts, ends = self.offsets[self.place[rows]], self.offsets[self.place[rows] + 1]
        lengths = ends - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        cited = self.cited[ranges(starts, lengths)]
        return pa.LargeListArray.from_arrays(offsets, cited, type=RAW_PAPERS.field("outbound").type)


def _references_of(keys: Keys, table: pa.Table, noted: Counter[str]) -> _References:
    """Return the distinct papers that each paper cites, without itself."""
    distinct, place = np.unique(keys, return_inverse=True)
    citing, cited = (table.column(name).combine_chunks().to_numpy() for name in ("key", "other"))
    apart = citing != cited
    noted["citations: dropped, self"] += len(citing) - int(np.count_nonzero(apart))
    owner, known = _places(distinct, citing[apart])
    noted["citations: dropped, citing_paper_unknown"] += len(owner) - int(np.count_nonzero(known))
    owner, cited = _pairs(owner[known], cited[apart][known])
    noted["citations: dropped, repeated"] += int(np.count_nonzero(known)) - len(owner)
    noted["citations: kept"] += len(owner)
    return _References(offsets_of(owner, len(distinct)), cited, place)


def _inbound_of(keys: Keys, table: pa.Table) -> npt.NDArray[np.int32]:
    """Return how many distinct papers cite each paper, int32 ``[n]``."""
    distinct, place = np.unique(keys, return_inverse=True)
    cited, citing = (table.column(name).combine_chunks().to_numpy() for name in ("key", "other"))
    owner, known = _places(distinct, cited)
    owner, _ = _pairs(owner[known], citing[known])
    return np.bincount(owner, minlength=len(distinct))[place].astype(np.int32)


def _places(distinct: Keys, keys: Keys) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the place of each key in ``distinct``, and whether it is there."""
    if not len(distinct):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
    place = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
    return place, distinct[place] == keys


def _pairs(owner: npt.NDArray[np.int64], other: Keys) -> tuple[npt.NDArray[np.int64], Keys]:
    """Return the distinct pairs, sorted."""
    order = np.lexsort((other, owner))
    owner, other = owner[order], other[order]
    if len(owner):
        first = np.concatenate([[True], (owner[1:] != owner[:-1]) | (other[1:] != other[:-1])])
        owner, other = owner[first], other[first]
    return owner, other
