"""OAG-BERT against the vectors of cogdl 0.6 for the same random checkpoints."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import registry

CPU = Resources(workers=1, device="cpu")
WORDS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "deep", "model", "##s", "of", "text"),
    *("we", "train", "a", "network", ".", ",", "graph", "protein", "fold", "##ing"),
)
CONFIG = {
    "vocab_size": len(WORDS),
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 24,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 32,
    "type_vocab_size": 8,
    "initializer_range": 0.2,
}
PAPERS = [
    Text("Deep models of text", "We train a deep network, of text."),
    Text("Protein folding", ""),
    Text("", "A graph of models."),
    Text("Models " * 20, "We train. " * 10),
]
COGDL = {
    "oagbert": [
        [0.189201, -0.143919, 0.450062, -0.852443, -0.820931, 0.977360],
        [-0.297839, 0.279771, 0.818863, -0.453084, -0.578126, 0.794829],
        [0.148421, 0.001066, 0.300429, -0.791689, -0.812345, 0.927813],
        [0.558523, -0.664396, 0.182966, -0.939779, -0.850788, 0.991946],
    ],
    "oagbert-v2": [
        [0.457178, -0.862834, -0.676899, -0.595467, -0.757367, 0.987358],
        [0.049812, -0.859001, -0.112773, -0.670676, -0.536858, 0.972169],
        [0.403480, -0.830878, -0.836024, -0.841140, -0.857816, 0.985029],
        [0.872318, -0.912931, -0.976365, -0.604561, -0.932422, 0.902023],
    ],
}
"""The first six components of the pooled output of each paper by cogdl 0.6 with torch 2.13 on a CPU, at 32 tokens."""


def weight(name: str, *shape: int) -> torch.Tensor:
    """Return weights that their name alone decides."""
    values = np.random.default_rng(zlib.crc32(name.encode())).normal(0, 0.3, shape)
    return torch.from_numpy((values + ("LayerNorm.weight" in name)).astype(np.float32))


def save(folder: Path, version: int) -> Path:
    """Write a checkpoint as cogdl does."""
    size, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    rows = {"word": len(WORDS), "position": 32, "token_type": 8}
    shapes: dict[str, Any] = {f"embeddings.{name}_embeddings.weight": (count, size) for name, count in rows.items()}
    linear = {"encoder.layer.{}.attention.self." + name: (size, size) for name in ("query", "key", "value")}
    linear |= {"encoder.layer.{}.attention.output.dense": (size, size)}
    linear |= {"encoder.layer.{}.intermediate.dense_act": (inner, size), "encoder.layer.{}.output.dense": (size, inner)}
    norms = ["encoder.layer.{}.PreAttentionLayerNorm", "encoder.layer.{}.PostAttentionLayerNorm"]
    for layer in range(2):
        shapes |= {f"{name.format(layer)}.weight": shape for name, shape in linear.items()}
        shapes |= {f"{name.format(layer)}.bias": shape[:1] for name, shape in linear.items()}
        shapes |= {f"{name.format(layer)}.{part}": (size,) for name in norms for part in ("weight", "bias")}
    for name in ("embeddings.LayerNorm", "encoder.FinalLayerNorm"):
        shapes |= {f"{name}.weight": (size,), f"{name}.bias": (size,)}
    shapes |= {"pooler.dense_act.weight": (size, size), "pooler.dense_act.bias": (size,)}
    if version == 2:
        shapes["embeddings.position_embeddings_second.weight"] = (32, size)
    weights = {f"bert.{name}": weight(f"bert.{name}", *shape) for name, shape in shapes.items()}
    folder.mkdir()
    torch.save({**weights, "cls.predictions.bias": torch.zeros(len(WORDS))}, folder / "pytorch_model.bin")
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    if version == 2:
        (folder / "version").write_text("2\n")
    return folder


@pytest.mark.parametrize(("name", "version"), [("oagbert", 1), ("oagbert-v2", 2)])
def test_vectors_are_those_of_cogdl(tmp_path: Path, name: str, version: int) -> None:
    model = registry.resolve(f"{name}:weights={save(tmp_path / 'folder', version)},max_length=32")
    encoder = model.load(None, CPU)
    vectors = np.array(list(encoder.encode(PAPERS)))
    np.testing.assert_allclose(vectors[:, :6], COGDL[name], atol=1e-5)
    (tmp_path / "folder").rename(tmp_path / "moved")
    moved = registry.resolve(f"{name}:weights={tmp_path / 'moved'},max_length=32")
    assert (moved.identity, moved.key) == (model.identity, model.key)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="OAG-BERT must have the folder of its weights"):
        registry.resolve("oagbert")
    folder = save(tmp_path / "folder", 2)
    with pytest.raises(InputError, match="must hold OAG-BERT 1 with a vocab.txt, got 2"):
        registry.resolve(f"oagbert:weights={folder}")
    state = torch.load(folder / "pytorch_model.bin")
    torch.save({key: value for key, value in state.items() if "pooler" not in key}, folder / "pytorch_model.bin")
    model = registry.resolve(f"oagbert-v2:weights={folder},max_length=32")
    with pytest.raises(InputError, match="has other weights than OAG-BERT: pooler"):
        model.load(None, CPU)
