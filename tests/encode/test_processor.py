"""What computes bfloat16 faster on a processor, attention and linear layers, against the plain modules."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

from pipeline.encode import attention, linear
from pipeline.encode.kernels import softmax

CONFIG = BertConfig(hidden_size=48, num_attention_heads=4, intermediate_size=96, attn_implementation="eager")
CPU = torch.device("cpu")


@pytest.mark.parametrize("length", [1, 2, 3, 17, 64, 255, 512])
@pytest.mark.parametrize("spread", [0.01, 1.0, 60.0])
def test_softmax_is_off_by_rounding_alone(length: int, spread: float) -> None:
    scores = (torch.randn(90, length, generator=torch.Generator().manual_seed(length)) * spread).bfloat16()
    expected = torch.softmax(scores.double() * 0.177, -1)
    softmax(scores.view(torch.uint16).numpy(), np.float32(0.177))
    torch.testing.assert_close(scores.double(), expected, rtol=2**-8 + 1e-5, atol=1e-25)


def test_softmax_of_extremes() -> None:
    scores = torch.tensor([[3e38, -3e38, 0.0], [-3e38, -3e38, -3e38], [-5.0, -7.0, -6.0], [0.0, -0.0, 0.0]]).bfloat16()
    softmax(scores.view(torch.uint16).numpy(), np.float32(0.1))
    expected = torch.tensor([[1.0, 0, 0], [1 / 3] * 3, [0.36717, 0.30061, 0.33222], [1 / 3] * 3])
    torch.testing.assert_close(scores.float(), expected, rtol=3e-3, atol=1e-6)


@pytest.mark.parametrize("word", [0x7FC0, 0xFFC0, 0x7F80])
def test_what_is_no_number_is_not_hidden(word: int) -> None:
    scores = np.zeros((3, 70), np.uint16)
    scores[1, 33] = word
    softmax(scores, np.float32(0.2))
    assert torch.from_numpy(scores).view(torch.bfloat16).isnan().any(1).tolist() == [False, True, False]


@pytest.mark.parametrize(("texts", "heads", "length", "width"), [(1, 12, 300, 32), (7, 2, 33, 64), (40, 3, 1, 8)])
def test_context_is_that_of_the_fused_kernel(
    monkeypatch: pytest.MonkeyPatch, texts: int, heads: int, length: int, width: int
) -> None:
    monkeypatch.setattr(attention, "_CACHED", 3 * length**2)  # several steps, the last one shorter
    joined = torch.randn(texts, length, 3, heads, width, generator=torch.Generator().manual_seed(1)).bfloat16()
    parts = joined.permute(2, 0, 3, 1, 4)
    found = torch.zeros(texts, length, heads, width, dtype=torch.bfloat16).transpose(1, 2)
    attend = attention.attention(CPU, torch.bfloat16)
    assert isinstance(attend, partial)
    attend(parts[0], parts[1], parts[2], found)
    expected = functional.scaled_dot_product_attention(*parts.float())
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02)


def test_where_the_fused_kernel_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attention.attention(CPU, torch.float32) is attention._fused
    monkeypatch.setitem(sys.modules, "pipeline.encode.kernels", None)
    assert attention.attention(CPU, torch.bfloat16) is attention._fused


@pytest.mark.parametrize("tokens", [1, 2, 33, 2_500])
def test_layers_laid_out_are_the_layers(tokens: int) -> None:
    torch.manual_seed(5)
    layer = BertLayer(CONFIG).eval()
    context, states = torch.randn(2, tokens, 48)
    attended = layer.attention.output(context, states)
    expected = layer.output(layer.intermediate(attended), attended)
    mix = linear.plain_layer(layer.bfloat16())
    if mix is None:
        pytest.skip("this processor has no bfloat16 instructions")
    with torch.inference_mode():
        found = mix(context.bfloat16(), states.bfloat16())
    torch.testing.assert_close(found.float(), expected, rtol=0.03, atol=0.03)
    weight, bias = layer.intermediate.dense.weight.detach(), layer.intermediate.dense.bias.detach()
    product = linear.linear(weight, bias)(context.bfloat16())
    torch.testing.assert_close(product, functional.linear(context.bfloat16(), weight, bias), rtol=0.01, atol=0.01)


def test_without_the_operators_layers_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = BertLayer(CONFIG).eval()
    assert linear.plain_layer(layer) is None, "in float32"
    monkeypatch.setattr(linear, "_lays_out", lambda _weight: False)
    assert linear.plain_layer(layer.bfloat16()) is None
    dense = layer.output.dense
    x = torch.randn(3, 96).bfloat16()
    torch.testing.assert_close(linear.linear(dense.weight, dense.bias)(x), dense(x))
