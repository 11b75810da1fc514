"""An encoder for tests that needs no model: every text has its own unit vector.

    def test_something(stub):                      # the fixture of tests/conftest.py makes the model "stub" known
        model = registry.resolve("stub")           # or "stub:dimension=8,storage=float16"

or, in another process, ``install()``. The vector is a pseudo-random direction that depends on title and abstract alone,
so that a paper is its own nearest neighbour, and an ad-hoc query the neighbour of a paper whose title is its text and
which has no abstract.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.errors import StageError
from pipeline.core.resources import Resources
from pipeline.core.rng import generator
from pipeline.corpus.reader import Text
from pipeline.encode import kinds
from pipeline.encode.base import Encoded, Encoder
from pipeline.encode.model import Model, Role

BATCH = 16
"""Texts of a batch."""


@dataclass(frozen=True, kw_only=True)
class Stub(Model):
    kind, entries = "stub", {"stub": {}}
    dimension: int = 32

    def load(self, fit: Artifact | None, resources: Resources) -> Encoder:
        return StubEncoder(self.dimension)


class StubEncoder(Encoder):
    """Unit vectors by text; it waits ``pause`` seconds a batch, and fails after ``limit`` texts."""

    pause = 0.0
    encoded = 0
    limit: int | None = None

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension

    @property
    def dimension(self) -> int:
        return self._dimension

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> Sequence[Text]:
        return texts

    def finish(self, prepared: Sequence[Text]) -> Iterator[Encoded]:
        texts = prepared
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            time.sleep(self.pause)
            if self.limit is not None and self.encoded >= self.limit:
                raise StageError(f"the stub stops after {self.limit} texts")
            vectors = np.stack([unit_vector(text, self._dimension) for text in batch])
            tokens = sum(len(" ".join(text).split()) for text in batch)
            StubEncoder.encoded += len(batch)
            yield Encoded(np.arange(start, start + len(batch)), vectors, len(batch), tokens, tokens)


def unit_vector(text: Text, dimension: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the vector of a text, float32 ``[dimension]``."""
    vector = generator(0, "stub", "\x1e".join(text)).standard_normal(dimension)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def install() -> None:
    """Make the model ``stub`` known to this process."""
    kinds.register(Stub)
