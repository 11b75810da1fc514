"""BM25 by postings: Lucene's scores and ranking, on real text and on random text, for every pool of one store."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import InputError, StageError
from pipeline.corpus.reader import Text
from pipeline.retrieve.base import Ranking, no_exclusions
from pipeline.retrieve.postings import pool as postings_pool
from pipeline.retrieve.postings import search as postings_search
from pipeline.retrieve.postings import store as postings_store
from pipeline.retrieve.postings.pool import Collection, Queries
from pipeline.retrieve.postings.search import search
from pipeline.retrieve.postings.store import TermStore
from tests.retrieve.bm25 import bm25_scores
from tests.retrieve.cases import exclusions, same
from tests.retrieve.postings import (
    POINTS,
    Asked,
    analysed,
    by_lucene,
    by_postings,
    publish,
    random_texts,
    real_texts,
)

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("postings")]


def assert_lucenes(found: Ranking, lucene: Ranking) -> None:
    """The same rows in the same order, under scores that differ in the last bit at most."""
    np.testing.assert_array_equal(found.query, lucene.query)
    np.testing.assert_allclose(found.score, lucene.score, rtol=2e-7)
    np.testing.assert_array_equal(found.row, lucene.row)
    np.testing.assert_array_equal(found.rank, lucene.rank)


def check(root: Path, texts: Sequence[Text], asked: Sequence[Asked], points: Sequence[tuple[float, float]]) -> None:
    """Compare every pool of one store with a Lucene index of its own."""
    store = analysed(root, publish(root, texts), *asked)
    for number, each in enumerate(asked):
        lucene = by_lucene(root / f"lucene{number}", texts, each, *points)
        for (k1, b), expected in zip(points, lucene, strict=True):
            assert_lucenes(by_postings(store, each, k1=k1, b=b), expected)


@pytest.mark.parametrize("seed", range(3))
def test_lucenes_ranking_of_random_texts(tmp_path: Path, seed: int) -> None:
    """Three pools that overlap, one of them small: their frequencies and lengths are their own."""
    texts = random_texts(2_500, seed)
    rng = np.random.default_rng(seed)
    everyone = np.arange(len(texts))
    queries = rng.choice(everyone, 60, replace=False)
    lists = [[int(q), *rng.choice(everyone, n % 5, replace=False).tolist()] for n, q in enumerate(np.sort(queries))]
    pools = [
        Asked.of(rng.choice(everyone, 30, replace=False), rng.choice(everyone, 700, replace=False)),
        Asked.of(queries, everyone, exclusions([sorted(set(each)) for each in lists])),
        Asked.of(queries, everyone[everyone % 3 == 0]),
    ]
    check(tmp_path, texts, pools, POINTS)


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["beir-scifact", "s2orc-real"])
def test_lucenes_ranking_of_real_papers(tmp_path: Path, name: str) -> None:
    texts = real_texts(name)[:9_000]
    rows = np.random.default_rng(8).permutation(len(texts))
    asked = [Asked.of(rows[:80], rows[40:5_000]), Asked.of(rows[60:120], rows[3_000:3_900])]
    check(tmp_path, texts, asked, POINTS[:3])


_WORDS = st.sampled_from(["kiwi", "plum", "fig", "melon", "lime", "pear"])


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    documents=st.lists(st.lists(_WORDS, max_size=80), min_size=1, max_size=12),
    k1=st.floats(0, 4),
    b=st.floats(0, 1),
)
def test_the_formula_in_plain_python(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[str]], k1: float, b: float
) -> None:
    texts = [" ".join(words) for words in documents]
    root = tmp_path_factory.mktemp("formula")
    everyone = Asked.of(range(len(texts)), range(len(texts)))
    store = analysed(root, publish(root, [Text("", text) for text in texts]), everyone)
    ranking = by_postings(store, everyone, k1=k1, b=b)
    for number, query in enumerate(texts):
        mine = ranking.query == number
        found = dict(zip(ranking.row[mine].tolist(), ranking.score[mine].tolist(), strict=True))
        assert found == pytest.approx(bm25_scores(texts, query, k1, b), rel=1e-5, abs=1e-6)
        order = list(zip(ranking.score[mine].tolist(), ranking.row[mine].tolist(), strict=True))
        assert order == sorted(order, reverse=True)


def test_ties_go_by_row_at_every_cut(tmp_path: Path) -> None:
    """More equal documents than are asked for, spread over blocks, as a floor rises."""
    texts = [Text("", "apple pear" if n % 3 else "apple") for n in range(1_500)]
    asked = Asked.of([0, 1], range(2, 1_500))
    store = analysed(tmp_path, publish(tmp_path, texts), asked)
    for depth in (1, 5, 499, 1_000, 1_400):
        (lucene,) = by_lucene(tmp_path / "index", texts, asked, (0.9, 0.4), depth=depth)
        assert same(by_postings(store, asked, depth=depth), lucene)


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    return random_texts(3_000, 11)


@pytest.fixture(scope="module")
def asked(texts: list[Text]) -> Asked:
    queries = range(0, len(texts), 41)
    return Asked.of(queries, range(len(texts) - 20), exclusions([[q, q + 1] for q in queries]))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, texts: list[Text], asked: Asked) -> TermStore:
    root = tmp_path_factory.mktemp("store")
    return analysed(root, publish(root, texts), asked)


@pytest.mark.parametrize("block", [1, 33, 1_000])
@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_and_threads_change_no_byte(
    monkeypatch: pytest.MonkeyPatch, store: TermStore, asked: Asked, block: int, threads: int
) -> None:
    whole = by_postings(store, asked, depth=50, threads=1)
    monkeypatch.setattr(postings_pool, "BLOCK_DOCUMENTS", block)
    for memory in (0, 1 << 30):
        assert same(by_postings(store, asked, depth=50, threads=threads, memory=memory), whole)


@pytest.mark.parametrize("block", [127, 128, 129])
@pytest.mark.parametrize("dense", [1, 10**6])
def test_tiles_lines_and_lists_without_room_change_no_byte(
    monkeypatch: pytest.MonkeyPatch, store: TermStore, asked: Asked, block: int, dense: int
) -> None:
    """Blocks of about a tile, lines for no term or for all, lists that are full at once, queries judged by sevens."""
    whole = by_postings(store, asked, depth=50, threads=1)
    monkeypatch.setattr(postings_pool, "BLOCK_DOCUMENTS", block)
    for name, value in (("_DENSE", dense), ("_ROOM", 0), ("_JUDGED_TOGETHER", 7)):
        monkeypatch.setattr(postings_search, name, value)
    assert same(by_postings(store, asked, depth=50), whole)


@pytest.mark.parametrize("together", [16, 31, 70])
def test_queries_in_several_passes_change_no_byte(store: TermStore, asked: Asked, together: int) -> None:
    queries = Queries.read(store, asked.queries)
    collection = Collection.read(store, asked.candidates, queries.vocabulary)
    memory, seen = together * postings_search._list_bytes(50), []
    found = search(
        collection, queries, asked.excluded, k1=0.9, b=0.4, depth=50, threads=2, memory=memory, done=seen.append
    )
    assert len(asked.queries) > together
    assert same(found, by_postings(store, asked, depth=50))
    assert sum(seen) == len(asked.candidates)
    assert min(seen) >= 0


def test_lists_of_all_queries_are_not_held_at_once_where_they_take_too_much(store: TermStore) -> None:
    everyone = Asked.of(range(2_980), range(2_980))
    queries = Queries.read(store, everyone.queries)
    collection = Collection.read(store, everyone.candidates, queries.vocabulary)
    peaks = []
    for memory in (1 << 20, 1 << 30):
        tracemalloc.start()
        search(collection, queries, everyone.excluded, k1=0.9, b=0.4, depth=200, threads=1, memory=memory)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    ranking = 2_980 * 200 * (8 + 16)  # it is returned, and beside it the keys it is made of
    assert peaks[0] < ranking + (20 << 20), peaks
    assert peaks[1] > peaks[0] + 2_980 * 200 * 24, peaks


def test_pairs_of_all_queries_are_never_held_at_once(monkeypatch: pytest.MonkeyPatch, store: TermStore) -> None:
    everyone = Asked.of(range(2_980), range(2_980))
    queries = Queries.read(store, everyone.queries)
    collection = Collection.read(store, everyone.candidates, queries.vocabulary)
    found, peaks = [], []
    for together in (50, 10**6):
        monkeypatch.setattr(postings_search, "_JUDGED_TOGETHER", together)
        tracemalloc.start()
        found.append(search(collection, queries, everyone.excluded, k1=0.9, b=0.4, depth=200, threads=1))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert same(*found)
    assert peaks[0] < 0.85 * peaks[1], peaks


def test_a_cut_is_a_prefix(store: TermStore, asked: Asked) -> None:
    whole = by_postings(store, asked, depth=3_000)
    for depth in (1, 7, 200):
        kept = whole.rank <= depth
        cut = Ranking(whole.query[kept], whole.row[kept], whole.score[kept], whole.rank[kept])
        assert same(by_postings(store, asked, depth=depth), cut)


def test_what_is_excluded_is_not_found_and_changes_no_score(store: TermStore, asked: Asked) -> None:
    free = by_postings(store, asked._replace(excluded=no_exclusions(len(asked.queries))), depth=3_000)
    held = by_postings(store, asked, depth=3_000)
    offsets, rows = asked.excluded
    removed = {(q, int(row)) for q in range(len(asked.queries)) for row in rows[offsets[q] : offsets[q + 1]]}
    pairs = zip(free.query.tolist(), free.row.tolist(), strict=True)
    kept = np.array([pair not in removed for pair in pairs])
    assert np.count_nonzero(~kept) > 0
    assert [free.query[kept].tolist(), free.row[kept].tolist()] == [held.query.tolist(), held.row.tolist()]
    assert free.score[kept].tobytes() == held.score.tobytes()


def test_queries_and_documents_without_terms(tmp_path: Path) -> None:
    texts = [Text("", ""), Text("the of", "and"), Text("kiwi", ""), Text("", "kiwi fig"), Text("…", "!?")]
    asked = Asked.of(range(5), range(5))
    store = analysed(tmp_path, publish(tmp_path, texts), asked)
    found = by_postings(store, asked)
    (lucene,) = by_lucene(tmp_path / "index", texts, asked, (0.9, 0.4))
    assert same(found, lucene)
    assert sorted(set(found.query.tolist())) == [2, 3]
    assert set(found.row.tolist()) == {2, 3}


def test_pools_of_blanks_and_of_nothing(tmp_path: Path) -> None:
    texts = [Text("kiwi", "fig"), Text("", ""), Text("the", "")]
    asked = [Asked.of([0], [1, 2]), Asked.of([0, 2], []), Asked.of([], [0, 1]), Asked.of([1], [0])]
    store = analysed(tmp_path, publish(tmp_path, texts), *asked)
    assert [len(by_postings(store, each)) for each in asked] == [0, 0, 0, 0]


def test_weights_that_are_no_power_of_two_and_frequencies_beyond_a_byte(tmp_path: Path) -> None:
    texts = [Text("", " ".join(["kiwi"] * n + ["fig"] * (n % 7))) for n in (1, 2, 3, 5, 6, 7, 63, 64, 65, 300, 70_000)]
    asked = Asked.of(range(len(texts)), range(len(texts)))
    check(tmp_path, texts, [asked], POINTS)


def test_whole_papers_of_thousands_of_terms(tmp_path: Path) -> None:
    texts = [Text("", " ".join(f"word{n}" for n in range(5_000))), Text("word7", "word8"), Text("other", "")]
    check(tmp_path, texts, [Asked.of([0, 1], [0, 1, 2])], POINTS[:2])


def test_terms_are_analysed_once_for_all_pools(tmp_path: Path) -> None:
    texts = random_texts(200, 5)
    corpus = publish(tmp_path, texts)
    analysed(tmp_path, corpus, Asked.of([1], range(100)), Asked.of([1, 150], range(50, 120)))
    segments = TermStore.open(analysed(tmp_path, corpus, Asked.of([1], range(200)))._folder)._segments
    held = np.concatenate([segment.rows for segment in segments])
    assert len(segments) == 3
    assert sorted(held.tolist()) == list(range(200))


def test_papers_without_terms_are_named(tmp_path: Path) -> None:
    corpus = publish(tmp_path, random_texts(30, 6))
    store = analysed(tmp_path, corpus, Asked.of([1], range(10)))
    assert store.missing(np.arange(8, 13)).tolist() == [10, 11, 12]
    with pytest.raises(StageError, match=r"3 of 5 papers have no terms.*the first: row 10"):
        list(store.pieces(np.arange(8, 13)))


def test_small_blocks_of_the_store_hold_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: list[Text], store: TermStore, asked: Asked
) -> None:
    from pipeline.stages import terms

    expected = by_postings(store, asked)
    for module in (postings_store, terms):
        monkeypatch.setattr(module, "BLOCK_PAPERS", 700)
    other = analysed(tmp_path, publish(tmp_path, texts, shard_rows=900), asked)
    assert same(by_postings(other, asked), expected)


@pytest.mark.parametrize("settings", [{"k1": -0.1}, {"b": 1.1}, {"k1": float("nan")}, {"depth": 0}])
def test_parameters_out_of_range(store: TermStore, asked: Asked, settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match="BM25 has no|depth 0"):
        by_postings(store, asked, **settings)  # type: ignore[arg-type]


def test_as_many_queries_as_exclusions(store: TermStore, asked: Asked) -> None:
    queries = Queries.read(store, asked.queries)
    collection = Collection.read(store, asked.candidates, queries.vocabulary)
    with pytest.raises(InputError, match=f"exclusions are of 2 queries, there are {len(queries)}"):
        search(collection, queries, no_exclusions(2), k1=0.9, b=0.4, depth=5, threads=1)


def test_progress_counts_every_document(store: TermStore, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings_pool, "BLOCK_DOCUMENTS", 100)
    queries = Queries.read(store, asked.queries)
    collection = Collection.read(store, asked.candidates, queries.vocabulary)
    seen: list[int] = []
    search(collection, queries, asked.excluded, k1=0.9, b=0.4, depth=5, threads=2, done=seen.append)
    assert sum(seen) == len(asked.candidates)
    assert len(seen) > 1
