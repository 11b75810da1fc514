"""Encoders by format in the published layouts: projected attention layers, and fusions of adapters."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import registry
from pipeline.encode.transformer import TransformerEncoder
from tests.encode.tiny import CODES, SMALL, save_bert, save_fusion, save_pals, words

TEXTS = [Text("w1", ""), Text("", words(600)), *(Text(words(3, n), words(5 * n, n)) for n in range(12))]
HEADS = {"layer": int(SMALL["num_attention_heads"]), "pal": 6}


def encode(model: str) -> np.ndarray:
    return TransformerEncoder.load(registry.resolve(model), Resources(workers=2, device="cpu")).encode(TEXTS)


def plain_pals(folder: Path, text: str, task: int) -> np.ndarray:
    """Return the vector of a text by matrix products over the published weights, one head at a time."""
    state = {name: weight.double() for name, weight in torch.load(folder / "pytorch_model.bin").items()}

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.nn.functional.layer_norm(
            x, x.shape[-1:], state[f"{name}.LayerNorm.weight"], state[f"{name}.LayerNorm.bias"], 1e-12
        )

    def gelu(x: torch.Tensor) -> torch.Tensor:
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    def attention(x: torch.Tensor, name: str, heads: int) -> torch.Tensor:
        q, k, v = (linear(x, f"{name}.{each}").chunk(heads, -1) for each in ("query", "key", "value"))
        return torch.cat([(a @ b.T / a.shape[1] ** 0.5).softmax(-1) @ c for a, b, c in zip(q, k, v, strict=True)], -1)

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, truncation=True, max_length=512)["input_ids"]
    names = ("word", "position", "token_type")
    rows = (ids, range(len(ids)), [0] * len(ids))
    x = sum(state[f"embeddings.{n}_embeddings.weight"][list(r)] for n, r in zip(names, rows, strict=True))
    x = norm(x, "embeddings")
    for number in range(SMALL["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        mixed = attention(x, f"{layer}.attention.self", HEADS["layer"])
        attended = norm(linear(mixed, f"{layer}.attention.output.dense") + x, f"{layer}.attention.output")
        small = attention(
            linear(x, f"encoder.mult_aug_dense.{task}"), f"{layer}.multi_layers.{task}.attn", HEADS["pal"]
        )
        pal = gelu(linear(small, f"encoder.mult_aug_dense2.{task}"))
        inner = linear(gelu(linear(attended, f"{layer}.intermediate.dense")), f"{layer}.output.dense")
        x = norm(inner + attended + pal, f"{layer}.output")
    return x[0].numpy()


def test_pals_are_the_plain_computation(tmp_path: Path) -> None:
    folder = save_pals(tmp_path / "pals")
    found = {code: encode(f"{folder}:pals={code}") for code in CODES}
    strings = [text.title + "[SEP]" + text.abstract for text in TEXTS]
    for task, code in enumerate(("[CLF]", "[PRX]", "[QRY]", "[RGN]")):
        np.testing.assert_allclose(found[code], [plain_pals(folder, text, task) for text in strings], atol=1e-4)
    assert np.abs(found["[CLF]"] - found["[RGN]"]).max() > 0.01
    for option, said in (("", "got none of 4"), (":pals=[XYZ]", "pals '\\[XYZ\\]' is unknown")):
        with pytest.raises(InputError, match=said):
            encode(f"{folder}{option}")
    with pytest.raises(InputError, match=r"got \[PRX\] of 0"):
        encode(f"{save_bert(tmp_path / 'plain')}:pals=[PRX]")


def test_a_fusion_is_what_adapters_computes(tmp_path: Path) -> None:
    adapters = pytest.importorskip("adapters")
    base = save_bert(tmp_path / "base")
    fusion = save_fusion(tmp_path / "model", base)
    found = encode(f"{base}:adapter={fusion}")
    network = adapters.AutoAdapterModel.from_pretrained(base)
    names = ["[CLF]", "[PRX]", "[QRY]", "[RGN]"]
    for name in names:
        network.load_adapter(f"{tmp_path}/model/adapters/{name}", load_as=name)
    network.load_adapter_fusion(str(fusion))
    network.set_active_adapters(adapters.composition.Fuse(*names))
    tokenizer, expected = AutoTokenizer.from_pretrained(base), []
    for text in TEXTS:
        inputs = tokenizer(text.title + "[SEP]" + text.abstract, truncation=True, max_length=512, return_tensors="pt")
        with torch.inference_mode():
            expected.append(network.eval()(**inputs).last_hidden_state[0, 0].numpy())
    np.testing.assert_allclose(found, expected, atol=1e-5)
    alone = encode(f"{base}:adapter={tmp_path}/model/adapters/[CLF]")
    assert np.abs(found - alone).max() > 0.01
    named = registry.resolve(f"{base}:adapter={fusion}").spec
    weights = tmp_path / "model" / "adapters" / "[RGN]" / "pytorch_adapter.bin"
    weights.write_bytes(weights.read_bytes() + b"0")
    assert registry.resolve(f"{base}:adapter={fusion}").spec != named  # an adapter is part of the identity
    state = torch.load(fusion / "pytorch_model_adapter_fusion.bin")
    torch.save(dict(list(state.items())[1:]), fusion / "pytorch_model_adapter_fusion.bin")
    with pytest.raises(InputError, match=r"must have weights of .*adapter_fusion_layer.*query\.weight"):
        encode(f"{base}:adapter={fusion}")
    weights.with_name("adapter_config.json").unlink()
    with pytest.raises(InputError, match=r"must have adapter \[RGN\] beside it"):
        registry.resolve(f"{base}:adapter={fusion}")
