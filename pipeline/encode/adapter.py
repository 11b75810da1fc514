"""Small layers in a transformer, as SciRepEval publishes them (Singh et al. 2023): adapters, fusions of them, and PALs.

The package ``adapters`` loads bottleneck adapters and their fusions. Projected attention layers (PALs: Stickland and
Murray 2019) are a set of small layers a format: a layer of BERT adds to the input of its last normalisation what a PAL
makes of the layer's own input, attention in a few dimensions, between two projections.
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
from pipeline.core.install import pip_extra
from pipeline.encode import hub, shape
from pipeline.encode.network import loading
from pipeline.encode.spec import CHOICES

_PROBE = tuple(range(1, 9))
"""Token ids that every model has, for checking that the adapter changes the output."""

_AGAIN = "Download it again"


def activate(network: Any, folder: Path) -> None:
    """Load the adapter in ``folder``, or the fusion and its adapters, into ``network`` and activate it.

    Raises:
        InputError: the package is not installed, the adapter does not fit the network, or it changes nothing.
    """
    try:
        import adapters
        from adapters.loading import AdapterFusionLoader
    except ImportError as error:
        raise InputError("adapters need the package adapters", pip_extra("specter2")) from error
    plain, report = _states(network), {"missing_keys": list[str]()}
    fusion = (folder / hub.FUSION.config).is_file()
    with loading(folder, remedy="Give an adapter that was trained on this model"):
        adapters.init(network)
        for part in hub.fused(folder) if fusion else [folder]:
            with hub.covered(part, hub.ADAPTER) as place:
                named = part.name if fusion else None
                network.load_adapter(str(place), load_as=named, set_active=not fusion, loading_info=report)
        if fusion:
            with hub.covered(folder, hub.FUSION) as place:
                AdapterFusionLoader(network).load(str(place), loading_info=report, set_active=True)
    if report["missing_keys"]:
        raise InputError(f"the adapter in {folder} must have weights of {report['missing_keys'][0]}, got none", _AGAIN)
    if network.active_adapters is None or torch.equal(_states(network), plain):
        raise InputError(f"the adapter in {folder} changes nothing", _AGAIN)


def _states(network: Any) -> torch.Tensor:
    ids = torch.tensor([_PROBE])
    with torch.inference_mode():
        states: torch.Tensor = network.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    return states


_TENSORS = int(transformers.__version__.partition(".")[0]) > 4
"""Whether a layer returns its states themselves: transformers 4 wraps them in a tuple."""

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
    """A layer with the PALs of all formats, of which :func:`choose_pals` keeps one."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.multi_layers: Any = nn.ModuleList(_Pal(config) for _ in range(config.num_tasks))

    def forward(self, hidden_states: torch.Tensor, attention_mask: Any = None, *_: Any, **__: Any) -> Any:
        attended = self.attention(hidden_states, attention_mask)[0]
        added = attended + self.multi_layers(hidden_states, attention_mask)
        states = self.output(self.intermediate(attended), added)
        return states if _TENSORS else (states,)


class PalsConfig(BertConfig):  # type: ignore[misc]
    """A BERT with PALs: the published configuration has no name of an architecture."""

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


def name_pals(folder: Path, place: Path, code: str) -> None:
    """Give the configuration in ``place``, a copy of the model's folder, the name of the architecture with PALs.

    Raises:
        InputError: PALs of a format are asked for and the model has none, or it has some and no format is chosen.
    """
    config = shape.read(folder / "config.json", shape.Config)
    if bool(config.get("pals")) != (code in CHOICES["pals"]):
        raise _wrong_pals(folder, code, config.get("num_tasks", 0) if config.get("pals") else 0)
    if code:
        (place / "config.json").unlink()
        (place / "config.json").write_text(
            json.dumps({**config, "model_type": PalsConfig.model_type}), encoding="utf-8"
        )


def choose_pals(folder: Path, network: Any, code: str) -> None:
    """Keep the PALs of one format. Training numbered the codes in alphabetical order.

    Raises:
        InputError: the model has PALs of other formats.
    """
    codes = CHOICES["pals"]
    if code and network.config.num_tasks != len(codes):
        raise _wrong_pals(folder, code, network.config.num_tasks)
    for layer in network.encoder.layer if code else ():
        layer.multi_layers = layer.multi_layers[codes.index(code)]


def _wrong_pals(folder: Path, code: str, count: int) -> InputError:
    return InputError(
        f"one of the PALs {', '.join(CHOICES['pals'])} of {folder} must be chosen, got {code or 'none'} of {count}",
        "Add :pals=[PRX] to a model with four PALs",
    )
