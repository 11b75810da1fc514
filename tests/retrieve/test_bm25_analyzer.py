"""The cached analyzer: every text has the terms that Lucene's analyzer gives it as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.retrieve.bm25 import analyzer as bm25_analyzer
from pipeline.retrieve.bm25.analyzer import CachedAnalyzer, LuceneAnalyzer
from pipeline.retrieve.bm25.forward_index import Block
from pipeline.retrieve.lucene_java import Lucene
from tests.retrieve.bm25 import MEMORY, pairs_of, real_texts
from tests.retrieve.test_lucene import WEIRD

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def analyzer() -> LuceneAnalyzer:
    return LuceneAnalyzer(Lucene(MEMORY))


def counted(cached: CachedAnalyzer, texts: Sequence[str], together: int = 10**9) -> list[Counter[str]]:
    parts = [pa.array(texts[n : n + together], pa.large_string()) for n in range(0, len(texts), together)]
    return read(cached.block(parts))


def read(block: Block) -> list[Counter[str]]:
    spelled = block.vocabulary.to_pylist()
    assert len(set(spelled)) == len(spelled)
    found = []
    for text, tokens in enumerate(block.lengths.tolist()):
        pairs = pairs_of(block, text)
        assert len({term for term, _ in pairs}) == len(pairs)
        assert sum(times for _, times in pairs) == tokens
        found.append(Counter({spelled[term]: times for term, times in pairs}))
    assert {term for each in found for term in each} == set(spelled)
    return found


def assert_lucenes(analyzer: LuceneAnalyzer, texts: Sequence[str]) -> None:
    for text, bag in zip(texts, counted(CachedAnalyzer(analyzer, 10**6), texts), strict=True):
        assert bag == Counter(analyzer.terms(text)), repr(text)


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


@settings(max_examples=200, deadline=None, derandomize=True)
@given(texts=st.lists(_TEXTS, min_size=1, max_size=20))
@example(texts=["#\ufe0f\u20e3 *\u20e3 1\ufe0f\u20e3", 'א"ב א\'ב "a"b"', "a.b. .a:b: 1,2, ;1;2", "_a_ __ a_b"])
@example(texts=["x" * 255 + ".", "." + "x" * 255, "x" * 254 + ".y", "x" * 256 + "'s", "'" * 300 + "a"])
@example(texts=["a\u0301-\u0301b", "\u0301a \u0301", "a\u200d.b", "a.\u0301b", "1,\u00ad2"])
def test_lucenes_terms_of_random_text(analyzer: LuceneAnalyzer, texts: list[str]) -> None:
    assert_lucenes(analyzer, texts)


def test_lucenes_terms_of_every_character_between_letters_and_digits(analyzer: LuceneAnalyzer) -> None:
    """Alone, at the ends of words, inside them, and doubled."""
    characters = [
        chr(code) for code in [*range(0x500), *range(0x590, 0x700), *range(0x2000, 0x2100), *range(0xFE00, 0xFF70)]
    ]
    assert_lucenes(analyzer, [f"ab{c}cd {c}e f{c} {c} 1{c}2 g{c}{c}h 3{c} {c}4 א{c}ב カ{c}カ" for c in characters])


def test_lucenes_terms_of_weird_text(analyzer: LuceneAnalyzer) -> None:
    assert_lucenes(analyzer, [text for text in WEIRD if "\ud800" not in text])


@pytest.mark.realdata
def test_lucenes_terms_of_real_papers(analyzer: LuceneAnalyzer) -> None:
    assert_lucenes(analyzer, [f"{text.title} {text.abstract}" for text in real_texts("s2orc-real")[:6_000]])


def test_a_word_that_holds_the_mark(analyzer: LuceneAnalyzer) -> None:
    mark = bm25_analyzer._MARK
    assert analyzer.terms(mark) == [mark]
    texts = [mark, f"a {mark}-{mark} runs", f"é{mark} running", f"é.{mark}"]
    assert_lucenes(analyzer, texts)


def test_words_together_in_small_parts(analyzer: LuceneAnalyzer, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"running{n}" for n in range(50)] + ["the", "don't", "é", "中文"]
    whole = analyzer.terms_of_words(words)
    monkeypatch.setattr(bm25_analyzer, "_WORDS_PER_CALL", 7)
    assert analyzer.terms_of_words(words) == whole == [analyzer.terms(word) for word in words]


def test_what_is_remembered_and_what_comes_together_change_nothing(analyzer: LuceneAnalyzer) -> None:
    rng = np.random.default_rng(2)
    texts = [" ".join(f"word{n}s" for n in rng.integers(0, 3_000, 30)) for _ in range(300)]
    whole = counted(CachedAnalyzer(analyzer, 10**6), texts)
    forgetful = CachedAnalyzer(analyzer, 10)
    for start in range(0, len(texts), 60):
        assert counted(forgetful, texts[start : start + 60], together=7) == whole[start : start + 60]
    remembering = CachedAnalyzer(analyzer, 10**6)
    for start in range(0, len(texts), 60):
        assert counted(remembering, texts[start : start + 60]) == whole[start : start + 60]


@pytest.mark.parametrize("capacity", [0, 10**6])
def test_terms_are_numbered_by_first_use_in_the_block(analyzer: LuceneAnalyzer, capacity: int) -> None:
    cached = CachedAnalyzer(analyzer, capacity)
    cached.block([pa.array(["plum kiwi"], pa.large_string())])
    parts = [["lime kiwi fig fig kiwi", ""], ["plum fig"]]
    block = cached.block([pa.array(part, pa.large_string()) for part in parts])
    assert block.vocabulary.to_pylist() == ["lime", "kiwi", "fig", "plum"]
    assert [pairs_of(block, text) for text in range(3)] == [[(0, 1), (1, 2), (2, 2)], [], [(3, 1), (2, 1)]]
    assert block.lengths.tolist() == [5, 0, 2]


def test_no_texts(analyzer: LuceneAnalyzer) -> None:
    assert read(CachedAnalyzer(analyzer, 10).block([])) == []
    assert counted(CachedAnalyzer(analyzer, 10), ["", "…"]) == [Counter(), Counter()]


def test_a_slice_of_texts(analyzer: LuceneAnalyzer) -> None:
    texts = pa.array(["kiwi", "plum fig", "melon"], pa.large_string())[1:]
    assert read(CachedAnalyzer(analyzer, 10).block([texts])) == [Counter(["plum", "fig"]), Counter(["melon"])]
