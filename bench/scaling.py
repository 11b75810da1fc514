"""What sizes beyond one machine take: a cost model, its check against measured runs, and a simulation of workers.

    python -m bench.scaling measure     runs the chain here at --sizes, fits on the first two, checks the rest
    python -m bench.scaling model       time, disk, memory, GPU hours and money for 2M, 16M and 200M papers
    python -m bench.scaling simulate    slices, failures, stragglers: efficiency, best shard size

All print Markdown. ``measure`` takes some minutes on two cores; the others take seconds. Rates of GPUs are parameters
(``GPUS``), computed from a data sheet's peak and an assumed share of it: none was measured.
"""

from __future__ import annotations

import argparse
import itertools
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

from bench.simulation import LOAD_SECONDS, World, dynamic, mean, shards_of, static
from pipeline.core.config import format_count, parse_count
from pipeline.core.schema import SHARD_ROWS

# ---------------------------------------------------------------- measured rates and parameters


@dataclass(frozen=True)
class Rates:
    """What one processor core does (measured by ``measure``), and what a paper takes on disk.

    Attributes:
        corpus: papers a second read and merged.
        terms: papers a second analysed for BM25.
        search: multiply-adds a second of dense search (candidates x queries x dimension).
        corpus_bytes: bytes a paper in a corpus.
        terms_bytes: bytes a paper in a term store.
    """

    corpus: float = 20_000.0
    terms: float = 17_000.0
    search: float = 1.1e10
    corpus_bytes: float = 1_307.0
    terms_bytes: float = 559.0


@dataclass(frozen=True)
class Gpu:
    """A GPU as a parameter of the model.

    Attributes:
        peak: dense bfloat16 operations a second, from NVIDIA's data sheet.
        share: of the peak that an encoder with unpadded batches reaches: assumed.
        price: dollars an hour: assumed, the order of an on-demand list price.
    """

    peak: float
    share: float
    price: float


@dataclass(frozen=True)
class Setting:
    """What is run, and on what.

    Attributes:
        rate: papers a second that one worker embeds.
        load: seconds until a worker's first paper.
        cores: of a node, one worker a node.
        queries: of the pool.
        dimension: of a vector.
        vector_bytes: a vector on disk, with its row number.
        price: dollars an hour of a worker's GPU.
    """

    rate: float
    load: float
    cores: int
    queries: int
    dimension: int
    vector_bytes: float
    price: float


GPUS = {"A100": Gpu(312e12, 0.35, 2.0), "H100": Gpu(989e12, 0.30, 3.0), "L4": Gpu(121e12, 0.35, 0.8)}
TOKENS = 220
"""Mean tokens of title and abstract (measured on real papers)."""
PARAMETERS = 85e6
"""Of BERT-base without its embeddings: two operations a parameter and token."""
DIMENSION, STORED_BYTES = 768, 2
QUERIES, DEPTH = 3_800, 500
LSA_DIMENSION = 256
CORE_PRICE = 0.05
CORES = 16


def encoder_rate(gpu: Gpu) -> float:
    """Return papers a second of a BERT-base on one GPU; attention adds 12 layers x 4 x tokens x width a token."""
    operations = TOKENS * (2 * PARAMETERS + 12 * 4 * TOKENS * DIMENSION)
    return gpu.peak * gpu.share / operations


def bert_base(gpu: Gpu) -> Setting:
    """Return a BERT-base on GPUs of one kind, with the assumptions of docs/scaling.md."""
    vector = DIMENSION * STORED_BYTES + 4
    return Setting(encoder_rate(gpu), LOAD_SECONDS, CORES, QUERIES, DIMENSION, vector, gpu.price)


# ---------------------------------------------------------------- the cost model


@dataclass(frozen=True)
class Cost:
    """What a run takes: hours by stage, GPU and core hours, disk, memory of one process, money."""

    hours: dict[str, float]
    gpu_hours: float
    core_hours: float
    disk_gb: float
    memory_gb: float
    dollars: float


def cost(papers: int, workers: int, setting: Setting, rates: Rates) -> Cost:
    """Return what corpus, terms, embedding and search of one pool of all papers take.

    Embedding is bounded by whole shards: the slowest slice has ``ceil(shards / workers)`` of them. Search reads every
    vector once on each node's cores and divides by nodes; the merge is small.
    """
    shards = math.ceil(papers / SHARD_ROWS)
    used = min(workers, shards)
    slowest = min(papers, math.ceil(shards / used) * SHARD_ROWS)
    search = papers * setting.queries * setting.dimension / (rates.search * setting.cores * used)
    seconds = {
        "corpus": papers / (rates.corpus * setting.cores),
        "terms": papers / (rates.terms * setting.cores),
        "embed": slowest / setting.rate + setting.load,
        "search": search,
    }
    gpu_hours = (papers / setting.rate + used * setting.load) / 3600
    core_hours = (papers / rates.corpus + papers / rates.terms + search * setting.cores * used) / 3600
    disk = papers * (rates.corpus_bytes + rates.terms_bytes + setting.vector_bytes)
    lists = setting.queries * DEPTH * 8 * 2
    memory = 8 * papers + lists + 2 * SHARD_ROWS * setting.dimension * 4 + 2e9
    return Cost(
        {name: value / 3600 for name, value in seconds.items()},
        gpu_hours,
        core_hours,
        disk / 1e9,
        memory / 1e9,
        gpu_hours * setting.price + core_hours * CORE_PRICE,
    )


def print_model(rates: Rates) -> None:
    print(
        "Papers a second of a BERT-base in bfloat16 (parameters, not measured): "
        + ", ".join(f"{name} {encoder_rate(gpu):,.0f}" for name, gpu in GPUS.items())
    )
    setting = bert_base(GPUS["A100"])
    rows = []
    for papers in (2_000_000, 16_000_000, 200_000_000):
        for count in (1, 4, 16, 64):
            found = cost(papers, count, setting, rates)
            rows.append(
                [
                    format_count(papers),
                    count,
                    *(_hours(found.hours[s]) for s in ("corpus", "terms", "embed", "search")),
                    f"{found.gpu_hours:,.2f}",
                    f"{found.core_hours:,.0f}",
                    f"{found.disk_gb:,.0f}",
                    f"{found.memory_gb:,.1f}",
                    f"{found.dollars:,.2f}",
                ]
            )
    print_table(
        ["papers", "GPUs", "corpus", "terms", "embed", "search", "GPU h", "core h", "disk GB", "memory GB", "dollars"],
        rows,
    )


# ---------------------------------------------------------------- the simulation's tables


def print_simulation(seeds: int) -> None:
    world = World(encoder_rate(GPUS["A100"]))
    rows = []
    for papers in (2_000_000, 16_000_000, 200_000_000):
        sizes = shards_of(papers, SHARD_ROWS)
        for workers in (4, 16, 64):
            fixed = mean(static(sizes, workers, world, seed) for seed in range(seeds))
            free = mean(dynamic(sizes, workers, world, seed) for seed in range(seeds))
            rows.append(
                [
                    format_count(papers),
                    len(sizes),
                    workers,
                    _minutes(fixed["makespan"]),
                    f"{fixed['efficiency']:.0%}",
                    f"{fixed['paid']:.0%}",
                    _minutes(free["makespan"]),
                    f"{free['efficiency']:.0%}",
                    f"{fixed['failures']:.2f}",
                ]
            )
    print_table(
        [
            "papers",
            "shards",
            "workers",
            "slices: min",
            "efficiency",
            "of paid time",
            "Ray: min",
            "efficiency",
            "failures",
        ],
        rows,
    )
    print(f"\nBatches that each of 64 workers gets on average (Ray; or slices, 64 at once), {seeds} runs each\n")
    turns = (1, 2, 4, 8, 16)
    rows = []
    for papers in (16_000_000, 200_000_000):
        sizes = shards_of(papers, SHARD_ROWS)
        means = [mean(dynamic(sizes, 64, world, seed, turn) for seed in range(seeds)) for turn in turns]
        rows.append([format_count(papers), *(f"{each['efficiency']:.0%}" for each in means)])
    print_table(["papers", *map(str, turns)], rows)
    print(f"\nShards of other sizes, 64 workers, {seeds} runs each: efficiency of slices / of Ray tasks\n")
    head = [2**power for power in range(12, 21, 1)]
    rows = []
    for papers in (2_000_000, 16_000_000, 200_000_000):
        row: list[Any] = [format_count(papers)]
        for size in head:
            sizes = shards_of(papers, size)
            few = max(2, min(seeds, 200_000 // len(sizes)))
            pair = [mean(run(sizes, 64, world, seed) for seed in range(few)) for run in (static, dynamic)]
            row.append(" / ".join(f"{each['efficiency']:.0%}" for each in pair))
        rows.append(row)
    print_table(["papers", *(f"{size:,}" for size in head)], rows)


# ---------------------------------------------------------------- measuring

STAGES = {"corpus": "corpus", "embed": "embed", "index": "terms", "search": "search"}
"""Commands that are timed, with the stage each adds."""


def measure_size(papers: int) -> dict[str, dict[str, float]]:
    """Run the chain on a synthetic corpus by one worker; return processor seconds, bytes and papers of each stage.

    Processor time, because other work on the machine moves it little; the manifests give the rest.
    """
    with tempfile.TemporaryDirectory() as folder:
        common = ["--root", folder, "--quiet", "--workers", "1", "--memory", "2G"]
        pool = ["--corpus", "s", "--size", "all", "--queries", "500"]
        lsa = ["--model", "lsa:sample=10000"]
        commands = {
            "corpus": ["--source", "synthetic", "--corpus", "s", "--papers", str(papers)],
            "pool": pool,
            "embed": [*pool, *lsa],
            "index": [*pool, "--model", "bm25"],
            "search": [*pool, *lsa],
        }
        seconds = {name: _processor_seconds([name, *words, *common]) for name, words in commands.items()}
        found: dict[str, dict[str, float]] = {}
        for path in Path(folder).rglob("manifest.json"):
            manifest = json.loads(path.read_text())
            counts, stored = manifest["counts"], sum(output["bytes"] for output in manifest["outputs"])
            for command, stage in STAGES.items():
                if manifest["stage"] == stage:
                    items = next(counts[n] for n in ("kept", "analysed", "embedded", "candidates") if n in counts)
                    found[stage] = {"seconds": seconds[command], "bytes": stored, "items": items}
                    found[stage]["queries"] = counts.get("queries", 0)
        return found


def _processor_seconds(words: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "pipeline", *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


Measured = dict[str, dict[str, float]]
"""What :func:`measure_size` returns."""


def slope(low: Measured, high: Measured, stage: str, what: str) -> tuple[float, float]:
    """Return the line through two sizes: seconds or bytes a paper, and those that do not grow."""
    a, b = low[stage], high[stage]
    each = (b[what] - a[what]) / max(b["items"] - a["items"], 1)
    return each, a[what] - each * a["items"]


def print_measured(sizes: Sequence[int]) -> None:
    measure_size(20_000)  # so that no size pays for compiling
    low, high, *rest = ((size, measure_size(size)) for size in sizes)
    rows = []
    for stage, what in itertools.product(("corpus", "terms", "embed", "search"), ("seconds", "bytes")):
        if (stage, what) == ("search", "bytes"):
            continue
        each, fixed = slope(low[1], high[1], stage, what)
        per = f"{1 / each:,.0f} papers/s" if what == "seconds" else f"{each:,.0f} bytes a paper"
        points = [found[stage] for _, found in rest]
        rows.append([stage, per, *(_compared(fixed + each * point["items"], point[what], what) for point in points)])
    fitted = f"fitted on {format_count(low[0])} and {format_count(high[0])}"
    print_table(["stage", fitted, *(f"{format_count(size)}: expected / measured" for size, _ in rest)], rows)
    starts = sum(_starts(low[1], high[1]))
    print(f"\nThe cost model with these rates, one worker of one core, and {starts:.1f} s of starts\n")
    checked = [_check(found, low[1], high[1]) for _, found in rest]
    head = ["the four stages", *(f"{format_count(size)}: expected / measured" for size, _ in rest)]
    print_table(head, [["time", *(each[0] for each in checked)], ["disk", *(each[1] for each in checked)]])
    print(f"\nsearch: {_rates(low[1], high[1]).search:.2g} multiply-adds a second of one core")


def _rates(low: Measured, high: Measured) -> Rates:
    search, _ = slope(low, high, "search", "seconds")
    return Rates(
        corpus=1 / slope(low, high, "corpus", "seconds")[0],
        terms=1 / slope(low, high, "terms", "seconds")[0],
        search=high["search"]["queries"] * LSA_DIMENSION / search,
        corpus_bytes=slope(low, high, "corpus", "bytes")[0],
        terms_bytes=slope(low, high, "terms", "bytes")[0],
    )


def _starts(low: Measured, high: Measured) -> list[float]:
    """Return the seconds of each command that do not grow: small runs are mostly these, large ones do not see them."""
    return [slope(low, high, stage, "seconds")[1] for stage in ("corpus", "terms", "embed", "search")]


def _check(found: Measured, low: Measured, high: Measured) -> tuple[str, str]:
    """Compare what :func:`cost` says of a size with what was measured: seconds, and bytes on disk.

    Not every paper of a corpus is one of its pool.
    """
    rates = _rates(low, high)
    rate, per = (slope(low, high, "embed", what)[0] for what in ("seconds", "bytes"))
    setting = Setting(1 / rate, 0.0, 1, int(found["search"]["queries"]), LSA_DIMENSION, per, 0.0)
    papers = {stage: int(found[stage]["items"]) for stage in found}
    hours = sum(cost(count, 1, setting, rates).hours[stage] for stage, count in papers.items())
    beside = (papers["corpus"] - papers["embed"]) * rates.corpus_bytes
    stored = sum(found[stage]["bytes"] for stage in ("corpus", "terms", "embed"))
    return (
        _compared(3600 * hours + sum(_starts(low, high)), sum(stage["seconds"] for stage in found.values()), "seconds"),
        _compared(cost(papers["embed"], 1, setting, rates).disk_gb * 1e9 + beside, stored, "bytes"),
    )


def _compared(expected: float, measured: float, what: str) -> str:
    scale, unit = (1.0, "s") if what == "seconds" else (1e6, "MB")
    return f"{expected / scale:,.1f} / {measured / scale:,.1f} {unit} ({expected / measured - 1:+.0%})"


# ---------------------------------------------------------------- printing


def _hours(value: float) -> str:
    return f"{value:.1f} h" if value >= 1 else f"{value * 60:.1f} min"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:,.1f}"


def print_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    print("| " + " | ".join(head) + " |")
    print("| :--- |" + " ---: |" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("measure", "model", "simulate"))
    parser.add_argument("--sizes", default="20k,80k,40k,160k", help="measure: papers; the first two are fitted")
    parser.add_argument("--runs", type=int, default=20, help="simulate: runs of each setting")
    options = parser.parse_args()
    if options.what == "measure":
        print_measured([parse_count(size, "--sizes") for size in options.sizes.split(",")])
    elif options.what == "model":
        print_model(Rates())
    else:
        print_simulation(options.runs)


if __name__ == "__main__":
    main()
