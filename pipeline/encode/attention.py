"""Attention inside texts of one length."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], None]
"""Writes the context of queries, keys and values, each ``[texts, heads, tokens, width]``, to a tensor of that shape."""

_CACHED = 1 << 19
"""Weights computed together: one MiB, which stays in a core's cache between the two products."""


def attention(device: torch.device, compute: torch.dtype) -> Attend:
    """Return what computes attention soonest there.

    PyTorch's fused kernel, but for bfloat16 on a processor: more than half of its time there lies between the two
    products, so that plain products with a compiled softmax between them are faster. Without Numba it stays with it.
    """
    if device.type == "cpu" and compute == torch.bfloat16:
        try:
            from pipeline.encode.kernels import softmax
        except ImportError:
            return _fused
        return partial(_by_products, softmax)
    return _fused


def _fused(query: Tensor, key: Tensor, value: Tensor, context: Tensor) -> None:
    context.copy_(functional.scaled_dot_product_attention(query, key, value))


def _by_products(softmax: Callable[..., None], query: Tensor, key: Tensor, value: Tensor, context: Tensor) -> None:
    length, width = query.shape[2:]
    queries, keys, values = (each.reshape(-1, length, width) for each in (query, key, value))
    scale = np.float32(width**-0.5)
    found = torch.empty_like(queries)
    step = max(1, _CACHED // length**2)
    for start in range(0, len(queries), step):
        some = slice(start, start + step)
        weights = torch.bmm(queries[some], keys[some].transpose(1, 2))
        softmax(_words(weights), scale)
        torch.bmm(weights, values[some], out=found[some])
    context.copy_(found.view(context.shape))


def _words(weights: Tensor) -> np.ndarray[Any, Any]:
    """Return the memory of a bfloat16 tensor as rows of 16 bits."""
    words: np.ndarray[Any, Any] = weights.view(-1, weights.shape[-1]).view(torch.uint16).numpy()
    return words
