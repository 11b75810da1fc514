"""Linear layers in bfloat16 on a processor: weights laid out once, the activation part of the product.

PyTorch's own compiler makes such calls for networks it compiles for a CPU (``mkldnn._linear_pointwise``). The operators
are not documented: where a release of PyTorch lacks them, plain layers take their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Linear = Callable[[Tensor], Tensor]

_TOKENS = 2_048
"""Rows a product is laid out for; it may have any number."""


def linear(weight: Tensor, bias: Tensor) -> Linear:
    """Return the product with ``weight``, ``[out, in]``, plus ``bias``, as fast as this machine does it."""
    return _laid_out(weight, bias, "none", "") if _lays_out(weight) else lambda x: functional.linear(x, weight, bias)


def plain_layer(layer: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return what makes a BERT layer's output from its attention's context and its input, if that is faster.

    Args:
        layer: a ``BertLayer`` without adapters whose activation is GELU.
    """
    attention, output = layer.attention.output, layer.output
    if not _lays_out(output.dense.weight):
        return None
    first, inner, last = (
        _laid_out(module.weight.detach(), module.bias.detach(), *activation)
        for module, activation in (
            (attention.dense, ("none", "")),
            (layer.intermediate.dense, ("gelu", "none")),
            (output.dense, ("none", "")),
        )
    )
    norms: tuple[nn.LayerNorm, nn.LayerNorm] = attention.LayerNorm, output.LayerNorm

    def mix(context: Tensor, states: Tensor) -> Tensor:
        attended = norms[0](first(context).add_(states))
        mixed: Tensor = norms[1](last(inner(attended)).add_(attended))
        return mixed

    return mix


def _lays_out(weight: Tensor) -> bool:
    operators = torch.ops.mkldnn
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and hasattr(operators, "_reorder_linear_weight")
        and hasattr(operators, "_linear_pointwise")
        and bool(operators._is_mkldnn_bf16_supported())
    )


def _laid_out(weight: Tensor, bias: Tensor, activation: str, kind: str) -> Linear:
    operators = torch.ops.mkldnn
    packed = operators._reorder_linear_weight(weight, _TOKENS)
    return lambda x: operators._linear_pointwise(x, packed, bias, activation, [], kind)
