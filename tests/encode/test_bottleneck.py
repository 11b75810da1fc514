"""Bottleneck adapters and their fusions: those of the package ``adapters``, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer

from pipeline.core.errors import InputError
from pipeline.encode import registry
from tests.encode.test_transformer import TEXTS
from tests.encode.tiny import change, load, save_adapter, save_bert, save_fusion, save_mpnet

NAMES = ["[CLF]", "[PRX]", "[QRY]", "[RGN]"]


@pytest.fixture(scope="module", name="base")
def saved_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("base") / "tiny")


def cls_states(network: Any, base: Path) -> np.ndarray[Any, Any]:
    """Return the first states of the texts, one text at a time."""
    tokenizer, states = AutoTokenizer.from_pretrained(base), []
    for text in TEXTS:
        inputs = tokenizer(text.title + "[SEP]" + text.abstract, truncation=True, max_length=512, return_tensors="pt")
        with torch.inference_mode():
            states.append(network.eval()(**inputs).last_hidden_state[0, 0].numpy())
    return np.stack(states)


@pytest.mark.parametrize("fused", [False, True])
def test_vectors_are_those_of_the_package_adapters(base: Path, tmp_path: Path, fused: bool) -> None:
    adapters = pytest.importorskip("adapters")
    fusion = save_fusion(tmp_path, base)
    network = AutoModel.from_pretrained(base)
    adapters.init(network)
    for name in NAMES:
        network.load_adapter(str(tmp_path / "adapters" / name), load_as=name)
    if fused:
        adapters.loading.AdapterFusionLoader(network).load(str(fusion), set_active=True)
    else:
        network.set_active_adapters("[PRX]")
    assert network.active_adapters
    ours = load(f"{base}:adapter={fusion if fused else tmp_path / 'adapters' / '[PRX]'}")[1]
    vectors = np.concatenate([ours.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(vectors, cls_states(network, base), atol=1e-6)


def test_a_fusion_attends_over_its_adapters(base: Path, tmp_path: Path) -> None:
    fusion = save_fusion(tmp_path / "model", base)
    state = torch.load(fusion / "pytorch_model_adapter_fusion.bin")
    fused, (model, encoder) = f"{base}:adapter={fusion}", load(f"{base}:adapter={fusion}")
    vectors = encoder.encode(TEXTS)
    alone = load(f"{base}:adapter={tmp_path}/model/adapters/[CLF]")[1].encode(TEXTS)
    assert np.abs(vectors - alone).max() > 0.01
    same = {key: torch.zeros_like(weight) for key, weight in state.items()}
    same |= {key: torch.eye(len(weight)) for key, weight in state.items() if ".value." in key}
    torch.save(same, fusion / "pytorch_model_adapter_fusion.bin")
    for name in NAMES[1:]:  # equal adapters, weighed equally, are one
        for path in (tmp_path / "model" / "adapters" / "[CLF]").iterdir():
            (tmp_path / "model" / "adapters" / name / path.name).write_bytes(path.read_bytes())
    np.testing.assert_allclose(load(fused)[1].encode(TEXTS), alone, atol=1e-5)
    assert registry.resolve(fused).identity != model.identity  # its adapters are part of the identity
    torch.save(dict(list(state.items())[1:]), fusion / "pytorch_model_adapter_fusion.bin")
    with pytest.raises(InputError, match=r"must have weights of .*adapter_fusion_layer.*query\.weight"):
        load(fused)
    (tmp_path / "model" / "adapters" / "[RGN]" / "adapter_config.json").unlink()
    with pytest.raises(InputError, match=r"must have the adapter .*\[RGN\]"):
        registry.resolve(fused)


def test_weights_may_be_safetensors_and_of_a_model_with_a_head(base: Path, tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "adapter", base)
    vectors = load(f"{base}:adapter={folder}")[1].encode(TEXTS)
    path = folder / "pytorch_adapter.bin"
    state = {f"bert.{key}": weight.contiguous() for key, weight in torch.load(path).items()}
    path.unlink()
    save_file(state, folder / "adapter.safetensors")
    np.testing.assert_array_equal(load(f"{base}:adapter={folder}")[1].encode(TEXTS), vectors)
    mpnet = save_mpnet(tmp_path / "mpnet")
    other = load(f"{mpnet}:adapter={save_adapter(tmp_path / 'other', base)}")[1].encode(TEXTS)
    assert np.abs(other - load(str(mpnet))[1].encode(TEXTS)).max() > 0.01


def test_an_adapter_that_does_not_fit_is_an_error(base: Path, tmp_path: Path) -> None:
    damaged = save_adapter(tmp_path / "damaged", base)
    (damaged / "pytorch_adapter.bin").write_bytes(b"not weights")
    with pytest.raises(InputError, match="cannot be loaded"):
        load(f"{base}:adapter={damaged}")
    deeper = save_adapter(tmp_path / "deeper", base)
    state = torch.load(deeper / "pytorch_adapter.bin")
    last = {key.replace("layer.1.", "layer.2."): weight for key, weight in state.items()}
    torch.save({**state, **last}, deeper / "pytorch_adapter.bin")
    with pytest.raises(InputError, match=r"has weights of encoder\.layer\.2\.output.*, which the model lacks"):
        load(f"{base}:adapter={deeper}")
    path = save_adapter(tmp_path / "parallel", base) / "adapter_config.json"
    change(path, config={**json.loads(path.read_text())["config"], "is_parallel": True})
    with pytest.raises(InputError, match="must have is_parallel False, got True"):
        load(f"{base}:adapter={tmp_path / 'parallel'}")
