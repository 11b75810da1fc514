"""Tables partitioned by key on disk and read back one partition at a time, as an external hash join needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.csr import offsets_of
from pipeline.core.text import Keys


def partition_of(keys: Keys, partitions: int) -> npt.NDArray[np.int64]:
    """Return the partition of each key, from 0 to ``partitions`` - 1; neighbouring keys go to different ones."""
    with np.errstate(over="ignore"):
        mixed = keys * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(32)) % np.uint64(partitions)).astype(np.int64)


class PartitionWriter:
    """Writes the rows of several tables, partition by partition, to ``STEM.TABLE.arrow`` each.

    A record batch holds rows of one partition; ``STEM.TABLE.npy`` lists the partition of each batch.

    Args:
        stem: path of the files without their ends.
        schemas: the tables, by name.
        partitions: number of partitions.
        held_bytes: approximate bytes of rows held in memory before they are written.
    """

    def __init__(self, stem: Path, schemas: Mapping[str, pa.Schema], partitions: int, held_bytes: int) -> None:
        self._stem, self._partitions, self._held_bytes = stem, partitions, held_bytes
        self._pending: dict[str, list[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]] = {name: [] for name in schemas}
        self._held = 0
        self._written: dict[str, list[int]] = {name: [] for name in schemas}
        self._sinks = {name: pa.OSFile(str(_path(stem, name)), "wb") for name in schemas}
        self._files = {name: pa.ipc.new_file(self._sinks[name], schema) for name, schema in schemas.items()}

    def __enter__(self) -> PartitionWriter:
        return self

    def add(self, table: str, rows: pa.RecordBatch, keys: Keys) -> None:
        """Add rows of one table; each goes to the partition of its key, after the rows added before."""
        if rows.num_rows:
            self._pending[table].append((rows, partition_of(keys, self._partitions)))
            self._held += rows.nbytes
        if self._held >= self._held_bytes:
            self._write()

    def _write(self) -> None:
        for name, pending in self._pending.items():
            if not pending:
                continue
            rows = pa.Table.from_batches([batch for batch, _ in pending])
            partitions = np.concatenate([partition for _, partition in pending])
            pending.clear()
            order = np.argsort(partitions, kind="stable")
            rows = rows.take(order).combine_chunks().to_batches()[0]
            bounds = offsets_of(partitions[order], self._partitions)
            for partition in np.flatnonzero(np.diff(bounds)).tolist():
                start, stop = bounds[partition], bounds[partition + 1]
                self._files[name].write_batch(rows.slice(start, stop - start))
                self._written[name].append(partition)
        self._held = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._write()
        for name, written in self._written.items():
            self._files[name].close()
            self._sinks[name].close()
            if kind is None:
                np.save(_path(self._stem, name).with_suffix(".npy"), np.array(written, np.int64))
                files.sync(_path(self._stem, name))


def read_partition(stems: Sequence[Path], table: str, schema: pa.Schema, partition: int) -> pa.Table:
    """Return the rows of one partition of a table, file after file, in the order they were added in."""
    batches = []
    for stem in stems:
        written = np.flatnonzero(np.load(_path(stem, table).with_suffix(".npy")) == partition)
        if len(written):
            reader = pa.ipc.open_file(pa.memory_map(str(_path(stem, table))))
            batches += [reader.get_batch(number) for number in written.tolist()]
    return pa.Table.from_batches(batches, schema)


def _path(stem: Path, table: str) -> Path:
    return stem.with_name(f"{stem.name}.{table}.arrow")
