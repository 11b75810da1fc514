"""What the exact engine guesses from some candidates saves work, and never changes what it returns."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from pipeline.core.resources import Resources
from pipeline.retrieve import exact
from pipeline.retrieve.base import Block, Metric, Ranking, Subset
from pipeline.retrieve.dense import sieves
from pipeline.retrieve.dense.stretch import Chunk
from pipeline.retrieve.engines import dense_engine
from pipeline.retrieve.exact import ExactEngine
from pipeline.retrieve.reference import brute_force
from tests.retrieve.cases import METRICS, Case, make_case, same

DEPTH, COUNT = 50, 9_000
KINDS = [(False, False), (True, False), (False, True)]
LEAST = exact.SCOUTS * DEPTH // 2
"""Candidates of a block that is worth a guess."""


def places(size: int = COUNT) -> np.ndarray:
    """Return where the scouts of blocks of a size are."""
    blocks = [range(start, min(start + size, COUNT)) for start in range(0, COUNT, size)]
    return np.array([place for block in blocks if len(block) >= LEAST for place in block[:: exact.SCOUTS]])


def arranged(case: Case, order: str, size: int = COUNT) -> Case:
    """Return the case with candidates in another order of their distance from the first query.

    "scouts best": it misleads as much as one can, for the scouts of all blocks are the best of all.
    """
    away = np.argsort(np.linalg.norm(case.vectors.astype(float) - case.queries[0], axis=1))
    if order == "as drawn":
        return case
    if order == "scouts best":
        mine = places(size)
        away = away[np.argsort(np.concatenate([mine, np.setdiff1d(np.arange(COUNT), mine)]))]
    return replace(case, vectors=case.vectors[away if order != "best last" else away[::-1]])


def expected(case: Case, metric: Metric = "l2") -> Ranking:
    return brute_force(case.queries, case.rows, case.vectors, metric, DEPTH, case.excluded)


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return the queries that were doubtful each time that reservoirs were scored together."""
    found: list[list[int]] = []
    score = exact._Together._score

    def noted(self: exact._Together) -> np.ndarray:
        doubtful = score(self)
        found.append(doubtful.tolist())
        return doubtful

    monkeypatch.setattr(exact._Together, "_score", noted)
    return found


@pytest.mark.parametrize("order", ["as drawn", "best first", "best last", "scouts best"])
@pytest.mark.parametrize("kind", KINDS)
def test_guesses_change_no_byte(kind: tuple[bool, bool], order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = make_case("clusters", candidates=COUNT, dimension=33)
    engine = ExactEngine(low=kind[0], whole=kind[1])
    for near in (exact.NEAR, np.inf):
        monkeypatch.setattr(exact, "NEAR", near)
        for workers, size, memory in ((1, COUNT, 64 << 20), (3, 2_000, 64 << 20), (2, 2_000, 2 << 20)):
            case = arranged(drawn, order, size)
            assert same(case.search(engine, "l2", DEPTH, workers=workers, size=size, memory=memory), expected(case))


@pytest.mark.parametrize("order", ["as drawn", "scouts best"])
@pytest.mark.parametrize("metric", METRICS)
def test_guesses_change_no_byte_of_several_pools(metric: Metric, order: str) -> None:
    case = arranged(make_case("clusters", candidates=COUNT, dimension=33), order)
    drawn = np.sort(np.random.default_rng(3).choice(case.rows, 4_000, replace=False))
    pools = [None, case.rows[:300], case.rows[5_000:], drawn, case.rows[places()]]
    found = ExactEngine(low=False, whole=True).search_pools(
        case.queries,
        case.blocks(COUNT),
        [Subset(some, case.excluded) for some in pools],
        metric=metric,
        depth=DEPTH,
        resources=Resources(memory=64 << 20, workers=2, device="cpu"),
    )
    for ranking, some in zip(found, pools, strict=True):
        here = np.isin(case.rows, case.rows if some is None else some)
        own = brute_force(case.queries, case.rows[here], case.vectors[here], metric, DEPTH, case.excluded)
        assert same(ranking, own)


def test_the_queries_whose_guess_failed_are_searched_again_and_hardly_others(again: list[list[int]]) -> None:
    drawn = make_case("random", candidates=COUNT, dimension=100)
    engine = ExactEngine(low=False, whole=False)
    for order in ("as drawn", "best first", "best last"):
        again.clear()
        case = arranged(drawn, order)
        assert same(case.search(engine, "l2", DEPTH), expected(case))
        assert again == [[]], order
    again.clear()
    case = arranged(drawn, "scouts best")
    assert same(case.search(engine, "l2", DEPTH), expected(case))
    misled, afterwards = again
    assert 0 in misled
    assert len(misled) < len(case.queries) / 4  # one more lies near the first one
    assert afterwards == []


@pytest.mark.parametrize("workers", [1, 2])
def test_scouts_of_all_blocks_mislead_together(again: list[list[int]], workers: int) -> None:
    size = 2_000
    case = arranged(make_case("random", candidates=COUNT, dimension=100), "scouts best", size)
    found = case.search(ExactEngine(low=False, whole=False), "l2", DEPTH, size=size, workers=workers)
    assert same(found, expected(case))
    assert 0 in again[0]
    assert again[1:] == [[]]


@pytest.mark.parametrize("name", ["identical", "duplicates"])
def test_scouts_that_are_alike_fit_their_reservoirs(name: str, again: list[list[int]]) -> None:
    """More scouts than a reservoir of theirs may hold are as good as the last one wanted."""
    case = make_case(name, candidates=60_000)
    assert same(case.search(ExactEngine(low=False, whole=False), "l2", DEPTH, size=20_000), expected(case))
    assert again == [[]]


def test_scouts_go_before_candidates_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all blocks are read, less comes near than where the first one alone is scouted."""
    monkeypatch.setattr(exact, "NEAR", np.inf)
    monkeypatch.setattr(exact, "CHUNK", 40 * 500)
    case, sieve, counts = make_case("random", candidates=60_000, dimension=40), sieves.sieve, []
    sift, surveys = exact._Together._sift, exact._Together._surveys

    def counted(*given: object) -> int:
        reached: int = sieve(*given)  # type: ignore[arg-type]
        counts[-1] += reached
        return reached

    def waiting(self: exact._Together, chunk: Chunk) -> None:
        assert read.wait(60)
        sift(self, chunk)

    def first_alone(self: exact._Together, rows: np.ndarray, vectors: np.ndarray) -> list[Callable[[], None]]:
        return surveys(self, rows, vectors) if rows[0] == case.rows[0] else []

    monkeypatch.setattr(sieves, "sieve", counted)
    monkeypatch.setattr(exact._Together, "_sift", waiting)
    for scouting in (surveys, first_alone):
        monkeypatch.setattr(exact._Together, "_surveys", scouting)
        read = threading.Event()
        counts.append(0)

        def blocks(read: threading.Event = read) -> Iterator[Block]:
            yield from case.blocks(10_000)
            read.set()

        found = ExactEngine(low=False, whole=True).search(
            case.queries,
            blocks(),
            metric="l2",
            depth=DEPTH,
            excluded=case.excluded,
            resources=Resources(memory=1 << 30, workers=2, device="cpu"),
        )
        assert same(found, expected(case))
    assert 0 < counts[0] < 0.92 * counts[1]  # 0.65, and 0.82 where a thread was held up


def test_a_guess_that_failed_is_made_good_before_vectors_are_gone(again: list[list[int]]) -> None:
    """Later blocks go on from lists that are right, and guess no more."""
    case = arranged(make_case("random", candidates=COUNT, dimension=100, queries=5), "as drawn")
    first = 3_000
    places = np.arange(0, first, exact.SCOUTS)
    away = np.argsort(np.linalg.norm(case.vectors[:first].astype(float) - case.queries[1], axis=1))
    order = np.empty(first, np.int64)
    order[places] = away[: len(places)]
    order[np.setdiff1d(np.arange(first), places)] = away[len(places) :]
    case = replace(case, vectors=np.concatenate([case.vectors[order], case.vectors[first:]]))
    found = case.search(ExactEngine(low=False, whole=False), "l2", DEPTH, size=first, memory=6 << 20, workers=2)
    assert again[:2] == [[1], []]
    assert len(again) > 2
    assert not any(again[2:])
    assert same(found, expected(case))


def test_guesses_save_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is multiplied again is counted where everything that comes near is."""
    monkeypatch.setattr(exact, "NEAR", np.inf)
    monkeypatch.setattr(exact, "CHUNK", 40 * 2_000)
    sieve, counts = sieves.sieve, []

    def counted(*given: object) -> int:
        reached: int = sieve(*given)  # type: ignore[arg-type]
        counts[-1] += reached
        return reached

    monkeypatch.setattr(sieves, "sieve", counted)
    case = make_case("random", candidates=60_000, dimension=40)
    engine = ExactEngine(low=False, whole=True)
    for scouts in (exact.SCOUTS, 10**9):
        monkeypatch.setattr(exact, "SCOUTS", scouts)
        counts.append(0)
        case.search(engine, "l2", DEPTH)
    assert 0 < counts[0] < 0.8 * counts[1]


def test_few_candidates_are_not_worth_a_guess(again: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_given: object) -> None:
        raise AssertionError("a guess")

    monkeypatch.setattr("pipeline.retrieve.dense.reservoirs.Reservoir.believe", refused)
    case = make_case("random", candidates=LEAST - 1)
    assert same(case.search(ExactEngine(low=False, whole=False), "l2", DEPTH), expected(case))
    assert again == [[]]
    with pytest.raises(AssertionError, match="a guess"):
        make_case("random", candidates=LEAST).search(ExactEngine(low=False, whole=False), "l2", DEPTH)


def test_a_second_search_takes_no_more_memory_than_the_first(
    again: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool of the scouts alone misleads about every query."""
    case = make_case("random", candidates=COUNT, queries=100)
    subsets = [Subset(None, case.excluded), Subset(case.rows[places()], case.excluded)]
    resources = Resources(memory=64 << 20, workers=2, device="cpu")
    engine, peaks = ExactEngine(low=False, whole=False), []
    for scouts in (exact.SCOUTS, exact.SCOUTS, 10**9):
        monkeypatch.setattr(exact, "SCOUTS", scouts)
        again.clear()
        tracemalloc.start()
        engine.search_pools(case.queries, case.blocks(COUNT), subsets, metric="l2", depth=DEPTH, resources=resources)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert again[0] == (list(range(100)) if scouts < 100 else [])
    reservoirs = 100 * 12 * (3 * 2 * DEPTH + 2_048)
    assert peaks[1] < peaks[2] + reservoirs / 2


@pytest.mark.parametrize("memory", [4 << 10, 2 << 20, 64 << 20])
@pytest.mark.parametrize("name", ["exact", "faiss", "torch"])
def test_each_candidate_is_done_once(name: str, memory: int) -> None:
    """Where vectors wait, where each block is scored at once, and where queries are searched again."""
    case, told = arranged(make_case("random", candidates=COUNT, dimension=100), "scouts best"), []
    dense_engine(name, Resources(device="cpu")).search_pools(
        case.queries,
        case.blocks(4_000),
        [Subset(None, case.excluded)],
        metric="l2",
        depth=DEPTH,
        resources=Resources(memory=memory, workers=2, device="cpu"),
        done=told.append,
    )
    assert sum(told) == COUNT
    assert min(told) >= 0
