"""Estimates time, disk and memory of embedding from a few seconds of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.core.resources import Resources
from pipeline.core.schema import SHARD_ROWS
from pipeline.corpus.reader import Text
from pipeline.encode import kinds
from pipeline.encode.spec import Model

_FIRST_ROUND = 16
_LONG_ROUND = 0.5
"""Seconds; a shorter round doubles the texts of the next one."""
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_ACTIVATIONS = 16
"""Values of a token in a batch, in multiples of the dimension: states, query, key, value, inner layer."""


@dataclass(frozen=True)
class Probe:
    """Measurements of a probe.

    Attributes:
        documents_per_second: encoded papers a second, tokenising included.
        tokens_per_text: mean, after truncation.
        storage_bytes: bytes of a component on disk.
        memory: peak bytes: weights, one batch a thread, and two copies of a shard's vectors.
    """

    documents_per_second: float
    tokens_per_text: float
    vectors_per_text: float
    dimension: int
    storage_bytes: int
    memory: int

    def seconds(self, papers: int) -> float:
        """Return the seconds that ``papers`` take."""
        return papers / self.documents_per_second

    def disk(self, papers: int) -> int:
        """Return the bytes on disk of ``papers`` and of one unfinished shard."""
        vectors = papers * self.vectors_per_text
        unfinished = min(papers, SHARD_ROWS) * self.vectors_per_text * self.dimension * 4
        return int(vectors * (self.dimension * self.storage_bytes + 4) + papers * 6 + unfinished)


def probe(model: Model, texts: Sequence[Text], resources: Resources, seconds: float) -> Probe:
    """Measure a model whose weights are on this machine for ``seconds`` on texts in random order."""
    encoder = kinds.find(model.spec.kind).load(model, None, resources)
    tokens = vectors = texts_read = start = 0
    size, spent, rates = _FIRST_ROUND, 0.0, list[float]()
    while spent < seconds or not rates:
        sample = [texts[(start + number) % len(texts)] for number in range(size)]
        started = time.monotonic()
        for batch in encoder.encode_batches(sample):
            tokens, vectors, texts_read = tokens + batch.tokens, vectors + len(batch.vectors), texts_read + batch.texts
        elapsed = time.monotonic() - started
        start, spent = start + size, spent + elapsed
        rates.append(size / elapsed)
        size *= 1 + (elapsed < _LONG_ROUND)
    facts = encoder.describe()
    batch_bytes = facts["batch_tokens"] * facts["threads"] * encoder.dimension * _ACTIVATIONS * _BYTES[facts["compute"]]
    shard = int(2 * SHARD_ROWS * vectors / texts_read * encoder.dimension * 4)
    return Probe(
        documents_per_second=statistics.median(rates[len(rates) // 2 :]),
        tokens_per_text=tokens / texts_read,
        vectors_per_text=vectors / texts_read,
        dimension=encoder.dimension,
        storage_bytes=_BYTES[model.spec.storage],
        memory=facts["weight_bytes"] + batch_bytes + shard,
    )
