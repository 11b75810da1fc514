"""OAG-BERT (Liu et al. 2022) from a folder of cogdl: a BERT that normalises before each block.

transformers has such a network, with other names of weights. Version 2 has a second position, which for title and
abstract alone counts tokens while the first stays 0; both look up one table. Vectors are the pooled output, as Singh
and Singh (2022) take them; version 2 reads no special tokens.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import BertTokenizerFast, PreTrainedTokenizerFast, RobertaPreLayerNormConfig, RobertaPreLayerNormModel

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.encode.kinds import Oagbert, Transformer
from pipeline.encode.model import MODULES
from pipeline.encode.network import OPTIONS, check_vocabulary, loading, torch_device
from pipeline.encode.transformer import TransformerEncoder

_RENAMED = (
    (r"^bert\.", ""),
    (r"encoder\.FinalLayerNorm", "LayerNorm"),
    (r"PreAttentionLayerNorm", "attention.LayerNorm"),
    (r"PostAttentionLayerNorm", "intermediate.LayerNorm"),
    (r"dense_act", "dense"),
)
"""Names of weights in cogdl, and in transformers."""
_POSITIONS = "embeddings.position_embeddings.weight"
_UNREAD = ("cls.", "bert.embeddings.position_embeddings_second.")
"""Weights that the pooled output does not depend on; cogdl looks up both positions in the first table."""


class Pooled(nn.Module):  # type: ignore[misc]
    """The network and its tokenizer; ``sentence_embedding`` is its pooled output, ``[texts, dimension]``."""

    def __init__(self, network: Any, tokenizer: Any) -> None:
        super().__init__()
        self.model, self.tokenizer = network, tokenizer

    def get_embedding_dimension(self) -> int:
        """Return the components of a vector."""
        return int(self.model.config.hidden_size)

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add the pooled output."""
        output = self.model(input_ids=features["input_ids"], attention_mask=features["attention_mask"])
        return {**features, "sentence_embedding": output.pooler_output}


def load(model: Oagbert, _fit: None, resources: Resources) -> TransformerEncoder:
    """Return the encoder of a folder of cogdl; InputError if it cannot be loaded."""
    folder = model.ready()
    with loading(folder):
        module = _open(folder, second_position=model.version == 2)
        reads = Transformer(
            checkpoint="",
            revision="",
            template="title-space-abstract",
            pooling=MODULES,
            max_length=model.max_length,
            compute=model.compute,
        )
        encoder = TransformerEncoder(
            reads, [module], module.tokenizer, torch_device(resources.device), resources.workers
        )
        encoder.try_out()
    return encoder


def _open(folder: Path, *, second_position: bool) -> Pooled:
    config = json.loads((folder / "bert_config.json").read_text(encoding="utf-8"))
    stored = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    stored = {name: weight.float() for name, weight in stored.items() if not name.startswith(_UNREAD)}
    for pattern, name in _RENAMED:
        stored = {re.sub(pattern, name, key): weight for key, weight in stored.items()}
    tokenizer = BertTokenizerFast.from_pretrained(str(folder), **OPTIONS)
    if second_position:
        special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
        tokenizer.backend_tokenizer.post_processor = None
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **special)
    positions, pad = stored[_POSITIONS], int(tokenizer.pad_token_id)
    positions = positions + positions[0] if second_position else positions
    stored[_POSITIONS] = nn.functional.pad(positions, (0, 0, pad + 1, 0))
    tokenizer.model_max_length = len(positions)
    network = RobertaPreLayerNormModel(
        RobertaPreLayerNormConfig(
            **{key: value for key, value in config.items() if not key.startswith("max_position")},
            max_position_embeddings=len(positions) + pad + 1,  # positions begin behind that of padding
            pad_token_id=pad,
            layer_norm_eps=1e-12,
        )
    )
    if unmatched := network.state_dict().keys() ^ stored.keys():
        raise InputError(f"{folder} has other weights than OAG-BERT: {min(unmatched)}", "Download it again")
    network.load_state_dict(stored)
    check_vocabulary(folder, tokenizer, network.get_input_embeddings().num_embeddings)
    return Pooled(network, tokenizer)
