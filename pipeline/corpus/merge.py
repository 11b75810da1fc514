"""Second pass of corpus building: sorted runs become shards in one order of ids, and every run learns its rows."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.progress import Progress
from pipeline.core.schema import ATTRIBUTES, NO_YEAR, PAPERS, SHARD_ROWS
from pipeline.core.workdir import Workdir
from pipeline.corpus.extract import RUN
from pipeline.corpus.spill import Spill, write_columns

DUPLICATE = np.uint32(0xFFFF_FFFF)
"""Row of a paper that another record of the same id replaced."""


class Merge:
    """Merges runs by ranges of ids that fit in memory; what comes out does not depend on the ranges.

    Args:
        runs: files of schema :data:`pipeline.corpus.extract.RUN`, in the order of the release.
        scratch: where the rows of each run's papers go (``rows-*.bin``, uint32).
        range_bytes: text of one range, about.
    """

    def __init__(self, runs: list[Path], scratch: Path, range_bytes: int) -> None:
        self._tables = [files.read_arrow(path).cast(RUN) for path in runs]
        self._ids = [table.column("paper_id").chunk(0) for table in self._tables]
        self._rows = [Spill(scratch / path.name.replace("run-", "rows-"), np.uint32) for path in runs]
        self._attributes = [Spill(scratch / f"{f.name}.bin", f.type.to_pandas_dtype()) for f in ATTRIBUTES]
        self._range_bytes = range_bytes
        self.counts: Counter[str] = Counter()

    def write(self, out: Workdir) -> int:
        """Write shards and attributes into ``out`` and return the number of papers."""
        total = sum(len(ids) for ids in self._ids)
        pending: list[pa.Table] = []
        held = written = 0
        with Progress(total, "corpus: sort", "papers") as progress:
            for table in self._ranges():
                pending.append(table)
                held += len(table)
                while held >= SHARD_ROWS:
                    joined = pa.concat_tables(pending)
                    _write_shard(out, written // SHARD_ROWS, joined.slice(0, SHARD_ROWS))
                    pending, held = [joined.slice(SHARD_ROWS)], held - SHARD_ROWS
                    written += SHARD_ROWS
                progress.add(len(table))
        if held or not written:
            _write_shard(out, written // SHARD_ROWS, pa.concat_tables(pending or [RUN.empty_table()]))
        write_columns(out, "attributes.arrow", ATTRIBUTES, [column.array() for column in self._attributes])
        for spill in (*self._rows, *self._attributes):
            spill.close(remove=spill in self._attributes)
        return written + held

    def _ranges(self) -> Iterator[pa.Table]:
        """Yield the papers of each range, sorted by id, one of each id."""
        starts = [0] * len(self._tables)
        row = 0
        for bound in [*self._bounds(), None]:
            ends = [
                len(ids) if bound is None else bisect_left(_Ids(ids), bound, lo=start)
                for ids, start in zip(self._ids, starts, strict=True)
            ]
            slices = [t.slice(s, e - s) for t, s, e in zip(self._tables, starts, ends, strict=True)]
            joined = pa.concat_tables(slices)
            order = np.asarray(pc.sort_indices(joined.column("paper_id").combine_chunks()))
            table = joined.take(order)
            first = _first_of_each(table.column("paper_id").combine_chunks())
            self._count_duplicates(table, first)
            rows = np.full(len(order), DUPLICATE)
            rows[order[first]] = np.arange(row, row + len(first), dtype=np.uint32)
            parts = np.split(rows, np.cumsum([len(s) for s in slices])[:-1])
            for spill, part in zip(self._rows, parts, strict=True):
                spill.append(part)
            kept = table if len(first) == len(table) else table.take(first)
            for field, spill in zip(ATTRIBUTES, self._attributes, strict=True):
                spill.append(kept.column(field.name).combine_chunks().to_numpy())
            row += len(first)
            starts = ends
            yield kept

    def _bounds(self) -> list[str]:
        """Return the ids that cut the whole into ranges, from a regular sample of every run."""
        total = sum(len(ids) for ids in self._ids)
        parts = int(sum(table.nbytes for table in self._tables) // self._range_bytes)
        if parts == 0:
            return []
        step = max(1, total // (parts * 64))
        sample = sorted(id_ for ids in self._ids for id_ in ids[::step].to_pylist())
        return sorted({sample[i * len(sample) // (parts + 1)] for i in range(1, parts + 1)})

    def _count_duplicates(self, table: pa.Table, first: npt.NDArray[np.int64]) -> None:
        if len(first) == len(table):
            return
        repeated = np.setdiff1d(np.arange(len(table)), first)
        originals = first[np.searchsorted(first, repeated, side="right") - 1]
        same = np.ones(len(repeated), dtype=bool)
        for name in ("title", "abstract"):
            column = table.column(name)
            same &= np.asarray(pc.equal(column.take(repeated), column.take(originals)).combine_chunks())
        self.counts["duplicate_id"] += int(same.sum())
        self.counts["duplicate_id_other_text"] += int((~same).sum())


class _Ids:
    """An Arrow array of strings as :func:`bisect.bisect_left` wants it, compared like UTF-8 bytes."""

    def __init__(self, ids: pa.LargeStringArray) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, position: int) -> str:
        value: str = self._ids[position].as_py()
        return value


def _first_of_each(ids: pa.LargeStringArray) -> npt.NDArray[np.int64]:
    """Return the positions at which a new id begins in a sorted array."""
    if len(ids) < 2:
        return np.arange(len(ids))
    changes = np.asarray(pc.not_equal(ids[1:], ids[:-1]))
    return np.concatenate([[0], np.flatnonzero(changes) + 1])


def _write_shard(out: Workdir, number: int, table: pa.Table) -> None:
    name = f"papers-{number:05d}.arrow"
    if out.done(name):
        return
    year = table.column("year").combine_chunks().to_numpy()
    columns = {
        **{c: table.column(c).combine_chunks() for c in ("paper_id", "title", "abstract", "n_outbound", "n_inbound")},
        "year": pa.array(year, mask=year == NO_YEAR),
        "fields": field_lists(table.column("fields").combine_chunks().to_numpy()),
    }
    out.arrow(name, pa.Table.from_arrays([columns[f.name] for f in PAPERS], schema=PAPERS), PAPERS)


def field_lists(masks: npt.NDArray[np.uint32]) -> pa.ListArray:
    """Return the names of each mask's fields, as the ``fields`` column of a corpus shard."""
    bits = (masks[:, None] >> np.arange(len(MAG_FIELDS), dtype=np.uint32)) & 1
    owner, bit = np.nonzero(bits)
    names = pa.DictionaryArray.from_arrays(pa.array(bit.astype(np.int8)), pa.array(MAG_FIELDS))
    offsets = np.searchsorted(owner, np.arange(len(masks) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, names, type=PAPERS.field("fields").type)
