"""Embeds the papers of corpus shards in parts; a killed process loses at most one part."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core import files, parallel
from pipeline.core.csr import slices
from pipeline.core.errors import StageError
from pipeline.core.progress import Progress
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Corpus, Rows, Text
from pipeline.encode.base import Encoded, Encoder, NotFiniteError, in_order, padding_share
from pipeline.encode.model import Role, Storage
from pipeline.encode.store import read_vectors, vectors_batch, write_shard

PART_PAPERS = {"cpu": 4_096, "cuda": 65_536}
"""Papers of a part, at most: sorted by length, encoded and written together. On a GPU the last batch of each shape is
filled up, which takes the share of 150,000 tokens in those of the part."""

PART_CHARACTERS = 2**13
"""Characters of a part for each of its :data:`PART_PAPERS`, at most, unless it is one paper."""

_MAX_CHARACTERS = 3_000
"""Maximum number of characters of a text that count as work; 512 tokens are rarely longer."""


class CorpusTexts:
    """The texts of a corpus in one role, by row."""

    def __init__(self, corpus: Corpus, role: Role) -> None:
        self.corpus, self.role = corpus, role

    def __len__(self) -> int:
        return len(self.corpus.query_texts) if self.role == "query" else len(self.corpus)

    def shards(self, rows: Rows) -> npt.NDArray[np.integer]:
        """Return the corpus shard of each row; query texts are one shard."""
        if self.role == "query":
            return np.zeros(len(rows), np.uint16)
        return np.searchsorted(self.corpus.starts, rows, "right") - 1

    def __call__(self, rows: Rows) -> list[Text]:
        """Return the texts of rising rows."""
        if self.role == "query":
            return self.corpus.ad_hoc(rows)
        return [text for block in self.corpus.texts(rows) for text in block]

    def label(self, row: int) -> str:
        """Return the id of a paper or query."""
        if self.role == "query":
            return str(self.corpus.query_texts.column("query_id")[row].as_py())
        return self.corpus.ids(np.array([row]))[0]

    def characters(self, rows: Rows) -> npt.NDArray[np.int64]:
        """Return the number of characters of each text."""
        return self.corpus.query_characters(rows) if self.role == "query" else self.corpus.characters(rows)

    def work(self, rows: Rows) -> npt.NDArray[np.int64]:
        """Return the approximate work of each text: the characters that an encoder may read, at least 1."""
        if self.role == "query":
            return np.ones(len(rows), np.int64)
        characters: npt.NDArray[np.int64] = np.minimum(self.characters(rows) + 1, _MAX_CHARACTERS)
        return characters


class _Part(NamedTuple):
    shard: int
    rows: Rows
    path: Path


class ShardWriter:
    """Embeds shards of the segment ``out``; calls ``load`` only if there is something to compute.

    A finished part stays in the segment's scratch folder until its shard is written.
    Memory: two copies of a shard's vectors, and the texts and tokens of three parts.
    """

    def __init__(
        self, out: Workdir, texts: CorpusTexts, load: Callable[[], Encoder], storage: Storage, device: str
    ) -> None:
        self._out, self._texts, self._load, self._storage = out, texts, load, storage
        self._part_papers = PART_PAPERS["cuda" if device.startswith("cuda") else "cpu"]
        self._totals: Counter[str] = Counter()
        self._started = time.monotonic()

    def write(self, shards: Mapping[int, Rows], title: str) -> dict[str, Any]:
        """Embed the papers of each corpus shard, and write the shards.

        Args:
            shards: rising rows by corpus shard.
            title: label of the progress bar, such as ``embed scincl``.

        Returns:
            Provenance: the encoder's description and rates; empty if nothing was computed.

        Raises:
            StageError: a vector is not finite, or too large for the storage type.
        """
        folder, papers = self._out.scratch(), self._part_papers
        parts = [
            _Part(shard, rows[part], folder / f"part-{shard:05d}-{part.start:08d}-{part.stop:08d}.arrow")
            for shard, rows in shards.items()
            for part in slices(self._texts.characters(rows), papers, PART_CHARACTERS * papers)
        ]
        missing = [part for part in parts if not part.path.is_file()]
        encoder = self._load() if missing else None
        self._started = time.monotonic()
        work = sum(int(self._texts.work(part.rows).sum()) for part in missing)
        with Progress(work, title, "characters") as progress:
            tokenised = iter(self._tokenised(encoder, missing))
            for shard in shards:
                shard_parts = [part for part in parts if part.shard == shard]
                for part in shard_parts:
                    if encoder is not None and not part.path.is_file():
                        self._compute(encoder, part, next(tokenised), progress)
                self._join(shard, shard_parts)
        if encoder is None:
            return {}
        elapsed = self._elapsed()
        return {
            **encoder.describe(),
            "documents_per_second": round(self._totals["texts"] / elapsed, 2),
            "tokens_per_second": round(self._totals["tokens"] / elapsed, 1),
            "padding": round(padding_share(self._totals["tokens"], self._totals["padded"]), 4),
        }

    def _tokenised(self, encoder: Encoder | None, parts: Sequence[_Part]) -> Iterator[Any]:
        """Yield the tokens of each part; meanwhile a thread reads and tokenises the next parts."""
        if encoder is not None:
            prepare = encoder.prepare
            yield from parallel.in_order(lambda part: prepare(self._texts(part.rows), self._texts.role), parts, 1)

    def _compute(self, encoder: Encoder, part: _Part, tokens: Any, progress: Progress) -> None:
        """Compute the vectors of one part and write them to its file."""
        counts: Counter[str] = Counter()
        work = self._texts.work(part.rows)

        def counted() -> Iterator[Encoded]:
            for batch in encoder.finish(tokens):
                counts.update(tokens=batch.tokens, padded=batch.padded, truncated=batch.truncated)
                self._totals.update(texts=batch.texts, tokens=batch.tokens, padded=batch.padded)
                progress.add(int(work[np.unique(batch.positions)].sum()), self._rates())
                yield batch

        try:
            positions, vectors = in_order(counted(), encoder.dimension)
        except NotFiniteError as error:
            row = int(part.rows[error.position])
            raise StageError(
                f"the encoder gave NaN or infinity for row {row} (paper {self._texts.label(row)})",
                "Compute in float32",
            ) from error
        encoded = len(np.unique(positions))
        if encoded != len(part.rows):
            raise StageError(f"the encoder gave vectors for {encoded} of {len(part.rows)} texts")
        batch = vectors_batch(part.rows[positions], vectors, counts=counts)
        with files.disk_errors(part.path.parent), files.replacing(part.path) as temporary:
            files.write_arrow(temporary, [batch], batch.schema)

    def _elapsed(self) -> float:
        return max(time.monotonic() - self._started, 1e-9)

    def _rates(self) -> str:
        texts = self._totals["texts"]
        return f"{texts:,} docs, {texts / self._elapsed():,.1f} docs/s"

    def _join(self, shard: int, parts: Sequence[_Part]) -> None:
        """Write a shard from its parts."""
        tables = [files.read_arrow(part.path) for part in parts]
        counts = sum((Counter(json.loads(table.schema.metadata[b"counts"])) for table in tables), Counter[str]())
        owners, vectors = map(np.concatenate, zip(*map(read_vectors, tables), strict=True))
        embedded = sum(len(part.rows) for part in parts)
        write_shard(self._out, shard, owners, vectors, self._storage, embedded=embedded, **counts)
        for part in parts:
            part.path.unlink(missing_ok=True)
