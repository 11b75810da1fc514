"""The interface of all encoders, and the mean of several (SciRepEval: Singh et al. 2023, table 2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError, StageError
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode.model import Model, Role

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


class Pair(NamedTuple):
    """A query and a paper as a reranker reads them: one string each."""

    query: str
    paper: str


class NotFiniteError(StageError):
    """An encoder gave NaN or infinity for the text at ``position``."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the vector of text {position} is not finite", "Compute in float32")
        self.position = position


class Encoder(ABC):
    """Turns texts into vectors. A loaded encoder belongs to one process."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Components of a vector."""

    @abstractmethod
    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> Any:
        """Return texts as input of :meth:`finish`, such as tokens; a thread may call this ahead of time."""

    @abstractmethod
    def finish(self, prepared: Any) -> Iterator[Encoded]:
        """Yield the vectors of prepared texts in batches, in the encoder's own order, each text once."""

    def encode_batches(self, texts: Sequence[Text], role: Role = "paper") -> Iterator[Encoded]:
        """Yield the vectors of ``texts`` in batches, in the encoder's own order, each text once."""
        return self.finish(self.prepare(texts, role))

    def describe(self) -> Mapping[str, Any]:
        """Return the execution for provenance: device, batch size."""
        return {}

    def encode(self, texts: Sequence[Text], role: Role = "paper") -> Matrix:
        """Return the vectors of ``texts``, float32 ``[n, dimension]``, in their order, several of one text in turn.

        Raises:
            NotFiniteError: a vector holds NaN or infinity.
        """
        return in_order(self.encode_batches(texts, role), self.dimension)[1]


class Composite(Encoder):
    """An encoder made of those of a model's parts; its dimension is that of the first."""

    def __init__(self, model: Model, _fit: None, resources: Resources) -> None:
        self._parts: list[Encoder] = [part.load(None, resources) for part in model.parts]

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return self._parts[0].dimension

    def describe(self) -> Mapping[str, Any]:
        """Return the description of the first encoder, with the weight bytes of all."""
        described = [part.describe() for part in self._parts]
        return {**described[0], "weight_bytes": sum(description.get("weight_bytes", 0) for description in described)}


class MeanEncoder(Composite):
    """Averages the vectors of encoders of one dimension, with one vector a text, component by component."""

    def __init__(self, model: Model, _fit: None, resources: Resources) -> None:
        super().__init__(model, None, resources)
        dimensions = [part.dimension for part in self._parts]
        if len(set(dimensions)) != 1:
            raise InputError(
                f"vectors of {' and '.join(map(str, dimensions))} components cannot be averaged",
                "Choose encoders of one dimension",
            )

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> list[Any]:
        """Return the input of each encoder."""
        return [part.prepare(texts, role) for part in self._parts]

    def finish(self, prepared: Sequence[Any]) -> Iterator[Encoded]:
        """Yield all vectors at once; raises as :func:`in_order`."""
        batches = [list(part.finish(tokens)) for part, tokens in zip(self._parts, prepared, strict=True)]
        ordered = [in_order(of_part, self.dimension) for of_part in batches]
        vectors: Matrix = np.stack([vectors for _, vectors in ordered]).mean(axis=0, dtype=np.float32)
        tokens, padded, truncated = zip(*map(totals, batches), strict=True)
        yield Encoded(ordered[0][0], vectors, len(vectors), sum(tokens), sum(padded), max(truncated))


def totals(batches: Sequence[Encoded]) -> tuple[int, int, int]:
    """Return the sums of tokens, padded tokens and truncated texts."""
    return sum(b.tokens for b in batches), sum(b.padded for b in batches), sum(b.truncated for b in batches)


def padding_share(tokens: int, padded: int) -> float:
    """Return the fraction of computed tokens that were padding."""
    return 1 - tokens / padded if padded else 0.0


def in_order(batches: Iterable[Encoded], dimension: int) -> tuple[npt.NDArray[np.int64], Matrix]:
    """Return (rising positions of texts, vectors) of batches; raise NotFiniteError at NaN or infinity."""
    encoded = list(batches)
    for batch in encoded:
        finite = np.isfinite(batch.vectors).all(axis=1)
        if not finite.all():
            raise NotFiniteError(int(batch.positions[~finite].min()))
    positions = np.concatenate([np.empty(0, np.int64), *(batch.positions for batch in encoded)])
    vectors = np.concatenate([np.empty((0, dimension), np.float32), *(batch.vectors for batch in encoded)])
    order = np.argsort(positions, kind="stable")
    return positions[order], vectors[order]
