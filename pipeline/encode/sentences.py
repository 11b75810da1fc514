"""One vector a sentence by an encoder of texts (Reimers and Gurevych 2019): ``sentences:encoder=minilm``.

Sentences are split as for ASPIRE (:func:`pipeline.encode.aspire.split_sentences`); the title is no sentence. A paper
without a sentence has one vector, that of its title.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.corpus.reader import Text
from pipeline.encode.aspire import split_sentences
from pipeline.encode.base import Encoded, Encoder, in_order
from pipeline.encode.spec import Role


class _Prepared(NamedTuple):
    owners: npt.NDArray[np.int64]
    texts: int
    prepared: Any


class SentencesEncoder(Encoder):
    """Encodes each sentence of a text as a text of its own."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return self._encoder.dimension

    def describe(self) -> Mapping[str, Any]:
        """Return the encoder's description."""
        return self._encoder.describe()

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> _Prepared:
        """Return the sentences as the encoder takes them; those of a query and of a paper alike."""
        split = [split_sentences(text.title if role == "query" else text.abstract) or [text.title] for text in texts]
        owners = np.repeat(np.arange(len(texts)), [len(part) for part in split])
        sentences = [Text(sentence, "") for part in split for sentence in part]
        return _Prepared(owners, len(texts), self._encoder.prepare(sentences))

    def finish(self, prepared: _Prepared) -> Iterator[Encoded]:
        """Yield all vectors at once.

        Raises:
            NotFiniteError: a vector holds NaN or infinity.
        """
        batches = list(self._encoder.finish(prepared.prepared))
        positions, vectors = in_order(batches, self.dimension)
        tokens, padded, truncated = (
            sum(getattr(batch, name) for batch in batches) for name in ("tokens", "padded", "truncated")
        )
        yield Encoded(prepared.owners[positions], vectors, prepared.texts, tokens, padded, truncated)
