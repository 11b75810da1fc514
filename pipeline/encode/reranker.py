"""Rerankers score pairs of a query and a paper.

A cross-encoder reads both texts together (Nogueira and Cho 2019). A multi-vector encoder has one vector a token; its
score is MaxSim: over the query's vectors, the sum of the largest similarity to a vector of the paper (Khattab and
Zaharia 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import sentence_transformers
import torch
from torch import nn

from pipeline.core.resources import Resources
from pipeline.encode.base import Encoded, Pair, in_order
from pipeline.encode.kinds import Cross
from pipeline.encode.kinds import MaxSim as MaxSimModel
from pipeline.encode.network import PROBE, Network, load_saved, loading, torch_device
from pipeline.encode.tokenise import Batch, Tokens

_AT_A_TIME = 64
"""Pairs that are tokenised together."""

_SCORED = 1_024
"""Pairs whose token vectors are in memory together: at most a gigabyte at 512 tokens of 128 components."""


class CrossEncoder(Network):
    """A cross-encoder of sentence-transformers with one label, on one device.

    :meth:`scores` equals ``CrossEncoder.predict`` of sentence-transformers: the activation of the last module's output.
    """

    output = "scores"

    def __init__(
        self, model: Cross, modules: Sequence[Any], activation: nn.Module, device: torch.device, workers: int
    ) -> None:
        self._model, self._tokenizer, self._activation = model, modules[0].tokenizer, activation
        super().__init__(
            modules, self._tokenizer, device, compute=model.compute, longest=model.max_length, workers=max(workers, 1)
        )

    def extra_inputs(self, batch: Batch, tokens: Tokens) -> dict[str, Any]:
        """Return token types, if the model reads them: the text, 0 or 1, of each token."""
        if not tokens.types:
            return {}
        types = np.zeros((batch.rows, batch.width), np.int64)
        for row, position in enumerate(batch.texts):
            types[row, : len(tokens.types[position])] = tokens.types[position]
        return {"token_type_ids": self.send(types)}

    def compute(self, features: dict[str, Any]) -> torch.Tensor:
        """Return the scores of one batch."""
        scores: torch.Tensor = self._activation(super().compute(features))
        return scores.reshape(-1, 1)

    def scores(self, pairs: Sequence[Pair]) -> Iterator[Encoded]:
        """Yield the scores of pairs batch by batch, as vectors of one component."""
        return self.finish(self.prepare(pairs))

    def prepare(self, pairs: Sequence[Pair]) -> Tokens:
        """Return the tokens of pairs, truncated as ``longest_first``.

        The tokenizer does not truncate: it would also return each overflow of one text with each of the other.
        """
        ids, types, max_length = list[list[int]](), list[list[int]](), self._model.max_length
        for start in range(0, len(pairs), _AT_A_TIME):
            block = pairs[start : start + _AT_A_TIME]
            encoding = self._tokenizer(
                [self._model.prompt + pair.query for pair in block],
                [pair.paper for pair in block],
                return_attention_mask=False,
                verbose=False,
            )
            for index, token_ids in enumerate(encoding["input_ids"]):
                positions = _longest_first(encoding.sequence_ids(index), max_length)
                ids.append([token_ids[position] for position in positions])
                if "token_type_ids" in encoding:
                    types.append([encoding["token_type_ids"][index][position] for position in positions])
        truncated = [len(tokens) >= max_length for tokens in ids]
        return Tokens(ids, [[(0, 1)]] * len(pairs), truncated, types)


class MaxSim:
    """A multi-vector encoder of sentence-transformers on one device; the library makes the batches.

    :meth:`scores` equals its ``similarity_pairwise``.
    """

    def __init__(self, encoder: Any, workers: int) -> None:
        self._encoder, self._workers = encoder, max(workers, 1)

    def describe(self) -> Mapping[str, Any]:
        """Return device, precision and threads."""
        compute = str(self._encoder[0].model.dtype).removeprefix("torch.")
        return {"device": str(self._encoder.device), "compute": compute, "threads": self._workers}

    def scores(self, pairs: Sequence[Pair]) -> Iterator[Encoded]:
        """Yield scores as :meth:`CrossEncoder.scores`; a text of several pairs in a block is encoded once."""
        torch.set_num_threads(self._workers)
        for start in range(0, len(pairs), _SCORED):
            queries, papers = zip(*pairs[start : start + _SCORED], strict=True)
            vectors = _encode(self._encoder.encode_query, queries), _encode(self._encoder.encode_document, papers)
            scores = self._encoder.similarity_pairwise(*vectors).float().cpu().numpy()
            yield Encoded(np.arange(start, start + len(queries)), scores[:, None], len(queries))


def load_cross(model: Cross, _fit: None, resources: Resources) -> CrossEncoder:
    """Load a model's weights and tokenizer.

    Raises:
        InputError: the device does not exist, or the checkpoint cannot be loaded.
        StageError: the weights are not on this machine, and the hub cannot be reached.
    """
    device, folder = torch_device(resources.device), model.ready()
    loaded = load_saved(sentence_transformers.CrossEncoder, folder, "sequence-classification")
    with loading(folder):
        encoder = CrossEncoder(model, [*loaded], loaded.activation_fn, device, resources.workers)
        encoder.try_out(encoder.prepare([Pair(*text) for text in PROBE]))
    return encoder


def load_maxsim(model: MaxSimModel, _fit: None, resources: Resources) -> MaxSim:
    """Load a model's weights and tokenizer; raises as :func:`load_cross`."""
    device, folder = torch_device(resources.device), model.ready()
    loaded = load_saved(cast("Any", sentence_transformers).MultiVectorEncoder, folder)
    with loading(folder):
        encoder = MaxSim(loaded.to(device, getattr(torch, model.compute)), resources.workers)
        in_order(encoder.scores([Pair(*text) for text in PROBE]), 1)
    return encoder


def _encode(encode: Callable[[list[str]], list[Any]], texts: Sequence[str]) -> list[Any]:
    """Return the vectors of texts; repeated texts are encoded once."""
    distinct = list(dict.fromkeys(texts))
    vectors = dict(zip(distinct, encode(distinct), strict=True))
    return [vectors[text] for text in texts]


def _longest_first(text_of_token: Sequence[int | None], length: int) -> list[int]:
    """Return the positions of the tokens that the truncation strategy ``longest_first`` keeps of a pair.

    ``text_of_token`` is 0 or 1; None for special tokens, which stay.
    """
    sizes = text_of_token.count(0), text_of_token.count(1)
    room = length - text_of_token.count(None)
    if sum(sizes) <= room:
        return list(range(len(text_of_token)))
    shorter = min(*sizes, room // 2)
    remaining = [shorter, room - shorter] if sizes[0] <= sizes[1] else [room - shorter, shorter]
    positions = []
    for position, text in enumerate(text_of_token):
        if text is None or remaining[text] > 0:
            positions.append(position)
        if text is not None:
            remaining[text] -= 1
    return positions
