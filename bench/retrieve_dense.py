"""Exact dense search against faiss.IndexFlatL2: same vectors, same queries, same run, two threads each.

    python bench/retrieve_dense.py [faiss-COUNT | pools | sizes] [--quick] [--device cuda --queries 380 3800]

Vectors: a mixture of 500 Gaussians in 768 dimensions whose centres have 0.7 times the spread of their points, shifted
by a common mean as encoders' vectors are. A query is a vector and noise of half the spread. Isotropic noise is the hard
case for an error bound: nearest neighbours are hardly nearer than the rest, so more candidates come within the bound
than with real vectors. Rounds are interleaved, each in another order; medians of wall time and of processor time (which
other work on the machine moves less) are compared.

Measured: 20k, 200k and 1M vectors against Faiss, with products as the engine chooses them and in float32; twelve pools
(three samples of four nested sizes) in one pass against twelve searches, beside the limit, which is the sum of the pool
sizes over the size of their union; nested pools of 1k, 10k and 100k in one pass against the largest alone. On a GPU,
Faiss's index lies there; our vectors are sent in each search, or lie there as well. The seconds of each step are those
of one more search, which waits for the GPU after each.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import faiss
import numpy as np
import torch

from pipeline.core import progress, provenance
from pipeline.core.resources import Resources, gpu_number
from pipeline.retrieve import dense, estimates
from pipeline.retrieve.base import Ranking, Subset, VectorBlock, block_rows, no_exclusions
from pipeline.retrieve.gpu import GpuSearch

PARTS = ("faiss-20000", "faiss-200000", "faiss-1000000", "pools", "sizes")
DIMENSION, DEPTH, THREADS, TOPICS = 768, 500, 2, 500
PAUSE = 0.1
"""Seconds before each run: threads of the one before, Faiss's above all, wait actively for a while."""
SIZES, SIZES_QUERIES = (1_000, 10_000, 100_000), 300
STEPS: dict[str, list[tuple[Any, str]]] = {
    "reading and sending": [(dense.Search, "blocks")],
    "product": [(estimates.Estimates, "tile")],
    "selection": [(GpuSearch, "_pairs"), (GpuSearch, "_bound"), (GpuSearch, "_reaching")],
    "rescoring": [(GpuSearch, "score")],
}
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
    device: str,
    queries: np.ndarray,
    candidates: Iterator[VectorBlock],
    subsets: list[Subset],
    count: int,
    low: bool | None,
) -> list[Ranking]:
    engine = dense.ExactEngine(2.0 * len(queries) * DIMENSION * count, bfloat16=low)
    resources = replace(RESOURCES, device=device)
    return engine.search_pools(queries, candidates, subsets, metric="l2", depth=DEPTH, resources=resources)


def whole(device: str, queries: np.ndarray, candidates: Iterator[VectorBlock], count: int, low: bool | None) -> Ranking:
    return search(device, queries, candidates, [Subset(None, no_exclusions(len(queries)))], count, low)[0]


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


def against_faiss(queries: np.ndarray, vectors: np.ndarray, rounds: int, device: str) -> dict[str, Any]:
    index: Any = faiss.IndexFlatL2(DIMENSION)
    gpu = gpu_number(device, dense.gpus(), "torch", "Choose --device cpu")
    if gpu is not None:
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), gpu, index)
    index.add(vectors)
    kinds = {"as chosen": None, "float32": False}

    def exact(low: bool | None) -> Callable[[], Any]:
        return lambda: whole(device, queries, blocks(vectors), len(vectors), low)

    runs: dict[str, Callable[[], Any]] = {"faiss": lambda: index.search(queries, DEPTH)}
    runs |= {label: exact(low) for label, low in kinds.items()}
    if gpu is not None:
        there = torch.from_numpy(vectors).to(device)
        runs["as chosen, vectors there"] = lambda: whole(device, queries, blocks(there), len(there), None)
    results, medians = interleaved(runs, rounds)
    figures = {"vectors": len(vectors), **seconds(medians)}
    for label in (label for label in runs if label != "faiss"):
        for what, number in (("", 0), (" (processor time)", 1)):
            figures[f"{label} over faiss{what}"] = round(medians["faiss"][number] / medians[label][number], 2)
    figures["equal in every bit"] = results["as chosen"].table().equals(results["float32"].table())
    rows = results["float32"].row.reshape(len(queries), DEPTH)
    found = [len(np.intersect1d(a, b)) for a, b in zip(rows, results["faiss"][1], strict=True)]
    figures["share of faiss's entries"] = round(sum(found) / rows.size, 6)
    if gpu is not None:
        figures["s by step"] = by_step(exact(None))
        figures["s by step, vectors there"] = by_step(runs["as chosen, vectors there"])
    return figures


def by_step(run: Callable[[], Any]) -> dict[str, float]:
    """Return the seconds of each step of a search on a GPU, without steps inside; sending runs beside the others."""
    spent: dict[str, float] = dict.fromkeys(STEPS, 0.0)
    nested: list[float] = []
    kept = {step: [(owner, name, getattr(owner, name)) for owner, name in places] for step, places in STEPS.items()}

    def timed(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nested.append(0.0)
            started = time.perf_counter()
            result = function(*arguments, **options)
            torch.cuda.synchronize()
            seconds = time.perf_counter() - started
            spent[step] += seconds - nested.pop()
            if nested:
                nested[-1] += seconds
            return result

        return call

    def sent(function: Callable[..., Any]) -> Callable[..., Any]:
        def each(*arguments: Any) -> Iterator[Any]:
            started = time.perf_counter()
            for block in function(*arguments):
                torch.cuda.current_stream().synchronize()
                spent["reading and sending"] += time.perf_counter() - started
                yield block
                started = time.perf_counter()

        return each

    for step, places in kept.items():
        for owner, name, function in places:
            setattr(owner, name, sent(function) if step == "reading and sending" else timed(step, function))
    started = time.perf_counter()
    run()
    spent["all"] = time.perf_counter() - started
    for owner, name, function in itertools.chain(*kept.values()):
        setattr(owner, name, function)
    return {step: round(seconds, 3) for step, seconds in spent.items()}


def pools(queries: np.ndarray, vectors: np.ndarray, rounds: int, device: str) -> dict[str, Any]:
    """Three samples of four nested sizes: one pass against twelve."""
    rng = np.random.default_rng(5)
    sizes = [len(vectors) // part for part in (16, 8, 4, 2)]
    samples = [rng.permutation(len(vectors)).astype(np.uint32) for _ in range(3)]
    candidates = [np.sort(sample[:size]) for sample in samples for size in sizes]
    union = np.unique(np.concatenate(candidates))
    subsets = [Subset(rows, no_exclusions(len(queries))) for rows in candidates]

    def together() -> list[Ranking]:
        return search(device, queries, blocks(vectors, union), subsets, len(union), None)

    def apart() -> list[Ranking]:
        return [whole(device, queries, blocks(vectors, rows), len(rows), None) for rows in candidates]

    results, medians = interleaved({"one pass": together, "twelve searches": apart}, rounds)
    limit = sum(map(len, candidates)) / len(union)
    figures: dict[str, Any] = {"sizes": sizes, "union": len(union), "limit": round(limit, 3), **seconds(medians)}
    for what, number in (("", 0), (" (processor time)", 1)):
        ratio = medians["twelve searches"][number] / medians["one pass"][number]
        figures[f"twelve searches over one pass{what}"] = round(ratio, 3)
    figures["rankings equal in every bit"] = all(
        one.table().equals(other.table()) for one, other in zip(*results.values(), strict=True)
    )
    return figures


def sizes(queries: np.ndarray, vectors: np.ndarray, rounds: int, device: str) -> dict[str, Any]:
    """Nested pools of several sizes: one pass against the largest alone."""
    queries = queries[:SIZES_QUERIES]
    shuffled = np.random.default_rng(6).permutation(len(vectors)).astype(np.uint32)
    counts = [len(vectors) * size // SIZES[-1] for size in SIZES]
    subsets = [Subset(np.sort(shuffled[:count]), no_exclusions(len(queries))) for count in counts]

    def one_pass(pools: list[Subset]) -> Callable[[], list[Ranking]]:
        return lambda: search(device, queries, blocks(vectors), pools, len(vectors), None)

    results, medians = interleaved({"one pass": one_pass(subsets), "the largest alone": one_pass(subsets[-1:])}, rounds)
    figures: dict[str, Any] = {"sizes": counts, "queries": len(queries), **seconds(medians)}
    for what, number in (("", 0), (" (processor time)", 1)):
        ratio = medians["one pass"][number] / medians["the largest alone"][number]
        figures[f"one pass over the largest alone{what}"] = round(ratio, 2)
    largest = results["one pass"][-1].table().equals(results["the largest alone"][0].table())
    figures["ranking of the largest equal in every bit"] = largest
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", help="one part alone: faiss-COUNT, pools or sizes")
    parser.add_argument("--quick", action="store_true", help="fewer vectors and one round")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--queries", type=int, nargs="+", default=[380])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    progress.set_quiet(True)
    parts = [options.part] if options.part else list(PARTS)
    rounds = 1 if options.quick else options.rounds
    usual = {"pools": 1_000_000, "sizes": SIZES[-1]}
    counts = {part: usual.get(part) or int(part.partition("-")[2]) for part in parts}
    if options.quick:
        counts = {part: min(count, 60_000) for part, count in counts.items()}
    largest = max(counts.values())
    faiss.omp_set_num_threads(THREADS)
    queries, vectors = make_vectors(largest, max(options.queries))
    whole(options.device, queries, blocks(vectors[:4_096]), 10**6, None)  # compiled code loads once
    report: dict[str, Any] = {
        "machine": provenance.processor(),
        "peers": provenance.versions(("faiss-cpu", "faiss-gpu")),
        "bfloat16": estimates.bfloat16_pays(),
        "threads": THREADS,
        "device": options.device,
        "queries": options.queries,
        "depth": DEPTH,
        "rounds": rounds,
    }
    print("peers:", *(f"{name} {version}" for name, version in report["peers"].items()))
    for part, count in itertools.product(parts, options.queries):
        several = rounds if counts[part] == largest else 2 * rounds + 1
        measure = {"pools": pools, "sizes": sizes}.get(part, against_faiss)
        label = part if len(options.queries) == 1 else f"{part}, {count} queries"
        report[label] = measure(queries[:count], vectors[: counts[part]], several, options.device)
        print(label)
        for what, figure in report[label].items():
            print(f"  {what:52}{figure!s:>28}", flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
