"""The exact engine's threads: the same bytes however many, and an error ends a search, whoever raises it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pipeline.core.errors import InputError, StageError
from pipeline.core.resources import Resources
from pipeline.retrieve import exact
from pipeline.retrieve.base import Block, DenseEngine, Ranking
from pipeline.retrieve.dense import products
from pipeline.retrieve.dense.scan import Search
from pipeline.retrieve.exact import ExactEngine
from pipeline.retrieve.reference import brute_force
from tests.retrieve.cases import METRICS, Case, make_case, same

KINDS = [(False, False), (True, False), (False, True), (True, True)]
PATIENCE = 120
"""Seconds after which a search hangs."""


def ended(work: Callable[[], object]) -> object:
    """Return what a search returned, or its exception; fail where it does not end."""
    found: list[object] = []

    def attempt() -> None:
        try:
            found.append(work())
        except (OSError, MemoryError, InputError, StageError) as error:
            found.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the search hangs"
    return found[0]


def searched(case: Case, blocks: Iterator[Block], workers: int, engine: DenseEngine | None = None) -> Ranking:
    return (engine or ExactEngine(low=False, whole=False)).search(
        case.queries,
        blocks,
        metric="l2",
        depth=20,
        excluded=case.excluded,
        resources=Resources(memory=64 << 20, workers=workers, device="cpu"),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", METRICS)
def test_threads_change_no_byte(kind: tuple[bool, bool], metric: str) -> None:
    case = make_case("clusters", candidates=9_000, queries=70, dimension=33)
    expected = brute_force(case.queries, case.rows, case.vectors, metric, 50, case.excluded)
    engine = ExactEngine(low=kind[0], whole=kind[1])
    for workers in (1, 2, 5):
        for size in (1_000, 9_000):
            assert same(case.search(engine, metric, 50, size=size, workers=workers), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_more_threads_than_candidates_and_queries(kind: tuple[bool, bool]) -> None:
    case = make_case("random", candidates=4, queries=2, dimension=3)
    expected = brute_force(case.queries, case.rows, case.vectors, "l2", 9, case.excluded)
    engine = ExactEngine(low=kind[0], whole=kind[1])
    for size in (1, 3, 4):
        assert same(case.search(engine, "l2", 9, size=size, workers=8), expected)


@pytest.mark.parametrize(("megabytes", "stretches"), [(1, 9), (2, 3), (4, 1)])
def test_vectors_wait_where_memory_holds_them(megabytes: int, stretches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """9,000 vectors are 2.3 MB, 1,000 of them a block: two blocks and what waits take three quarters of the memory."""
    case = make_case("clusters", candidates=9_000, queries=3, dimension=64)
    held: list[int] = []
    flush = exact._Together.flush
    monkeypatch.setattr(exact._Together, "flush", lambda self: (held.append(len(self._stretch)), flush(self))[1])
    monkeypatch.setattr(exact, "ENTRY", 0)  # reservoirs of so small a memory would not wait at all
    memory = megabytes << 20
    found = ExactEngine(low=False, whole=False).search(
        case.queries,
        ((case.rows[at : at + 1_000], case.vectors[at : at + 1_000]) for at in range(0, 9_000, 1_000)),
        metric="l2",
        depth=20,
        excluded=case.excluded,
        resources=Resources(memory=memory, workers=2, device="cpu"),
    )
    assert (len(held), sum(held)) == (stretches, 9_000)
    assert (2 * 1_000 + max(held)) * 4 * 64 <= max(3 * memory // 4, memory // 4 + 2_000 * 4 * 64) + 256
    assert same(found, brute_force(case.queries, case.rows, case.vectors, "l2", 20, case.excluded))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_an_error_of_the_caller_ends_the_search(workers: int) -> None:
    case = make_case("random", candidates=20_000)

    def blocks() -> Iterator[Block]:
        for number, block in enumerate(case.blocks(6_000)):
            if number == 2:
                raise OSError("the disk is gone")
            yield block

    error = ended(lambda: searched(case, blocks(), workers))
    assert isinstance(error, OSError)


def test_what_waits_is_not_done_when_a_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    case, made, product = make_case("random", candidates=20_000), [], products.product
    monkeypatch.setattr(exact, "CHUNK", 40 * 100)
    go_on = threading.Event()

    def held_up(*given: object) -> object:
        made.append(1)
        assert go_on.wait(60)
        return product(*given)

    def blocks() -> Iterator[Block]:
        yield from case.blocks(6_000)
        threading.Timer(0.3, go_on.set).start()
        raise OSError("the disk is gone")

    monkeypatch.setattr(products, "product", held_up)
    error = ended(lambda: searched(case, blocks(), 2))
    assert isinstance(error, OSError)
    assert 0 < len(made) < 20  # what two threads had begun, of some 200 chunks


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("after", [0, 5])
def test_an_error_of_a_thread_ends_the_search(workers: int, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it holds a reservoir's lock (scores are added) and while it holds none (products are made)."""
    case = make_case("random", candidates=20_000)
    for owner, name in ((products, "product"), (Search, "absorb")):
        calls = iter(range(10**9))
        original = getattr(owner, name)

        def failing(*given: object, calls=calls, original=original) -> object:
            if next(calls) >= after:
                raise MemoryError("injected")
            return original(*given)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failing)
            patch.setattr("pipeline.retrieve.dense.reservoirs.KEEP", 1)  # reservoirs are scored often, by the threads
            patch.setattr("pipeline.retrieve.exact.MANY", 40)
            error = ended(lambda: searched(case, case.blocks(6_000), workers))
        assert isinstance(error, MemoryError), name
    assert len(searched(case, case.blocks(6_000), workers)) == 17 * 20


@pytest.mark.parametrize("workers", [1, 5])
def test_a_later_block_that_does_not_fit_is_named(workers: int) -> None:
    case = make_case("random", candidates=6_000)
    wrong = np.arange(90_000, 90_010, dtype=np.uint32)
    for block, message in (
        ((wrong, np.ones((10, 7), np.float32)), "queries 40 dimensions"),
        ((wrong, np.ones((9, 40), np.float32)), "10 rows and 9 vectors"),
        ((wrong, np.full((10, 40), np.nan, np.float32)), "at row 9000"),  # of some chunk of it
    ):
        error = ended(lambda block=block: searched(case, iter([*case.blocks(6_000), block]), workers))
        assert isinstance(error, InputError)
        assert message in str(error)


def test_wrong_products_of_whole_numbers_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of older processors, which add pairs of products in 16 bits."""
    product = products.product
    monkeypatch.setattr(exact, "NEAR", np.inf)

    def saturated(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        found = product(a, b, out)
        return np.clip(found, -(2**15), 2**15 - 1, out=found) if a.dtype == np.int8 else found

    case = make_case("random", dimension=60)
    engine = ExactEngine(low=False, whole=True)
    assert len(searched(case, case.blocks(6_000), 2, engine)) == 17 * 20
    monkeypatch.setattr(products, "product", saturated)
    error = ended(lambda: searched(case, case.blocks(6_000), 2, engine))
    assert isinstance(error, StageError)
    assert "whole numbers" in str(error)
