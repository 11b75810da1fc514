"""Search by Faiss: what it finds has the exact scores and order; looking everywhere, it finds everything."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.retrieve import ann, dense
from pipeline.retrieve.ann import approximate_search, recall
from pipeline.retrieve.base import Metric, Ranking
from pipeline.retrieve.engines import IndexKind, IndexSettings, dense_engine, parse_settings
from tests.retrieve.cases import METRICS, Case, expected, make_case, resources, same
from tests.retrieve.reference import canonical_scores


def search(case: Case, settings: IndexSettings, metric: Metric, depth: int, **how: Any) -> Ranking:
    return approximate_search(
        settings,
        case.queries,
        case.blocks(611),
        count=len(case.vectors),
        metric=metric,
        depth=depth,
        excluded=case.excluded,
        resources=resources(**{"memory": 1 << 30, **how}),
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_scores_and_order_are_exact_and_nothing_excluded_is_there(kind: IndexKind, metric: Metric) -> None:
    case = make_case("random", candidates=3_000)
    ranking = search(case, IndexSettings(kind), metric, 50)
    assert 0.2 < recall(ranking, expected(case, metric, 50)) <= 1
    offsets, removed = case.excluded
    for query in range(len(case.queries)):
        of_query = ranking.query == query
        rows = ranking.row[of_query]
        assert not np.isin(rows, removed[offsets[query] : offsets[query + 1]]).any()
        scores = canonical_scores(case.queries[query], case.vectors[(rows - 7) // 3], metric)
        assert scores.tobytes() == ranking.score[of_query].tobytes()
        assert np.lexsort((rows, scores))[::-1].tolist() == list(range(len(rows)))
    assert same(ranking, search(case, IndexSettings(kind), metric, 50))


@pytest.mark.parametrize(
    ("kind", "metric", "candidates", "depth"),
    [*(("ivf", metric, 2_000, 70) for metric in METRICS), ("ivf", "l2", 30, 500), ("hnsw", "l2", 30, 500)],
)
def test_looking_everywhere_finds_everything(kind: IndexKind, metric: Metric, candidates: int, depth: int) -> None:
    case = make_case("random", candidates=candidates)
    assert same(search(case, IndexSettings(kind, probes=1.0), metric, depth), expected(case, metric, depth))


def test_fewer_probes_find_less() -> None:
    case = make_case("random", candidates=4_000)
    exact = expected(case, "l2", 100)
    shares = [recall(search(case, IndexSettings("ivf", probes=p), "l2", 100), exact) for p in (0.02, 0.2, 1.0)]
    assert shares == sorted(set(shares))
    assert shares[-1] == 1.0


def test_vectors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="holds 5,000 vectors twice, 1 MiB. Raise --memory, or use --engine[ =]exact"):
        search(make_case("random"), IndexSettings("ivf"), "l2", 5, memory=1 << 20)


def test_recall_counts_entries_of_the_exact_ranking() -> None:
    scores = np.array([3, 2, 1], np.float32)
    exact = Ranking.from_counts(np.array([2, 1]), np.array([5, 4, 9], np.uint32), scores)
    other = Ranking.from_counts(np.array([1, 2]), np.array([4, 8, 9], np.uint32), scores)
    assert recall(exact, exact) == 1
    assert recall(other, exact) == pytest.approx(2 / 3)


@pytest.mark.parametrize("name", ["ivf", "hnsw:links=16,search=4", "ivf:cells=2,probes=0.1", "cagra:links=16"])
def test_a_name_holds_the_settings_that_differ_from_the_default(name: str) -> None:
    settings = parse_settings(name)
    assert settings.name == name
    assert parse_settings(name.replace(",", " , ")) == settings
    assert parse_settings("ivf:probes=0.05") == IndexSettings("ivf")
    assert parse_settings("exact") is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ivf:links=3", "ivf has no parameter 'links'. Choose one of: cells, probes"),
        ("hnsw:serch=3", "hnsw has no parameter 'serch'. Did you mean 'search'"),
        ("hnsw:links=1.5", "'links=1.5' in 'hnsw:links=1.5' is not a parameter"),
        ("ivf:probes=1.5", "probes=1.5 of ivf is out of range"),
        ("ivf:cells=inf", "cells=inf of ivf is out of range"),
        ("cagra:search=0.5", "search=0.5 of cagra is out of range"),
    ],
)
def test_what_cannot_be_set_is_said(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_settings(name)


def test_a_vector_found_twice_counts_once_and_one_that_is_not_there_never(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case("random", candidates=300)
    nothing = 2**32 - 1  # what CAGRA gives where it found too few

    class Graph:
        def search(self, queries: np.ndarray, k: int, params: None) -> tuple[None, np.ndarray]:
            return None, np.tile(np.array([5, 299, -1, nothing, 5, 0, 7, 7]), (len(queries), 1))

    monkeypatch.setattr(ann, "_build_index", lambda *_: (Graph(), None))
    ranking = search(case, IndexSettings("cagra"), "l2", 8)
    assert len(ranking)
    for query in range(len(case.queries)):
        rows = ranking.row[ranking.query == query]
        assert len(set(rows.tolist())) == len(rows)
        assert set(rows.tolist()) <= set(case.rows[[5, 299, 0, 7]].tolist())


@pytest.mark.skipif(ann.gpus() > 0, reason="this Faiss has GPUs")
@pytest.mark.parametrize(
    ("engine", "device", "message"),
    [
        *(
            (IndexSettings(kind), "auto", f"{kind} needs a GPU that Faiss can use .--device[ =]auto: none.. Use --eng")
            for kind in ("ivf-gpu", "cagra")
        ),
        (IndexSettings("cagra"), "cuda", "Faiss cannot use cuda: it sees 0 GPUs"),
        ("faiss", "cuda", "cannot use cuda: it sees 0 GPUs. Choose --device[ =]cpu"),
        ("faiss", "cuda:3", "cannot use cuda:3: it sees 0 GPUs. Choose --device[ =]cpu"),
        ("faiss", "tpu", "no device 'tpu'"),
    ],
)
def test_a_device_that_is_not_there_is_an_error(engine: str | IndexSettings, device: str, message: str) -> None:
    case = make_case("random", candidates=50)
    with pytest.raises(InputError, match=message):
        if isinstance(engine, IndexSettings):
            search(case, engine, "l2", 5, device=device)
        else:
            case.search(dense_engine(engine), "l2", 5, device=device)


def test_an_index_goes_to_the_gpu_and_what_it_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faiss of the CPU stands in for that of a GPU: how an index gets there and what comes back of it."""

    class Scratch:
        def setTempMemory(self, size: int) -> None:  # noqa: N802
            assert size > 0

    def copied(resources: Scratch, gpu: int, index: Any) -> Any:
        if short:
            raise RuntimeError("cudaMalloc failed")
        assert (gpu, index.ntotal, index.is_trained) == (0, 0, True)
        return index

    case, short = make_case("random", candidates=2_000), False
    monkeypatch.setattr(ann, "gpu_of", lambda name: 0)
    monkeypatch.setattr(ann.load(), "StandardGpuResources", Scratch, raising=False)
    monkeypatch.setattr(ann.load(), "index_cpu_to_gpu", copied, raising=False)
    assert same(search(case, IndexSettings("ivf-gpu"), "l2", 50), search(case, IndexSettings("ivf"), "l2", 50))
    with pytest.raises(InputError, match="more than Faiss finds on a GPU. Choose a depth below 2,048, or --engine.ex"):
        search(make_case("random", candidates=3_000), IndexSettings("ivf-gpu"), "l2", 2_049)
    with pytest.raises(InputError, match="2,051 cells are more than Faiss looks at on a GPU"):
        search(make_case("random", candidates=2_051), IndexSettings("ivf-gpu", cells=100, probes=1), "l2", 5)
    short = True
    with pytest.raises(InputError, match="ivf-gpu of 2,000 vectors cannot be built on GPU 0 .cudaMalloc failed."):
        search(case, IndexSettings("ivf-gpu"), "l2", 50)


@pytest.mark.gpu
@pytest.mark.skipif(ann.gpus() == 0, reason="Faiss sees no GPU")
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["ivf-gpu", "cagra"])
def test_indexes_on_a_gpu(kind: IndexKind, metric: Metric) -> None:
    case = make_case("random", candidates=5_000)
    if kind == "cagra" and not hasattr(ann.load(), "GpuIndexCagra"):
        with pytest.raises(InputError, match="has no CAGRA. .*pip uninstall faiss-gpu && .*pip install faiss-gpu-cuvs"):
            search(case, IndexSettings(kind), metric, 100, device="cuda")
        return
    everywhere = IndexSettings(kind, probes=1.0, search=8.0)
    ranking, exact = search(case, everywhere, metric, 100, device="cuda"), expected(case, metric, 100)
    assert same(ranking, exact) if kind == "ivf-gpu" else recall(ranking, exact) > 0.9
    with pytest.raises(InputError, match="are more than Faiss finds on a GPU"):
        search(case, everywhere, metric, 2_049, device="cuda")


def test_missing_faiss_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match="exactly one of: .*pip install faiss-cpu, .*pip install faiss-gpu"):
        dense_engine("faiss")
    assert ann.gpus() == 0
    assert isinstance(dense_engine("auto"), dense.ExactEngine)


def test_threads_of_the_process_are_left_as_they_were() -> None:
    import faiss

    before = faiss.omp_get_max_threads()
    make_case("random", candidates=50).search(dense_engine("faiss"), "l2", 3, workers=7)
    assert faiss.omp_get_max_threads() == before
