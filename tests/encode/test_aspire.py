"""ASPIRE's sentence vectors against the authors' computation, one paper at a time; the sentence rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import kinds
from pipeline.encode.aspire import split_sentences
from pipeline.encode.base import Encoder, in_order
from pipeline.encode.spec import Model
from tests.encode.tiny import save_bert, words

CPU = Resources(workers=2, device="cpu")


def sentences(*lengths: int) -> str:
    return " ".join(f"W{number} {words(length - 2, number)}." for number, length in enumerate(lengths))


TEXTS = [
    Text("", ""),
    Text("w1", ""),
    Text("", "W2."),
    Text("w1", sentences(20, 30, 40)),
    Text("w1", sentences(200, 200, 98)),
    Text("w1", sentences(200, 200, 99)),
    Text("w1", sentences(200, 298, 50)),
    Text("w1", sentences(200, 299, 50, 3)),
    Text(words(499), sentences(9, 9)),
    Text(words(498), sentences(9, 9)),
    Text(words(600), sentences(9, 9)),
    Text(words(5), sentences(*[50] * 100)),
    Text("  \t ", " \n "),
    Text("w5 😀", "👩‍🔬 w7. 😀 😀."),
    Text("שלום", "عربي. مرحبا."),
    Text("w1\0w2", "\0"),
    *(Text(words(4, number), sentences(*range(3, 4 + number % 9))) for number in range(12)),
]


def one_by_one(folder: Path, text: Text) -> np.ndarray:
    """Return the sentence vectors of one paper as the authors' example computes them."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    ids: list[int] = []
    places: list[list[int]] = []
    for piece in [f"{text.title} [SEP] ", *split_sentences(text.abstract)]:
        tokens = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(piece))[: 500 - len(ids)]
        if tokens:
            places.append(list(range(1 + len(ids), 1 + len(ids) + len(tokens))))
        ids += tokens
    whole = torch.tensor([[tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]])
    with torch.no_grad():
        states = model(input_ids=whole, attention_mask=torch.ones_like(whole)).last_hidden_state[0]
    return torch.stack([states[each].mean(0) for each in places[1:] or places]).numpy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("models") / "tiny")


def load(folder: Path, compute: str = "float32") -> tuple[Model, Encoder]:
    model = kinds.find("aspire").resolve("aspire", {"folder": str(folder), "compute": compute})
    return model, kinds.find("aspire").load(model, None, CPU)


def test_against_the_authors_computation(folder: Path) -> None:
    model, encoder = load(folder)
    assert model.several
    positions, vectors = in_order(encoder.encode_batches(TEXTS), encoder.dimension)
    expected = [one_by_one(folder, text) for text in TEXTS]
    assert np.bincount(positions).tolist() == [len(each) for each in expected]
    np.testing.assert_allclose(vectors, np.concatenate(expected), atol=1e-5)
    reduced = load(folder, "bfloat16")[1].encode(TEXTS)
    cosine = (vectors * reduced).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(reduced, axis=1)
    assert cosine.min() >= 0.999


def test_what_is_cut(folder: Path) -> None:
    encoder = load(folder)[1]
    cut = {}
    for number, text in enumerate(TEXTS[:12]):
        batch = next(encoder.encode_batches([text]))
        cut[number] = (len(batch.positions), batch.truncated)
        assert batch.tokens <= 502
    # title and [SEP] are 2 tokens, so 498 are left: the last sentence of 100 is cut by one, a fourth one is gone
    assert cut[3] == (3, 0)
    assert cut[4] == (3, 0)
    assert cut[5] == (3, 1)
    assert cut[6] == (2, 1)
    assert cut[7] == (2, 1)
    assert cut[8] == (1, 1)
    assert cut[9] == (1, 1)
    assert cut[10] == (1, 1)
    assert cut[0] == cut[1] == cut[2] == (1, 0)


def test_queries_are_sentences_without_a_title(folder: Path) -> None:
    encoder = load(folder)[1]
    query = Text("W1 w2 w3. W4 w5?", "")
    positions, _ = in_order(encoder.encode_batches([query, Text("", "")], "query"), encoder.dimension)
    assert positions.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("As in Fig. 3 of Smith et al. We saw it.", ["As in Fig. 3 of Smith et al. We saw it."]),
        (
            "It is 3.5 times faster, e.g. Here. J. B. Smith agrees.",
            ["It is 3.5 times faster, e.g. Here.", "J. B. Smith agrees."],
        ),
        (
            'He said "so." Then (as we saw.) It ended...  5 remain.',
            ['He said "so."', "Then (as we saw.)", "It ended...", "5 remain."],
        ),
        ("no end. lower case goes on", ["no end. lower case goes on"]),
        ("", []),
        (" \n ", []),
        ("Größe. Über alles. Ünder.", ["Größe.", "Über alles.", "Ünder."]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


@given(st.text(alphabet='aB.!? \n("1é', max_size=60))
def test_no_character_is_lost(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
