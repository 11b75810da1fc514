"""BM25 by the forward index: Lucene's scores and ranking for every pool, and the grid's ranks are those of searches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.core.errors import StageError
from pipeline.corpus.reader import Text
from pipeline.retrieve.base import Exclusions, Ranking
from pipeline.retrieve.bm25 import collection, grid
from pipeline.retrieve.bm25.forward_index import ForwardIndex
from pipeline.stages.tune import GRID_B, GRID_K1
from tests.retrieve.bm25 import (
    POINTS,
    Asked,
    analysed,
    by_index,
    by_lucene,
    grid_ranks,
    publish,
    random_texts,
)
from tests.retrieve.cases import exclusions, same

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("bm25")]

GRID = list(itertools.product(GRID_K1, GRID_B))
ODD = [(0.0, 0.0), (0.0, 1.0), (1e-3, 0.5), (2.0, 0.0), (50.0, 1.0), (0.9, 0.4), (0.9, 0.4)]


def assert_lucenes(ranking: Ranking, lucene: Ranking) -> None:
    """The same rows in the same order, under scores that differ in the last bit at most."""
    np.testing.assert_allclose(ranking.score, lucene.score, rtol=2e-7)
    for column in ("query", "row", "rank"):
        np.testing.assert_array_equal(getattr(ranking, column), getattr(lucene, column))


def check(root: Path, texts: Sequence[Text], asked: Sequence[Asked], points: Sequence[tuple[float, float]]) -> None:
    """Compare every pool of one forward index with a Lucene index of its own."""
    index = analysed(root, publish(root, texts), *asked)
    for number, of_pool in enumerate(asked):
        lucene = by_lucene(root / f"lucene{number}", texts, of_pool, *points)
        for (k1, b), expected in zip(points, lucene, strict=True):
            assert_lucenes(by_index(index, of_pool, k1=k1, b=b), expected)


def test_lucenes_ranking_of_random_texts(tmp_path: Path) -> None:
    """Three pools that overlap, one of them small: their frequencies and lengths are their own."""
    texts, rng = random_texts(1_500, 0), np.random.default_rng(0)
    everyone = np.arange(len(texts))
    queries = rng.choice(everyone, 60, replace=False)
    lists = [[int(q), *rng.choice(everyone, n % 5, replace=False).tolist()] for n, q in enumerate(np.sort(queries))]
    pools = [
        Asked.of(rng.choice(everyone, 30, replace=False), rng.choice(everyone, 700, replace=False)),
        Asked.of(queries, everyone, exclusions([sorted(set(rows)) for rows in lists])),
        Asked.of(queries, everyone[everyone % 3 == 0]),
    ]
    check(tmp_path, texts, pools, POINTS)


def test_ties_go_by_row_at_every_cut(tmp_path: Path) -> None:
    """More equal documents than are asked for, spread over blocks, while the threshold rises."""
    texts = [Text("", "apple pear" if n % 3 else "apple") for n in range(1_500)]
    asked = Asked.of([0, 1], range(2, 1_500))
    index = analysed(tmp_path, publish(tmp_path, texts), asked)
    for depth in (1, 5, 499, 1_000, 1_400):
        (lucene,) = by_lucene(tmp_path / "index", texts, asked, (0.9, 0.4), depth=depth)
        assert same(by_index(index, asked, depth=depth), lucene)


def test_queries_and_documents_without_terms(tmp_path: Path) -> None:
    texts = [Text("", ""), Text("the of", "and"), Text("kiwi", ""), Text("", "kiwi fig"), Text("…", "!?")]
    asked = Asked.of(range(5), range(5))
    index = analysed(tmp_path, publish(tmp_path, texts), asked, Asked.of([0], [1, 4]), Asked.of([], [0, 1]))
    ranking = by_index(index, asked)
    (lucene,) = by_lucene(tmp_path / "index", texts, asked, (0.9, 0.4))
    assert same(ranking, lucene)
    assert sorted(set(ranking.query.tolist())) == [2, 3]
    others = [Asked.of([2], [0, 1]), Asked.of([0, 2], []), Asked.of([], [0, 1]), Asked.of([1], [0])]
    assert [len(by_index(index, other)) for other in others] == [0, 0, 0, 0]


def test_frequencies_beyond_a_byte_and_beyond_two(tmp_path: Path) -> None:
    """Weights that are no power of two as well: each text is a query."""
    texts = [Text("", " ".join(["kiwi"] * n + ["fig"] * (n % 7))) for n in (1, 2, 3, 5, 6, 7, 63, 64, 65, 300, 70_000)]
    for number, count in enumerate((9, 10, 11)):
        asked = Asked.of(range(count), range(count))
        check(tmp_path / str(number), texts[:count], [asked], POINTS)


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    return random_texts(2_500, 11)


@pytest.fixture(scope="module")
def asked(texts: list[Text]) -> Asked:
    queries = range(0, len(texts), 41)
    return Asked.of(queries, range(len(texts) - 20), exclusions([[q, q + 1] for q in queries]))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, texts: list[Text], asked: Asked) -> ForwardIndex:
    root = tmp_path_factory.mktemp("index")
    return analysed(root, publish(root, texts), asked)


@pytest.mark.parametrize(("block", "threads"), [(1, 2), (33, 3), (64, 1), (1_000, 3)])
def test_blocks_and_threads_change_no_byte(
    monkeypatch: pytest.MonkeyPatch, index: ForwardIndex, asked: Asked, block: int, threads: int
) -> None:
    whole = by_index(index, asked, depth=50, threads=1)
    monkeypatch.setattr(collection, "BLOCK_DOCUMENTS", block)
    assert same(by_index(index, asked, depth=50, threads=threads), whole)


def test_papers_without_terms_are_named(tmp_path: Path) -> None:
    index = analysed(tmp_path, publish(tmp_path, random_texts(30, 6)), Asked.of([1], range(10)))
    rows = np.arange(8, 13, dtype=np.uint32)
    assert index.missing(rows).tolist() == [10, 11, 12]
    with pytest.raises(StageError, match=r"3 of 5 papers have no terms.*the first: row 10"):
        list(index.parts(rows))


def searched_ranks(ranking: Ranking, relevant: Exclusions) -> npt.NDArray[np.int64]:
    """Return what the grid should: ranks of each query's relevant rows, those not found first, then the lowest."""
    offsets, rows = relevant
    rank_of = {
        (q, r): k for q, r, k in zip(ranking.query.tolist(), ranking.row.tolist(), ranking.rank.tolist(), strict=True)
    }
    expected = []
    for query, (first, last) in enumerate(itertools.pairwise(offsets)):
        ranks = [rank_of.get((query, row), 0) for row in rows[first:last].tolist()]
        expected += sorted(ranks, key=lambda rank: (rank > 0, -rank))
    return np.array(expected, np.int64)


def random_relevant(asked: Asked, rows: int, seed: int, most: int = 40) -> Exclusions:
    """Some candidates, some rows that are none; for one query in six nothing."""
    rng = np.random.default_rng(seed)
    counts = [0 if n % 6 == 5 else int(rng.integers(1, most)) for n in range(len(asked.queries))]
    return exclusions([np.unique(rng.integers(0, rows + 5, count)).tolist() for count in counts])


def with_near_ones(relevant: Exclusions, ranking: Ranking, depth: int) -> Exclusions:
    """Add rows from the top and around the depth, where a rank more or less shows."""
    offsets, rows = relevant
    lists = []
    for query, (first, last) in enumerate(itertools.pairwise(offsets)):
        near = ranking.row[(ranking.query == query) & np.isin(ranking.rank, [1, 2, 9, depth - 1, depth, depth + 1])]
        lists.append(sorted({*rows[first:last].tolist(), *(near.tolist() if last > first else ())}))
    return exclusions(lists)


def check_grid(
    index: ForwardIndex, asked: Asked, relevant: Exclusions, points: Sequence[tuple[float, float]], depth: int
) -> None:
    ranks = grid_ranks(index, asked, relevant, points, depth=depth)
    assert ranks.shape == (len(relevant[1]), len(points))
    for number, (k1, b) in enumerate(points):
        ranking = by_index(index, asked, k1=k1, b=b, depth=depth)
        np.testing.assert_array_equal(ranks[:, number], searched_ranks(ranking, relevant), str((k1, b)))


@pytest.mark.parametrize(("seed", "depth"), [(1, 500), (2, 3)])
def test_the_grid_gives_the_ranks_of_separate_searches(
    index: ForwardIndex, asked: Asked, seed: int, depth: int
) -> None:
    near = by_index(index, asked, depth=depth + 1)
    relevant = with_near_ones(random_relevant(asked, 2_500, seed), near, depth)
    check_grid(index, asked, relevant, [*GRID[seed::6], *ODD], depth)


def test_the_grid_ranks_documents_that_tie_by_the_hundred(tmp_path: Path) -> None:
    """Copies of a few texts: ranks go by row, at every point."""
    rng = np.random.default_rng(4)
    kinds = [Text("", " ".join(f"w{n}x" for n in rng.integers(0, 12, length))) for length in (2, 3, 5, 8, 30, 31, 90)]
    texts = [kinds[n] for n in rng.integers(0, len(kinds), 1_200)]
    asked = Asked.of(range(9), range(1_200), exclusions([[q] for q in range(9)]))
    index = analysed(tmp_path, publish(tmp_path, texts), asked)
    relevant = random_relevant(asked, 1_200, 4, most=150)
    for depth in (10, 300):
        check_grid(index, asked, relevant, GRID[::9], depth)


def test_blocks_threads_and_other_points_change_no_rank(
    monkeypatch: pytest.MonkeyPatch, index: ForwardIndex, asked: Asked
) -> None:
    relevant = random_relevant(asked, 2_500, 9)
    whole = grid_ranks(index, asked, relevant, GRID, depth=100, threads=1)
    order = np.random.default_rng(1).permutation(len(GRID))
    for block, threads in ((2_500, 1), (33, 3)):
        monkeypatch.setattr(grid, "BLOCK_DOCUMENTS", block)
        again = grid_ranks(index, asked, relevant, [GRID[n] for n in order], depth=100, threads=threads)
        np.testing.assert_array_equal(again, whole[:, order])
    for number in (0, 89):
        alone = grid_ranks(index, asked, relevant, [GRID[number]], depth=100)
        np.testing.assert_array_equal(alone[:, 0], whole[:, number])


def test_the_grid_without_relevant_papers_queries_or_documents(index: ForwardIndex, asked: Asked) -> None:
    nothing = exclusions([[]] * len(asked.queries))
    assert grid_ranks(index, asked, nothing, GRID).shape == (0, 90)
    nobody = Asked.of([], asked.candidates)
    assert grid_ranks(index, nobody, exclusions([]), GRID).shape == (0, 90)
    empty = Asked.of([41], [])
    assert grid_ranks(index, empty, exclusions([[7, 8]]), GRID[:2]).tolist() == [[0, 0], [0, 0]]
    assert not grid_ranks(index, asked, asked.excluded, GRID[:3]).any()  # relevant and excluded
