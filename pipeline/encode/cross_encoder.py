"""Cross-encoders: a transformer that reads two texts together and gives their score (Nogueira and Cho 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from pipeline.core.resources import Resources
from pipeline.encode.network import SAMPLE, Network, loading, open_pretrained, torch_device
from pipeline.encode.spec import CrossModel, CrossSpec, Pair
from pipeline.encode.tokenise import Tokens, lower_cased

_AT_A_TIME = 64
"""Pairs that are tokenised together."""


class CrossEncoder(Network):
    """A classifier with one label on one device.

    :meth:`batches` yields the score of each pair as a vector of one component, the one of sentence-transformers'
    ``CrossEncoder.predict``.

    Args:
        spec: precision, length and activation.
        network: the classifier in float32 on the CPU, in evaluation mode.
        tokenizer: its fast tokenizer.
        device: where to compute.
        workers: threads on a CPU, each with a batch of its own.

    Raises:
        InputError: the tokenizer is a slow one, or the model takes fewer tokens than the specification asks for.
        StageError: the device has no memory for the weights.
    """

    def __init__(self, spec: CrossSpec, network: Any, tokenizer: Any, device: torch.device, workers: int = 1) -> None:
        super().__init__(
            network, tokenizer, device, compute=spec.compute, longest=spec.max_length, workers=max(workers, 1)
        )
        self._tokenizer = lower_cased(tokenizer) if spec.lower_case else tokenizer
        self._length = spec.max_length
        self._activation: nn.Module = getattr(nn, spec.activation)()

    @classmethod
    def load(cls, model: CrossModel, resources: Resources) -> CrossEncoder:
        """Load a model's weights and tokenizer.

        Raises:
            InputError: the device does not exist, or the checkpoint cannot be loaded.
            StageError: the weights are not on this machine, and the hub cannot be reached.
        """
        device = torch_device(resources.device)
        folder = model.checkpoint.ready()
        network, tokenizer = open_pretrained(folder, AutoModelForSequenceClassification)
        with loading(folder):
            encoder = cls(model.spec, network.eval(), tokenizer, device, resources.workers)
            encoder.try_out(encoder.prepare([Pair(*SAMPLE)]))
        return encoder

    def compute(self, batch: list[int], tokens: Tokens, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the scores of one batch."""
        named = {}
        if tokens.types:
            types = np.zeros(ids.shape, np.int64)
            for row, position in enumerate(batch):
                types[row, : len(tokens.types[position])] = tokens.types[position]
            named["token_type_ids"] = self.send(types)
        logits = self._network(input_ids=ids, attention_mask=mask, **named).logits
        scores: torch.Tensor = self._activation(logits.float())
        return scores

    def prepare(self, pairs: Sequence[Pair]) -> Tokens:
        """Return pairs as :meth:`batches` takes them; the longer of the two texts is cut first until both fit.

        The tokenizer does not cut: it would keep every part that it cuts off of one text with every part of the other.
        """
        ids, types = list[list[int]](), list[list[int]]()
        for start in range(0, len(pairs), _AT_A_TIME):
            some = pairs[start : start + _AT_A_TIME]
            encoding = self._tokenizer(
                [pair.query for pair in some], [pair.paper for pair in some], return_attention_mask=False
            )
            for number, whole in enumerate(encoding["input_ids"]):
                kept = _kept(encoding.sequence_ids(number), self._length)
                ids.append([whole[place] for place in kept])
                if "token_type_ids" in encoding:
                    types.append([encoding["token_type_ids"][number][place] for place in kept])
        full = [len(tokens) >= self._length for tokens in ids]
        return Tokens(ids, [[(0, 1)]] * len(pairs), full, types)


def _kept(sides: Sequence[int | None], length: int) -> list[int]:
    """Return the places of a pair's tokens that fit into a length, as the strategy ``longest_first`` cuts them.

    Args:
        sides: of each token, its text (0 or 1); None for a special token, which is kept.
        length: tokens at most.
    """
    sizes = sides.count(0), sides.count(1)
    room = length - sides.count(None)
    if sum(sizes) <= room:
        return list(range(len(sides)))
    shorter = min(sizes)
    shares = [shorter, max(shorter, room - shorter)]
    if sum(shares) > room:
        shares = [room // 2, room // 2 + room % 2]
    left = dict(enumerate(shares if sizes[0] <= sizes[1] else shares[::-1]))
    kept = []
    for place, side in enumerate(sides):
        if side is None or left[side] > 0:
            kept.append(place)
        if side is not None:
            left[side] -= 1
    return kept
