"""What is the torch engine's own: its devices, tiles of few queries, and queries that too much is near to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pipeline.core.errors import InputError, StageError
from pipeline.core.resources import Resources
from pipeline.retrieve import engines, exact, torch_engine
from pipeline.retrieve.base import Subset, no_exclusions
from pipeline.retrieve.dense import reservoirs
from pipeline.retrieve.engines import dense_engine
from pipeline.retrieve.reference import brute_force
from tests.retrieve.cases import Case, make_case, same
from tests.retrieve.test_products import LONG


@pytest.mark.skipif(torch_engine.gpus() > 0, reason="there are GPUs")
@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_a_gpu_that_is_not_there_is_an_error(device: str) -> None:
    engine = dense_engine("torch", Resources(device="cpu"))
    with pytest.raises(InputError, match=f"torch cannot use {device}: it sees 0 GPUs. Choose --device cpu"):
        engine.search(
            np.ones((1, 2)),
            [],
            metric="l2",
            depth=1,
            excluded=no_exclusions(1),
            resources=Resources(device=device),
        )


def test_a_gpu_that_torch_or_faiss_can_use_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_DRIVERS", ("/dev/null",))
    chosen = []
    for by_torch, by_faiss in ((1, 1), (0, 1), (0, 0)):
        monkeypatch.setattr(torch_engine, "gpus", lambda seen=by_torch: seen)
        monkeypatch.setattr("pipeline.retrieve.faiss_index.gpus", lambda seen=by_faiss: seen)
        chosen.append(type(dense_engine("auto", Resources(device="cuda"))).__name__)
        assert type(dense_engine("auto", Resources(device="auto"), LONG)).__name__ == chosen[-1]
        assert isinstance(dense_engine("auto", Resources(device="auto"), 1e6), exact.ExactEngine)
        assert isinstance(dense_engine("auto", Resources(device="cpu"), LONG), exact.ExactEngine)
    assert chosen == ["TorchEngine", "FaissEngine", "ExactEngine"]


def test_a_device_without_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("tried to allocate 2 GiB")

    monkeypatch.setattr(torch_engine, "_Candidates", full)
    with pytest.raises(InputError, match="memory of cpu is too short .* 2 GiB.*lower --memory"):
        make_case("random").search(dense_engine("torch", Resources(device="cpu")), "l2", 9)


@pytest.mark.parametrize("memory", [1 << 20, 3 << 20])
def test_tiles_of_few_queries(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = []
    pairs_of = torch_engine._pairs
    monkeypatch.setattr(torch_engine, "_pairs", lambda *known: (tiles.append(len(known[3])), pairs_of(*known))[1])
    case = make_case("duplicates", queries=40)
    found = case.search(dense_engine("torch", Resources(device="cpu")), "cosine", 50, memory=memory)
    assert same(found, brute_force(case.queries, case.rows, case.vectors, "cosine", 50, case.excluded))
    assert max(tiles) < 40
    assert sum(tiles) % 40 == 0


def test_queries_that_too_much_is_near_to_are_collected_by_the_exact_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the queries have thousands of equal candidates at their cut, the others few."""
    collected: list[int] = []
    collect = reservoirs.collect
    monkeypatch.setattr(
        reservoirs,
        "collect",
        lambda search, block, left, workers: (collected.extend(left), collect(search, block, left, workers)),
    )
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((4_000, 16), np.float32)
    vectors[500:2_900] = 9
    queries = rng.standard_normal((6, 16), np.float32)
    queries[::2] = 9
    case = Case(queries, vectors, no_exclusions(6))
    engine = dense_engine("torch", Resources(device="cpu"))
    found = case.search(engine, "l2", 50)
    assert same(found, brute_force(queries, case.rows, vectors, "l2", 50, case.excluded))
    assert collected == [0, 2, 4]


def test_little_comes_back_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a first block about what is wanted of each pool, of later ones less and less."""
    came: list[int] = []
    likely = torch_engine.Search.likely
    monkeypatch.setattr(
        torch_engine.Search,
        "likely",
        lambda self, pairs, removed: (came.append(len(pairs.queries)), likely(self, pairs, removed))[1],
    )
    case = make_case("random", candidates=20_000, queries=30)
    pools = [Subset(None, case.excluded), Subset(case.rows[::4], no_exclusions(30))]
    dense_engine("torch", Resources(device="cpu")).search_pools(
        case.queries,
        case.blocks(4_000),
        pools,
        metric="l2",
        depth=50,
        resources=Resources(memory=1 << 30, workers=1, device="cpu"),
    )
    assert len(came) == 5
    assert 30 * 50 < came[0] < 30 * 110
    assert sum(came[1:]) < 30 * 2 * 50 * (1 + 1 / 2 + 1 / 3 + 1 / 4)


def test_products_in_less_than_float32_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU makes them where TF32 is allowed: 10 bits of mantissa."""
    pairs_of = torch_engine._pairs

    def rounded(search, block, candidates, queries, wanted, most):  # type: ignore[no-untyped-def]
        bits = candidates.points.view(torch.int32)
        candidates.points = (bits & -8192).view(torch.float32)
        return pairs_of(search, block, candidates, queries, wanted, most)

    monkeypatch.setattr(torch_engine, "_pairs", rounded)
    with pytest.raises(StageError, match="times as far from the exact scores .* Unset NVIDIA_TF32_OVERRIDE"):
        make_case("random").search(dense_engine("torch", Resources(device="cpu")), "l2", 9)


def test_scores_that_tie_when_rounded_are_not_lost() -> None:
    """Estimates tell them apart, so the last of them by estimate may be the first by row."""
    case = make_case("close together and far away")
    engine = dense_engine("torch", Resources(device="cpu"))
    alone = Case(case.queries, case.vectors, no_exclusions(len(case.queries)))
    found = alone.search(engine, "inner_product", 100)
    assert same(found, brute_force(case.queries, case.rows, case.vectors, "inner_product", 100, alone.excluded))
