"""ASPIRE's sentences: what is cut, the rule that splits a text, and the authors' computation of one paper."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from pipeline.corpus.reader import Text
from pipeline.encode import kinds
from pipeline.encode.aspire import split_sentences
from pipeline.encode.base import Encoder, in_order
from tests.encode.tiny import CPU, words


def sentences(*lengths: int) -> str:
    return " ".join(f"W{number} {words(length - 2, number)}." for number, length in enumerate(lengths))


TEXTS = [
    Text("", ""),
    Text("w1", ""),
    Text("", "W2."),
    Text("w1", sentences(20, 30, 40)),
    Text("w1", sentences(200, 200, 98)),
    Text("w1", sentences(200, 200, 99)),
    Text("w1", sentences(200, 299, 50, 3)),
    Text(words(499), sentences(9, 9)),
    Text(words(600), sentences(9, 9)),
    Text(words(5), sentences(*[50] * 100)),
    Text("  \t ", " \n "),
    Text("w5 😀\0", "👩‍🔬 w7. 😀 عربي. مرحبا."),
    *(Text(words(4, number), sentences(*range(3, 4 + number % 9))) for number in range(12)),
]


@cache
def opened(folder: Path) -> tuple[Any, Any]:
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()


def one_by_one(folder: Path, text: Text) -> np.ndarray:
    """Return the sentence vectors of one paper as the authors' example computes them."""
    tokenizer, model = opened(folder)
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
    return torch.stack([states[place].mean(0) for place in places[1:] or places]).numpy()


@pytest.fixture
def encoder(folder: Path) -> Encoder:
    encoder: Encoder = kinds.find("aspire").of("aspire", {"folder": str(folder)}).load(None, CPU)
    return encoder


def test_what_is_cut(encoder: Encoder) -> None:
    """Title and [SEP] are 2 tokens, so 498 are left: the last sentence of 100 is cut by one, a fourth one is gone."""
    batches = [next(encoder.encode_batches([text])) for text in TEXTS[:10]]
    assert [len(batch.positions) for batch in batches[:9]] == [1, 1, 1, 3, 3, 3, 2, 1, 1]
    assert [batch.truncated for batch in batches[:9]] == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert max(batch.tokens for batch in batches) <= 502


def test_queries_are_sentences_without_a_title(encoder: Encoder) -> None:
    query = Text("W1 w2 w3. W4 w5?", "")
    positions, _ = in_order(encoder.encode_batches([query, Text("", "")], "query"), encoder.dimension)
    assert positions.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("As in Fig. 3 of Smith et al. We saw it.", ["As in Fig. 3 of Smith et al. We saw it."]),
        ("It is 3.5 times, e.g. Here. J. B. Smith agrees.", ["It is 3.5 times, e.g. Here.", "J. B. Smith agrees."]),
        (
            'He said "so." Then (as is.) It ended...  5 remain.',
            ['He said "so."', "Then (as is.)", "It ended...", "5 remain."],
        ),
        ("no end. lower case goes on", ["no end. lower case goes on"]),
        (" \n ", []),
        ("Größe. Über alles. Ünder.", ["Größe.", "Über alles.", "Ünder."]),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


@given(st.text(alphabet='aB.!? \n("1é', max_size=60))
def test_no_character_is_lost(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
