"""Malformed model folders: what is done to a small real model, in the layouts that are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file, save_file
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

from tests.encode.test_sentence_transformers import save, static
from tests.encode.tiny import save_adapter, save_bert, save_cross_encoder
from tests.faults.hostile import SPECIAL

Change = Callable[[Path], object]


class Folder(NamedTuple):
    """What saves a good folder, what ``--model`` says of it, where ``{}`` is its path, and its files."""

    save: Callable[[Path], object]
    system: str
    json: tuple[str, ...]
    weights: tuple[str, ...] = ("model.safetensors",)


class Malformed(NamedTuple):
    """One malformed folder: its name, the name of the good one, and what is changed in it."""

    name: str
    base: str
    change: Change


def _described(folder: Path) -> None:
    """Save a model in the layout of sentence-transformers."""
    save(folder, Pooling(32, "mean"), Dense(32, 16), Normalize(), prompts={"document": "w4 ", "query": "w5 "})


def _adapted(folder: Path) -> None:
    save_bert(folder / "base")
    save_adapter(folder, folder / "base")


_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_MODULES = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json")
FOLDERS = {
    "specter": Folder(save_bert, "{}", ("config.json", *_TOKENIZER)),
    "sentence-transformers": Folder(
        _described,
        "{}",
        ("config.json", *_TOKENIZER, *_MODULES, "2_Dense/config.json"),
        ("model.safetensors", "2_Dense/model.safetensors"),
    ),
    "cross-encoder": Folder(save_cross_encoder, "rerank(bm25,cross:{},3)", ("config.json",)),
    "adapter": Folder(_adapted, "{0}/base:adapter={0}", ("adapter_config.json",), ("pytorch_adapter.bin",)),
    "static": Folder(static, "{}", ()),
}
"""Good folders by name."""

JSON: dict[str, bytes | Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "with deep nesting": b"[" * 100_000,
    "that is no UTF-8": lambda data: data + b"\xff",
}

WEIGHTS: dict[str, bytes | Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "with a header of 2^63 bytes": lambda data: (2**63 - 1).to_bytes(8, "little") + data[8:],
}

# Values of the wrong type or range: folder, file, setting, values.
_VALUES: list[tuple[str, str, str, list[Any]]] = [
    ("specter", "config.json", "hidden_size", ["32", 0, 10**12]),
    ("specter", "config.json", "num_hidden_layers", [-1, 3]),
    ("specter", "config.json", "vocab_size", [10]),
    ("specter", "config.json", "model_type", ["nothing", 5]),
    ("specter", "config.json", "pals", [True]),
    ("specter", "config.json", "auto_map", [{"AutoModel": "code.Model"}]),
    ("specter", "config.json", "pad_token_id", [10**6]),
    ("specter", "tokenizer_config.json", "model_max_length", ["512", 0]),
    ("sentence-transformers", "sentence_bert_config.json", "max_seq_length", [-1, 10**9]),
    ("sentence-transformers", "config_sentence_transformers.json", "prompts", ["w1", {"document": 5}]),
    ("sentence-transformers", "config_sentence_transformers.json", "a_setting_of_later", [1]),
    ("sentence-transformers", "1_Pooling/config.json", "pooling_mode", [["mean", "x"]]),
    ("sentence-transformers", "2_Dense/config.json", "in_features", [33, 10**12]),
    ("sentence-transformers", "2_Dense/config.json", "activation_function", ["os.system", "torch.nn.Nothing"]),
    ("cross-encoder", "config.json", "id2label", [5, {}]),
    ("cross-encoder", "config.json", "architectures", ["BertModel"]),
    ("cross-encoder", "config.json", "sbert_ce_default_activation_function", ["os.system"]),
    ("adapter", "adapter_config.json", "config", [None, {}]),
]

# What modules.json may say that is wrong: modules by type and path.
_MODULES_OF: dict[str, list[Any]] = {
    "lists text": ["Transformer"],
    "lists nothing": [],
    "has no type": [{"path": ""}],
    "has code of its own": [{"type": "code.Transformer", "path": ""}],
    **{
        f"has the path {path!r:.60}": [
            {"type": f"sentence_transformers.models.{kind}", "path": place}
            for kind, place in (("Transformer", ""), ("Pooling", path))
        ]
        for path in ("/etc", "../other", "nowhere", "x" * 5_000, "a\0b")
    },
}


def _bytes(path: str, change: bytes | Callable[[bytes], bytes]) -> Change:
    def apply(folder: Path) -> None:
        file = folder / path
        file.write_bytes(change if isinstance(change, bytes) else change(file.read_bytes()))

    return apply


def _json(path: str, change: Callable[[Any], Any]) -> Change:
    return _bytes(path, lambda data: json.dumps(change(json.loads(data))).encode())


def _added(tokenizer: Any) -> Any:
    added = tokenizer["added_tokens"]
    return tokenizer | {"added_tokens": [*added, added[-1] | {"id": 10**6, "content": "[NEW]"}]}


def _tensors(change: Callable[[dict[str, np.ndarray[Any, Any]]], dict[str, np.ndarray[Any, Any]]]) -> Change:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path, {"format": "pt"})

    return apply


def _index(listed: str) -> Change:
    """Put an index beside the file of the weights."""

    def apply(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "model-1.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": listed}}))

    return apply


def _instead(make: Change, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    make(folder / "model.safetensors")


_WORD = "embeddings.word_embeddings.weight"
_OTHER: dict[str, Change] = {
    "a token beyond the embedding": _json("tokenizer.json", _added),
    "a vocabulary of nothing": _json("tokenizer.json", lambda text: text | {"model": text["model"] | {"vocab": {}}}),
    "NaN weights": _tensors(lambda tensors: tensors | {_WORD: np.full_like(tensors[_WORD], np.nan)}),
    "a missing tensor": _tensors(lambda tensors: {name: tensors[name] for name in tensors if name != _WORD}),
    "weights on their sides": _tensors(
        lambda tensors: {name: np.ascontiguousarray(array.T) for name, array in tensors.items()}
    ),
    "an index of a parent path": _index("../model.safetensors"),
    "an index of a missing file": _index("model-2.safetensors"),
    **{f"{name} as model.safetensors": partial(_instead, make) for name, make in SPECIAL.items()},
}


def malformed() -> Iterator[Malformed]:
    """Yield every malformed folder."""
    for base, good in FOLDERS.items():
        for paths, changes in ((good.json, JSON), (good.weights, WEIGHTS)):
            for path, (name, data) in product(paths, changes.items()):
                yield Malformed(f"{base}: {path} {name}", base, _bytes(path, data))
    for base, path, key, wrong in _VALUES:
        for value in wrong:
            change = _json(path, lambda values, key=key, value=value: values | {key: value})
            yield Malformed(f"{base}: {path} {key}={value!r}", base, change)
    for name, modules in _MODULES_OF.items():
        change = _json("modules.json", lambda _, modules=modules: modules)
        yield Malformed(f"modules.json {name}", "sentence-transformers", change)
    for name, change in _OTHER.items():
        yield Malformed(f"specter: {name}", "specter", change)
    no_columns = _tensors(lambda tensors: {name: array[:, :0].copy() for name, array in tensors.items()})
    yield Malformed("static: no columns", "static", no_columns)
