"""The cached analyzer: every text has the terms that Lucene's analyzer gives it as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.retrieve.bm25.analyzer import MARK, CachedAnalyzer, Words
from pipeline.retrieve.bm25.forward_index import TermsBlock
from pipeline.retrieve.lucene import Lucene
from tests.retrieve.bm25 import MEMORY, pairs_of
from tests.retrieve.test_lucene import WEIRD

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def lucene() -> Lucene:
    return Lucene(MEMORY)


def alone(lucene: Lucene, text: str) -> list[str]:
    return [term for term in lucene.analyse(text).split(" ") if term]


def counted(cached: CachedAnalyzer, texts: Sequence[str], together: int = 10**9) -> list[Counter[str]]:
    parts = [pa.array(texts[n : n + together], pa.large_string()) for n in range(0, len(texts), together)]
    return read(cached.block(parts))


def read(block: TermsBlock) -> list[Counter[str]]:
    spelled = block.vocabulary.to_pylist()
    assert len(set(spelled)) == len(spelled)
    bags = []
    for text, tokens in enumerate(block.lengths.tolist()):
        pairs = pairs_of(block, text)
        assert len({term for term, _ in pairs}) == len(pairs)
        assert sum(times for _, times in pairs) == tokens
        bags.append(Counter({spelled[term]: times for term, times in pairs}))
    assert {term for bag in bags for term in bag} == set(spelled)
    return bags


def assert_lucenes(lucene: Lucene, texts: Sequence[str]) -> None:
    for text, bag in zip(texts, counted(CachedAnalyzer(lucene, 10**6), texts), strict=True):
        assert bag == Counter(alone(lucene, text)), repr(text)


_PIECES = st.sampled_from(
    [
        *".:,;\"'_#*- \t/@&+()\n",
        *"aZ09é\u0301\u200d\u200b\u00ad\ufeff\u2019\uff0e\u00b7\u2024\u3000\u2028",
        *"אב״׳عربतมดกकाพ中文日本カタカナｶﾅひら한국가",
        *"\U0001f600\U0001f468\u200d\U0001f469\ufe0f\u20e3\U0001f1e9\U0001f1ea\U0001f3fd\U00020000\U0001d7d8",
        "running", "U.S.A.", "don't", "3.14", "1,000", "author's", "Author’s", "the", "x" * 254, "y" * 256,
    ]
)  # fmt: skip
_TEXTS = st.one_of(
    st.lists(_PIECES, max_size=40).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.text(st.characters(max_codepoint=127), max_size=80),
)


@settings(max_examples=200, derandomize=True)
@given(texts=st.lists(_TEXTS, min_size=1, max_size=20))
@example(texts=["#\ufe0f\u20e3 *\u20e3 1\ufe0f\u20e3", 'א"ב א\'ב "a"b"', "a.b. .a:b: 1,2, ;1;2", "_a_ __ a_b"])
@example(texts=["x" * 255 + ".", "." + "x" * 255, "x" * 254 + ".y", "x" * 256 + "'s", "'" * 300 + "a"])
@example(texts=["a\u0301-\u0301b", "\u0301a \u0301", "a\u200d.b", "a.\u0301b", "1,\u00ad2"])
def test_lucenes_terms_of_random_text(lucene: Lucene, texts: list[str]) -> None:
    assert_lucenes(lucene, texts)


def test_lucenes_terms_of_every_character_between_letters_and_digits(lucene: Lucene) -> None:
    """Alone, at the ends of words, inside them, and doubled."""
    characters = [
        chr(code) for code in [*range(0x500), *range(0x590, 0x700), *range(0x2000, 0x2100), *range(0xFE00, 0xFF70)]
    ]
    assert_lucenes(lucene, [f"ab{c}cd {c}e f{c} {c} 1{c}2 g{c}{c}h 3{c} {c}4 א{c}ב カ{c}カ" for c in characters])


def test_lucenes_terms_of_weird_text_and_of_the_mark(lucene: Lucene) -> None:
    assert lucene.analyse(MARK) == MARK
    marked = [MARK, f"a {MARK}-{MARK} runs", f"é{MARK} running", f"é.{MARK}"]
    assert_lucenes(lucene, [*marked, *WEIRD])


def test_words_are_numbered_by_first_use_while_their_table_grows() -> None:
    rng = np.random.default_rng(7)
    spelled = [f"{n:x}é'" * (1 + n % 9) for n in range(60_000)]
    drawn = [rng.integers(0, len(spelled), size) for size in (50_000, 0, 90_000)]
    words, expected = Words(), dict[str, int]()
    for numbers in drawn:
        texts = [" ".join(spelled[n] for n in part) + "-" for part in np.array_split(numbers, 100)]
        offsets, found = words.number(pa.array(["before", *texts], pa.large_string())[1:])
        assert np.diff(offsets).tolist() == [text.count(" ") + bool(text[1:]) for text in texts]
        assert found.tolist() == [expected.setdefault(spelled[n], len(expected)) for n in numbers]
    assert words.spelled().to_pylist() == list(expected)
    assert words.spelled(50_000).to_pylist() == list(expected)[50_000:]
    assert words.count == len(expected) > 2**15


@pytest.mark.parametrize(("capacity", "together"), [(10, 7), (10**6, 10**9)])
def test_what_is_remembered_and_what_comes_together_change_nothing(
    lucene: Lucene, capacity: int, together: int
) -> None:
    rng = np.random.default_rng(2)
    texts = [" ".join(f"word{n}s" for n in rng.integers(0, 3_000, 30)) for _ in range(300)]
    whole, cached = counted(CachedAnalyzer(lucene, 10**6), texts), CachedAnalyzer(lucene, capacity)
    for start in range(0, len(texts), 60):
        assert counted(cached, texts[start : start + 60], together) == whole[start : start + 60]


@pytest.mark.parametrize("capacity", [0, 10**6])
def test_terms_are_numbered_by_first_use_in_the_block(lucene: Lucene, capacity: int) -> None:
    cached = CachedAnalyzer(lucene, capacity)
    cached.block([pa.array(["plum kiwi"], pa.large_string())])
    parts = [["lime kiwi fig fig kiwi", ""], ["plum fig"]]
    block = cached.block([pa.array(part, pa.large_string()) for part in parts])
    assert block.vocabulary.to_pylist() == ["lime", "kiwi", "fig", "plum"]
    assert [pairs_of(block, text) for text in range(3)] == [[(0, 1), (1, 2), (2, 2)], [], [(3, 1), (2, 1)]]
    assert block.lengths.tolist() == [5, 0, 2]


def test_no_texts_blank_ones_and_a_slice(lucene: Lucene) -> None:
    assert read(CachedAnalyzer(lucene, 10).block([])) == []
    assert counted(CachedAnalyzer(lucene, 10), ["", "…"]) == [Counter(), Counter()]
    texts = pa.array(["kiwi", "plum fig", "melon"], pa.large_string())[1:]
    assert read(CachedAnalyzer(lucene, 10).block([texts])) == [Counter(["plum", "fig"]), Counter(["melon"])]
