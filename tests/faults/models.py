"""Malformed model folders: what is done to a small real model, in the layouts that are read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file, save_file
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

from tests.encode.test_sentence_transformers import save, static
from tests.encode.tiny import save_adapter, save_bert, save_cross_encoder

Change = Callable[[Path], object]


class Folder(NamedTuple):
    """A folder to be malformed.

    Attributes:
        save: writes a good one.
        system: what ``--model`` says of it, where ``{}`` is its path.
        json: its JSON files.
        weights: its weight files.
    """

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
    prompts = {"document": "w4 ", "query": "w5 "}
    save(folder, Pooling(32, "mean"), Dense(32, 16), Normalize(), prompts=prompts)


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
"""Good folders by name. A bare name stands for the first."""

JSON: dict[str, bytes | Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "that is null": b"null",
    "with deep nesting": b"[" * 100_000,
    "that is no UTF-8": lambda data: data + b"\xff",
}

WEIGHTS: dict[str, bytes | Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "of text": b"version https://git-lfs.github.com/spec/v1\n",
    "with a header of 2^63 bytes": lambda data: (2**63 - 1).to_bytes(8, "little") + data[8:],
}

# Values of the wrong type or range: file, setting, value.
_VALUES: dict[str, list[tuple[str, dict[str, list[Any]]]]] = {
    "specter": [
        (
            "config.json",
            {
                "hidden_size": ["32", 0, 10**12],
                "num_hidden_layers": [-1, 1, 3, 10**9],
                "vocab_size": [10, 10**13],
                "max_position_embeddings": ["512", 8],
                "hidden_act": ["nothing"],
                "model_type": ["nothing", 5],
                "pals": [True],
                "auto_map": [{"AutoModel": "code.Model"}],
                "pad_token_id": [10**6],
            },
        ),
        ("tokenizer_config.json", {"model_max_length": ["512", 0], "tokenizer_class": [5]}),
    ],
    "sentence-transformers": [
        ("sentence_bert_config.json", {"max_seq_length": [-1, 10**9]}),
        (
            "config_sentence_transformers.json",
            {"prompts": ["w1", {"document": 5}], "similarity_fn_name": ["nothing"], "a_setting_of_later": [1]},
        ),
        ("1_Pooling/config.json", {"pooling_mode": [["mean", "x"]]}),
        (
            "2_Dense/config.json",
            {
                "in_features": [33, 10**12],
                "out_features": [17, 0],
                "activation_function": ["os.system", "torch.nn.Nothing"],
            },
        ),
    ],
    "cross-encoder": [
        (
            "config.json",
            {
                "id2label": [5, {}],
                "architectures": ["BertModel"],
                "sbert_ce_default_activation_function": ["os.system"],
            },
        )
    ],
    "adapter": [("adapter_config.json", {"config": [None, {}]})],
    "static": [],
}

# What modules.json may say that is wrong.
_MODULES_OF: dict[str, Any] = {
    "lists text": ["Transformer"],
    "lists nothing": [],
    "has no type": [{"path": ""}],
    "has code of its own": [{"type": "code.Transformer", "path": ""}],
    **{
        f"has the path {path!r}": [
            {"type": "sentence_transformers.models.Transformer", "path": ""},
            {"type": "sentence_transformers.models.Pooling", "path": path},
        ]
        for path in ("/etc", "../other", "nowhere", "x" * 5_000, "a\0b")
    },
}


def _bytes(path: str, change: bytes | Callable[[bytes], bytes]) -> Change:
    def apply(folder: Path) -> None:
        file = folder / path
        file.write_bytes(change if isinstance(change, bytes) else change(file.read_bytes()))

    return apply


def _value(path: str, key: str, value: Any) -> Change:
    return _bytes(path, lambda data: json.dumps(json.loads(data) | {key: value}).encode())


def _vocabulary(change: Callable[[dict[str, int]], Any]) -> Change:
    """Change the vocabulary of ``tokenizer.json``."""

    def apply(data: bytes) -> bytes:
        values = json.loads(data)
        values["model"]["vocab"] = change(values["model"]["vocab"])
        return json.dumps(values).encode()

    return _bytes("tokenizer.json", apply)


def _added(data: bytes) -> bytes:
    values = json.loads(data)
    values["added_tokens"].append({**values["added_tokens"][-1], "id": 10**6, "content": "[NEW]"})
    return json.dumps(values).encode()


def _tensors(change: Callable[[dict[str, np.ndarray[Any, Any]]], dict[str, np.ndarray[Any, Any]]]) -> Change:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path, {"format": "pt"})

    return apply


def _index(text: str, kept: Callable[[str], bool] = lambda _: True) -> Change:
    """Put an index beside a file of the weights that are kept."""

    def apply(folder: Path) -> None:
        _tensors(lambda tensors: {name: tensors[name] for name in tensors if kept(name)})(folder)
        (folder / "model.safetensors").rename(folder / "model-1.safetensors")
        (folder / "model.safetensors.index.json").write_text(text)

    return apply


def _instead(path: str, make: Change) -> Change:
    def apply(folder: Path) -> None:
        (folder / path).unlink()
        make(folder / path)

    return apply


_WORD = "embeddings.word_embeddings.weight"
_OTHER: dict[str, Change] = {
    "a token beyond the embedding": _bytes("tokenizer.json", _added),
    "a vocabulary of nothing": _vocabulary(lambda _: {}),
    "NaN weights": _tensors(lambda tensors: tensors | {_WORD: np.full_like(tensors[_WORD], np.nan)}),
    "a missing tensor": _tensors(lambda tensors: {name: tensors[name] for name in tensors if name != _WORD}),
    "weights on their sides": _tensors(
        lambda tensors: {name: np.ascontiguousarray(array.T) for name, array in tensors.items()}
    ),
    "an index of numbers": _index('{"weight_map": {"a": 5}}'),
    "an index of a parent path": _index('{"weight_map": {"a": "../model.safetensors"}}'),
    "an index of a missing file": _index('{"weight_map": {"a": "model-2.safetensors"}}'),
    "an index of one tensor": _index(
        f'{{"metadata": {{}}, "weight_map": {{"{_WORD}": "model-1.safetensors"}}}}', lambda name: name == _WORD
    ),
    "a folder as config.json": _instead("config.json", Path.mkdir),
    "a pipe as model.safetensors": _instead("model.safetensors", os.mkfifo),
    "a link to a device as model.safetensors": _instead("model.safetensors", lambda path: path.symlink_to("/dev/zero")),
}


def malformed() -> Iterator[Malformed]:
    """Return every malformed folder."""
    for base, good in FOLDERS.items():
        for path in good.json:
            for name, data in JSON.items():
                yield Malformed(f"{base}: {path} {name}", base, _bytes(path, data))
        for path in good.weights:
            for name, data in WEIGHTS.items():
                yield Malformed(f"{base}: {path} {name}", base, _bytes(path, data))
        for path, values in _VALUES[base]:
            for key, wrong in values.items():
                for value in wrong:
                    yield Malformed(f"{base}: {path} {key}={value!r}", base, _value(path, key, value))
    for name, modules in _MODULES_OF.items():
        text = json.dumps(modules).encode()
        yield Malformed(f"modules.json {name:.60}", "sentence-transformers", _bytes("modules.json", text))
    for name, change in _OTHER.items():
        yield Malformed(f"specter: {name}", "specter", change)
    no_columns = _tensors(lambda tensors: {name: array[:, :0].copy() for name, array in tensors.items()})
    yield Malformed("static: no columns", "static", no_columns)
