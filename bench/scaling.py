"""Estimate time, disk, memory and money for corpora of 2M to 200M papers.

    python -m bench.scaling measure     rates of this machine's cores, from runs of the pipeline at --sizes
    python -m bench.scaling model       the estimate, from the rates below

Both print Markdown. Rates of cores were measured with ``measure``. Of GPUs an H200 was measured; others are assumed to
reach the same shares of their data sheets.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.config import format_count, parse_count
from pipeline.core.schema import SHARD_ROWS

TOKENS = 220
"""Mean tokens of a title and abstract, measured on real papers."""
PARAMETERS = 85e6
"""Parameters of BERT-base without embeddings: two operations per parameter and token."""
DIMENSION, LSA_DIMENSION, VECTOR_BYTES = 768, 256, 768 * 2 + 4
QUERIES, DEPTH = 3_800, 500
CORES, CORE_PRICE = 16, 0.05
LOAD_SECONDS = 30.0
ENCODERS, POOLS, POOL = 6, 57, 200_000
"""Of a comparison by field: 19 fields, three samples of 200,000 candidates each, from 2M papers."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, by its data sheet: dense bfloat16 operations per second, bytes per second of its memory.

    Dollars per hour are assumed.
    """

    peak: float
    memory: float
    price: float

    @property
    def rate(self) -> float:
        """Papers per second of BERT-base; attention adds 12 layers x 4 x tokens x width operations per token."""
        return self.peak * ENCODED / (TOKENS * (2 * PARAMETERS + 12 * 4 * TOKENS * DIMENSION))


GPUS = {
    "A100": Gpu(312e12, 2.0e12, 2.0),
    "H100": Gpu(989e12, 3.35e12, 3.0),
    "H200": Gpu(989e12, 4.8e12, 3.5),
    "L4": Gpu(121e12, 0.3e12, 0.8),
}

ENCODED = 0.20
"""Share of the peak that BERT-base reaches while it embeds a pool, measured on an H200."""
BUS, PRODUCT, SELECTION, RESCORING = 8.3e9, 0.15, 0.107, 0.46
"""Of search, measured on an H200: bytes per second from main memory, shares of its peak and of its memory's speed."""
PASSES, COPIES, BLOCK = 4, 10, 131_072
"""Times that a score is written or read, tensors of float64 that scoring a pair makes, candidates of a block."""


def search_parts(papers: int, gpu: Gpu) -> dict[str, float]:
    """Return the seconds of each part of exact search on one GPU; a block is sent while the one before is searched."""
    pairs = QUERIES * DEPTH * (2 + math.log(max(papers / BLOCK, 1)))
    return {
        "transfer": papers * DIMENSION * 2 / BUS,
        "product": 2 * papers * QUERIES * DIMENSION / (gpu.peak * PRODUCT),
        "selection": papers * QUERIES * 4 * PASSES / (gpu.memory * SELECTION),
        "rescoring": pairs * DIMENSION * 8 * COPIES / (gpu.memory * RESCORING),
    }


def search_seconds(papers: int, gpu: Gpu) -> float:
    """Return the seconds of exact search on one GPU: the longer of sending and multiplying, then scoring."""
    parts = search_parts(papers, gpu)
    return max(parts["transfer"], parts["product"] + parts["selection"]) + parts["rescoring"]


@dataclass(frozen=True)
class Rates:
    """Rates of one processor core, and disk per paper.

    Attributes:
        corpus: papers per second read and merged.
        terms: papers per second analysed for BM25.
        corpus_bytes: bytes per paper of a corpus.
        terms_bytes: bytes per paper of analysed terms.
    """

    corpus: float = 20_000.0
    terms: float = 17_000.0
    corpus_bytes: float = 1_307.0
    terms_bytes: float = 559.0


@dataclass(frozen=True)
class Cost:
    """Estimate of a run: hours per stage, GPU and core hours, disk, memory of one process, money."""

    hours: dict[str, float]
    gpu_hours: float
    core_hours: float
    disk_gb: float
    memory_gb: float
    dollars: float


def cost(papers: int, workers: int, gpu: Gpu, rates: Rates) -> Cost:
    """Estimate corpus, terms, embedding and search of one pool of all papers.

    A unit is a corpus shard, so embedding lasts as long as the worker with the most shards. Each node searches its
    share of the vectors. Corpus and terms run on one node.
    """
    shards = math.ceil(papers / SHARD_ROWS)
    used = min(workers, shards)
    slowest = min(papers, math.ceil(shards / used) * SHARD_ROWS)
    seconds = {
        "corpus": papers / (rates.corpus * CORES),
        "terms": papers / (rates.terms * CORES),
        "embed": slowest / gpu.rate + LOAD_SECONDS,
        "search": search_seconds(slowest, gpu),
    }
    gpu_hours = (papers / gpu.rate + used * (LOAD_SECONDS + seconds["search"])) / 3600
    core_hours = (papers / rates.corpus + papers / rates.terms) / 3600
    memory = 8 * papers + QUERIES * DEPTH * 16 + 2 * SHARD_ROWS * DIMENSION * 4 + 2e9
    return Cost(
        {name: value / 3600 for name, value in seconds.items()},
        gpu_hours,
        core_hours,
        papers * (rates.corpus_bytes + rates.terms_bytes + VECTOR_BYTES) / 1e9,
        memory / 1e9,
        gpu_hours * gpu.price + core_hours * CORE_PRICE,
    )


def print_model() -> None:
    """Print the estimate for H200 nodes."""
    print(
        "Papers per second of BERT-base: " + ", ".join(f"{name} {gpu.rate:,.0f}" for name, gpu in GPUS.items()) + "\n"
    )
    parts = {name: search_parts(2_000_000, gpu) for name, gpu in GPUS.items()}
    print_table(
        ["search of 2M, seconds", *parts["A100"]],
        [[name, *(f"{seconds:.2f}" for seconds in found.values())] for name, found in parts.items()],
    )
    print()
    compared = []
    for name, gpu in GPUS.items():
        embed = ENCODERS * (2_000_000 / gpu.rate + LOAD_SECONDS) / 3600
        search = ENCODERS * POOLS * search_seconds(POOL, gpu) / 3600
        compared.append([name, *map(_duration, (embed, search, embed + search)), f"{(embed + search) * gpu.price:.1f}"])
    print_table([f"{ENCODERS * POOLS} rankings on one", "embed", "search", "both", "dollars"], compared)
    print()
    rows = []
    for papers in (2_000_000, 16_000_000, 200_000_000):
        for workers in (1, 4, 16, 64):
            found = cost(papers, workers, GPUS["H200"], Rates())
            hours = [_duration(h) for h in found.hours.values()]
            totals = (found.gpu_hours, found.core_hours, found.disk_gb, found.memory_gb, found.dollars)
            rows.append([format_count(papers), str(workers), *hours, *(f"{total:,.1f}" for total in totals)])
    stages = ["corpus", "terms", "embed", "search"]
    print_table(["papers", "GPUs", *stages, "GPU h", "core h", "disk GB", "memory GB", "dollars"], rows)


def _duration(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{hours * 60:.1f} min" if hours * 3600 >= 6 else f"{hours * 3600:.1f} s"


COMMANDS = {"corpus": "corpus", "embed": "embed", "index": "terms", "search": "search"}
"""Commands that are timed, and the stage each adds."""


def measure(papers: int) -> dict[str, dict[str, float]]:
    """Run the pipeline with one worker; return processor seconds, bytes, papers and queries of each stage."""
    with tempfile.TemporaryDirectory() as folder:
        common = ["--root", folder, "--quiet", "--workers", "1", "--memory", "2G"]
        pool = ["--corpus", "s", "--size", "all", "--queries", "500"]
        arguments = {
            "corpus": ["--source", "synthetic", "--corpus", "s", "--papers", str(papers)],
            "pool": pool,
            "embed": [*pool, "--model", "lsa"],
            "index": [*pool, "--model", "bm25"],
            "search": [*pool, "--model", "lsa"],
        }
        seconds = {name: _processor_seconds([name, *words, *common]) for name, words in arguments.items()}
        found: dict[str, dict[str, float]] = {}
        for path in Path(folder).rglob("manifest.json"):
            manifest = json.loads(path.read_text())
            for command, stage in COMMANDS.items():
                if manifest["stage"] == stage:
                    counts = manifest["counts"]
                    items = next(counts[n] for n in ("kept", "analysed", "embedded", "candidates") if n in counts)
                    stored = sum(output["bytes"] for output in manifest["outputs"])
                    queries = counts.get("queries", 0)
                    found[stage] = {"seconds": seconds[command], "bytes": stored, "items": items, "queries": queries}
        return found


def _processor_seconds(words: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "pipeline", *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def print_measured(sizes: Sequence[int]) -> None:
    """Print rates between two sizes: what does not grow with the papers (imports, compilation) cancels out."""
    measure(min(sizes))  # compiles and fills caches
    small, large = (measure(size) for size in sorted(sizes))
    rows = []
    for stage in COMMANDS.values():
        low, high = small[stage], large[stage]
        papers = high["items"] - low["items"]
        rate = papers / (high["seconds"] - low["seconds"])
        stored = f"{(high['bytes'] - low['bytes']) / papers:,.0f}" if stage != "search" else "-"
        rows.append([stage, f"{rate:,.0f}", stored])
        if stage == "search":
            print(f"search: {rate * high['queries'] * LSA_DIMENSION:.2g} multiply-adds per second of one core\n")
    print_table(["stage", "papers/s of one core", "bytes per paper"], rows)


def print_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(head) + " |")
    print("| :--- |" + " ---: |" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("measure", "model"))
    parser.add_argument("--sizes", default="40k,160k", help="measure: two numbers of papers")
    options = parser.parse_args()
    if options.what == "measure":
        print_measured([parse_count(size, "--sizes") for size in options.sizes.split(",")])
    else:
        print_model()


if __name__ == "__main__":
    main()
