"""Exact dense search against faiss.IndexFlatL2: same vectors, same queries, same run, two threads each.

    python bench/retrieve_dense.py [faiss-COUNT | pools] [--quick] [--device cuda --queries 380 3800]

Vectors: a mixture of 500 Gaussians in 768 dimensions whose centres have 0.7 times the spread of their points, shifted
by a common mean as encoders' vectors are. A query is a vector and noise of half the spread. Isotropic noise is the hard
case for an error bound: nearest neighbours are hardly nearer than the rest, so more candidates come within the bound
than with real vectors. Rounds are interleaved, each in another order; medians of wall time and of processor time (which
other work on the machine moves less) are compared.

Faiss multiplies by the OpenBLAS of its wheel, which may not know the processor. The core that it uses is printed, and
the peer runs with the best one: the script starts itself again with ``OPENBLAS_CORETYPE``.

Measured: 20k, 60k, 200k and 1M vectors against Faiss; twelve pools (three samples of four nested sizes), of which each
goes on from the ranking of the next smaller one, against twelve searches, beside the limit, which is the ratio of the
candidates searched. On a GPU, Faiss's index lies there; our vectors are sent in each search, or lie there as well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import faiss
import numpy as np
import torch

from pipeline.core import progress, provenance
from pipeline.core.resources import Resources, gpu_number
from pipeline.retrieve import exact
from pipeline.retrieve.ann import blas_core
from pipeline.retrieve.base import Ranking, VectorBlock, block_rows

PARTS = ("faiss-20000", "faiss-60000", "faiss-200000", "faiss-1000000", "pools")
DIMENSION, DEPTH, THREADS, TOPICS, POOLS = 768, 500, 2, 500, 1_000_000
PAUSE = 0.1
"""Seconds before each run: threads of the one before, Faiss's above all, wait actively for a while."""
RESOURCES = Resources(memory=8 << 30, workers=THREADS, device="cpu")


def make_vectors(count: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(13)
    centres = 0.7 * rng.standard_normal((TOPICS, DIMENSION), np.float32) + rng.standard_normal(DIMENSION, np.float32)
    vectors = np.empty((count, DIMENSION), np.float32)
    for start in range(0, count, 50_000):
        part = vectors[start : start + 50_000]
        rng.standard_normal(dtype=np.float32, out=part)
        part += centres[rng.integers(0, TOPICS, len(part))]
    some = vectors[rng.choice(count, queries, replace=False)]
    return some + np.float32(0.5) * rng.standard_normal(some.shape, np.float32), vectors


def blocks(vectors: Any, rows: np.ndarray | None = None) -> Iterator[VectorBlock]:
    """Yield all vectors as they lie, or gather those of some rows."""
    size = block_rows(DIMENSION, RESOURCES.memory)
    if rows is not None:
        for start in range(0, len(rows), size):
            yield rows[start : start + size], vectors[rows[start : start + size]]
        return
    for start in range(0, len(vectors), size):
        part = vectors[start : start + size]
        yield np.arange(start, start + len(part), dtype=np.uint32), part


def search(
    device: str, queries: np.ndarray, candidates: Iterator[VectorBlock], count: int, start: Ranking | None = None
) -> Ranking:
    resources = replace(RESOURCES, device=device)
    nothing = np.zeros(len(queries) + 1, np.int64), np.empty(0, np.uint32)
    how: dict[str, Any] = {"metric": "l2", "depth": DEPTH, "resources": resources, "count": count, "start": start}
    return exact.search(queries, candidates, nothing, **how)


def interleaved(
    runs: dict[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, Any], dict[str, tuple[float, float]]]:
    """Return what each run gave last, and its median wall and processor seconds."""
    spent: dict[str, list[tuple[float, float]]] = {label: [] for label in runs}
    results: dict[str, Any] = {}
    labels = list(runs)
    for number in range(rounds):
        for label in labels[number % len(labels) :] + labels[: number % len(labels)]:
            time.sleep(PAUSE)
            wall, used = time.perf_counter(), time.process_time()
            results[label] = runs[label]()
            spent[label].append((time.perf_counter() - wall, time.process_time() - used))
    medians = {}
    for label, pairs in spent.items():
        walls, useds = zip(*pairs, strict=True)
        medians[label] = statistics.median(walls), statistics.median(useds)
    return results, medians


def seconds(medians: dict[str, tuple[float, float]]) -> dict[str, Any]:
    figures = {}
    for label, (wall, used) in medians.items():
        figures[f"{label} s"], figures[f"{label} processor s"] = round(wall, 2), round(used, 2)
    return figures


def over(medians: dict[str, tuple[float, float]], peer: str, ours: str) -> dict[str, Any]:
    """Return the peer's wall and processor time over ours."""
    ratios = (round(theirs / own, 2) for theirs, own in zip(medians[peer], medians[ours], strict=True))
    return dict(zip((f"{peer} over {ours}", f"{peer} over {ours} (processor time)"), ratios, strict=True))


def against_faiss(queries: np.ndarray, vectors: np.ndarray, rounds: int, device: str) -> dict[str, Any]:
    index: Any = faiss.IndexFlatL2(DIMENSION)
    gpu = gpu_number(device, exact.gpus(), "torch", "Choose --device cpu")
    if gpu is not None:
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), gpu, index)
    index.add(vectors)
    lying = {"ours": vectors} | ({} if gpu is None else {"ours, vectors there": torch.from_numpy(vectors).to(device)})

    def ours(where: Any) -> Callable[[], Any]:
        return lambda: search(device, queries, blocks(where), len(where))

    runs: dict[str, Callable[[], Any]] = {"faiss": lambda: index.search(queries, DEPTH)}
    results, medians = interleaved(runs | {label: ours(where) for label, where in lying.items()}, rounds)
    figures = {"vectors": len(vectors), **seconds(medians)}
    for label in lying:
        figures |= over(medians, "faiss", label)
    rows = results["ours"].row.reshape(len(queries), DEPTH)
    found = [len(np.intersect1d(a, b)) for a, b in zip(rows, results["faiss"][1], strict=True)]
    figures["share of faiss's entries"] = round(sum(found) / rows.size, 6)
    return figures


def pools(queries: np.ndarray, vectors: np.ndarray, rounds: int, device: str) -> dict[str, Any]:
    """Three samples of four nested sizes: each from the one before against twelve searches."""
    rng = np.random.default_rng(5)
    sizes = [len(vectors) // part for part in (16, 8, 4, 2)]
    samples = [rng.permutation(len(vectors)).astype(np.uint32) for _ in range(3)]

    def rank(rows: np.ndarray, start: Ranking | None = None) -> Ranking:
        return search(device, queries, blocks(vectors, np.sort(rows)), len(rows), start)

    def nested() -> list[Ranking]:
        found: list[Ranking] = []
        for sample in samples:
            start = None
            for first, last in itertools.pairwise([0, *sizes]):
                found.append(start := rank(sample[first:last], start))
        return found

    runs = {"nested": nested, "twelve searches": lambda: [rank(sample[:size]) for sample in samples for size in sizes]}
    results, medians = interleaved(runs, rounds)
    figures: dict[str, Any] = {"sizes": sizes, "limit": round(sum(sizes) / sizes[-1], 3), **seconds(medians)}
    figures |= over(medians, "twelve searches", "nested")
    figures["rankings equal in every bit"] = all(
        one.table().equals(other.table()) for one, other in zip(*results.values(), strict=True)
    )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", help="one part alone: faiss-COUNT or pools")
    parser.add_argument("--quick", action="store_true", help="fewer vectors and one round")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--queries", type=int, nargs="+", default=[380])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    core, better = blas_core()
    if better and "OPENBLAS_CORETYPE" not in os.environ:
        print(f"faiss multiplies for {core}; again with OPENBLAS_CORETYPE={better}", flush=True)
        environment = {**os.environ, "OPENBLAS_CORETYPE": better}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode)
    progress.set_quiet(True)
    parts = [options.part] if options.part else list(PARTS)
    rounds = 1 if options.quick else options.rounds
    counts = {part: POOLS if part == "pools" else int(part.partition("-")[2]) for part in parts}
    if options.quick:
        counts = {part: min(count, 60_000) for part, count in counts.items()}
    largest = max(counts.values())
    faiss.omp_set_num_threads(THREADS)
    queries, vectors = make_vectors(largest, max(options.queries))
    search(options.device, queries, blocks(vectors[:4_096]), 10**6)  # compiled code loads once
    report: dict[str, Any] = {
        "machine": provenance.processor(),
        "peers": provenance.versions(("faiss-cpu", "faiss-gpu")),
        "core of faiss's OpenBLAS": core,
        "threads": THREADS,
        "device": options.device,
        "queries": options.queries,
        "depth": DEPTH,
        "rounds": rounds,
    }
    print("peers:", *(f"{name} {version}" for name, version in report["peers"].items()), f"for {core}")
    for part, count in itertools.product(parts, options.queries):
        several = rounds if counts[part] == largest else 2 * rounds + 1
        label = part if len(options.queries) == 1 else f"{part}, {count} queries"
        measure = pools if part == "pools" else against_faiss
        report[label] = measure(queries[:count], vectors[: counts[part]], several, options.device)
        print(label)
        for what, figure in report[label].items():
            print(f"  {what:52}{figure!s:>28}", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
