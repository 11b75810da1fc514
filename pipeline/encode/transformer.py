"""Text encoders: modules of sentence-transformers, listed in a model folder or built from its settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base import modules as base_modules
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, StaticEmbedding
from torch import nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from pipeline.core.csr import ranges
from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import bottleneck, shape
from pipeline.encode.aspire import SentenceTokeniser
from pipeline.encode.base import Encoder
from pipeline.encode.kinds import Aspire, Transformer
from pipeline.encode.model import MODULES, Role
from pipeline.encode.network import (
    OPTIONS,
    PROBE,
    Network,
    check_transformer,
    check_vocabulary,
    load_saved,
    loading,
    opening,
    torch_device,
)
from pipeline.encode.pals import choose_pals, name_pals
from pipeline.encode.tokenise import Batch, TextTokeniser, Tokeniser, Tokens

_ASPIRE_SPECIAL = 2
"""Special tokens around ASPIRE's text."""


class TransformerEncoder(Network, Encoder):
    """Modules on one device that encode texts; see :class:`Network`."""

    def __init__(
        self,
        model: Transformer | Aspire,
        modules: Sequence[nn.Module],
        tokenizer: Any,
        device: torch.device,
        workers: int = 1,
    ) -> None:
        longest = model.max_length if isinstance(model, Transformer) else model.max_tokens + _ASPIRE_SPECIAL
        super().__init__(modules, tokenizer, device, compute=model.compute, longest=longest, workers=workers)
        self._tokenise: Tokeniser = (
            TextTokeniser(model, tokenizer) if isinstance(model, Transformer) else SentenceTokeniser(model, tokenizer)
        )
        self._spans = any(isinstance(module, SpanPooling) for module in modules)
        sized = (module for module in reversed(modules) if hasattr(module, "get_embedding_dimension"))
        self._dimension = int(next(sized).get_embedding_dimension())
        if self._dimension < 1:  # torch divides by it
            raise InputError(f"vectors must have a dimension above 0, got {self._dimension}", shape.AGAIN)

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return self._dimension

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> Tokens:
        """Return texts as tokens."""
        return self._tokenise(texts, role)

    def extra_inputs(self, batch: Batch, tokens: Tokens) -> dict[str, Any]:
        """Return the spans to pool if a module pools spans, else the length of the prompt."""
        if not self._spans:
            return {"prompt_length": tokens.prompt} if tokens.prompt else {}
        spans = [
            (row * batch.width + start, row * batch.width + end)
            for row, position in enumerate(batch.texts)
            for start, end in tokens.spans[position]
        ]
        start, end = np.array(spans).T
        starts = np.cumsum(end - start) - (end - start)
        return {"token_positions": self.send(ranges(start, end - start)), "offsets": self.send(starts)}


def load(model: Transformer | Aspire, _fit: None, resources: Resources) -> TransformerEncoder:
    """Load a model's weights and tokenizer.

    Raises:
        InputError: the device does not exist, or the checkpoint cannot be loaded.
        StageError: the weights are not on this machine, and the hub cannot be reached.
    """
    device, folder = torch_device(resources.device), model.ready()
    modules = open_modules(folder, model)
    if model.adapter_files is not None:
        bottleneck.activate(modules[0].model.eval(), model.adapter_files.ready())
    with loading(folder):
        encoder = TransformerEncoder(model, modules, modules[0].tokenizer, device, resources.workers)
        encoder.try_out(encoder.prepare(PROBE))
    return encoder


class SpanPooling(nn.Module):  # type: ignore[misc]
    """Pools spans of tokens by the mean of their states: ASPIRE's sentences, and control codes.

    ``token_positions`` has the token positions of all spans in turn, ``offsets`` where each span starts in it.
    """

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add ``sentence_embedding``, float32 ``[spans, dimension]``."""
        states = features["token_embeddings"].flatten(0, 1)
        pooled = functional.embedding_bag(features["token_positions"], states, features["offsets"], mode="mean")
        return {**features, "sentence_embedding": pooled}


class Static(nn.Module):  # type: ignore[misc]
    """A static embedding that reads padded batches, as a transformer does; its vectors do not depend on padding."""

    def __init__(self, module: StaticEmbedding, folder: Path) -> None:
        super().__init__()
        self.model = module.embedding
        module.tokenizer.post_processor = None  # it adds special tokens, which sentence-transformers leaves out
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=module.tokenizer)
        check_vocabulary(folder, self.tokenizer, module.num_embeddings)

    def get_embedding_dimension(self) -> int:
        """Return the components of a vector."""
        return int(self.model.embedding_dim)

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add ``sentence_embedding``, ``[texts, dimension]``: the mean over a text's tokens, zero without any."""
        is_token = features["attention_mask"].bool()
        starts = is_token.sum(dim=1).cumsum(dim=0).roll(1)
        starts[0] = 0
        return {**features, "sentence_embedding": self.model(features["input_ids"][is_token], starts)}


def open_modules(folder: Path, model: Transformer | Aspire) -> list[Any]:
    """Return the modules of a model, in float32: those of the folder, or transformer, pooling, normalisation.

    Raises:
        InputError: a file is damaged or malformed, or weights are missing, left over, or too few for the tokenizer.
    """
    pooling, pals = getattr(model, "pooling", ""), getattr(model, "pals", "")
    options = {**OPTIONS, "dtype": torch.float32}
    if pooling == MODULES:
        first, *later = load_saved(SentenceTransformer, folder)
        return [Static(first, folder) if isinstance(first, StaticEmbedding) else first, *later]
    with opening(folder) as copied:
        temporary = copied / shape.first_module(folder)[1].relative_to(folder)
        name_pals(folder, temporary, pals)
        transformer = base_modules.Transformer(
            str(temporary),
            model_kwargs=options,
            processor_kwargs={**OPTIONS},
            config_kwargs={**OPTIONS},
            modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            module_output_name="token_embeddings",
            do_lower_case=getattr(model, "lower_case", False),
        )
        check_transformer(folder, transformer)
        choose_pals(transformer.model, pals)
        spans = not pooling or pooling.startswith("position:")
        modes = pooling.split("+")
        pooled = SpanPooling() if spans else Pooling(transformer.get_embedding_dimension(), modes)
        return [transformer, pooled, *([Normalize()] if getattr(model, "normalise", False) else [])]
