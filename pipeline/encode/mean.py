"""The mean of several encoders' vectors (SciRepEval, Singh et al. 2023, table 2: adapters and control codes)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.core.errors import InputError
from pipeline.corpus.reader import Text
from pipeline.encode.base import Encoded, Encoder, Matrix, in_order
from pipeline.encode.spec import Role


class MeanEncoder(Encoder):
    """Averages vectors component by component.

    Args:
        parts: encoders of one dimension, each with one vector a text.

    Raises:
        InputError: their dimensions differ.
    """

    def __init__(self, parts: Sequence[Encoder]) -> None:
        dimensions = [part.dimension for part in parts]
        if len(set(dimensions)) != 1:
            raise InputError(
                f"vectors of {' and '.join(map(str, dimensions))} components cannot be averaged",
                "Choose encoders of one dimension",
            )
        self._parts = parts

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return self._parts[0].dimension

    def describe(self) -> Mapping[str, Any]:
        """Return the description of the first encoder, with the bytes of all weights."""
        described = [part.describe() for part in self._parts]
        return {**described[0], "weight_bytes": sum(description.get("weight_bytes", 0) for description in described)}

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> list[Any]:
        """Return the texts as each of the encoders takes them."""
        return [part.prepare(texts, role) for part in self._parts]

    def finish(self, prepared: Sequence[Any]) -> Iterator[Encoded]:
        """Yield all vectors at once.

        Raises:
            NotFiniteError: a vector holds NaN or infinity.
        """
        batches = [list(part.finish(tokens)) for part, tokens in zip(self._parts, prepared, strict=True)]
        ordered = [in_order(of_part, self.dimension) for of_part in batches]
        positions = ordered[0][0]
        vectors: Matrix = np.stack([vectors for _, vectors in ordered]).mean(axis=0, dtype=np.float32)
        yield Encoded(
            positions=positions,
            vectors=vectors,
            texts=len(positions),
            tokens=sum(batch.tokens for of_part in batches for batch in of_part),
            padded=sum(batch.padded for of_part in batches for batch in of_part),
            truncated=max(sum(batch.truncated for batch in of_part) for of_part in batches),
        )
