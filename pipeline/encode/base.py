"""The interface of all encoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import StageError
from pipeline.corpus.reader import Text
from pipeline.encode.spec import Role

Matrix = npt.NDArray[np.float32]


class Encoded(NamedTuple):
    """The vectors of one batch of texts.

    Attributes:
        positions: int64 ``[m]``, the text of each vector; repeated where a text has several vectors.
        vectors: float32 ``[m, dimension]``.
        texts: number of texts.
        tokens: tokens read, special ones included (0 for an encoder without tokens).
        padded: tokens computed, padding included.
        truncated: texts cut to the maximum length.
    """

    positions: npt.NDArray[np.int64]
    vectors: Matrix
    texts: int
    tokens: int = 0
    padded: int = 0
    truncated: int = 0


class NotFiniteError(StageError):
    """An encoder gave NaN or infinity.

    Attributes:
        position: position of the text.
    """

    def __init__(self, position: int) -> None:
        super().__init__(f"the vector of text {position} is not finite", "Compute in float32")
        self.position = position


class Encoder(ABC):
    """Turns texts into vectors. A loaded encoder holds its weights and belongs to one process."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Components of a vector."""

    @abstractmethod
    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> Any:
        """Return texts as :meth:`finish` takes them (tokens); a thread may do it ahead of time."""

    @abstractmethod
    def finish(self, prepared: Any) -> Iterator[Encoded]:
        """Yield the vectors of prepared texts in batches, in the encoder's own order, each text once."""

    def encode_batches(self, texts: Sequence[Text], role: Role = "paper") -> Iterator[Encoded]:
        """Yield the vectors of ``texts`` in batches, in the encoder's own order, each text once."""
        return self.finish(self.prepare(texts, role))

    def describe(self) -> Mapping[str, Any]:
        """Return facts of the execution for provenance (device, batch size)."""
        return {}

    def encode(self, texts: Sequence[Text], role: Role = "paper") -> Matrix:
        """Return the vectors of ``texts``, float32 ``[n, dimension]``, in their order.

        An encoder with several vectors a text returns them together, text after text.

        Raises:
            NotFiniteError: a vector holds NaN or infinity.
        """
        return in_order(self.encode_batches(texts, role), self.dimension)[1]


def padding_share(tokens: int, padded: int) -> float:
    """Return the fraction of computed tokens that were padding."""
    return 1 - tokens / padded if padded else 0.0


def in_order(batches: Iterable[Encoded], dimension: int) -> tuple[npt.NDArray[np.int64], Matrix]:
    """Join batches in the order of the texts: (position of each vector's text, rising; vectors).

    Raises:
        NotFiniteError: a vector holds NaN or infinity.
    """
    parts = list(batches)
    for part in parts:
        finite = np.isfinite(part.vectors).all(axis=1)
        if not finite.all():
            raise NotFiniteError(int(part.positions[~finite].min()))
    positions = np.concatenate([np.empty(0, np.int64), *(part.positions for part in parts)])
    vectors = np.concatenate([np.empty((0, dimension), np.float32), *(part.vectors for part in parts)])
    order = np.argsort(positions, kind="stable")
    return positions[order], vectors[order]
