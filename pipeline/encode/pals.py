"""Projected attention layers (Stickland and Murray 2019) as SciRepEval publishes them: a set of small layers a format.

A layer of BERT adds to the input of its last normalisation what a PAL makes of the layer's own input: attention in a
few dimensions, between two projections.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import BertModel
from transformers.models.bert.modeling_bert import BertLayer

from pipeline.core.errors import InputError
from pipeline.encode import shape
from pipeline.encode.network import open_pretrained
from pipeline.encode.spec import CHOICES

_HEADS = 6
"""Heads of a PAL, in the published models as in the paper."""


class _Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        parts = (layer(states).unflatten(-1, (_HEADS, -1)) for layer in (self.query, self.key, self.value))
        query, key, value = (part.transpose(1, 2) for part in parts)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2).flatten(2)


class _Pal(nn.Module):  # type: ignore[misc]
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.aug_dense = nn.Linear(config.hidden_size, config.hidden_size_aug)
        self.attn = _Attention(config.hidden_size_aug)
        self.aug_dense2 = nn.Linear(config.hidden_size_aug, config.hidden_size)

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return functional.gelu(self.aug_dense2(self.attn(self.aug_dense(states), mask)))


class _Layer(BertLayer):  # type: ignore[misc]
    """A layer with the PALs of all formats, of which :func:`open_pals` keeps one."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.multi_layers: Any = nn.ModuleList(_Pal(config) for _ in range(config.num_tasks))

    def forward(self, hidden_states: torch.Tensor, attention_mask: Any = None, *_: Any, **__: Any) -> Any:
        attended = self.attention(hidden_states, attention_mask)[0]
        added = attended + self.multi_layers(hidden_states, attention_mask)
        return (self.output(self.intermediate(attended), added),)


class PalsModel(BertModel):  # type: ignore[misc]
    """A BERT with PALs; its weights have the published names."""

    def __init__(self, config: Any, add_pooling_layer: bool = False) -> None:
        super().__init__(config, add_pooling_layer)
        self.encoder.layer = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.post_init()


def has_pals(folder: Path) -> bool:
    """Return whether the configuration of a model says that it has PALs; it need not say that it is a BERT."""
    return bool(shape.read(folder / "config.json", shape.CONFIG).get("pals"))


def open_pals(folder: Path, code: str) -> tuple[Any, Any]:
    """Load a network with the PALs of one format, and its tokenizer. Training numbered the codes in alphabetical order.

    Raises:
        InputError: the model has no PALs, no format is chosen, or the model has PALs of other formats.
    """
    codes = CHOICES["pals"]
    network, tokenizer = open_pretrained(folder, PalsModel) if has_pals(folder) else (None, None)
    if network is None or code not in codes or network.config.num_tasks != len(codes):
        count = network.config.num_tasks if network else 0
        raise InputError(
            f"one of the PALs {', '.join(codes)} of {folder} must be chosen, got {code or 'none'} of {count}",
            "Add :pals=[PRX] to a model with four PALs",
        )
    for layer in network.encoder.layer:
        layer.multi_layers = layer.multi_layers[codes.index(code)]
    return network, tokenizer
