"""What is Faiss's own: its absence, its devices, and blocks where its neighbours are not enough."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.retrieve import exact, faiss_index
from pipeline.retrieve.base import no_exclusions
from pipeline.retrieve.engines import dense_engine
from tests.retrieve.cases import Case, make_case


def test_missing_faiss_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match="exactly one of: pip install faiss-cpu, .* pip install faiss-gpu"):
        dense_engine("faiss", Resources(device="cpu"))
    assert faiss_index.gpus() == 0
    assert isinstance(dense_engine("auto", Resources(device="auto")), exact.ExactEngine)


@pytest.mark.skipif(faiss_index.gpus() > 0, reason="this Faiss has GPUs")
@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_a_gpu_that_is_not_there_is_an_error(device: str) -> None:
    engine = dense_engine("faiss", Resources(device="cpu"))
    resources = Resources(device=device)
    with pytest.raises(InputError, match=f"cannot use {device}: it sees 0 GPUs. Choose --device cpu"):
        engine.search(np.ones((1, 2)), [], metric="l2", depth=1, excluded=no_exclusions(1), resources=resources)


def test_unknown_device() -> None:
    engine = dense_engine("faiss", Resources(device="cpu"))
    with pytest.raises(InputError, match="no device 'tpu'"):
        engine.search(
            np.ones((1, 2)), [], metric="l2", depth=1, excluded=no_exclusions(1), resources=Resources(device="tpu")
        )


def test_threads_of_the_process_are_left_as_they_were() -> None:
    import faiss

    before = faiss.omp_get_max_threads()
    make_case("random", candidates=50).search(dense_engine("faiss", Resources(device="cpu")), "l2", 3, workers=7)
    assert faiss.omp_get_max_threads() == before


def test_neighbours_that_crowd_the_cut_are_all_seen() -> None:
    """More candidates tie at the cut than Faiss is asked for, and the best of them are the ones it gives last."""
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((3_000, 16), np.float32)
    vectors[500:2_900] = vectors[0]
    case = Case(vectors[:1] + np.float32(0.01), vectors, no_exclusions(1))
    ranking = case.search(dense_engine("faiss", Resources(device="cpu")), "l2", 50)
    assert ranking.row.tolist() == case.rows[2_899:2_849:-1].tolist()
