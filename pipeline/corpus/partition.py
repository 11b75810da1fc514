"""Tables cut by key into files that are read back one cut at a time: what an external join needs of the disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files

_INDEX = np.dtype([("slot", np.int64), ("offset", np.int64), ("bytes", np.int64)])


def cut_of(keys: npt.NDArray[np.uint64], cuts: int) -> npt.NDArray[np.int64]:
    """Return the cut of each key, from 0 to ``cuts`` - 1: ids that are near each other go apart."""
    with np.errstate(over="ignore"):
        mixed = keys * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(32)) % np.uint64(cuts)).astype(np.int64)


class CutWriter:
    """Writes the rows of several tables into one file, those of each (table, cut) in pieces that can be found again.

    Args:
        path: the file; its index goes beside it, as ``.npy``.
        schemas: the tables, by name.
        cuts: number of cuts.
        held_bytes: rows held in memory before they are written, about.
    """

    def __init__(self, path: Path, schemas: Mapping[str, pa.Schema], cuts: int, held_bytes: int) -> None:
        self._path, self._cuts, self._held_bytes = path, cuts, held_bytes
        self._schemas = dict(schemas)
        self._pending: dict[str, list[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]] = {name: [] for name in schemas}
        self._held = 0
        self._index: list[tuple[int, int, int]] = []
        self._handle = path.open("wb", buffering=2**20)

    def __enter__(self) -> CutWriter:
        return self

    def add(self, table: str, rows: pa.RecordBatch, keys: npt.NDArray[np.uint64]) -> None:
        """Add rows of one table; each goes to the cut of its key, behind those that came before."""
        if rows.num_rows:
            self._pending[table].append((rows, cut_of(keys, self._cuts)))
            self._held += rows.nbytes
        if self._held >= self._held_bytes:
            self._write()

    def _write(self) -> None:
        for number, (table, pending) in enumerate(self._pending.items()):
            if not pending:
                continue
            rows = pa.Table.from_batches([batch for batch, _ in pending], self._schemas[table])
            cuts = np.concatenate([cut for _, cut in pending])
            pending.clear()
            order = np.argsort(cuts, kind="stable")
            rows = rows.take(order).combine_chunks().to_batches()[0]
            bounds = np.searchsorted(cuts[order], np.arange(self._cuts + 1))
            for cut in np.flatnonzero(np.diff(bounds)).tolist():
                piece = rows.slice(bounds[cut], bounds[cut + 1] - bounds[cut]).serialize()
                self._index.append((number * self._cuts + cut, self._handle.tell(), piece.size))
                self._handle.write(piece)
        self._held = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._write()
        self._handle.close()
        if kind is None:
            index = np.array(self._index, _INDEX)
            np.save(self._path.with_suffix(".npy"), index[np.argsort(index["slot"], kind="stable")])
            files.sync(self._path)


def read_cut(paths: Sequence[Path], schemas: Mapping[str, pa.Schema], cuts: int, table: str, cut: int) -> pa.Table:
    """Return the rows of one cut of one table, file after file, in the order they were written in.

    Args:
        paths: files of :class:`CutWriter`.
        schemas: the tables, by name, as they were written.
        cuts: number of cuts.
        table: name of one of them.
        cut: from 0 to ``cuts`` - 1.
    """
    slot = list(schemas).index(table) * cuts + cut
    batches = [batch for path in paths for batch in _pieces(path, schemas[table], slot)]
    return pa.Table.from_batches(batches, schemas[table])


def _pieces(path: Path, schema: pa.Schema, slot: int) -> Iterator[pa.RecordBatch]:
    index = np.load(path.with_suffix(".npy"), mmap_mode="r")
    start, end = np.searchsorted(index["slot"], [slot, slot + 1])
    if start == end:
        return
    with pa.memory_map(str(path)) as source:
        for _, offset, size in index[start:end].tolist():
            source.seek(offset)
            yield pa.ipc.read_record_batch(source.read_buffer(size), schema)
