"""Our vectors against the plain computation of the model cards: one text at a time, no batches, float32."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import kinds, registry
from pipeline.encode.base import NotFiniteError
from pipeline.encode.packed import PackedBert
from pipeline.encode.reading import render
from pipeline.encode.spec import TransformerSpec
from pipeline.encode.transformer import TransformerEncoder
from tests.encode.tiny import SMALL, SPECIAL, WORDS, save_adapter, save_bert, save_mpnet, words

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


def card(texts: list[Text]) -> list[str]:
    """Texts as the model cards of SPECTER, SciNCL and SPECTER2 write them."""
    return [text.title + "[SEP]" + (text.abstract or "") for text in texts]


def test_specter_recipe(folder: Path) -> None:
    np.testing.assert_allclose(load(folder).encode(TEXTS), one_by_one(folder, card(TEXTS)), atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "position:1"])
def test_poolings(folder: Path, pooling: str) -> None:
    vectors = load(folder, pooling=pooling, max_length=64).encode(TEXTS)
    np.testing.assert_allclose(vectors, one_by_one(folder, card(TEXTS), pooling, 64), atol=1e-5)


def test_normalise_is_asked_for(folder: Path) -> None:
    plain, unit = load(folder).encode(TEXTS), load(folder, normalise="true").encode(TEXTS)
    assert np.linalg.norm(plain, axis=1).min() > 1.5
    np.testing.assert_allclose(unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)


def test_roles_and_templates(folder: Path) -> None:
    spec = TransformerSpec("org/model", "abc", query_prefix="query: ", paper_prefix="passage: ")
    assert render(Text("T", ""), "paper", spec, "[SEP]") == "passage: T[SEP]"
    assert render(Text("", "A"), "paper", spec, "[SEP]") == "passage: [SEP]A"
    assert render(Text("Q", ""), "query", spec, "[SEP]") == "query: Q"
    spaced = dataclasses.replace(spec, template="title-space-abstract", paper_prefix="")
    assert render(Text("T", ""), "paper", spaced, "[SEP]") == "T"
    assert render(Text("", "A"), "paper", spaced, "[SEP]") == "A"
    assert render(Text("T", "A"), "paper", spaced, "[SEP]") == "T A"
    queries = [Text("w1 w2", ""), Text(words(600), "")]
    vectors = load(folder).encode(queries, "query")
    np.testing.assert_allclose(vectors, one_by_one(folder, [query.title for query in queries]), atol=1e-5)


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
    assert sum(batch.padded for batch in batches) == 512 + 4 + 512
    assert sum(batch.truncated for batch in batches) == 1


@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_reduced_precision_is_close(folder: Path, compute: str) -> None:
    exact, reduced = load(folder).encode(TEXTS), load(folder, compute=compute).encode(TEXTS)
    cosine = (exact * reduced).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(reduced, axis=1)
    assert cosine.min() >= 0.999
    assert reduced.dtype == np.float32
    assert not np.array_equal(exact, reduced)


def test_nan_names_the_text(folder: Path) -> None:
    encoder = load(folder)
    with torch.no_grad():
        encoder._network.embeddings.word_embeddings.weight[len(SPECIAL) + len(WORDS)] = float("nan")
    with pytest.raises(NotFiniteError) as caught:
        encoder.encode([Text("w1", ""), Text("w2 w3", ""), Text("w1 a", ""), Text("a", "")])
    assert caught.value.position == 2


def test_a_numbered_processor_is_the_processor(folder: Path) -> None:
    model = registry.resolve(str(folder))
    texts = [Text("a title", "an abstract")]
    found = TransformerEncoder.load(model, Resources(device="cpu:0")).encode(texts)
    np.testing.assert_array_equal(found, TransformerEncoder.load(model, Resources(device="cpu")).encode(texts))


def test_wrong_models_and_devices(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="max_length 513 is more than the model's 512"):
        load(folder, max_length=513)
    with pytest.raises(InputError, match="no device 'quantum'"):
        TransformerEncoder.load(registry.resolve(str(folder)), Resources(device="quantum"))
    with pytest.raises(InputError, match="'mps' is not supported"):
        TransformerEncoder.load(registry.resolve(str(folder)), Resources(device="mps"))
    broken = save_bert(tmp_path / "broken")
    network = AutoModel.from_pretrained(broken)
    weights = {key: value for key, value in network.state_dict().items() if "layer.1.output" not in key}
    network.save_pretrained(broken, state_dict=weights)
    with pytest.raises(InputError, match=r"lacks weights of its own architecture: encoder\.layer\.1\.output"):
        load(broken)
    (broken / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(InputError, match="cannot be loaded"):
        load(broken)


def test_networks_that_are_no_bert_are_padded(tmp_path: Path) -> None:
    saved = save_mpnet(tmp_path / "mpnet")
    encoder = load(saved, template="title-space-abstract", pooling="mean", max_length=128, normalise="true")
    assert encoder.describe()["attention"] != "packed"
    expected = one_by_one(saved, [" ".join(filter(None, text)) for text in TEXTS], "mean", 128)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    batches = list(encoder.encode_batches(TEXTS))
    assert sum(batch.padded for batch in batches) > sum(batch.tokens for batch in batches)
    assert [
        cosines(
            encoder.encode(TEXTS),
            load(saved, pooling="mean", template="title-space-abstract", max_length=128, compute="bfloat16").encode(
                TEXTS
            ),
        ).min()
        >= 0.999
    ] == [True]


def test_a_bert_of_another_make_is_not_packed(folder: Path) -> None:
    network = AutoModel.from_pretrained(folder).eval()
    assert PackedBert.fits(network)
    with torch.no_grad():
        network.encoder.layer[0].attention.self.query.forward = lambda states: states * 2
    assert not PackedBert.fits(network)
    relative = AutoModel.from_config(BertConfig(**SMALL, position_embedding_type="relative_key")).eval()
    assert not PackedBert.fits(relative)


def test_control_codes(folder: Path) -> None:
    spec = {"pooling": "position:1", "paper_prefix": "[PRX] ", "query_prefix": "[QRY] "}
    model = dataclasses.replace(registry.resolve(str(folder)), name="ctrl")
    model = dataclasses.replace(model, spec=dataclasses.replace(model.spec, **spec))  # type: ignore[type-var]
    encoder = TransformerEncoder.load(model, CPU)
    expected = one_by_one(folder, [f"[PRX] {text}" for text in card(TEXTS)], "position:1")
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    asked = one_by_one(folder, [f"[QRY] {text.title}" for text in TEXTS], "position:1")
    np.testing.assert_allclose(encoder.encode(TEXTS, "query"), asked, atol=1e-5)
    plain = load(folder).encode(TEXTS)
    assert np.abs(expected - plain).max() > 0.1
    unknown = dataclasses.replace(model.spec, paper_prefix="[XYZ] ")  # type: ignore[type-var]
    with pytest.raises(InputError, match=r"'\[XYZ\] ' is 5 tokens"):
        TransformerEncoder.load(dataclasses.replace(model, spec=unknown), CPU)


def test_e5_prefixes(folder: Path) -> None:
    recipe = {"template": "title-space-abstract", "pooling": "mean", "normalise": True}
    model = registry.resolve(str(folder))
    spec = dataclasses.replace(model.spec, **recipe, paper_prefix="passage: ", query_prefix="query: ")  # type: ignore[type-var]
    encoder = TransformerEncoder.load(dataclasses.replace(model, spec=spec), CPU)
    for role, prefix in (("paper", "passage: "), ("query", "query: ")):
        strings = [prefix + (" ".join(filter(None, text)) if role == "paper" else text.title) for text in TEXTS]
        expected = one_by_one(folder, strings, "mean")
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(encoder.encode(TEXTS, role), expected, atol=1e-5)  # type: ignore[arg-type]


def test_the_mean_of_two(folder: Path, tmp_path: Path) -> None:
    other = save_bert(tmp_path / "other", seed=5)
    model = registry.resolve(f"mean({folder},{other}:pooling=mean,max_length=64)")
    encoder = kinds.find("mean").load(model, None, CPU)
    expected = (load(folder).encode(TEXTS) + load(other, pooling="mean", max_length=64).encode(TEXTS)) / 2
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-6)
    assert sum(batch.texts for batch in encoder.encode_batches(TEXTS)) == len(TEXTS)


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray((one * other).sum(1) / lengths)


def test_adapter(folder: Path, tmp_path: Path) -> None:
    adapters = pytest.importorskip("adapters")
    saved = save_adapter(tmp_path / "adapter", folder)
    plain = adapters.AutoAdapterModel.from_pretrained(folder)
    plain.load_adapter(str(saved), set_active=True)
    plain.eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = []
    for text in card(TEXTS):
        inputs = tokenizer(text, truncation=True, max_length=512, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            expected.append(plain(**inputs).last_hidden_state[0, 0].numpy())
    encoder = load(folder, adapter=saved)
    assert encoder.describe()["attention"] == "packed"
    vectors = encoder.encode(TEXTS)
    np.testing.assert_allclose(vectors, np.stack(expected), atol=1e-5)
    base = load(folder).encode(TEXTS)
    assert np.abs(vectors - base).max() > 0.1
    reduced = load(folder, adapter=saved, compute="bfloat16").encode(TEXTS)
    cosine = (vectors * reduced).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(reduced, axis=1)
    assert cosine.min() >= 0.999


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
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = registry.resolve("minilm")
    texts = [
        Text("Attention is not all you need for citation retrieval", "We compare sparse and dense retrieval."),
        Text("A short title", ""),
        Text("", "An abstract without a title, which happens in every release of bibliographic data."),
        Text("", ""),
        Text("Über die Größe von Molekülen", "Température élevée; naïve façade — 50 % of the ΔG‡ values (p < 0.05)."),
        Text("量子計算の概要", "深層学習による文書検索を評価する。"),
        Text("Graphs 😀 and emoji", "A null byte \0 inside, and [SEP] spelled out."),
        Text("Long", "The same sentence, again and again, until it is cut. " * 60),
        Text("  spaces   around ", "\ttabs\tand\nnewlines\n"),
    ]
    plain = sentence_transformers.SentenceTransformer(str(model.checkpoint.folder), device="cpu")  # type: ignore[union-attr]
    strings = [" ".join(part for part in text if part) for text in texts]
    expected = plain.encode(strings)
    np.testing.assert_allclose(TransformerEncoder.load(model, CPU).encode(texts), expected, atol=1e-5)
    by_folder = registry.resolve(str(model.checkpoint.folder))  # type: ignore[union-attr]
    assert by_folder.spec == model.spec
    assert by_folder.distance == model.distance
