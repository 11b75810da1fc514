"""Embedding the papers of corpus shards, part by part, so that little is lost when the process is killed.

Three things happen at once: a thread reads and tokenises the next part, this thread computes, a thread writes.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import StageError
from pipeline.core.schema import vectors as vectors_schema
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Rows, Text
from pipeline.encode.base import Encoder, Matrix, NotFiniteError, in_order
from pipeline.encode.progress import EmbedProgress
from pipeline.encode.segment import write_shard
from pipeline.encode.spec import Role, Storage

PART_PAPERS = 4_096
"""Papers that are sorted by length, encoded and put on disk together. Batches, hence last bits, depend on it."""


class Texts(Protocol):
    """Where texts come from."""

    def __call__(self, rows: Rows) -> list[Text]:
        """Return the texts of rising rows."""

    def label(self, row: int) -> str:
        """Return the id of one paper or query."""

    def work(self, rows: Rows) -> npt.NDArray[np.float64]:
        """Return characters of each text, float64 ``[rows]``."""


class LoadEncoder(Protocol):
    """Gives the encoder."""

    def __call__(self) -> Encoder:
        """Load it, or return the one loaded before."""


class _Part(NamedTuple):
    path: Path
    rows: Rows


class ShardWriter:
    """Embeds shards of one segment; used as a context, at whose end all is written.

    A part that is finished lies in the segment's scratch folder until its shard is, and is not computed again. Memory:
    two copies of one shard's vectors at most, and the texts and tokens of two parts.

    Args:
        out: the segment under construction.
        texts: where the texts come from.
        encoder: asked only if there is something to compute.
        role: what the texts are.
        storage: data type on disk.
        progress: counts papers and tokens.
    """

    def __init__(
        self,
        out: Workdir,
        texts: Texts,
        encoder: LoadEncoder,
        role: Role,
        storage: Storage,
        progress: EmbedProgress,
    ) -> None:
        self._out, self._texts, self._load = out, texts, encoder
        self._role, self._storage, self._progress = role, storage, progress
        self._reading, self._writing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._unwritten: list[Future[None]] = []
        self._seconds = dict.fromkeys(("tokenise", "wait_for_tokens", "compute", "write"), 0.0)

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reading.shutdown(cancel_futures=True)
        self._writing.shutdown()
        if error is None:
            self._raise_written()

    @cached_property
    def _encoder(self) -> Encoder:
        return self._load()

    def seconds(self) -> dict[str, float]:
        """Return the seconds spent tokenising, waiting for tokens, computing and writing: they overlap."""
        return {name: round(value, 2) for name, value in self._seconds.items()}

    def write(self, number: int, rows: Rows) -> None:
        """Embed the papers at ``rows``, all of corpus shard ``number``; their vectors may be written a little later.

        Raises:
            StageError: a vector is not finite, or does not fit the storage; paper and shard are named.
        """
        parts = [
            _Part(self._out.scratch() / f"part-{number:05d}-{start:08d}.arrow", rows[start : start + PART_PAPERS])
            for start in range(0, len(rows), PART_PAPERS)
        ]
        missing = [part for part in parts if not part.path.is_file()]
        for part in parts:
            if part.path.is_file():
                self._progress.skip(len(part.rows), float(self._texts.work(part.rows).sum()))
        ahead = self._read(missing[0]) if missing else None
        for here, following in zip_longest(missing, missing[1:]):
            if ahead is None:
                raise RuntimeError("a part was not read")
            started = time.monotonic()
            prepared = ahead.result()
            self._count("wait_for_tokens", started)
            ahead = self._read(following) if following is not None else None
            self._compute(number, here, prepared)
        self._write(self._finish, number, parts)

    def _read(self, part: _Part) -> Future[Any]:
        encoder = self._encoder

        def read() -> Any:
            started = time.monotonic()
            prepared = encoder.prepare(self._texts(part.rows), self._role)
            self._count("tokenise", started)
            return prepared

        return self._reading.submit(read)

    def _compute(self, number: int, part: _Part, prepared: Any) -> None:
        started = time.monotonic()
        counts: Counter[str] = Counter()
        rows = part.rows
        work = self._texts.work(rows)

        def counted() -> Iterator[Any]:
            for batch in self._encoder.finish(prepared):
                counts.update(tokens=batch.tokens, padded=batch.padded, truncated=batch.truncated)
                self._progress.add(batch, float(work[np.unique(batch.positions)].sum()))
                yield batch

        try:
            positions, vectors = in_order(counted(), self._encoder.dimension)
        except NotFiniteError as error:
            row = int(rows[error.position])
            raise StageError(
                f"the encoder gave NaN or infinity for row {row} (paper {self._texts.label(row)}) of shard {number}",
                "Compute in float32",
            ) from error
        if len(np.unique(positions)) != len(rows):
            raise StageError(f"the encoder gave vectors for {len(np.unique(positions))} of {len(rows)} texts")
        self._count("compute", started)
        self._write(_write_part, part.path, rows[positions], vectors, counts)

    def _finish(self, number: int, parts: Sequence[_Part]) -> None:
        """Join the parts of a shard."""
        read = [_read_part(part.path) for part in parts]
        counts = sum((counted for _, _, counted in read), Counter[str]())
        owners = np.concatenate([owners for owners, _, _ in read])
        vectors = np.concatenate([vectors for _, vectors, _ in read])
        embedded = sum(len(part.rows) for part in parts)
        write_shard(self._out, number, owners, vectors, self._storage, embedded=embedded, **counts)
        for part in parts:
            part.path.unlink(missing_ok=True)
        self._progress.shard(number)

    def _write(self, write: Any, *arguments: Any) -> None:
        """Have something written by the thread that writes; one such thing may wait, no more."""
        while len(self._unwritten) > 1:
            self._unwritten.pop(0).result()

        def timed() -> None:
            started = time.monotonic()
            write(*arguments)
            self._count("write", started)

        self._unwritten.append(self._writing.submit(timed))

    def _raise_written(self) -> None:
        while self._unwritten:
            self._unwritten.pop(0).result()

    def _count(self, what: str, started: float) -> None:
        self._seconds[what] += time.monotonic() - started


def _write_part(path: Path, owners: Rows, vectors: Matrix, counts: Counter[str]) -> None:
    schema = vectors_schema(vectors.shape[1], "float32").with_metadata({"counts": json.dumps(counts)})
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
    with files.disk_errors(path.parent), files.replacing(path) as temporary:
        batch = pa.RecordBatch.from_arrays([pa.array(owners, pa.uint32()), column], schema=schema)
        files.write_arrow(temporary, [batch], schema)


def _read_part(path: Path) -> tuple[Rows, Matrix, Counter[str]]:
    table = files.read_arrow(path)
    column = table.column("vector").chunk(0)
    vectors = column.flatten().to_numpy().reshape(-1, column.type.list_size)
    return table.column("row").chunk(0).to_numpy(), vectors, Counter(json.loads(table.schema.metadata[b"counts"]))
