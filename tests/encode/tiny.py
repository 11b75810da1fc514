"""Small real models with random weights, saved as the hub saves models, and how tests load them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizerFast,
    MPNetConfig,
    MPNetModel,
    MPNetTokenizerFast,
)

from pipeline.core.resources import Resources
from pipeline.encode import bottleneck, registry
from pipeline.encode.model import Model

CPU = Resources(workers=2, device="cpu")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WORDS = tuple(f"w{number}" for number in range(200))
CODES = ("[PRX]", "[QRY]", "[CLF]", "[RGN]")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CODES)
_CHARACTERS = tuple("abcdefghijklmnopqrstuvwxyz0123456789.,:;!?()-שלוםعربي")

torch.set_num_threads(1)  # such small products wait for each other longer than they take

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": 0.2,
}
"""2 layers and 32 dimensions; weights large enough that vectors differ."""


def load(name: str | Path, precision: str | None = None) -> tuple[Model, Any]:
    """Return a model by name and its encoder on the CPU."""
    model = registry.resolve(str(name), precision)
    return model, model.load(None, CPU)


def smallest_cosine(vectors: np.ndarray[Any, Any], others: np.ndarray[Any, Any]) -> float:
    """Return the smallest cosine of two vectors of one row."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(others, axis=1)
    return float(((vectors * others).sum(1) / lengths).min())


def change(path: Path, **values: Any) -> None:
    """Set values of a JSON file."""
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.is_file() else {}), **values}))


def keep_case(folder: Path) -> Path:
    """Give a model a tokenizer that keeps case, and the setting that lower-cases text first."""
    places = AutoTokenizer.from_pretrained(folder).get_vocab()
    (folder / "vocab.txt").write_text("\n".join(sorted(places, key=lambda piece: places[piece])), encoding="utf-8")
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=False, model_max_length=128)
    tokenizer.save_pretrained(folder)
    change(folder / "sentence_bert_config.json", do_lower_case=True)
    return folder


def save_bert(folder: Path, *, tokenizer: bool = True, seed: int = 1, positions: int = 512) -> Path:
    """Save a BERT of 2 layers and 32 dimensions into ``folder`` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = [*SPECIAL, *WORDS, *_CHARACTERS, *(f"##{character}" for character in _CHARACTERS)]
    torch.manual_seed(seed)
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=positions, **SMALL)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    if tokenizer:
        (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
        BertTokenizerFast(
            str(folder / "vocab.txt"), additional_special_tokens=list(CODES), model_max_length=positions
        ).save_pretrained(folder)
    return folder


def save_mpnet(folder: Path) -> Path:
    """Save an MPNet of that size: relative positions, no BERT."""
    folder.mkdir(parents=True)
    vocabulary = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>", *WORDS, *_CHARACTERS, *(f"##{c}" for c in _CHARACTERS)]
    torch.manual_seed(1)
    config = MPNetConfig(vocab_size=len(vocabulary), max_position_embeddings=514, pad_token_id=1, **SMALL)
    MPNetModel(config, add_pooling_layer=False).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    MPNetTokenizerFast(str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)
    return folder


def commit_of(entry: Mapping[str, Any]) -> str:
    """Return the commit that an entry is pinned to, else :data:`COMMIT`."""
    revision: str = entry.get("revision", "main")
    return COMMIT if revision == "main" else revision


def snapshot(cache: Path, hub_id: str, commit: str = COMMIT, kind: str = "models") -> Path:
    """Make a commit the revision ``main`` of a repository in a Hugging Face cache, and return its folder."""
    repository = cache / f"{kind}--{hub_id.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(commit)
    return repository / "snapshots" / commit


def save_in_cache(cache: Path, hub_id: str, commit: str = COMMIT, **options: bool | int) -> Path:
    """Save such a BERT as revision ``main`` of a repository in a Hugging Face cache, and return its folder."""
    return save_bert(snapshot(cache, hub_id, commit), **options)


def words(count: int, start: int = 0) -> str:
    """Return ``count`` words that are one token each."""
    return " ".join(WORDS[(start + number * 7) % len(WORDS)] for number in range(count))


def save_adapter(folder: Path, base: Path, *, seed: int = 3, name: str = "tiny") -> Path:
    """Save a bottleneck adapter with random weights for the BERT in ``base``."""
    network = BertModel.from_pretrained(base, add_pooling_layer=False)
    bottleneck.add_adapter(network, name, network.config.hidden_size // 4)
    torch.manual_seed(seed)
    for path, weight in network.named_parameters():
        if f"adapters.{name}" in path:
            torch.nn.init.normal_(weight, std=0.3)
    bottleneck.save(network, folder, name)
    return folder


def save_cross_encoder(folder: Path, *, labels: int = 1, seed: int = 5, positions: int = 512) -> Path:
    """Save a BERT of that size that classifies pairs of texts."""
    save_bert(folder, positions=positions)
    torch.manual_seed(seed)
    config = BertConfig.from_pretrained(folder, num_labels=labels)
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def save_pals(folder: Path, seed: int = 7) -> Path:
    """Save a BERT with projected attention layers as published: a state dict, and a configuration without a type."""
    save_bert(folder)
    torch.manual_seed(seed)
    state = BertModel.from_pretrained(folder, add_pooling_layer=False).state_dict()
    hidden, small, shared = SMALL["hidden_size"], 24, {}
    for task in range(len(CODES)):
        for name, shape in (("aug_dense", (small, hidden)), ("aug_dense2", (hidden, small))):
            shared[task, name] = {"weight": torch.randn(shape) * 0.1, "bias": torch.randn(shape[0]) * 0.1}
            state |= {f"encoder.mult_{name}.{task}.{key}": value for key, value in shared[task, name].items()}
        for layer in range(SMALL["num_hidden_layers"]):
            at = f"encoder.layer.{layer}.multi_layers.{task}"
            for name in ("aug_dense", "aug_dense2"):
                state |= {f"{at}.{name}.{key}": value for key, value in shared[task, name].items()}
            for name in ("query", "key", "value"):
                state[f"{at}.attn.{name}.weight"] = torch.randn(small, small) * 0.2
                state[f"{at}.attn.{name}.bias"] = torch.randn(small) * 0.2
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    config = json.loads((folder / "config.json").read_text())
    config |= {"pals": True, "mult": True, "hidden_size_aug": small, "num_tasks": len(CODES)}
    del config["model_type"], config["architectures"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def save_fusion(root: Path, base: Path) -> Path:
    """Save four adapters and a fusion of them in the published layout; return the folder of the fusion."""
    names = sorted(CODES)
    for number, name in enumerate(names):
        save_adapter(root / "adapters" / name, base, seed=number, name=name)
    network = BertModel.from_pretrained(base, add_pooling_layer=False)
    bottleneck.add_fusion(network, "[CLF]_fusion", names)
    torch.manual_seed(9)
    for name, weight in network.named_parameters():
        if "adapter_fusion_layer" in name:
            torch.nn.init.normal_(weight, std=0.5)
    bottleneck.save(network, root / "[CLF]_fusion", "[CLF]_fusion")
    return root / "[CLF]_fusion"
