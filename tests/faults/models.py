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

from tests.encode.test_sentence_transformers import save
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
}
"""Good folders by name. A bare name stands for the first."""

JSON: dict[str, bytes | Callable[[bytes], bytes]] = {
    "of no bytes": b"",
    "cut": lambda data: data[: len(data) // 2],
    "that is null": b"null",
    "that is a list": b"[1]",
    "that is text": b'"text"',
    "that is a number": b"5",
    "with deep nesting": b"[" * 100_000,
    "with a lone surrogate": lambda data: data.rstrip().replace(b"{", b'{"\\ud800": 1, ', 1),
    "that is no UTF-8": lambda data: data + b"\xff",
    "of zeros": lambda data: bytes(len(data)),
}

WEIGHTS: dict[str, bytes | Callable[[bytes], bytes]] = {
    "of no bytes": b"",
    "cut": lambda data: data[: len(data) // 2],
    "of zeros": lambda data: bytes(len(data)),
    "of text": b"version https://git-lfs.github.com/spec/v1\n",
    "with a header of 2^63 bytes": lambda data: (2**63 - 1).to_bytes(8, "little") + data[8:],
    "with a flipped header": lambda data: data[:20].replace(b"PK", b"KP") + bytes([data[20] ^ 0x55]) + data[21:],
}

# Values of the wrong type or range: file, setting, value.
_VALUES: dict[str, list[tuple[str, dict[str, list[Any]]]]] = {
    "specter": [
        (
            "config.json",
            {
                "hidden_size": ["32", None, -1, 0, 3.5, [32], 33, 10**12],
                "num_hidden_layers": ["2", -1, 2.5, 1, 3, 10**9],
                "num_attention_heads": ["4", 0, 5, [4]],
                "intermediate_size": ["64", 63, 10**12],
                "vocab_size": ["x", 10, -5, 10**13],
                "max_position_embeddings": ["512", -1, 8, 10**12, [1]],
                "type_vocab_size": [0, "2"],
                "hidden_act": ["nothing", 5],
                "layer_norm_eps": ["small", None, [1]],
                "hidden_dropout_prob": ["x", 7],
                "model_type": ["nothing", 5, None, ["bert"]],
                "architectures": ["BertModel", [5]],
                "pals": [True, "yes"],
                "auto_map": [{"AutoModel": "code.Model"}],
                "pad_token_id": [10**6, "0"],
                "transformers_weights": ["other.safetensors"],
            },
        ),
        (
            "tokenizer_config.json",
            {
                "model_max_length": ["512", [1], 0, -3],
                "tokenizer_class": [5, {}, ["BertTokenizer"]],
                "sep_token": [5, ["[SEP]"]],
                "pad_token": [{"content": 5}],
                "added_tokens_decoder": [5, {"x": {"content": "y"}}],
                "auto_map": [{"AutoTokenizer": ["code.Tokenizer", None]}],
            },
        ),
    ],
    "sentence-transformers": [
        ("sentence_bert_config.json", {"max_seq_length": ["128", -1, 2.5, 10**9], "do_lower_case": ["no", 1]}),
        (
            "config_sentence_transformers.json",
            {
                "prompts": [["w1"], "w1", {"document": 5}],
                "default_prompt_name": [5, "nothing"],
                "similarity_fn_name": [5, "nothing"],
            },
        ),
        ("1_Pooling/config.json", {"pooling_mode": [5, "nothing", [5], ["mean", "x"]]}),
        (
            "2_Dense/config.json",
            {
                "in_features": [33, "32", -1, 0, 10**12],
                "out_features": [17, "16", None],
                "bias": ["yes", False],
                "activation_function": [5, "os.system", "torch.nn.Nothing"],
            },
        ),
    ],
    "cross-encoder": [
        (
            "config.json",
            {
                "id2label": [[1], 5, {}],
                "architectures": [None, [], "BertModel"],
                "sentence_transformers": ["x", {"activation_fn": 5}],
                "sbert_ce_default_activation_function": [5, "os.system"],
            },
        )
    ],
    "adapter": [("adapter_config.json", {"config": [None, 5, "nothing", {}], "peft_type": [5, ["LORA"]]})],
}

# What modules.json may say that is wrong.
_MODULES_OF: dict[str, Any] = {
    "lists null": [None],
    "lists text": ["Transformer"],
    "lists nothing": [],
    "has a type of null": [{"type": None, "path": ""}],
    "has no type": [{"path": ""}],
    "has a path of a number": [{"type": "sentence_transformers.models.Transformer", "path": 5}],
    **{
        f"has the path {path!r}": [
            {"type": "sentence_transformers.models.Transformer", "path": ""},
            {"type": "sentence_transformers.models.Pooling", "path": path},
        ]
        for path in ("/etc", "../other", "1_Pooling/../../x", "nowhere", "x" * 5_000, "a\0b", "\\\\host\\share")
    },
    "has the Transformer elsewhere": [
        {"type": "sentence_transformers.models.Transformer", "path": "0_Transformer"},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    ],
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
    "a vocabulary beyond the embedding": _vocabulary(lambda words: {word: 1000 + at for word, at in words.items()}),
    "a vocabulary of nothing": _vocabulary(lambda _: {}),
    "a vocabulary of text": _vocabulary(lambda _: "words"),
    "a vocabulary of negative ids": _vocabulary(lambda words: {word: -at for word, at in words.items()}),
    "an embedding that is too small": _tensors(lambda tensors: tensors | {_WORD: tensors[_WORD][:50]}),
    "NaN weights": _tensors(lambda tensors: tensors | {_WORD: np.full_like(tensors[_WORD], np.nan)}),
    "a missing tensor": _tensors(lambda tensors: {name: tensors[name] for name in tensors if name != _WORD}),
    "no tensors": _tensors(lambda _: {}),
    "weights on their sides": _tensors(
        lambda tensors: {name: np.ascontiguousarray(array.T) for name, array in tensors.items()}
    ),
    "an index of nothing": _index("{}"),
    "an index that is null": _index("null"),
    "an index of numbers": _index('{"weight_map": {"a": 5}}'),
    "an index of an absolute path": _index('{"weight_map": {"a": "/etc/passwd"}}'),
    "an index of a parent path": _index('{"weight_map": {"a": "../model.safetensors"}}'),
    "an index of a missing file": _index('{"weight_map": {"a": "model-2.safetensors"}}'),
    "an index of one tensor": _index(
        f'{{"metadata": {{}}, "weight_map": {{"{_WORD}": "model-1.safetensors"}}}}', lambda name: name == _WORD
    ),
    **{
        f"{what} as {path}": _instead(path, make)
        for path in ("config.json", "model.safetensors")
        for what, make in (
            ("a folder", Path.mkdir),
            ("a pipe", os.mkfifo),
            ("a link to itself", lambda path: path.symlink_to(path.name)),
            ("a link to a device", lambda path: path.symlink_to("/dev/zero")),
        )
    },
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
