"""Embedding the papers of one corpus shard, part by part, so that little is lost when the process is killed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import StageError
from pipeline.core.progress import Progress
from pipeline.core.schema import vectors as vectors_schema
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Rows, Text
from pipeline.encode.base import Encoded, Encoder, Matrix, NotFiniteError, in_order
from pipeline.encode.batching import padding_share
from pipeline.encode.segment import write_shard
from pipeline.encode.spec import Role, Storage

PART_PAPERS = 4_096
"""Papers that are sorted by length, encoded and put on disk together. Batches, hence last bits, depend on it."""

Texts = Callable[[Rows], list[Text]]
"""Returns the texts of rising rows."""


class ShardWriter:
    """Embeds shards of one segment.

    A part that is finished lies in the segment's scratch folder until its shard is, and is not computed again. Memory:
    two copies of one shard's vectors at most.

    Args:
        out: the segment under construction.
        texts: where the texts come from.
        encoder: gives the encoder; asked only if there is something to compute.
        role: what the texts are.
        storage: data type on disk.
        progress: counts papers.
    """

    def __init__(
        self,
        out: Workdir,
        texts: Texts,
        encoder: Callable[[], Encoder],
        role: Role,
        storage: Storage,
        progress: Progress,
    ) -> None:
        self._out, self._texts, self._encoder = out, texts, encoder
        self._role, self._storage, self._progress = role, storage, progress
        self._started, self._tokens, self._padded = time.monotonic(), 0, 0

    def write(self, number: int, rows: Rows) -> None:
        """Embed the papers at ``rows``, all of corpus shard ``number``, and write their vectors.

        Raises:
            StageError: a vector is not finite, or does not fit the storage; the row is named.
        """
        counts: Counter[str] = Counter()
        parts: list[tuple[Rows, Matrix]] = []
        for start in range(0, len(rows), PART_PAPERS):
            part = rows[start : start + PART_PAPERS]
            path = self._out.scratch() / f"part-{number:05d}-{start:08d}.arrow"
            if not path.is_file():
                self._write_part(path, part)
            else:
                self._progress.add(len(part))
            owners, vectors, counted = _read_part(path)
            counts += counted
            parts.append((owners, vectors))
        owners = np.concatenate([part[0] for part in parts])
        vectors = np.concatenate([part[1] for part in parts])
        write_shard(self._out, number, owners, vectors, self._storage, embedded=len(rows), **counts)
        for path in self._out.scratch().glob(f"part-{number:05d}-*.arrow"):
            path.unlink()

    def _write_part(self, path: Path, rows: Rows) -> None:
        counts: Counter[str] = Counter()
        encoder = self._encoder()
        try:
            batches = self._counted(encoder.encode_batches(self._texts(rows), self._role), counts)
            positions, vectors = in_order(batches, encoder.dimension)
        except NotFiniteError as error:
            raise StageError(
                f"the encoder gave NaN or infinity for row {rows[error.position]}", "Compute in float32"
            ) from error
        if len(np.unique(positions)) != len(rows):
            raise StageError(f"the encoder gave vectors for {len(np.unique(positions))} of {len(rows)} texts")
        schema = vectors_schema(encoder.dimension, "float32").with_metadata({"counts": json.dumps(counts)})
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
        with files.disk_errors(path.parent), files.replacing(path) as temporary:
            batch = pa.RecordBatch.from_arrays([pa.array(rows[positions], pa.uint32()), column], schema=schema)
            files.write_arrow(temporary, [batch], schema)

    def _counted(self, batches: Iterator[Encoded], counts: Counter[str]) -> Iterator[Encoded]:
        for batch in batches:
            counts.update(tokens=batch.tokens, padded=batch.padded, truncated=batch.truncated)
            self._tokens += batch.tokens
            self._padded += batch.padded
            rate = self._tokens / max(time.monotonic() - self._started, 1e-9)
            share = padding_share(self._tokens, self._padded)
            self._progress.add(batch.texts, f"{rate:,.0f} tokens/s, {share:.1%} padding" if self._tokens else "")
            yield batch


def _read_part(path: Path) -> tuple[Rows, Matrix, Counter[str]]:
    table = files.read_arrow(path)
    column = table.column("vector").chunk(0)
    vectors = column.flatten().to_numpy().reshape(-1, column.type.list_size)
    return table.column("row").chunk(0).to_numpy(), vectors, Counter(json.loads(table.schema.metadata[b"counts"]))
