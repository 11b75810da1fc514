"""Bottleneck adapters and their fusions in a BERT (Pfeiffer et al. 2021; in SciRepEval: Singh et al. 2023).

An adapter projects the states of a layer down and up; a fusion attends over what several adapters project up. Either
adds its result before the layer's last normalisation. Files and names of weights are those of the package ``adapters``:
``adapter_config.json`` with ``pytorch_adapter.bin`` or ``adapter.safetensors``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from transformers.activations import ACT2FN

from pipeline.core.errors import InputError
from pipeline.encode import hub, shape
from pipeline.encode.network import loading

PFEIFFER: dict[str, Any] = {
    **dict.fromkeys(("output_adapter", "original_ln_before", "original_ln_after", "residual_before_ln"), True),
    **dict.fromkeys(("mh_adapter", "ln_before", "ln_after", "is_parallel", "use_gating", "phm_layer"), False),
    "scaling": 1.0,
    "inv_adapter": None,
    "leave_out": [],
}
"""Settings of an adapter that decide its arithmetic, beside ``non_linearity``."""

DYNAMIC: dict[str, Any] = {
    **dict.fromkeys(("key", "query", "value", "value_before_softmax"), True),
    **dict.fromkeys(("query_before_ln", "residual_before", "temperature"), False),
}
"""Settings of a fusion that decide its arithmetic."""

_REQUIRED = ("mh_adapter", "output_adapter", "original_ln_before", *DYNAMIC)
"""Settings without a default in the files; a missing other one has the value above."""

_DEVIATION = 0.02
_KEPT = 1e-6
"""Initial weights of a fusion's values beside the diagonal of ones."""

_AGAIN = "Download it again"


class Adapter(nn.Module):  # type: ignore[misc]
    """A projection to ``width`` components, an activation and a projection back."""

    def __init__(self, hidden: int, width: int, activation: str = "relu") -> None:
        super().__init__()
        down, self.adapter_up = nn.Linear(hidden, width), nn.Linear(width, hidden)
        self.adapter_down = nn.Sequential(_initial(down), ACT2FN[activation])
        _initial(self.adapter_up)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return what the adapter adds to the output of the layer, ``[texts, tokens, hidden]``."""
        return self.adapter_up(self.adapter_down(states))


class Fusion(nn.Module):  # type: ignore[misc]
    """Attention of each state over the results of adapters."""

    def __init__(self, hidden: int, dropout: float) -> None:
        super().__init__()
        self.query, self.key = (_initial(nn.Linear(hidden, hidden)) for _ in range(2))
        self.value = _initial(nn.Linear(hidden, hidden, bias=False))
        with torch.no_grad():
            self.value.weight.fill_(_KEPT).fill_diagonal_(1.0)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: torch.Tensor, results: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the mean of the adapters' ``results``, weighted by attention, ``[texts, tokens, hidden]``."""
        values = torch.stack(list(results)).permute(1, 2, 0, 3)
        scores = (self.query(states).unsqueeze(2) @ self.key(values).transpose(-2, -1)).squeeze(2)
        shares = self.dropout(scores).softmax(dim=-1)
        return (shares.unsqueeze(2) @ self.value(values)).squeeze(2)


class Output(nn.Module):  # type: ignore[misc]
    """The output of a layer with adapters, of which :func:`switch` activates one, or one fusion."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.dense, self.dropout, self.LayerNorm = output.dense, output.dropout, output.LayerNorm
        self.adapters, self.adapter_fusion_layer = nn.ModuleDict(), nn.ModuleDict()
        self.active, self.fused = "", list[str]()

    def forward(self, hidden_states: torch.Tensor, input_tensor: torch.Tensor) -> torch.Tensor:
        """Return the states of the layer, ``[texts, tokens, hidden]``."""
        projected = self.dropout(self.dense(hidden_states))
        states = self.LayerNorm(projected + input_tensor)
        if self.active in self.adapter_fusion_layer:
            results = [self.adapters[name](states) for name in self.fused]
            result = self.adapter_fusion_layer[self.active](states, results)
        else:
            result = self.adapters[self.active](states)
        return self.LayerNorm(result + projected + input_tensor)


def _initial(layer: nn.Linear) -> nn.Linear:
    nn.init.normal_(layer.weight, std=_DEVIATION)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def _outputs(network: Any) -> Iterator[Output]:
    """Yield the output of each layer; outputs that take no adapters are replaced."""
    layers = getattr(getattr(network, "encoder", None), "layer", ())
    if not all(hasattr(getattr(layer, "output", None), "LayerNorm") for layer in layers) or not len(layers):
        raise InputError(f"adapters need a BERT, got {network.config.model_type}", "Use a model of BERT's layers")
    for layer in layers:
        if not isinstance(layer.output, Output):
            layer.output = Output(layer.output)
        yield layer.output


def add_adapter(network: Any, name: str, width: int, activation: str = "relu") -> None:
    """Add an adapter with initial weights to each layer of a network; raise InputError if it is no BERT."""
    for output in _outputs(network):
        output.adapters[name] = Adapter(network.config.hidden_size, width, activation)


def add_fusion(network: Any, name: str, adapters: Sequence[str]) -> None:
    """Add a fusion of adapters, with initial weights, to each layer."""
    for output in _outputs(network):
        dropout = network.config.attention_probs_dropout_prob
        output.adapter_fusion_layer[name], output.fused = Fusion(network.config.hidden_size, dropout), list(adapters)


def switch(network: Any, name: str) -> None:
    """Activate the adapter or the fusion of that name."""
    for output in _outputs(network):
        output.active = name


def activate(network: Any, folder: Path) -> None:
    """Load and activate an adapter, or a fusion and its adapters; raise InputError if it does not fit."""
    with loading(folder, "adapter"):
        parts = hub.fused_adapters(folder) if (folder / hub.FUSION.config).is_file() else []
        for number, part in enumerate(parts or [folder]):
            load_adapter(network, part, str(number))
        if parts:
            _, weights = _read(folder, hub.FUSION, DYNAMIC)
            add_fusion(network, "fusion", [*map(str, range(len(parts)))])
            _fill(network, folder, hub.FUSION, "fusion", weights)
        switch(network, "fusion" if parts else "0")


def load_adapter(network: Any, folder: Path, name: str) -> None:
    """Load an adapter under a name; raise InputError if it is of another kind or lacks weights."""
    config, weights = _read(folder, hub.ADAPTER, PFEIFFER)
    width = next((len(weight) for key, weight in weights.items() if key.endswith("adapter_down.0.bias")), 1)
    add_adapter(network, name, width, config["non_linearity"].lower())
    _fill(network, folder, hub.ADAPTER, name, weights)


def save(network: Any, folder: Path, name: str) -> None:
    """Write the adapter or the fusion of that name into a folder, as the package ``adapters`` does."""
    fusion = any(name in output.adapter_fusion_layer for output in _outputs(network))
    layout = hub.FUSION if fusion else hub.ADAPTER
    mark, first = f".{_MODULES[layout.config]}.{name}.", next(_outputs(network))
    state = {key: weight for key, weight in network.state_dict().items() if mark in key}
    described = {"hidden_size": network.config.hidden_size, "model_type": network.config.model_type, "name": name}
    if fusion:
        described |= {"adapter_names": first.fused}
        described["config"] = {**DYNAMIC, "regularization": True, "value_initialized": True, "dropout_prob": None}
    else:
        factor = network.config.hidden_size / first.adapters[name].adapter_up.in_features
        described["config"] = {**PFEIFFER, "non_linearity": "relu", "reduction_factor": factor}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / layout.config).write_text(json.dumps(described, indent=2, sort_keys=True), encoding="utf-8")
    torch.save(state, folder / layout.weights[-1])


_MODULES = {hub.ADAPTER.config: "adapters", hub.FUSION.config: "adapter_fusion_layer"}


def _read(folder: Path, layout: hub.Layout, needed: dict[str, Any]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return settings and weights of an adapter or a fusion; raise InputError if it computes something else."""
    config: dict[str, Any] = shape.read(folder / layout.config).get("config", {})
    for key, value in needed.items():
        got = config.get(key, None if key in _REQUIRED else value)
        if got != value:
            raise InputError(
                f"{folder / layout.config} must have {key} {value!r}, got {got!r:.80}",
                "Give a bottleneck adapter of the configuration pfeiffer (seq_bn), or a dynamic fusion of such",
            )
    (path,) = hub.weights(folder, layout)
    if path.suffix == ".safetensors":
        return config, load_file(path)
    return config, torch.load(path, map_location="cpu", weights_only=True)


def _fill(network: Any, folder: Path, layout: hub.Layout, name: str, weights: dict[str, torch.Tensor]) -> None:
    """Load the weights of an adapter or a fusion that :func:`add_adapter` or :func:`add_fusion` added as ``name``."""
    module = _MODULES[layout.config]
    state = {}
    for key, weight in weights.items():
        if match := re.fullmatch(rf"(?:.*\.)?(encoder\.layer\.\d+\.output\.{module})\.[^.]+\.(.+)", key):
            state[f"{match[1]}.{name}.{match[2]}"] = weight
    report = network.load_state_dict(state, strict=False)
    if missing := [key for key in report.missing_keys if f".{module}.{name}." in key]:
        raise InputError(f"the adapter in {folder} must have weights of {missing[0]}, got none", _AGAIN)
    if spare := report.unexpected_keys:
        raise InputError(f"the adapter in {folder} has weights of {spare[0]}, which the model lacks", _AGAIN)
