"""Stage ``embed`` for imported vectors: one segment holds the vectors of all papers of the corpus that have one.

Each input file is a unit, whose vectors of the corpus are written in batches sorted by row. At the end the batches of
all files are merged, one corpus shard at a time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.csr import find_sorted
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress, say
from pipeline.core.resources import Resources
from pipeline.core.schema import vectors as vectors_schema
from pipeline.core.task import Inputs, Sharded, UnitProvenance
from pipeline.core.text import id_keys
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Corpus, Rows
from pipeline.encode import precomputed
from pipeline.encode.base import Matrix
from pipeline.encode.model import Model, Role
from pipeline.encode.precomputed import LineNumbers, VectorFile
from pipeline.encode.store import read_rows, shard_name, write_rows, write_shard
from pipeline.sources.base import grouped

_KEYS, _ORDER = "keys.npy", "order.npy"
"""Scratch files: the sorted keys of the corpus's ids, and their rows."""

_BATCH_BYTES = 2**26
"""Approximate bytes of the vectors of a batch; a process needs three times as much memory."""


class _Batch(NamedTuple):
    """A sorted batch of one file's vectors, memory-mapped; a row repeats if the file repeats the paper."""

    file: int
    rows: Rows
    line_numbers: LineNumbers
    vectors: Matrix

    def part(self, start: int, stop: int) -> _Batch:
        """Return the entries from ``start`` to ``stop``."""
        return _Batch(self.file, self.rows[start:stop], self.line_numbers[start:stop], self.vectors[start:stop])


@dataclass(frozen=True)
class Import(Sharded):
    """Import of the vectors in the ``place`` of a model, of papers or of query texts."""

    model: Model
    role: Role

    @property
    def _noun(self) -> str:
        return "papers" if self.role == "paper" else "queries"

    @property
    def files(self) -> list[VectorFile]:
        """The files to read."""
        return precomputed.find(self.model.place or Path())

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:  # noqa: ARG002
        """Return a unit for each file, with its bytes, and sort the keys that all units look up."""
        if not (out.scratch() / _ORDER).is_file():
            say(f"{self.model.name}: compared by {self.model.distance}; distance= takes l2, cosine or inner_product")
            corpus = Corpus(inputs["corpus"])
            if self.role == "query":
                keys = id_keys(corpus.query_texts.column("query_id").combine_chunks())
            else:
                keys = corpus.attributes["key"]
            order = np.argsort(keys)
            for name, array in ((_KEYS, keys[order]), (_ORDER, order.astype(np.uint32))):
                with files.replacing(out.scratch() / name) as temporary, temporary.open("wb") as handle:
                    np.save(handle, array)
        return {f"scratch/file-{number:05d}.arrow": file.path.stat().st_size for number, file in enumerate(self.files)}

    def devices(self, resources: Resources) -> list[str]:
        """Return the CPU once for each file that can be read at a time."""
        return ["cpu"] * max(1, min(resources.workers, len(self.files)))

    def work(self, inputs: Inputs, out: Workdir, units: Collection[str], resources: Resources) -> UnitProvenance:  # noqa: ARG002
        """Read some of the files."""
        vector_files = self.files
        keys, order = (np.load(out.scratch() / name, mmap_mode="r") for name in (_KEYS, _ORDER))

        def rows_of(ids: pa.Array) -> npt.NDArray[np.int64]:
            wanted_keys = id_keys(ids)
            positions, present = find_sorted(keys, wanted_keys)
            found: npt.NDArray[np.int64] = np.full(len(present), -1)
            found[present] = order[positions[present]]
            return found

        with Progress(None, f"read {self.model.name}", "vectors") as progress:
            for unit in sorted(units):
                with files.disk_errors(out.path):
                    _read(vector_files[_file_number(unit)], rows_of, out.path / unit, progress)
        return {}

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[UnitProvenance]) -> Counts:  # noqa: ARG002
        """Merge the batches, shard by shard, and count papers or queries without a vector."""
        vector_files, units = self.files, sorted(out.plan() or {})
        records = [files.read_json(_record(out.path / unit)) for unit in units]
        runs = [run for unit in units for run in _batches(out.path / unit, _file_number(unit))]
        model = self._check(vector_files, records, runs)
        if model:
            say(f"{self.model.name}: these are S2AG's stored {model} vectors; the hub's weights give different ones")
        corpus = Corpus(inputs["corpus"])
        starts = np.array([0, len(corpus.query_texts)]) if self.role == "query" else corpus.starts
        if not out.done("rows.arrow"):
            rows = np.unique(np.concatenate([run.rows for run in runs]))
            write_rows(out, rows, np.searchsorted(starts, rows, "right") - 1)
        rows, shards = read_rows(out)
        bounds = [np.searchsorted(run.rows, starts) for run in runs]
        with Progress(len(rows), f"store {self.model.name}", "vectors") as progress:
            for shard in np.unique(shards).tolist():
                if not out.done(shard_name(shard)):
                    parts = [run.part(ends[shard], ends[shard + 1]) for run, ends in zip(runs, bounds, strict=True)]
                    write_shard(out, shard, *self._merged(parts, vector_files, corpus), self.model.storage)
                progress.add(int(np.count_nonzero(shards == shard)))
        expected, read_count = int(starts[-1]), sum(record["read"] for record in records)
        known_count = sum(len(run.rows) for run in runs)
        counts = {
            "vectors_read": read_count,
            "of_unknown_papers": read_count - known_count,
            "repeated": known_count - len(rows),
            "embedded": len(rows),
            "without_vector": expected - len(rows),
        }
        out.note(model=self.model.name, checkpoint="", distance=self.model.distance, recorded_model=model)
        say(
            f"{self.model.name}: {read_count:,} vectors; {len(rows):,} of {expected:,} {self._noun} of the "
            f"corpus have one, {expected - len(rows):,} have none; "
            f"{read_count - known_count:,} vectors are of other {self._noun}"
        )
        return counts

    def _check(self, vector_files: list[VectorFile], records: list[dict[str, Any]], runs: list[_Batch]) -> str:
        """Return the model named in the files, after checking that all vectors are of one model and dimension."""
        if not runs:
            unknown = next((record["unknown"] for record in records if record["unknown"]), "nothing")
            raise InputError(
                f"{self.model.place} must hold vectors of {self._noun} of the corpus, got none whose id is known "
                f"(the first: {unknown!r})",
                "Write the ids as the corpus has them",
            )
        for run in runs:
            if run.vectors.shape[1] != runs[0].vectors.shape[1]:
                raise InputError(
                    f"{vector_files[run.file].path} must have {runs[0].vectors.shape[1]} components as "
                    f"{vector_files[runs[0].file].path}, got {run.vectors.shape[1]}",
                    "Import the vectors of one model",
                )
        models = sorted({name for record in records for name in record["models"]})
        if len(models) > 1:
            raise InputError(f"{self.model.place} must hold one model's vectors, got {', '.join(models)}", "Divide it")
        return "".join(models)

    def _merged(self, runs: Sequence[_Batch], vector_files: list[VectorFile], corpus: Corpus) -> tuple[Rows, Matrix]:
        """Return rows and vectors of one corpus shard, each paper once; InputError if its vectors differ."""
        runs = [run for run in runs if len(run.rows)]
        rows, line_numbers, vectors = (
            np.concatenate(columns) for columns in zip(*(run[1:] for run in runs), strict=True)
        )
        owners = np.repeat([run.file for run in runs], [len(run.rows) for run in runs])
        order = np.argsort(rows, kind="stable")
        rows, vectors = rows[order], vectors[order]
        is_first = np.append(True, rows[1:] != rows[:-1])
        repeats = np.flatnonzero(~is_first)
        conflicts = repeats[(vectors[repeats] != vectors[repeats - 1]).any(axis=1)]
        if len(conflicts):
            pair = order[[conflicts[0] - 1, conflicts[0]]]
            locations = [f"{vector_files[owners[entry]].path}:{line_numbers[entry]}" for entry in pair]
            row = int(rows[conflicts[0]])
            name = corpus.ids(np.array([row]))[0] if self.role == "paper" else f"query {row}"
            raise InputError(
                f"{name} must have one vector, got different ones at {locations[0]} and {locations[1]}",
                "Remove the wrong one",
            )
        return (rows, vectors) if is_first.all() else (rows[is_first], vectors[is_first])


def _read(file: VectorFile, rows_of: precomputed.RowsOf, unit: Path, progress: Progress) -> None:
    """Write the vectors of the corpus in one file as sorted batches, and a record of the number read."""
    read_count, unknown, models = 0, None, Counter[str]()
    blocks = precomputed.read(file, rows_of)
    batches: Iterator[pa.RecordBatch] = iter(())
    schema = _schema(1)

    def batch(group: list[precomputed.FileBlock]) -> pa.RecordBatch:
        columns = zip(*(block[:3] for block in group), strict=True)
        rows, line_numbers, vectors = map(np.concatenate, columns)
        order = np.argsort(rows, kind="stable")
        flat = pa.array(vectors[order].reshape(-1))
        column = pa.FixedSizeListArray.from_arrays(flat, type=schema.field("vector").type)
        return pa.RecordBatch.from_arrays([rows[order].astype(np.uint32), column, line_numbers[order]], schema=schema)

    def counted() -> Iterator[precomputed.FileBlock]:
        nonlocal read_count, unknown
        for block in blocks:
            read_count, unknown = read_count + block.read, unknown or block.unknown
            models.update(block.models)
            progress.add(block.read)
            if len(block.rows):
                yield block

    groups_left = filter(None, grouped(counted(), lambda block: block.vectors.nbytes, _BATCH_BYTES))
    if (first_group := next(groups_left, None)) is not None:
        schema = _schema(first_group[0].vectors.shape[1])
        batches = (batch(group) for groups in ([first_group], groups_left) for group in groups)
    with files.replacing(unit) as temporary:
        files.write_arrow(temporary, batches, schema)
        files.write_text(_record(unit), json.dumps({"read": read_count, "unknown": unknown, "models": models}))


def _schema(dimension: int) -> pa.Schema:
    return vectors_schema(dimension, "float32").append(pa.field("place", pa.int64(), nullable=False))


def _batches(unit: Path, file: int) -> Iterator[_Batch]:
    for batch in files.read_arrow(unit).to_batches():
        column = batch.column("vector")
        flat = column.flatten().to_numpy().reshape(-1, column.type.list_size)
        yield _Batch(file, batch.column("row").to_numpy(), batch.column("place").to_numpy(), flat)


def _file_number(unit: str) -> int:
    return int(unit.removeprefix("scratch/file-").removesuffix(".arrow"))


def _record(unit: Path) -> Path:
    return unit.with_suffix(".json")
