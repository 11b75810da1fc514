"""Search by Faiss: what it finds has the exact scores and order; looking everywhere, it finds everything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.retrieve import ann
from pipeline.retrieve.ann import approximate_search, check_index, recall
from pipeline.retrieve.base import Metric, Ranking
from pipeline.retrieve.engines import IndexSettings, parse_settings
from tests.retrieve.cases import METRICS, Case, expected, make_case, resources, same
from tests.retrieve.reference import canonical_scores

IVF = IndexSettings("IVF54,Flat", "nprobe=3")
ON_GPU = IndexSettings("IVF44,Flat", gpu=True)


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
@pytest.mark.parametrize("factory", ["IVF54,Flat", "HNSW32", "SQ8", "PCA8,IVF16,SQ8"])
def test_scores_and_order_are_exact_and_nothing_excluded_is_there(factory: str, metric: Metric) -> None:
    case = make_case("random", candidates=3_000)
    ranking = search(case, IndexSettings(factory), metric, 50)
    assert 0.05 < recall(ranking, expected(case, metric, 50)) <= 1
    offsets, removed = case.excluded
    for query in range(len(case.queries)):
        of_query = ranking.query == query
        rows = ranking.row[of_query]
        assert not np.isin(rows, removed[offsets[query] : offsets[query + 1]]).any()
        scores = canonical_scores(case.queries[query], case.vectors[(rows - 7) // 3], metric)
        assert scores.tobytes() == ranking.score[of_query].tobytes()
        assert np.lexsort((rows, scores))[::-1].tolist() == list(range(len(rows)))
    assert same(ranking, search(case, IndexSettings(factory), metric, 50))


@pytest.mark.parametrize(
    ("name", "metric", "candidates", "depth"),
    [
        *(("faiss:IVF44,Flat:nprobe=44", metric, 2_000, 70) for metric in METRICS),
        ("faiss:IVF5,Flat:nprobe=5", "l2", 30, 500),
        ("faiss:HNSW32", "l2", 30, 500),
        ("faiss:Flat", "cosine", 2_000, 70),
    ],
)
def test_looking_everywhere_finds_everything(name: str, metric: Metric, candidates: int, depth: int) -> None:
    case, settings = make_case("random", candidates=candidates), parse_settings(name)
    assert settings is not None
    assert same(search(case, settings, metric, depth), expected(case, metric, depth))


def test_vectors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="holds 5,000 vectors twice, 1 MiB. Raise --memory, or use --engine[ =]exact"):
        search(make_case("random"), IVF, "l2", 5, memory=1 << 20)


def test_recall_counts_entries_of_the_exact_ranking() -> None:
    scores = np.array([3, 2, 1], np.float32)
    exact = Ranking.from_counts(np.array([2, 1]), np.array([5, 4, 9], np.uint32), scores)
    other = Ranking.from_counts(np.array([1, 2]), np.array([4, 8, 9], np.uint32), scores)
    assert recall(exact, exact) == 1
    assert recall(other, exact) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("faiss:IVF4096,Flat:nprobe=32", IndexSettings("IVF4096,Flat", "nprobe=32")),
        ("faiss-gpu:OPQ16_64,IVF64(PCA8),PQ16", IndexSettings("OPQ16_64,IVF64(PCA8),PQ16", gpu=True)),
        ("faiss:HNSW32:efSearch=64,efConstruction=200", IndexSettings("HNSW32", "efSearch=64,efConstruction=200")),
    ],
)
def test_an_index_is_spelled_in_one_way(name: str, settings: IndexSettings) -> None:
    assert parse_settings(name) == settings
    assert parse_settings(name.replace(",", " , ")) == settings
    assert settings.name == name
    assert parse_settings("exact") is parse_settings("faiss") is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "hnsw:links=3",
            "there is no search engine 'hnsw:links=3'. Write faiss:IVF4096,Flat:nprobe=32 or faiss:HNSW32",
        ),
        ("faiss:HNSW32:efSearch", "'efSearch' in 'faiss:HNSW32:efSearch' is not an option. Write name=number"),
        ("faiss:IVF4,Flat:nprobe=-1", "'nprobe=-1' in .* is not an option"),
        ("faiss:HNSWW32", "Faiss cannot search faiss:HNSWW32: could not parse index string HNSWW32. Write an index of"),
        ("faiss:HNSW32:nprobe=3", "HNSW32:nprobe=3: .*could not set parameter nprobe"),
    ],
)
def test_what_is_no_index_is_said(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_index(parse_settings(name))


def test_what_does_not_fit_the_vectors_is_said() -> None:
    case = make_case("random", candidates=300)
    with pytest.raises(
        InputError, match=r"Faiss cannot search faiss:IVF400,Flat of 300 vectors .* at least 400|as large"
    ):
        search(case, IndexSettings("IVF400,Flat"), "l2", 5)
    check_index(IndexSettings("PQ25"))
    with pytest.raises(InputError, match="faiss:PQ25 of 300 vectors of .*multiple of the number of subquantizers"):
        search(case, IndexSettings("PQ25"), "l2", 5)


def test_a_vector_found_twice_counts_once_and_one_that_is_not_there_never(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case("random", candidates=300)
    nothing = 2**32 - 1  # what a graph on a GPU gives where it found too few

    class Graph:
        def search(self, queries: np.ndarray, k: int) -> tuple[None, np.ndarray]:
            return None, np.tile(np.array([5, 299, -1, nothing, 5, 0, 7, 7]), (len(queries), 1))

    monkeypatch.setattr(ann, "_build_index", lambda *_: Graph())
    ranking = search(case, IndexSettings("HNSW32"), "l2", 8)
    assert len(ranking)
    for query in range(len(case.queries)):
        rows = ranking.row[ranking.query == query]
        assert len(set(rows.tolist())) == len(rows)
        assert set(rows.tolist()) <= set(case.rows[[5, 299, 0, 7]].tolist())


@pytest.mark.skipif(ann.gpus() > 0, reason="this Faiss has GPUs")
@pytest.mark.parametrize(
    ("index", "device", "message"),
    [
        (ON_GPU, "auto", "faiss-gpu:IVF44,Flat needs a GPU that Faiss can use .--device[ =]auto: none.. Use --engine"),
        (ON_GPU, "cuda:3", "cannot use cuda:3: it sees 0 GPUs. Choose --device[ =]cpu"),
    ],
)
def test_a_device_that_is_not_there_is_an_error(index: IndexSettings, device: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(make_case("random", candidates=50), index, "l2", 5, device=device)


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
    assert same(search(case, ON_GPU, "l2", 50), search(case, IndexSettings("IVF44,Flat"), "l2", 50))
    with pytest.raises(InputError, match="more than Faiss finds on a GPU. Choose a depth below 2,048, or --engine.ex"):
        search(make_case("random", candidates=3_000), ON_GPU, "l2", 2_049)
    short = True
    with pytest.raises(
        InputError, match="cannot search faiss-gpu:IVF44,Flat of 2,000 vectors of .*: cudaMalloc failed"
    ):
        search(case, ON_GPU, "l2", 50)


@pytest.mark.gpu
@pytest.mark.skipif(ann.gpus() == 0, reason="Faiss sees no GPU")
@pytest.mark.parametrize("metric", METRICS)
def test_indexes_on_a_gpu(metric: Metric) -> None:
    case = make_case("random", candidates=5_000)
    everywhere = IndexSettings("IVF70,Flat", "nprobe=70", gpu=True)
    assert same(search(case, everywhere, metric, 100, device="cuda"), expected(case, metric, 100))
    with pytest.raises(InputError, match="are more than Faiss finds on a GPU"):
        search(case, everywhere, metric, 2_049, device="cuda")


def test_missing_faiss_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match="exactly one of: .*pip install faiss-cpu, .*pip install faiss-gpu"):
        check_index(IVF)
    assert ann.gpus() == 0
    assert ann.blas_core() == ("", "")


@pytest.mark.parametrize(
    ("core", "flags", "better"),
    [
        ("Prescott", "sse avx2 avx512f", "SkylakeX"),
        ("Prescott", "sse avx2", "Haswell"),
        ("Zen", "avx2", ""),
        ("Nehalem", "sse", ""),
    ],
)
def test_a_better_core_for_this_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, core: str, flags: str, better: str
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
    library = Path(ann.load().__file__).parent.parent / "faiss_cpu.libs" / "libopenblas.so"
    known = {"filepath": str(library), "internal_api": "openblas", "architecture": core}
    other = {"filepath": "/usr/lib/libopenblas.so", "internal_api": "openblas", "architecture": "Zen"}
    monkeypatch.setattr(ann, "threadpool_info", lambda: [other, known])
    assert ann.blas_core(tmp_path / "cpuinfo") == (core, better)
