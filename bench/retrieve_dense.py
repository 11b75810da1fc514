"""Exact dense search against faiss.IndexFlatL2: same vectors, same queries, same run, two threads each.

    python bench/retrieve_dense.py [faiss-20000 | faiss-200000 | faiss-1000000 | pools | growth | shapes] [--quick]

Each part ends within five minutes on two cores; without one, all are measured.

Vectors: a mixture of 500 Gaussians in 768 dimensions whose centres have 0.7 times the spread of their points, shifted
by a common mean as encoders' vectors are. A query is a vector and noise of half the spread. Isotropic noise is the hard
case for an error bound: nearest neighbours are hardly nearer than the rest, so more candidates come within the bound
than with real vectors. Rounds are interleaved, each in another order; medians of wall time and of processor time (which
other work on the machine moves less) are compared. Pools are gathered into memory that is there already: on a virtual
machine fresh memory can be slower than a search.

Measured: 20k, 200k and 1M vectors against Faiss, products as the engine chooses them (whole numbers,
bfloat16), in bfloat16 alone and in float32 alone; twelve pools (three samples of four nested
sizes) in one pass against twelve searches, beside the limit, which is the sum of the pool sizes over the size of their
union; four pool sizes; searches of other shapes (few and many queries, small pools, fewer dimensions, inner products)
against Faiss; and what part of the rate of a plain matrix product a search reaches.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import faiss
import numpy as np
import torch

from pipeline.core import progress, provenance
from pipeline.core.resources import Resources
from pipeline.retrieve.base import Block, Metric, Ranking, Subset, block_rows, no_exclusions
from pipeline.retrieve.dense import products
from pipeline.retrieve.exact import ExactEngine

Kind = tuple[bool, bool] | None
"""Whether products may be bfloat16, and whole numbers; None: as the engine chooses."""

PARTS = ("faiss-20000", "faiss-200000", "faiss-1000000", "pools", "growth", "shapes")
DIMENSION, QUERIES, DEPTH, THREADS, TOPICS = 768, 380, 500, 2, 500
SHAPES = (
    (5_000, 768, 380, 500),
    (20_000, 768, 1, 100),
    (20_000, 768, 20, 500),
    (20_000, 768, 3_800, 500),
    (20_000, 128, 380, 500),
    (50_000, 768, 200, 500),
    (100_000, 768, 3_800, 500),
    (200_000, 768, 1, 100),
    (200_000, 768, 20, 500),
    (200_000, 384, 380, 1_000),
)
"""Candidates, dimensions, queries and depth of other searches."""
PAUSE = 0.1
"""Seconds before each run: threads of the one before, Faiss's above all, wait actively for a while."""
RESOURCES = Resources(memory=8 << 30, workers=THREADS, device="cpu")
EXCLUDED = no_exclusions(QUERIES)


def make_vectors(count: int, dimension: int = DIMENSION, queries: int = QUERIES) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(13)
    centres = 0.7 * rng.standard_normal((TOPICS, dimension), np.float32) + rng.standard_normal(dimension, np.float32)
    vectors = np.empty((count, dimension), np.float32)
    for start in range(0, count, 50_000):
        part = vectors[start : start + 50_000]
        rng.standard_normal(dtype=np.float32, out=part)
        part += centres[rng.integers(0, TOPICS, len(part))]
    some = vectors[rng.choice(count, queries, replace=False)]
    return some + np.float32(0.5) * rng.standard_normal(some.shape, np.float32), vectors


def blocks(vectors: np.ndarray) -> Iterator[Block]:
    """Yield all vectors as they lie."""
    size = block_rows(vectors.shape[1], RESOURCES.memory)
    for start in range(0, len(vectors), size):
        part = vectors[start : start + size]
        yield np.arange(start, start + len(part), dtype=np.uint32), part


def gathered(vectors: np.ndarray, rows: np.ndarray, room: np.ndarray) -> Iterator[Block]:
    """Yield the vectors of some rows, gathered into memory that is there already."""
    size = block_rows(DIMENSION, RESOURCES.memory)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        yield part, np.take(vectors, part, axis=0, out=room[start : start + len(part)], mode="clip")


def ours(queries: np.ndarray, candidates: Iterator[Block], count: int, kind: Kind) -> Ranking:
    return engine_of(kind, count).search(
        queries, candidates, metric="l2", depth=DEPTH, excluded=EXCLUDED, resources=RESOURCES
    )


def engine_of(kind: Kind, count: int) -> ExactEngine:
    """Return the engine for so many candidates."""
    return ExactEngine(2.0 * QUERIES * DIMENSION * count) if kind is None else ExactEngine(low=kind[0], whole=kind[1])


def interleaved(runs: dict[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what each run gave last, and its median wall and processor seconds."""
    wall: dict[str, list[float]] = {label: [] for label in runs}
    used: dict[str, list[float]] = {label: [] for label in runs}
    results: dict[str, Any] = {}
    labels = list(runs)
    for number in range(rounds):
        for label in labels[number % len(labels) :] + labels[: number % len(labels)]:
            run = runs[label]
            time.sleep(PAUSE)
            started, processor = time.perf_counter(), time.process_time()
            results[label] = run()
            wall[label].append(time.perf_counter() - started)
            used[label].append(time.process_time() - processor)
    medians = {label: (statistics.median(wall[label]), statistics.median(used[label])) for label in runs}
    return results, medians


def against_faiss(queries: np.ndarray, vectors: np.ndarray, kinds: dict[str, Kind], rounds: int) -> dict[str, Any]:
    index = faiss.IndexFlatL2(DIMENSION)
    index.add(vectors)
    runs: dict[str, Callable[[], Any]] = {"faiss": lambda: index.search(queries, DEPTH)}
    for label, kind in kinds.items():
        runs[label] = lambda kind=kind: ours(queries, blocks(vectors), len(vectors), kind)
    results, medians = interleaved(runs, rounds)
    figures: dict[str, Any] = {"vectors": len(vectors)}
    for label, (wall, used) in medians.items():
        figures[f"{label} s"], figures[f"{label} processor s"] = round(wall, 2), round(used, 2)
    for label in kinds:
        for what, number in (("", 0), (" (processor time)", 1)):
            figures[f"{label} over faiss{what}"] = round(medians["faiss"][number] / medians[label][number], 2)
    tables = [results[label].table() for label in kinds]
    figures["all kinds equal in every bit"] = all(table.equals(tables[0]) for table in tables)
    rows = results[next(iter(kinds))].row.reshape(QUERIES, DEPTH)
    found = [len(np.intersect1d(a, b)) for a, b in zip(rows, results["faiss"][1], strict=True)]
    figures["share of faiss's entries"] = round(sum(found) / rows.size, 6)
    return figures


def pools(queries: np.ndarray, vectors: np.ndarray, kind: Kind, rounds: int) -> dict[str, Any]:
    """Three samples of four nested sizes: one pass against twelve."""
    rng = np.random.default_rng(5)
    sizes = [len(vectors) // part for part in (16, 8, 4, 2)]
    samples = [rng.permutation(len(vectors)).astype(np.uint32) for _ in range(3)]
    candidates = [np.sort(sample[:size]) for sample in samples for size in sizes]
    union = np.unique(np.concatenate(candidates))
    subsets = [Subset(rows, EXCLUDED) for rows in candidates]
    room = np.ones((len(union), DIMENSION), np.float32)

    def together() -> list[Ranking]:
        return engine_of(kind, len(union)).search_pools(
            queries, gathered(vectors, union, room), subsets, metric="l2", depth=DEPTH, resources=RESOURCES
        )

    def apart() -> list[Ranking]:
        return [ours(queries, gathered(vectors, rows, room), len(rows), kind) for rows in candidates]

    results, medians = interleaved({"one pass": together, "twelve searches": apart}, rounds)
    limit = sum(map(len, candidates)) / len(union)
    figures: dict[str, Any] = {"sizes": sizes, "union": len(union), "limit": round(limit, 3)}
    for label, (wall, used) in medians.items():
        figures[f"{label} s"], figures[f"{label} processor s"] = round(wall, 2), round(used, 2)
    for what, number in (("", 0), (" (processor time)", 1)):
        ratio = medians["twelve searches"][number] / medians["one pass"][number]
        figures[f"twelve searches over one pass{what}"] = round(ratio, 3)
        figures[f"share of the limit{what}"] = round(ratio / limit, 3)
    figures["rankings equal in every bit"] = all(
        one.table().equals(other.table()) for one, other in zip(*results.values(), strict=True)
    )
    return figures


def growth(queries: np.ndarray, vectors: np.ndarray, kind: Kind, rounds: int) -> dict[str, Any]:
    sizes = [len(vectors) // part for part in (8, 4, 2, 1)]
    runs = {str(size): lambda size=size: ours(queries, blocks(vectors[:size]), size, kind) for size in sizes}
    _, medians = interleaved(runs, rounds)
    return {f"{size} candidates, microseconds each": round(1e6 * medians[str(size)][0] / size, 2) for size in sizes}


def shapes(rounds: int, most: int) -> dict[str, str]:
    """Return of other searches, by L2 and by inner product, our wall seconds and how many times that Faiss takes."""
    figures = {}
    for count, dimension, number, depth in SHAPES:
        queries, vectors = make_vectors(min(count, most), dimension, number)
        for metric in ("l2", "inner_product"):
            seconds, wall, used = shape(queries, vectors, metric, depth, rounds)
            label = f"{len(vectors)} of {dimension}, {number} queries, {depth} deep, {metric}"
            figures[label] = f"{seconds:.3f} s, {wall:.2f} ({used:.2f})"
    return figures


def shape(
    queries: np.ndarray, vectors: np.ndarray, metric: Metric, depth: int, rounds: int
) -> tuple[float, float, float]:
    """Return wall seconds of one search, and Faiss's over them, by wall and by processor time."""
    index = (faiss.IndexFlatL2 if metric == "l2" else faiss.IndexFlatIP)(vectors.shape[1])
    index.add(vectors)
    engine, excluded = ExactEngine(2.0 * queries.size * len(vectors)), no_exclusions(len(queries))

    def search() -> Ranking:
        return engine.search(
            queries, blocks(vectors), metric=metric, depth=depth, excluded=excluded, resources=RESOURCES
        )

    runs: dict[str, Callable[[], Any]] = {"ours": search, "faiss": lambda: index.search(queries, depth)}
    interleaved(runs, 1)
    results, medians = interleaved(runs, rounds)
    found = zip(results["ours"].row.reshape(len(queries), depth), results["faiss"][1], strict=True)
    assert sum(len(np.intersect1d(*pair)) for pair in found) > 0.999 * depth * len(queries)
    (seconds, used), (theirs, used_there) = medians["ours"], medians["faiss"]
    return seconds, theirs / seconds, used_there / used


def machine(queries: np.ndarray, vectors: np.ndarray, rounds: int) -> dict[str, float]:
    """Return the rates of plain products on all threads, in 10**9 operations a second, and of memory, in GB/s."""
    torch.set_num_threads(THREADS)
    some, other = torch.from_numpy(vectors[:8_192]), torch.from_numpy(queries)
    scaled = [(20 * each).to(torch.int8) for each in (some, other)]
    halves = [each.to(torch.bfloat16) for each in (some, other)]
    copy = np.empty_like(vectors[:131_072])
    runs = {
        "float32": lambda: products.product(vectors[:8_192], queries),  # by the library that is chosen here
        "bfloat16": lambda: halves[0] @ halves[1].T,
        "int8": lambda: torch._int_mm(scaled[0], scaled[1].T),
        "copy": lambda: np.copyto(copy, vectors[: len(copy)]),
    }
    _, medians = interleaved(runs, max(rounds, 5))
    rates = {
        f"plain product of {label}, GFLOP/s": round(2e-9 * len(some) * QUERIES * DIMENSION / medians[label][0], 1)
        for label in ("float32", "bfloat16", "int8")
    }
    return {**rates, "copy GB/s (one thread, read and written)": round(2e-9 * copy.nbytes / medians["copy"][0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS, help="one part alone")
    parser.add_argument("--quick", action="store_true", help="fewer vectors and one round")
    options = parser.parse_args()
    progress.set_quiet(True)
    parts = [options.part] if options.part else list(PARTS)
    rounds = 1 if options.quick else 3
    faiss.omp_set_num_threads(THREADS)
    kinds: dict[str, Kind] = {"as chosen": None, "bfloat16": (True, False), "float32": (False, False)}
    if not products.halves():
        kinds.pop("bfloat16")
    report: dict[str, Any] = {
        "machine": provenance.processor(),
        "instructions": sorted(products.instructions()),
        "threads": THREADS,
        "queries": QUERIES,
        "depth": DEPTH,
        "rounds": rounds,
    }
    largest = 60_000 if options.quick else 1_000_000
    counts = {part: min(int(part.partition("-")[2]), largest) for part in parts if part.startswith("faiss-")}
    queries, vectors = make_vectors(largest if set(parts) - set(counts) else max(counts.values()))
    for kind in kinds.values():
        ours(queries, blocks(vectors[:4_096]), 10**6, kind)  # compiled code and torch load once
    for part in parts:
        if part in counts:
            several = rounds if counts[part] == largest else 2 * rounds + 1
            report[f"against faiss, {counts[part]}"] = against_faiss(queries, vectors[: counts[part]], kinds, several)
        elif part == "pools":
            report["twelve pools"] = pools(queries, vectors, None, 2 * rounds - 1)
        elif part == "growth":
            report["growth"] = growth(queries, vectors, None, rounds)
        else:
            report["shapes: ours, faiss over ours"] = shapes(2 * rounds + 1, largest)
    report["machine's limits"] = machine(queries, vectors, rounds)
    for title, figures in report.items():
        if isinstance(figures, dict):
            print(title)
            for label, figure in figures.items():
                print(f"  {label:52}{figure!s:>28}")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
