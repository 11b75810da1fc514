"""Encoders of texts: modules of sentence-transformers, which we build or a folder lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import nn
from torch.nn import functional

from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode.adapter import activate, choose_pals, name_pals
from pipeline.encode.aspire import SentenceTokeniser
from pipeline.encode.base import Encoder
from pipeline.encode.network import (
    OPTIONS,
    SAMPLE,
    Network,
    check_transformer,
    loading,
    opening,
    saved_by,
    torch_device,
)
from pipeline.encode.spec import MODULES, AspireSpec, Model, Role, TransformerSpec
from pipeline.encode.tokenise import TextTokeniser, Tokeniser, Tokens

_ASPIRE_SPECIAL = 2
"""Special tokens around ASPIRE's text."""


class TransformerEncoder(Network, Encoder):
    """Modules on one device that make vectors of texts; see :class:`Network`."""

    def __init__(
        self,
        spec: TransformerSpec | AspireSpec,
        modules: Sequence[nn.Module],
        tokenizer: Any,
        device: torch.device,
        workers: int = 1,
    ) -> None:
        longest = spec.max_length if isinstance(spec, TransformerSpec) else spec.max_tokens + _ASPIRE_SPECIAL
        super().__init__(modules, tokenizer, device, compute=spec.compute, longest=longest, workers=workers)
        self._tokenise: Tokeniser = (
            TextTokeniser(spec, tokenizer) if isinstance(spec, TransformerSpec) else SentenceTokeniser(spec, tokenizer)
        )
        self._spans = any(isinstance(module, SpanPooling) for module in modules)
        sized = (module for module in reversed(modules) if hasattr(module, "get_embedding_dimension"))
        self._dimension = int(next(sized).get_embedding_dimension())

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
        place = model.checkpoint.ready()
        modules = open_modules(place, model.spec)
        if model.adapter is not None:
            activate(modules[0].model.eval(), model.adapter.ready())
        with loading(place):
            encoder = cls(model.spec, modules, modules[0].tokenizer, device, resources.workers)
            encoder.try_out(encoder.prepare([SAMPLE]))
        return encoder

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return self._dimension

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> Tokens:
        """Return texts as tokens."""
        return self._tokenise(texts, role)

    def more(self, batch: list[int], tokens: Tokens, width: int) -> dict[str, Any]:
        """Return the spans that are pooled, where a module pools spans, else the length of the prompt."""
        if not self._spans:
            return {"prompt_length": tokens.prompt} if tokens.prompt else {}
        spans = [
            (row * width + first, row * width + end)
            for row, position in enumerate(batch)
            for first, end in tokens.spans[position]
        ]
        first, end = np.array(spans).T
        starts = np.cumsum(end - first) - (end - first)
        places = np.arange((end - first).sum()) + np.repeat(first - starts, end - first)
        return {"places": self.send(places), "offsets": self.send(starts)}


class SpanPooling(nn.Module):  # type: ignore[misc]
    """The mean of the states of each span of tokens: ASPIRE's sentences, and the tokens of control codes.

    Places of the tokens of all spans lie one behind another, and each span's begin at its offset.
    """

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add ``sentence_embedding``, float32 ``[spans, dimension]``."""
        states = features["token_embeddings"].flatten(0, 1)
        pooled = functional.embedding_bag(features["places"], states, features["offsets"], mode="mean")
        return {**features, "sentence_embedding": pooled}


def open_modules(folder: Path, spec: TransformerSpec | AspireSpec) -> list[Any]:
    """Load the modules that a specification asks for, in float32: those of the folder, or a stack that is built here.

    Raises:
        InputError: a file is damaged or malformed, or weights are missing, left over, or too few for the tokenizer.
    """
    pooling = spec.pooling if isinstance(spec, TransformerSpec) else ""
    options = {**OPTIONS, "dtype": torch.float32}
    if pooling == MODULES:
        return [*saved_by(SentenceTransformer, folder)]
    with opening(folder) as place:
        name_pals(folder, place, getattr(spec, "pals", ""))
        first = Transformer(
            str(place),
            model_kwargs=options,
            processor_kwargs={**OPTIONS},
            config_kwargs={**OPTIONS},
            modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            module_output_name="token_embeddings",
            do_lower_case=getattr(spec, "lower_case", False),
        )
        check_transformer(folder, first)
        choose_pals(folder, first.model, getattr(spec, "pals", ""))
        spans = not pooling or pooling.startswith("position:")
        modes = pooling.split("+")
        pooled = SpanPooling() if spans else Pooling(first.get_embedding_dimension(), modes)
        return [first, pooled, *([Normalize()] if getattr(spec, "normalise", False) else [])]
