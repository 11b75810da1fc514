"""Transformers as encoders: the states of the last layer, pooled, and the dense layers that may follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import recipe
from pipeline.encode.adapter import activate
from pipeline.encode.aspire import SentenceTokeniser
from pipeline.encode.base import Encoded, Encoder
from pipeline.encode.network import SAMPLE, Network, loading, open_pretrained, torch_device
from pipeline.encode.pals import has_pals, open_pals
from pipeline.encode.spec import AspireSpec, Model, Role, TransformerSpec
from pipeline.encode.tokenise import TextTokeniser, Tokeniser, TokeniserPool, Tokens

_ASPIRE_SPECIAL = 2
"""Special tokens around ASPIRE's text."""


class TransformerEncoder(Network, Encoder):
    """A transformer on one device.

    Args:
        spec: precision, length and pooling.
        network: the transformer in float32 on the CPU, with its adapter, in evaluation mode.
        tokenizer: its fast tokenizer.
        device: where to compute.
        workers: on a CPU, threads, each with a batch of its own; with a GPU, processes that tokenise (0: tokenise in
            this process).
        dense: layers after the pooling, in float32; most models have none.

    Raises:
        InputError: the tokenizer is a slow one, or the model takes fewer tokens than the specification asks for.
        StageError: the device has no memory for the weights.
    """

    def __init__(
        self,
        spec: TransformerSpec | AspireSpec,
        network: Any,
        tokenizer: Any,
        device: torch.device,
        workers: int = 1,
        dense: Sequence[nn.Sequential] = (),
    ) -> None:
        longest = spec.max_length if isinstance(spec, TransformerSpec) else spec.max_tokens + _ASPIRE_SPECIAL
        super().__init__(network, tokenizer, device, compute=spec.compute, longest=longest, workers=workers)
        tokenise: Tokeniser = (
            TextTokeniser(spec, tokenizer) if isinstance(spec, TransformerSpec) else SentenceTokeniser(spec, tokenizer)
        )
        alone = device.type == "cpu" or not workers
        self._tokenise: Tokeniser = tokenise if alone else TokeniserPool(tokenise, workers)
        self._modes = spec.pooling.split("+") if isinstance(spec, TransformerSpec) else ["mean"]
        self._normalise = isinstance(spec, TransformerSpec) and spec.normalise
        self._dense = nn.Sequential(*dense).to(device)

    @classmethod
    def load(cls, model: Model, resources: Resources) -> TransformerEncoder:
        """Load a model's weights and tokenizer.

        Raises:
            InputError: the device does not exist, or the checkpoint cannot be loaded.
            StageError: the weights are not on this machine, and the hub cannot be reached.
        """
        if not isinstance(model.spec, TransformerSpec | AspireSpec) or model.checkpoint is None:
            raise TypeError(f"{model.name} is not a transformer")
        device = torch_device(resources.device)
        folders = model.spec.dense if isinstance(model.spec, TransformerSpec) else ()
        place, pals = model.checkpoint.ready(folders), getattr(model.spec, "pals", "")
        network, tokenizer = open_pals(place, pals) if pals or has_pals(place) else open_pretrained(place)
        if model.adapter is not None:
            activate(network, model.adapter.ready())
        dense = [dense_layer(place / folder) for folder in folders]
        with loading(place):
            encoder = cls(model.spec, network.eval(), tokenizer, device, resources.workers, dense)
            encoder.try_out(encoder.prepare([SAMPLE]))
        return encoder

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        pooled = len(self._modes) * int(self._network.config.hidden_size)
        return int(self._dense[-1][0].out_features) if len(self._dense) else pooled

    def describe(self) -> Mapping[str, Any]:
        """Return device, precision, attention, batch size, bytes of the weights and threads."""
        description = super().describe()
        dense = sum(weight.nbytes for weight in self._dense.parameters())
        return {**description, "weight_bytes": description["weight_bytes"] + dense}

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> Tokens:
        """Return texts as tokens."""
        return self._tokenise(texts, role)

    def finish(self, prepared: Tokens) -> Iterator[Encoded]:
        """Yield vectors, longest texts first."""
        return self.batches(prepared)

    def compute(self, batch: list[int], tokens: Tokens, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the pooled states of one batch."""
        spans = np.array(
            [
                (row * ids.shape[1] + first, row * ids.shape[1] + end)
                for row, position in enumerate(batch)
                for first, end in tokens.spans[position]
            ]
        )
        states = self._network(input_ids=ids, attention_mask=mask).last_hidden_state
        places, offsets = map(self.send, span_tokens(spans))
        pooled = self._dense(pool(states.flatten(0, 1), places, offsets, self._modes))
        return functional.normalize(pooled, dim=1) if self._normalise else pooled


def pool(
    states: torch.Tensor, places: torch.Tensor, offsets: torch.Tensor, modes: Sequence[str] = ("mean",)
) -> torch.Tensor:
    """Return a vector of the states of each span of tokens, float32 ``[spans, modes * dimension]``.

    Args:
        states: last layer, ``[tokens, dimension]``.
        places: the tokens of all spans, one span after another, int64 ``[tokens of spans]``.
        offsets: where each span starts in ``places``, int64 ``[spans]``.
        modes: names of :data:`pipeline.encode.spec.POOLING`, whose vectors are concatenated; any other name is the
            mean (of a span of one token).
    """
    states = states.float()
    lengths = torch.diff(offsets, append=offsets.new_tensor([len(places)]))

    def by(mode: str) -> torch.Tensor:
        if mode == "lasttoken":
            return states[places[offsets + lengths - 1]]
        if mode == "cls":
            return states[places[offsets]]
        if mode == "weightedmean":
            weights = (torch.arange(len(places), device=places.device) - offsets.repeat_interleave(lengths) + 1).float()
            weights /= (lengths * (lengths + 1) / 2).repeat_interleave(lengths)
            return functional.embedding_bag(places, states, offsets, mode="sum", per_sample_weights=weights)
        if mode == "max":
            return functional.embedding_bag(places, states, offsets, mode="max")
        mean = functional.embedding_bag(places, states, offsets, mode="mean")
        return mean * lengths.sqrt().unsqueeze(1) if mode == "mean_sqrt_len_tokens" else mean

    return torch.cat([by(mode) for mode in modes], dim=1) if len(modes) > 1 else by(modes[0])


def span_tokens(spans: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the tokens of all spans, one span after another, and where each span starts, as :func:`pool` takes them.

    Args:
        spans: first token and the one behind the last, int64 ``[spans, 2]``; no span is empty.
    """
    lengths = spans[:, 1] - spans[:, 0]
    offsets = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(spans[:, 0] - offsets, lengths), offsets


def dense_layer(folder: Path) -> nn.Sequential:
    """Load a dense layer as sentence-transformers saves it: a linear layer in float32, and its activation.

    Raises:
        InputError: the weights are damaged, or missing, or are not those that the configuration describes.
    """
    values, (_, weights) = recipe.dense(folder), recipe.dense_files(folder)
    with loading(folder):
        linear = nn.Linear(values["in_features"], values["out_features"], bias=values.get("bias", True))
        read = load_file if weights.suffix == ".safetensors" else _load_binary
        state = {name.removeprefix("linear."): weight.float() for name, weight in read(weights).items()}
        linear.load_state_dict(state)
    activation: nn.Module = getattr(nn, values["activation_function"])()
    return nn.Sequential(linear, activation).eval()


def _load_binary(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)
