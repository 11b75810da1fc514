"""Graph candidates of the MDCR benchmark at full size: 3,800 queries on a citation graph of 8M papers and 188M links.

    python bench/mdcr.py [--quick] [--memory 1G]

The graph is generated as CSR arrays in memory-mapped files: reference lists of skewed length, half of the references to
neighbours in a random order of papers, so that overlaps occur, half to papers by a power law, so that some have
hundreds of thousands of citations. A new process draws the candidates with ``--memory`` at most, beside the mapped
files. A plain definition by sets answers some of the queries in the same run, and its time is scaled to all.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.resources import Resources
from pipeline.core.rng import generator
from pipeline.corpus.reader import Graph
from pipeline.studies.mdcr.build import by_overlap, graph_candidates

PAPERS, LINKS, QUERIES, COUNT = 8_000_000, 188_000_000, 3_800, 10
_BLOCK = 1_000_000


def generate(folder: Path, papers: int, links: int) -> None:
    """Write both directions of the graph."""
    chance = np.random.default_rng(13)
    counts_of, targets = [], []
    for start in range(0, papers, _BLOCK):
        end = min(start + _BLOCK, papers)
        lengths = np.minimum(chance.geometric(papers / links, end - start), 500)
        own = np.repeat(np.arange(start, end), lengths)
        near = (own + chance.integers(-2_000, 2_000, len(own))) % papers
        far = (papers * chance.random(len(own)) ** 4).astype(np.int64)
        target = np.where(chance.random(len(own)) < 0.5, near, far)
        cites = np.sort((own * papers + target)[own != target])  # rising within a paper
        cites = cites[np.append(True, cites[1:] != cites[:-1])]
        counts_of.append(np.bincount(cites // papers - start, minlength=end - start))
        targets.append((cites % papers).astype(np.uint32))
    lengths, indices = np.concatenate(counts_of), np.concatenate(targets)
    np.save(folder / "out-indptr.npy", np.concatenate([[0], np.cumsum(lengths)]))
    np.save(folder / "out.npy", indices)
    counts = np.bincount(indices, minlength=papers)
    np.save(folder / "in-indptr.npy", np.concatenate([[0], np.cumsum(counts)]))
    packed = indices.astype(np.int64) << 32 | np.repeat(np.arange(papers, dtype=np.int64), lengths)
    packed.sort()
    np.save(folder / "in.npy", packed.astype(np.uint32))


def load(folder: Path) -> tuple[Graph, Graph]:
    def graph(name: str) -> Graph:
        return Graph(*(np.load(folder / f"{name}{part}.npy", mmap_mode="r") for part in ("-indptr", "")))

    return graph("out"), graph("in")


def queries(outgoing: Graph, count: int) -> list[int]:
    chosen: list[int] = np.random.default_rng(7).choice(len(outgoing.indptr) - 1, count, replace=False).tolist()
    return chosen


def draw(folder: Path, count: int, memory: int) -> None:
    """Do what the builder does, and print seconds and candidates: the new process runs this."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    outgoing, incoming = load(folder)
    fit = np.random.default_rng(3).random(len(outgoing.indptr) - 1) < 0.4
    rows = queries(outgoing, count)
    before, found = (time.perf_counter(), time.process_time()), 0
    for row in rows:
        found += len(
            graph_candidates(outgoing, incoming, row, lambda rows: fit[rows], COUNT, generator(13, "bench", row))
        )
    seconds, of_cpu = time.perf_counter() - before[0], time.process_time() - before[1]
    print(json.dumps({"seconds": seconds, "cpu_seconds": of_cpu, "found": found}))


def measured(folder: Path, count: int, memory: int) -> dict[str, Any]:
    """Return what :func:`draw` prints in a new process, and the peak of its memory without the mapped files."""
    code = f"from pathlib import Path; from bench.mdcr import draw; draw(Path({str(folder)!r}), {count}, {memory})"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        peak = max([peak, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))])
        time.sleep(0.01)
    if process.returncode or process.stdout is None:
        raise SystemExit(f"graph candidates failed with {memory / 1e6:,.0f} MB")
    return {**json.load(process.stdout), "peak_mb": peak * 1024 / 1e6, "memory_mb": memory / 1e6}


def plain(outgoing: Graph, incoming: Graph, rows: list[int]) -> float:
    """Return seconds of the overlaps by the definition, after comparing them with ours."""
    before = time.perf_counter()
    expected = []
    for row in rows:
        cited = set(outgoing.of(row).tolist())
        near = {c: set(outgoing.of(c).tolist()) | set(incoming.of(c).tolist()) for c in cited}
        expected.append({c: len(cited & near[c]) for c in cited})
    seconds = time.perf_counter() - before
    for row, overlaps in zip(rows, expected, strict=True):
        ours = by_overlap(outgoing, row)
        if dict(zip(*(each.tolist() for each in ours), strict=True)) != overlaps:
            raise SystemExit(f"overlaps of {row} differ")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a graph of 80,000 papers and 380 queries")
    parser.add_argument("--memory", default="1G", help="of the process that draws; the mapped graph is no part of it")
    parser.add_argument("--folder", type=Path, help="where the graph is, or is generated")
    options = parser.parse_args()
    scale = 100 if options.quick else 1
    papers, links, count = PAPERS // scale, LINKS // scale, QUERIES // (10 if options.quick else 1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "in.npy").exists():
            generate(folder, papers, links)
        ours = measured(folder, count, Resources.of(options.memory).memory)
        graphs = load(folder)
        some = queries(graphs[0], count)[:50]
        by_sets = plain(*graphs, some) * count / len(some)
        links = len(graphs[0].indices)
    print(f"{papers:,} papers, {links:,} links, {count:,} queries, {ours['found']:,} candidates")
    print(f"ours: {ours['seconds']:.1f} s, {ours['cpu_seconds']:.1f} s of CPU")
    print(f"memory beside the mapped graph: {ours['peak_mb']:.0f} of {ours['memory_mb']:,.0f} MB")
    print(f"definition by sets, overlaps alone: {by_sets:.1f} s, {by_sets / ours['seconds']:.1f} times as long")
    print(json.dumps({"papers": papers, "links": links, "queries": count, **ours, "sets_seconds": by_sets}))


if __name__ == "__main__":
    main()
