"""Projected attention layers (PALs: Stickland and Murray 2019), as SciRepEval publishes them (Singh et al. 2023).

PALs are one set of small layers for each task format. A PAL projects the input of a BERT layer down, attends, and
projects up; the layer adds the result before its last normalisation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertConfig, BertModel, BertTokenizerFast
from transformers.models.bert.modeling_bert import BertLayer

from pipeline.core.errors import InputError
from pipeline.encode import shape
from pipeline.encode.model import PALS

_TENSORS = int(transformers.__version__.partition(".")[0]) > 4
"""Whether a layer returns a tensor; transformers 4 wraps it in a tuple."""

_HEADS = 6
"""Attention heads of a PAL, in the published models and in the paper."""


class _Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        projections = (layer(states).unflatten(-1, (_HEADS, -1)) for layer in (self.query, self.key, self.value))
        query, key, value = (projection.transpose(1, 2) for projection in projections)
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
    """A layer with the PALs of all formats; :func:`choose_pals` keeps one."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.multi_layers: Any = nn.ModuleList(_Pal(config) for _ in range(config.num_tasks))

    def forward(self, hidden_states: torch.Tensor, attention_mask: Any = None, *_: Any, **__: Any) -> Any:
        attended = self.attention(hidden_states, attention_mask)[0]
        added = attended + self.multi_layers(hidden_states, attention_mask)
        states = self.output(self.intermediate(attended), added)
        return states if _TENSORS else (states,)


class PalsConfig(BertConfig):  # type: ignore[misc]
    """Configuration of a BERT with PALs; the published one names no architecture."""

    model_type = "bert-pals"


class PalsModel(BertModel):  # type: ignore[misc]
    """A BERT with PALs; its weights have the published names."""

    config_class = PalsConfig

    def __init__(self, config: Any, add_pooling_layer: bool = False) -> None:
        super().__init__(config, add_pooling_layer)
        self.encoder.layer = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.post_init()


AutoConfig.register(PalsConfig.model_type, PalsConfig)
AutoModel.register(PalsConfig, PalsModel)
AutoTokenizer.register(PalsConfig, fast_tokenizer_class=BertTokenizerFast)


def name_pals(folder: Path, temporary: Path, code: str) -> None:
    """Name the architecture in the configuration in ``temporary``; raise InputError unless one of 4 PALs is chosen."""
    config = shape.read(folder / "config.json")
    count = config.get("num_tasks", 0) if config.get("pals") else None
    if count != (len(PALS) if code in PALS else None):
        raise InputError(
            f"one of the PALs {', '.join(PALS)} of {folder} must be chosen, got {code or 'none'} of {count or 0}",
            "Add :pals=[PRX] to a model with four PALs",
        )
    if code:
        (temporary / "config.json").unlink()
        (temporary / "config.json").write_text(
            json.dumps({**config, "model_type": PalsConfig.model_type}), encoding="utf-8"
        )


def choose_pals(network: Any, code: str) -> None:
    """Keep the PALs of one format. They are in alphabetical order of the codes."""
    for layer in network.encoder.layer if code else ():
        layer.multi_layers = layer.multi_layers[PALS.index(code)]
