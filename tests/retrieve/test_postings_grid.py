"""BM25 at many points at once: the ranks, and the average precision, of as many separate searches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import pytrec_eval

from pipeline.core.errors import InputError
from pipeline.corpus.reader import Text
from pipeline.measure import ranx_engine
from pipeline.measure.inputs import Qrels
from pipeline.measure.inputs import Run as Ranked
from pipeline.measure.measures import parse_measures
from pipeline.measure.ranks import average_precision
from pipeline.retrieve.base import Exclusions, Ranking
from pipeline.retrieve.postings import grid as postings_grid
from pipeline.retrieve.postings import pool as postings_pool
from pipeline.retrieve.postings.pool import Collection, Queries
from pipeline.retrieve.postings.store import TermStore
from pipeline.stages.tune import GRID_B, GRID_K1
from tests.retrieve.cases import exclusions
from tests.retrieve.postings import Asked, analysed, by_lucene, by_postings, publish, random_texts, real_texts

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("postings grid")]

GRID = list(itertools.product(GRID_K1, GRID_B))
ODD = [(0.0, 0.0), (0.0, 1.0), (1e-3, 0.5), (2.0, 0.0), (50.0, 1.0), (0.9, 0.4), (0.9, 0.4)]


def grid_ranks(
    store: TermStore,
    asked: Asked,
    relevant: Exclusions,
    points: Sequence[tuple[float, float]],
    *,
    depth: int = 500,
    threads: int = 2,
    memory: int = 1 << 20,
) -> npt.NDArray[np.int64]:
    queries = Queries.read(store, asked.queries, threads)
    collection = Collection.read(store, asked.candidates, queries.vocabulary, threads, memory)
    return postings_grid.ranks(
        collection, queries, relevant, asked.excluded, points=points, depth=depth, threads=threads
    )


def searched_ranks(ranking: Ranking, relevant: Exclusions) -> npt.NDArray[np.int64]:
    """Return what the grid should: ranks of each query's relevant rows, from none and the lowest to the highest."""
    offsets, rows = relevant
    rank_of = {
        (q, r): k for q, r, k in zip(ranking.query.tolist(), ranking.row.tolist(), ranking.rank.tolist(), strict=True)
    }
    found = []
    for query, (first, last) in enumerate(itertools.pairwise(offsets)):
        ranks = [rank_of.get((query, row), 0) for row in rows[first:last].tolist()]
        found += sorted(ranks, key=lambda rank: (rank > 0, -rank))
    return np.array(found, np.int64)


def random_relevant(asked: Asked, rows: int, seed: int, most: int = 40) -> Exclusions:
    """Some of the best, some at random, some that are no candidates; for one query in six none."""
    rng = np.random.default_rng(seed)
    lists = []
    for number in range(len(asked.queries)):
        count = 0 if number % 6 == 5 else int(rng.integers(1, most))
        lists.append(np.unique(rng.integers(0, rows + 5, count)).tolist())
    return exclusions(lists)


def with_near_ones(relevant: Exclusions, ranking: Ranking, depth: int) -> Exclusions:
    """Add rows from the top and around the depth, where a rank more or less shows."""
    offsets, rows = relevant
    lists = []
    for query, (first, last) in enumerate(itertools.pairwise(offsets)):
        near = ranking.row[(ranking.query == query) & np.isin(ranking.rank, [1, 2, 9, depth - 1, depth, depth + 1])]
        lists.append(sorted({*rows[first:last].tolist(), *(near.tolist() if last > first else ())}))
    return exclusions(lists)


def check(
    store: TermStore, asked: Asked, relevant: Exclusions, points: Sequence[tuple[float, float]], depth: int
) -> None:
    found = grid_ranks(store, asked, relevant, points, depth=depth)
    assert found.shape == (len(relevant[1]), len(points))
    for number, (k1, b) in enumerate(points):
        ranking = by_postings(store, asked, k1=k1, b=b, depth=depth)
        np.testing.assert_array_equal(found[:, number], searched_ranks(ranking, relevant), str((k1, b)))


@pytest.mark.parametrize(("seed", "depth"), [(0, 500), (1, 20), (2, 3), (3, 2_999)])
def test_ranks_of_separate_searches(tmp_path: Path, seed: int, depth: int) -> None:
    texts = random_texts(3_000, seed)
    rng = np.random.default_rng(seed)
    queries = np.sort(rng.choice(3_000, 50, replace=False))
    lists = [sorted({int(q), *rng.integers(0, 3_000, n % 4).tolist()}) for n, q in enumerate(queries)]
    asked = Asked.of(queries, np.arange(100, 3_000), exclusions(lists))
    store = analysed(tmp_path, publish(tmp_path, texts), asked)
    relevant = with_near_ones(random_relevant(asked, 3_000, seed), by_postings(store, asked, depth=depth + 1), depth)
    check(store, asked, relevant, [*GRID[::4], *ODD] if seed else [*GRID, *ODD], depth)


def test_documents_that_tie_by_the_hundred(tmp_path: Path) -> None:
    """Copies of a few texts: ranks go by row, at every point."""
    rng = np.random.default_rng(4)
    kinds = [Text("", " ".join(f"w{n}x" for n in rng.integers(0, 12, length))) for length in (2, 3, 5, 8, 30, 31, 90)]
    texts = [kinds[n] for n in rng.integers(0, len(kinds), 1_200)]
    asked = Asked.of(range(9), range(1_200), exclusions([[q] for q in range(9)]))
    store = analysed(tmp_path, publish(tmp_path, texts), asked)
    relevant = random_relevant(asked, 1_200, 4, most=150)
    for depth in (10, 300):
        check(store, asked, relevant, GRID[::5], depth)


@pytest.fixture(scope="module")
def asked() -> Asked:
    return Asked.of(range(0, 2_000, 43), range(2_000), exclusions([[q] for q in range(0, 2_000, 43)]))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, asked: Asked) -> TermStore:
    root = tmp_path_factory.mktemp("grid")
    return analysed(root, publish(root, random_texts(2_000, 9)), asked)


@pytest.fixture(scope="module")
def relevant(asked: Asked) -> Exclusions:
    lists = random_relevant(asked, 2_000, 9)
    return lists[0], lists[1]


@pytest.mark.parametrize(("block", "threads"), [(1_000, 1), (33, 3), (1, 2)])
def test_blocks_and_threads_change_nothing(
    monkeypatch: pytest.MonkeyPatch, store: TermStore, asked: Asked, relevant: Exclusions, block: int, threads: int
) -> None:
    whole = grid_ranks(store, asked, relevant, GRID, depth=100, threads=1)
    monkeypatch.setattr(postings_pool, "BLOCK_DOCUMENTS", block)
    for memory in (0, 1 << 30):
        again = grid_ranks(store, asked, relevant, GRID, depth=100, threads=threads, memory=memory)
        np.testing.assert_array_equal(again, whole)


def test_a_point_alone_and_among_others(store: TermStore, asked: Asked, relevant: Exclusions) -> None:
    whole = grid_ranks(store, asked, relevant, GRID)
    for number in (0, 44, 89):
        np.testing.assert_array_equal(grid_ranks(store, asked, relevant, [GRID[number]])[:, 0], whole[:, number])
    order = np.random.default_rng(1).permutation(len(GRID))
    np.testing.assert_array_equal(grid_ranks(store, asked, relevant, [GRID[n] for n in order]), whole[:, order])


def test_no_relevant_papers_no_queries_no_documents(store: TermStore, asked: Asked) -> None:
    nothing = exclusions([[]] * len(asked.queries))
    assert grid_ranks(store, asked, nothing, GRID).shape == (0, 90)
    nobody = Asked.of([], asked.candidates)
    assert grid_ranks(store, nobody, exclusions([]), GRID).shape == (0, 90)
    empty = Asked.of([43], [])
    assert grid_ranks(store, empty, exclusions([[7, 8]]), GRID[:2]).tolist() == [[0, 0], [0, 0]]


def test_relevant_and_excluded_is_never_found(store: TermStore, asked: Asked) -> None:
    offsets, rows = asked.excluded
    found = grid_ranks(store, asked, (offsets, rows), GRID[:3])
    assert not found.any()


@pytest.mark.parametrize("point", [(-0.1, 0.5), (0.9, 1.1), (float("nan"), 0.5)])
def test_points_out_of_range(store: TermStore, asked: Asked, relevant: Exclusions, point: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="BM25 has no k1="):
        grid_ranks(store, asked, relevant, [(0.9, 0.4), point])


def test_as_many_queries_as_relevant_lists(store: TermStore, asked: Asked) -> None:
    with pytest.raises(InputError, match="relevant papers are of 1 queries"):
        grid_ranks(store, asked, exclusions([[1]]), GRID[:1])


def trec_map(ranking: Ranking, relevant: Exclusions) -> dict[int, float]:
    offsets, rows = relevant
    qrels = {
        str(q): {f"{row:08d}": 1 for row in rows[a:b].tolist()}
        for q, (a, b) in enumerate(itertools.pairwise(offsets))
        if b > a
    }
    run: dict[str, dict[str, float]] = {query: {} for query in qrels}
    for query, row, score in zip(ranking.query.tolist(), ranking.row.tolist(), ranking.score.tolist(), strict=True):
        if str(query) in run:
            run[str(query)][f"{row:08d}"] = score
    scored = pytrec_eval.RelevanceEvaluator(qrels, {"map"}).evaluate(run)
    return {int(query): values["map"] for query, values in scored.items()}


@pytest.mark.realdata
def test_average_precision_of_real_papers_is_trec_evals_and_ranxs_of_lucenes_rankings(tmp_path: Path) -> None:
    texts = real_texts("s2orc-real")[:6_000]
    rng = np.random.default_rng(3)
    queries = np.sort(rng.choice(len(texts), 60, replace=False))
    asked = Asked.of(queries, range(len(texts)), exclusions([[int(q)] for q in queries]))
    store = analysed(tmp_path, publish(tmp_path, texts), asked)
    near = by_postings(store, asked, k1=1.5, b=0.9, depth=900)
    lists = [sorted({q, *rng.permutation(near.row[near.query == q])[:25].tolist()}) for q in range(len(queries))]
    lists[7] = []
    relevant = exclusions(lists)
    found = grid_ranks(store, asked, relevant, GRID)
    scored = np.flatnonzero(np.diff(relevant[0]))
    offsets = np.concatenate([[0], np.cumsum(np.diff(relevant[0])[scored])])
    values = average_precision(found, offsets)
    qrels = Qrels(offsets, relevant[1], np.ones(len(relevant[1]), np.uint8))
    points = [0, 13, 34, 57, 89]
    lucene = by_lucene(tmp_path / "index", texts, asked, *(GRID[n] for n in points))
    for number, ranking in zip(points, lucene, strict=True):
        np.testing.assert_array_equal(found[:, number], searched_ranks(ranking, relevant))
        theirs = trec_map(ranking, relevant)
        np.testing.assert_allclose(values[:, number], [theirs[q] for q in scored.tolist()], rtol=0, atol=1e-12)
        kept = np.isin(ranking.query, scored)
        starts = np.searchsorted(np.searchsorted(scored, ranking.query[kept]), np.arange(len(scored) + 1))
        ranx = ranx_engine.evaluate(qrels, Ranked(starts, ranking.row[kept]), parse_measures(["map"]))
        np.testing.assert_allclose(values[:, number], ranx[0], rtol=0, atol=1e-12)
