"""Third pass of corpus building: the papers of all runs become shards, in the order of their rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.parallel import in_order
from pipeline.core.progress import Progress
from pipeline.core.schema import ATTRIBUTES, NO_YEAR, PAPERS
from pipeline.core.workdir import Workdir
from pipeline.corpus.extract import LISTS, NUMBERS, STRINGS
from pipeline.corpus.order import REPEATED, Order
from pipeline.corpus.spill import Array, Columns, ColumnWriter, Spill, write_columns


class Merge:
    """Writes the shards of a corpus; each is written apart from the others.

    Beside a shard, ``papers-NUMBER.arrow``, goes ``shard-NUMBER.columns`` into scratch: the attributes of its papers,
    and ``cited``, the keys of their references.

    Args:
        runs: columns of :mod:`pipeline.corpus.extract`, in the order of the release.
        order: the rows of their papers.
        shard_rows: rows of a shard.
        scratch: where the columns of each shard go.
    """

    def __init__(self, runs: list[Columns], order: Order, shard_rows: int, scratch: Path) -> None:
        self._runs, self._order, self._shard_rows, self._scratch = runs, order, shard_rows, scratch
        self.shards = len(order.cuts) - 1

    def write(self, out: Workdir, workers: int, memory: int) -> Counter[str]:
        """Write shards and attributes into ``out`` and return how many papers were dropped, by reason.

        Args:
            out: where they go.
            workers: threads.
            memory: bytes this may hold at once, but for one shard it always may.
        """
        largest = 3 * sum(run.path.stat().st_size for run in self._runs) // self.shards
        workers = max(1, min(workers, memory // max(largest, 1)))
        dropped: Counter[str] = Counter()
        with Progress(self.shards, "corpus: write", "shards") as progress:
            for found in in_order(lambda number: self._write(out, number), range(self.shards), workers):
                dropped.update(found)
                progress.add(1)
        self._write_attributes(out)
        return dropped

    def shard(self, number: int) -> Columns:
        """Return the attributes and references of the papers of a shard that is written."""
        return Columns(self._path(number))

    def _path(self, number: int) -> Path:
        return self._scratch / f"shard-{number:05d}.columns"

    def _write(self, out: Workdir, number: int) -> dict[str, int]:
        name = f"papers-{number:05d}.arrow"
        if out.done(name) and self._path(number).is_file():
            return out.counts(name)
        read = _Slices(self._runs, self._order, number)
        order, dropped = read.order(number * self._shard_rows)
        columns = {column: read.strings(column).take(order) for column in STRINGS}
        numbers = {column: read.numbers(column)[order] for column in NUMBERS}
        with files.replacing(self._path(number)) as path, ColumnWriter(path) as writer:
            for column, values in numbers.items():
                writer.add(column, values)
            for column in LISTS:
                writer.add(column, np.asarray(read.lists(column).take(order).values))
        columns |= {column: pa.array(numbers[column]) for column in ("n_outbound", "n_inbound")}
        columns["year"] = pa.array(numbers["year"], mask=numbers["year"] == NO_YEAR)
        columns["fields"] = field_lists(numbers["fields"])
        shard = pa.RecordBatch.from_arrays([columns[field.name] for field in PAPERS], schema=PAPERS)
        out.arrow(name, [shard], PAPERS, **dropped)
        return dropped

    def _write_attributes(self, out: Workdir) -> None:
        spills = [Spill(self._scratch / f"{field.name}.bin", field.type.to_pandas_dtype()) for field in ATTRIBUTES]
        for number in range(self.shards):
            shard = self.shard(number)
            for field, spill in zip(ATTRIBUTES, spills, strict=True):
                spill.append(shard.read(field.name))
        write_columns(out, "attributes.arrow", ATTRIBUTES, [spill.array() for spill in spills])
        for spill in spills:
            spill.close()


class _Slices:
    """What each run has of one shard, one run's after the other's."""

    def __init__(self, runs: list[Columns], order: Order, shard: int) -> None:
        starts, stops = order.cuts[shard].tolist(), order.cuts[shard + 1].tolist()
        self._slices = [
            (run, start, stop) for run, start, stop in zip(runs, starts, stops, strict=True) if start < stop
        ]
        rows = [
            order.rows(number, start, stop)
            for number, (start, stop) in enumerate(zip(starts, stops, strict=True))
            if start < stop
        ]
        self._rows = np.concatenate(rows) if rows else np.empty(0, np.uint32)

    def order(self, first_row: int) -> tuple[npt.NDArray[np.int64], dict[str, int]]:
        """Return the place of each row, int64 ``[rows]``, and how many papers have none, by reason."""
        kept = self._rows < REPEATED
        order = np.empty(np.count_nonzero(kept), np.int64)
        order[self._rows[kept].astype(np.int64) - first_row] = np.flatnonzero(kept)
        repeated = np.flatnonzero(~kept)
        if not len(repeated):
            return order, {}
        originals = order[(self._rows[repeated] ^ REPEATED).astype(np.int64) - first_row]
        same = np.ones(len(repeated), dtype=bool)
        for name in ("title", "abstract"):
            texts = self.strings(name)
            same &= np.asarray(pc.equal(texts.take(repeated), texts.take(originals)))
        counts = {"duplicate_id": int(same.sum()), "duplicate_id_other_text": int((~same).sum())}
        return order, {reason: count for reason, count in counts.items() if count}

    def numbers(self, name: str) -> Array:
        """Return a column of numbers."""
        parts = [run.read(name, start, stop) for run, start, stop in self._slices]
        return np.concatenate(parts) if parts else np.empty(0, ATTRIBUTES.field(name).type.to_pandas_dtype())

    def strings(self, name: str) -> pa.LargeStringArray:
        """Return a column of strings."""
        ends, characters = self._varied(name, np.uint8)
        return pa.Array.from_buffers(
            pa.large_string(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(characters)]
        )

    def lists(self, name: str) -> pa.LargeListArray:
        """Return a column of lists."""
        return pa.LargeListArray.from_arrays(*self._varied(name, np.uint64))

    def _varied(self, name: str, dtype: npt.DTypeLike) -> tuple[npt.NDArray[np.int64], Array]:
        parts = [run.read(f"{name}_ends", start, stop + 1) for run, start, stop in self._slices]
        ends = np.cumsum(np.concatenate([[0], *(np.diff(part) for part in parts)]), dtype=np.int64)
        elements = np.empty(ends[-1], dtype)
        place = 0
        for (run, _, _), part in zip(self._slices, parts, strict=True):
            size = part[-1] - part[0]
            run.read(name, part[0], part[-1], into=elements[place : place + size])
            place += size
        return ends, elements


def field_lists(masks: npt.NDArray[np.uint32]) -> pa.ListArray:
    """Return the names of each mask's fields, as the ``fields`` column of a corpus shard."""
    bits = (masks[:, None] >> np.arange(len(MAG_FIELDS), dtype=np.uint32)) & 1
    owner, bit = np.nonzero(bits)
    names = pa.DictionaryArray.from_arrays(pa.array(bit.astype(np.int8)), pa.array(MAG_FIELDS))
    offsets = np.searchsorted(owner, np.arange(len(masks) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, names, type=PAPERS.field("fields").type)
