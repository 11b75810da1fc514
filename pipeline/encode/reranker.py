"""Rerankers: models that give the score of two texts.

A cross-encoder reads both together (Nogueira and Cho 2019). A multi-vector encoder gives each token a vector; the score
is MaxSim, the sum over the query's vectors of the largest similarity to one of the paper's (Khattab and Zaharia 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import sentence_transformers
import torch
from torch import nn

from pipeline.core.resources import Resources
from pipeline.encode.base import Encoded, in_order
from pipeline.encode.network import SAMPLE, Network, loading, saved_by, torch_device
from pipeline.encode.spec import CrossSpec, Model, Pair
from pipeline.encode.tokenise import Tokens

_AT_A_TIME = 64
"""Pairs that are tokenised together."""

_SCORED = 1_024
"""Pairs whose token vectors are in memory together: at most a gigabyte at 512 tokens of 128 components."""


class CrossEncoder(Network):
    """A cross-encoder of sentence-transformers with one label on one device.

    :meth:`scores` are those of sentence-transformers' ``CrossEncoder.predict``: the activation of what the last of the
    modules gives.
    """

    output = "scores"

    def __init__(
        self, spec: CrossSpec, modules: Sequence[Any], activation: nn.Module, device: torch.device, workers: int
    ) -> None:
        self._spec, self._tokenizer, self._activation = spec, modules[0].tokenizer, activation
        super().__init__(
            modules, self._tokenizer, device, compute=spec.compute, longest=spec.max_length, workers=max(workers, 1)
        )

    @classmethod
    def load(cls, model: Model, resources: Resources) -> CrossEncoder:
        """Load a model's weights and tokenizer.

        Raises:
            InputError: the device does not exist, or the checkpoint cannot be loaded.
            StageError: the weights are not on this machine, and the hub cannot be reached.
        """
        checkpoint: Any = model.checkpoint
        device, folder = torch_device(resources.device), checkpoint.ready()
        loaded = saved_by(sentence_transformers.CrossEncoder, folder, "sequence-classification")
        with loading(folder):
            encoder = cls(cast("CrossSpec", model.spec), [*loaded], loaded.activation_fn, device, resources.workers)
            encoder.try_out(encoder.prepare([Pair(*SAMPLE)]))
        return encoder

    def more(self, batch: list[int], tokens: Tokens, width: int) -> dict[str, Any]:
        """Return which of the two texts each token belongs to, where the model reads that."""
        if not tokens.types:
            return {}
        types = np.zeros((len(batch), width), np.int64)
        for row, position in enumerate(batch):
            types[row, : len(tokens.types[position])] = tokens.types[position]
        return {"token_type_ids": self.send(types)}

    def compute(self, features: dict[str, Any]) -> torch.Tensor:
        """Return the scores of one batch."""
        scores: torch.Tensor = self._activation(super().compute(features))
        return scores.reshape(-1, 1)

    def scores(self, pairs: Sequence[Pair]) -> Iterator[Encoded]:
        """Yield the score of each pair as a vector of one component, batch by batch."""
        return self.finish(self.prepare(pairs))

    def prepare(self, pairs: Sequence[Pair]) -> Tokens:
        """Return pairs as :meth:`finish` takes them; the longer of the two texts is cut first until both fit.

        The tokenizer does not cut: it would keep every part that it cuts off of one text with every part of the other.
        """
        ids, types, most = list[list[int]](), list[list[int]](), self._spec.max_length
        for start in range(0, len(pairs), _AT_A_TIME):
            some = pairs[start : start + _AT_A_TIME]
            encoding = self._tokenizer(
                [self._spec.prompt + pair.query for pair in some],
                [pair.paper for pair in some],
                return_attention_mask=False,
                verbose=False,
            )
            for number, whole in enumerate(encoding["input_ids"]):
                kept = _kept(encoding.sequence_ids(number), most)
                ids.append([whole[place] for place in kept])
                if "token_type_ids" in encoding:
                    types.append([encoding["token_type_ids"][number][place] for place in kept])
        full = [len(tokens) >= most for tokens in ids]
        return Tokens(ids, [[(0, 1)]] * len(pairs), full, types)


class MaxSim:
    """A multi-vector encoder of sentence-transformers on one device, in that library's own batches.

    :meth:`scores` are those of its ``similarity_pairwise``.
    """

    def __init__(self, encoder: Any, workers: int) -> None:
        self._encoder, self._workers = encoder, max(workers, 1)

    @classmethod
    def load(cls, model: Model, resources: Resources) -> MaxSim:
        """Load a model's weights and tokenizer; raises as :meth:`CrossEncoder.load` does."""
        spec: Any = model.spec
        checkpoint: Any = model.checkpoint
        device, folder = torch_device(resources.device), checkpoint.ready()
        loaded = saved_by(cast("Any", sentence_transformers).MultiVectorEncoder, folder)
        with loading(folder):
            encoder = cls(loaded.to(device, getattr(torch, spec.compute)), resources.workers)
            in_order(encoder.scores([Pair(*SAMPLE)]), 1)
        return encoder

    def describe(self) -> Mapping[str, Any]:
        """Return device, precision and threads."""
        compute = str(self._encoder[0].model.dtype).removeprefix("torch.")
        return {"device": str(self._encoder.device), "compute": compute, "threads": self._workers}

    def scores(self, pairs: Sequence[Pair]) -> Iterator[Encoded]:
        """Yield scores as :meth:`CrossEncoder.scores`; a text that several pairs share is encoded once."""
        torch.set_num_threads(self._workers)
        for start in range(0, len(pairs), _SCORED):
            queries, papers = zip(*pairs[start : start + _SCORED], strict=True)
            vectors = _each(self._encoder.encode_query, queries), _each(self._encoder.encode_document, papers)
            scores = self._encoder.similarity_pairwise(*vectors).float().cpu().numpy()
            yield Encoded(np.arange(start, start + len(queries)), scores[:, None], len(queries))


def _each(encode: Callable[[list[str]], list[Any]], texts: Sequence[str]) -> list[Any]:
    """Return the vectors of texts, each of which is encoded once."""
    distinct = list(dict.fromkeys(texts))
    vectors = dict(zip(distinct, encode(distinct), strict=True))
    return [vectors[text] for text in texts]


def _kept(sides: Sequence[int | None], length: int) -> list[int]:
    """Return the places of a pair's tokens that fit into a length, as the strategy ``longest_first`` cuts them.

    ``sides`` has the text of each token, 0 or 1; None for a special token, which is kept.
    """
    sizes = sides.count(0), sides.count(1)
    room = length - sides.count(None)
    if sum(sizes) <= room:
        return list(range(len(sides)))
    shorter = min(*sizes, room // 2)
    left = [shorter, room - shorter] if sizes[0] <= sizes[1] else [room - shorter, shorter]
    kept = []
    for place, side in enumerate(sides):
        if side is None or left[side] > 0:
            kept.append(place)
        if side is not None:
            left[side] -= 1
    return kept
