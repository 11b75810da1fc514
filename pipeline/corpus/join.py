"""External hash join of a release with several tables: partition all tables by paper, then join each partition.

Only one partition has to fit in memory. The joined release has the partitions as its parts, so the other passes of
corpus building treat it like any release.
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
from pipeline.core.config import counted
from pipeline.core.csr import Ints, Keys, distinct_pairs, find_sorted, offsets_of
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress, warn
from pipeline.core.resources import Resources
from pipeline.core.schema import schema_of
from pipeline.core.text import reference_keys
from pipeline.corpus.extract import read_or_empty
from pipeline.sources.base import (
    BATCH_ROWS,
    RAW_PAPERS,
    WITHDRAWN,
    Abstracts,
    Batch,
    Citations,
    PaperBatch,
    Release,
    grouped,
)
from pipeline.sources.citations import read_citations

_TABLES = {
    "papers": RAW_PAPERS,
    "abstracts": schema_of(key=pa.uint64(), text=pa.large_string()),
    "outgoing": schema_of(key=pa.uint64(), other=pa.uint64()),
    "incoming": schema_of(key=pa.uint64(), other=pa.uint64()),
}
_KINDS = ("papers", "abstracts", "citations")
_MAX_PARTITIONS = 4_096
_MAX_BYTES = 512 * 2**20


@dataclass(frozen=True)
class Joined(Release):
    """A release partitioned in ``folder``: part ``i`` has the papers of partition ``i`` with all their data."""

    folder: Path
    partitions: int
    source = "joined tables"

    def identity(self) -> Mapping[str, Any]:
        """Return an empty identity: the corpus has that of the release."""
        return {}

    def parts(self) -> Sequence[str]:
        """Return the numbers of the partitions."""
        return [*map(str, range(self.partitions))]

    def read(self, part: str) -> Iterator[PaperBatch]:
        """Yield the papers of one partition, in the release's order, with their abstracts and references."""
        papers = self._table("papers", part)
        keys, key_positions = np.unique(reference_keys(papers.column("paper_id").combine_chunks()), return_inverse=True)
        noted: Counter[str] = Counter()
        inline = papers.column("abstract").combine_chunks()
        texts = _abstracts_of(inline, keys, key_positions, self._table("abstracts", part), noted)
        references = _references_of(keys, self._table("outgoing", part), noted)
        stated = papers.column("n_inbound").to_numpy()
        inbound = np.maximum(_count_inbound(keys, self._table("incoming", part))[key_positions], stated)
        noted["papers_without_abstract"] += pc.equal(texts, "").true_count
        for start in range(0, max(len(papers), 1), BATCH_ROWS):
            rows = key_positions[start : start + BATCH_ROWS]
            columns = {
                name: papers.column(name).slice(start, BATCH_ROWS).combine_chunks() for name in papers.column_names
            }
            columns["abstract"] = texts.slice(start, BATCH_ROWS)
            columns["outbound"] = references.take(rows)
            columns["n_inbound"] = pa.array(inbound[start : start + BATCH_ROWS])
            batch = pa.RecordBatch.from_arrays([columns[field.name] for field in RAW_PAPERS], schema=RAW_PAPERS)
            rows_read = batch.num_rows - batch.column("year").to_pylist().count(WITHDRAWN)
            yield PaperBatch(batch, read=rows_read, noted=noted if start == 0 else Counter())

    def counts(self) -> Batch:
        """Return what was read, kept and dropped by reason while records were partitioned."""
        total = Batch(read=0)
        for _, record in self._records():
            for kind in _KINDS:
                counts = record[kind]
                total.noted += counts["noted"]
                total.examples += counts["examples"]
                if kind == "papers":
                    total.dropped += counts["dropped"]
                else:
                    total.noted[f"{kind}: read"] += counts["read"]
                    total.noted += {f"{kind}: dropped, {reason}": n for reason, n in counts["dropped"].items()}
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
        """Remove the partitions."""
        for path in (*self.folder.glob("part-*.arrow"), *self.folder.glob("part-*.npy")):
            path.unlink()


_MIN_SHARE_OF_ROWS = 0.8
"""Minimum share of the stated number of rows; a table with fewer rows causes a warning."""


def join(release: Release, scratch: Path, resources: Resources) -> Joined:
    """Partition the tables of a release and its file of citations, in several processes; return the joined release.

    Uses at most about half of ``resources.memory``. Parts that an earlier, killed run finished are kept.
    """
    folder = scratch / "tables"
    folder.mkdir(exist_ok=True)
    partition_bytes = max(1, resources.memory // (4 * resources.workers))
    partitions = files.once(
        folder / "partitions.json", lambda: min(max(1, -(-release.joined_bytes() // partition_bytes)), _MAX_PARTITIONS)
    )
    memory = min(_MAX_BYTES, resources.memory // (8 * resources.workers))
    parts = list(enumerate(release.parts()))
    partition = functools.partial(_partition, release, folder, partitions, memory)
    with Progress(len(parts), f"corpus: partition {release.source} by paper", "parts") as progress:
        for _ in unordered(partition, parts, resources.workers):
            progress.add(1)
    if release.citations:  # last, as it may name the papers by DOI
        partition((len(parts), None))
    part_counts = [json.loads(path.read_text()) for path in folder.glob("part-*.json")]
    for table, stated in release.stated().items():
        rows = sum(part[table]["read"] for part in part_counts)
        if rows < _MIN_SHARE_OF_ROWS * stated:
            warn(f"{table} has {counted(rows, 'row')}, but its release states {stated:,}: data of papers is missing")
    return Joined(folder, partitions)


def _partition(release: Release, folder: Path, partitions: int, memory: int, numbered: tuple[int, str | None]) -> None:
    """Partition one part of a release, in runs of about ``memory`` bytes; write a record with its counts last.

    Part None is the file of citations.

    A run of a table is a file with rows in the order of their partitions, and a file with the partitions' offsets.
    """
    number, name = numbered
    record = folder / f"part-{number:05d}.json"
    totals = {kind: Batch(read=0) for kind in _KINDS}

    def rows_of_tables() -> Iterator[_TableRows]:
        beside = Path(release.citations or "")
        batches = _by_id(read_citations(beside, release.names), folder) if name is None else release.read(name)
        for batch in read_or_empty(batches, release.allow_empty):
            kind, tables = _table_rows(batch)
            totals[kind].add_counts(batch)
            yield from tables

    def write_runs() -> dict[str, Any]:
        for abandoned in folder.glob(f"{record.stem}-*"):  # of a killed process, whose runs may have had other sizes
            abandoned.unlink()
        runs = 0
        for group in grouped(rows_of_tables(), lambda rows: rows.batch.nbytes, memory):
            for table, schema in _TABLES.items():
                if table_rows := [rows for rows in group if rows.table == table]:
                    partition = partition_of(np.concatenate([rows.keys for rows in table_rows]), partitions)
                    order = np.argsort(partition, kind="stable")
                    sorted_rows = pa.Table.from_batches([rows.batch for rows in table_rows]).take(order)
                    path = _table_file(record, runs, table)
                    files.write_arrow(path, sorted_rows.combine_chunks().to_batches(), schema)
                    np.save(path.with_suffix(".npy"), offsets_of(partition[order], partitions))
                    files.sync(path)
            runs += 1
        return {"runs": runs, **{kind: vars(total) for kind, total in totals.items()}}

    files.once(record, write_runs)


def _by_id(batches: Iterator[Citations], folder: Path) -> Iterator[Citations]:
    """Replace the keys of DOIs by those of the papers that have them; takes 16 bytes for each paper with a DOI."""
    papers = [files.read_arrow(path) for path in sorted(folder.glob("part-*.papers.arrow"))]
    dois = np.concatenate([np.empty(0, np.uint64), *(table.column("doi_key").to_numpy() for table in papers)])
    ids = np.concatenate([dois[:0], *(reference_keys(table.column("paper_id").combine_chunks()) for table in papers)])
    ids, dois = ids[dois > 0], dois[dois > 0] | np.uint64(1 << 63)  # as reference_keys has them
    dois, first = np.unique(dois, return_index=True)
    ids = ids[first]
    for batch in batches:
        for name in ("citing", "cited"):
            keys = getattr(batch, name)
            positions, is_doi = find_sorted(dois, keys)
            setattr(batch, name, np.where(is_doi, ids[positions], keys) if len(ids) else keys)
        yield batch


def _table_file(record: Path, run: int, table: str) -> Path:
    return record.with_name(f"{record.stem}-{run}.{table}.arrow")


class _TableRows(NamedTuple):
    """Rows of a table and the keys of their papers, uint64 ``[rows]``."""

    table: str
    batch: pa.RecordBatch
    keys: Keys


def _table_rows(batch: PaperBatch | Abstracts | Citations) -> tuple[str, list[_TableRows]]:
    """Return the kind of a batch, and its rows by table."""
    if isinstance(batch, PaperBatch):
        keys, outbound = reference_keys(batch.papers.column("paper_id")), batch.papers.column("outbound")
        citing = np.repeat(keys, pc.list_value_length(outbound))
        edges = _edge_rows(citing, outbound.flatten().to_numpy())
        return "papers", [_TableRows("papers", batch.papers, keys), *(edges if len(citing) else [])]
    if isinstance(batch, Abstracts):
        texts = pa.RecordBatch.from_arrays([pa.array(batch.keys), batch.texts], schema=_TABLES["abstracts"])
        return "abstracts", [_TableRows("abstracts", texts, batch.keys)]
    return "citations", _edge_rows(batch.citing, batch.cited)


def _edge_rows(citing: Keys, cited: Keys) -> list[_TableRows]:
    is_other = citing != cited
    ends = (("outgoing", citing, cited), ("incoming", cited[is_other], citing[is_other]))
    return [
        _TableRows(table, pa.RecordBatch.from_arrays([pa.array(keys), pa.array(others)], schema=_TABLES[table]), keys)
        for table, keys, others in ends
    ]


def _abstracts_of(
    inline: pa.LargeStringArray, keys: Keys, key_positions: Ints, table: pa.Table, noted: Counter[str]
) -> pa.LargeStringArray:
    """Return the abstract of each ``keys[key_positions]``: the first in the table, else the one of the paper's row."""
    table_keys, texts = (table.column(name).combine_chunks() for name in ("key", "text"))
    positions, in_release = find_sorted(keys, table_keys.to_numpy())
    rows = np.flatnonzero(in_release)
    first = np.full(len(keys), -1)
    first[positions[rows[::-1]]] = rows[::-1]
    repeats = rows[first[positions[rows]] != rows]
    same_text = pc.equal(texts.take(repeats), texts.take(first[positions[repeats]]))
    noted["abstracts: dropped, of_no_paper"] += len(in_release) - len(rows)
    noted["abstracts: dropped, repeated"] += same_text.true_count
    noted["abstracts: dropped, repeated_other_text"] += same_text.false_count
    noted["abstracts: kept"] += len(rows) - len(repeats)
    text_rows = first[key_positions]
    return pc.coalesce(texts.take(pa.array(text_rows, mask=text_rows < 0)), inline)


def _references_of(keys: Keys, table: pa.Table, noted: Counter[str]) -> pa.LargeListArray:
    """Return the keys of the distinct papers that each paper cites, without itself."""
    citing, cited = (table.column(name).combine_chunks().to_numpy() for name in ("key", "other"))
    is_other = citing != cited
    positions, in_release = find_sorted(keys, citing[is_other])
    noted["citations: dropped, self"] += len(citing) - len(positions)
    noted["citations: dropped, citing_paper_unknown"] += int(np.count_nonzero(~in_release))
    owners, cited = distinct_pairs(positions[in_release], cited[is_other][in_release])
    noted["citations: dropped, repeated"] += int(np.count_nonzero(in_release)) - len(owners)
    noted["citations: kept"] += len(owners)
    return pa.LargeListArray.from_arrays(offsets_of(owners, len(keys)), cited, type=RAW_PAPERS.field("outbound").type)


def _count_inbound(keys: Keys, table: pa.Table) -> npt.NDArray[np.int32]:
    """Return the number of distinct papers that cite each paper, int32 ``[keys]``."""
    cited, citing = (table.column(name).combine_chunks().to_numpy() for name in ("key", "other"))
    positions, in_release = find_sorted(keys, cited)
    owners, _ = distinct_pairs(positions[in_release], citing[in_release])
    return np.bincount(owners, minlength=len(keys)).astype(np.int32)


def partition_of(keys: Keys, partitions: int) -> Ints:
    """Return the partition of each key, int64 in 0 to ``partitions`` - 1, by a multiplicative hash."""
    with np.errstate(over="ignore"):
        mixed = keys * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(32)) % np.uint64(partitions)).astype(np.int64)
