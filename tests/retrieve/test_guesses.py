"""What the exact engine guesses of the candidates to come saves work, and never changes what it returns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.core.resources import Resources
from pipeline.retrieve import exact, trims
from pipeline.retrieve.base import Ranking, Subset
from pipeline.retrieve.exact import ExactEngine
from pipeline.retrieve.reference import brute_force
from tests.retrieve.cases import METRICS, Case, make_case, same

DEPTH = 50
KINDS = [(False, False), (True, False), (False, True)]


def arranged(case: Case, order: str) -> Case:
    """Return the case with candidates as they are, or in the order of their distance from the first query."""
    away = np.linalg.norm(case.vectors.astype(float) - case.queries[0], axis=1)
    if order == "as drawn":
        return case
    return replace(case, vectors=case.vectors[np.argsort(away if order == "best first" else -away)])


def searched(case: Case, promised: float, kind: tuple[bool, bool], **how: object) -> Ranking:
    """Search with an engine that was promised so many times the candidates there are."""
    operations = promised * 2.0 * case.queries.size * len(case.vectors)
    return case.search(ExactEngine(operations, low=kind[0], whole=kind[1]), "l2", DEPTH, **how)  # type: ignore[arg-type]


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return the queries of each search that were begun again."""
    found: list[list[int]] = []
    score = exact._Together._score

    def noted(self: exact._Together) -> np.ndarray:
        doubtful = score(self)
        found.append(doubtful.tolist())
        return doubtful

    monkeypatch.setattr(exact._Together, "_score", noted)
    return found


@pytest.mark.parametrize("promised", [0, 0.3, 1, 7])
@pytest.mark.parametrize("order", ["as drawn", "best first", "best last"])
@pytest.mark.parametrize("kind", KINDS)
def test_guesses_change_no_byte(kind: tuple[bool, bool], order: str, promised: float) -> None:
    case = arranged(make_case("clusters", candidates=9_000, dimension=33), order)
    expected = brute_force(case.queries, case.rows, case.vectors, "l2", DEPTH, case.excluded)
    for workers, size, memory in ((1, 9_000, 64 << 20), (3, 1_000, 64 << 20), (2, 1_000, 2 << 20)):
        assert same(searched(case, promised, kind, workers=workers, size=size, memory=memory), expected)


@pytest.mark.parametrize("metric", METRICS)
def test_guesses_change_no_byte_of_several_pools(metric: str) -> None:
    case = arranged(make_case("clusters", candidates=9_000, dimension=33), "best first")
    rng = np.random.default_rng(3)
    rows = [None, case.rows[:300], case.rows[5_000:], np.sort(rng.choice(case.rows, 4_000, replace=False))]
    subsets = [Subset(some, case.excluded) for some in rows]
    for share in (0.3, 1, 7):
        found = ExactEngine(share * 2.0 * case.queries.size * 9_000, low=False, whole=True).search_pools(
            case.queries,
            case.blocks(1_000),
            subsets,
            metric=metric,  # type: ignore[arg-type]
            depth=DEPTH,
            resources=Resources(memory=64 << 20, workers=2, device="cpu"),
        )
        for ranking, some in zip(found, rows, strict=True):
            here = np.isin(case.rows, case.rows if some is None else some)
            own = brute_force(case.queries, case.rows[here], case.vectors[here], metric, DEPTH, case.excluded)
            assert same(ranking, own)


def test_the_queries_whose_guess_failed_are_searched_again_and_no_others(again: list[list[int]]) -> None:
    drawn = make_case("random", candidates=9_000, dimension=100)
    searched(drawn, 1, (False, False))
    assert again == [[]]
    again.clear()
    case = arranged(drawn, "best first")
    found = searched(case, 1, (False, False))
    assert again[0] == [0]
    assert again[1:] == [[]]
    assert same(found, brute_force(case.queries, case.rows, case.vectors, "l2", DEPTH, case.excluded))


def test_nothing_is_guessed_where_nothing_is_known(again: list[list[int]]) -> None:
    searched(arranged(make_case("random", candidates=9_000, dimension=100), "best first"), 0, (False, False))
    assert again == [[]]


def test_a_guess_is_of_what_memory_holds(again: list[list[int]]) -> None:
    """Vectors wait in stretches: of the first one, a third of all, the lists can have but a third."""
    case = make_case("random", candidates=9_000, dimension=100, queries=5)
    found = searched(case, 1, (False, False), size=1_000, memory=3 << 20)
    assert [each for each in again if each] == []
    assert 2 <= len(again) <= 5
    assert same(found, brute_force(case.queries, case.rows, case.vectors, "l2", DEPTH, case.excluded))


def test_guesses_save_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "NEAR", np.inf)
    monkeypatch.setattr(exact, "CHUNK", 40 * 2_000)
    reached = [0]
    sift_tile = exact._Together._sift_tile

    def counted(self: exact._Together, *given: object) -> int:
        here = sift_tile(self, *given)  # type: ignore[arg-type]
        reached[0] += here
        return here

    monkeypatch.setattr(exact._Together, "_sift_tile", counted)
    case, counts = make_case("random", candidates=60_000, dimension=40), []
    for promised in (0, 1):
        reached[0] = 0
        searched(case, promised, (False, True))
        counts.append(reached[0])
    assert 0 < counts[1] < 0.7 * counts[0]


def test_how_many_of_the_best_the_first_candidates_hold() -> None:
    """Never more than are wanted; and of random candidates the first ones hardly ever hold more than is kept."""
    wanted, total = np.array([500]), np.array([100_000])
    aims = np.empty(1, np.int64)
    rng = np.random.default_rng(0)
    before = 0
    for seen in (10, 100, 1_000, 5_000, 20_000, 50_000, 80_000, 99_999):
        assert trims.aim(wanted, np.array([seen]), total, aims) == aims[0]
        assert before <= aims[0] <= 500
        before = aims[0]
        assert (rng.hypergeometric(500, 100_000 - 500, seen, 100_000) > aims[0]).mean() < 1e-4
    assert aims[0] == 500
    for seen, known in ((100_000, 100_000), (200_000, 100_000), (7, 0)):
        trims.aim(wanted, np.array([seen]), np.array([known]), aims)
        assert aims[0] == 500
