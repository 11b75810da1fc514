"""The words table: every text has the terms that Lucene's analyzer gives it as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.retrieve.lucene_classes import Lucene
from pipeline.retrieve.postings import analysis as postings_analysis
from pipeline.retrieve.postings import words as postings_words
from pipeline.retrieve.postings.analysis import Analysis, LuceneAnalyzer
from pipeline.retrieve.postings.entries import entry, pack, sound
from pipeline.retrieve.postings.store import Bags
from pipeline.retrieve.postings.words import WordTable
from tests.retrieve.postings import MEMORY, pairs_of, real_texts
from tests.retrieve.test_lucene import WEIRD

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def analyzer() -> LuceneAnalyzer:
    return LuceneAnalyzer(Lucene(MEMORY))


def bags_of(analysis: Analysis, texts: Sequence[str], together: int = 10**9) -> list[Counter[str]]:
    parts = [pa.array(texts[n : n + together], pa.large_string()) for n in range(0, len(texts), together)]
    return read(analysis.block(parts))


def read(bags: Bags) -> list[Counter[str]]:
    spelled = bags.vocabulary.to_pylist()
    assert len(set(spelled)) == len(spelled)
    found = []
    for text, tokens in enumerate(bags.lengths.tolist()):
        bag = pairs_of(bags, text)
        assert [term for term, _ in bag] == sorted({term for term, _ in bag})
        assert sum(times for _, times in bag) == tokens
        found.append(Counter({spelled[term]: times for term, times in bag}))
    frequency = Counter(term for bag in found for term in bag)
    assert [frequency[term] for term in spelled] == sorted(frequency.values(), reverse=True)
    return found


def assert_lucenes(analyzer: LuceneAnalyzer, texts: Sequence[str]) -> None:
    for text, bag in zip(texts, bags_of(Analysis(analyzer, 10**6), texts), strict=True):
        assert bag == Counter(analyzer.tokens(text)), repr(text)


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


@settings(max_examples=400, deadline=None, derandomize=True)
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
    mark = postings_analysis._MARK
    assert analyzer.tokens(mark) == [mark]
    texts = [mark, f"a {mark}-{mark} runs", f"é{mark} running", f"é.{mark}"]
    assert_lucenes(analyzer, texts)


def test_words_together_in_small_parts(analyzer: LuceneAnalyzer, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"running{n}" for n in range(50)] + ["the", "don't", "é", "中文"]
    whole = analyzer.of_words(words)
    monkeypatch.setattr(postings_analysis, "_TOGETHER", 7)
    assert analyzer.of_words(words) == whole == [analyzer.tokens(word) for word in words]


def test_what_is_remembered_and_what_comes_together_change_nothing(analyzer: LuceneAnalyzer) -> None:
    rng = np.random.default_rng(2)
    texts = [" ".join(f"word{n}s" for n in rng.integers(0, 3_000, 30)) for _ in range(300)]
    whole = bags_of(Analysis(analyzer, 10**6), texts)
    forgetful = Analysis(analyzer, 10)
    for start in range(0, len(texts), 60):
        assert bags_of(forgetful, texts[start : start + 60], together=7) == whole[start : start + 60]
    remembering = Analysis(analyzer, 10**6)
    for start in range(0, len(texts), 60):
        assert bags_of(remembering, texts[start : start + 60]) == whole[start : start + 60]


def test_terms_are_numbered_by_falling_frequency_then_first_use_in_the_block(analyzer: LuceneAnalyzer) -> None:
    analysis = Analysis(analyzer, 10**6)
    analysis.block([pa.array(["plum kiwi"], pa.large_string())])
    bags = analysis.block([pa.array(["lime kiwi fig fig kiwi", "", "plum fig"], pa.large_string())])
    assert bags.vocabulary.to_pylist() == ["fig", "lime", "kiwi", "plum"]
    assert [pairs_of(bags, text) for text in range(3)] == [[(0, 2), (1, 1), (2, 2)], [], [(0, 1), (3, 1)]]
    assert bags.lengths.tolist() == [5, 0, 2]


@pytest.mark.parametrize("times", [1, 255, 256, 1 << 31])
@pytest.mark.parametrize("term", [0, (1 << 24) - 1, 1 << 24, (1 << 24) + 7])
def test_entries_of_any_size(term: int, times: int) -> None:
    """The last four terms of a large vocabulary, and one term many times."""
    numbers = np.arange((1 << 24) + 8)
    starts, terms = np.array([0, 1, 1, 3]), np.array([term, (1 << 24) + 5, 3], np.uint32)
    offsets, entries = pack(starts, terms, np.array([times, 256, 2], np.uint32), numbers)
    small = term < 1 << 24 and times < 256
    assert np.diff(offsets).tolist() == [1 if small else 3, 0, 4]
    bags = Bags(offsets, entries, np.zeros(3, np.uint32), pa.array([]))
    assert [pairs_of(bags, text) for text in range(3)] == [[(term, times)], [], [(3, 2), ((1 << 24) + 5, 256)]]
    assert entry(entries, 0) == (term, times, offsets[1])
    assert entry(entries, offsets[2]) == (3, 2, offsets[2] + 1)
    assert entry(entries, offsets[2] + 1) == ((1 << 24) + 5, 256, offsets[3])


def test_what_is_no_bag_is_told() -> None:
    numbers = np.arange(5)
    starts, terms, times = np.array([0, 2, 2, 3]), np.array([4, 1, 2], np.uint32), np.array([300, 2, 7], np.uint32)
    offsets, entries = pack(starts, terms, times, numbers)
    lengths = np.array([302, 0, 7], np.uint32)
    assert offsets.tolist() == [0, 4, 4, 5]
    assert sound(offsets, entries, lengths, 5)
    assert not sound(offsets, entries, lengths, 4), "a term beyond the vocabulary"
    for place, value in ((0, -1), (1, 1), (1, 3), (1, 5), (1, 2**40), (2, 0), (3, 4), (3, 6)):
        wrong = offsets.copy()
        wrong[place] = value
        assert not sound(wrong, entries, lengths, 5), (place, value)
    for place, value in ((0, 5 | 1 << 24), (0, 4 | 2 << 24), (0, 0), (1, 9), (2, 5), (2, 1), (3, 299), (4, 0)):
        other = entries.copy()
        other[place] = value
        assert not sound(offsets, other, lengths, 5), (place, value)


def test_no_texts(analyzer: LuceneAnalyzer) -> None:
    assert read(Analysis(analyzer, 10).block([])) == []
    assert bags_of(Analysis(analyzer, 10), ["", "…"]) == [Counter(), Counter()]


def test_a_slice_of_texts(analyzer: LuceneAnalyzer) -> None:
    texts = pa.array(["kiwi", "plum fig", "melon"], pa.large_string())[1:]
    assert read(Analysis(analyzer, 10).block([texts])) == [Counter(["plum", "fig"]), Counter(["melon"])]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(blocks=st.lists(st.lists(st.text("abc ", max_size=30), max_size=30), max_size=5))
def test_words_are_numbered_in_the_order_met(blocks: list[list[str]]) -> None:
    """Tables that grow between blocks, against a dictionary."""
    table = WordTable(postings_words.kinds())
    numbers: dict[str, int] = {}
    for block in blocks:
        data, offsets = postings_analysis.text_bytes(pa.array(block, pa.large_string()))
        words, ends = table.number(data, offsets)
        expected = [[numbers.setdefault(word, len(numbers)) for word in text.split()] for text in block]
        assert words.tolist() == [number for text in expected for number in text]
        assert np.diff(ends).tolist() == [len(text) for text in expected]
    assert table.spelled(0) == list(numbers)
    order = np.arange(table.count)[::-1]
    assert table.array(order).to_pylist() == list(numbers)[::-1]


def test_a_table_of_many_words() -> None:
    table = WordTable(postings_words.kinds())
    texts = [" ".join(str(n) for n in range(start, start + 20_000)) for start in (0, 10_000, 70_000)]
    for text, first in zip(texts, (0, 10_000, 30_000), strict=True):
        words, _ = table.number(*postings_analysis.text_bytes(pa.array([text], pa.large_string())))
        assert words.tolist() == list(range(first, first + 20_000))
