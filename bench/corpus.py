"""Documents a second of the S2ORC reader and prefilter against what else reads JSON lines: same files, same filter.

    python bench/corpus.py [--quick] [--papers 200k] [--input DIR] [--sizes 500k,2M,8M --memory 4G --pool 2M]

Without ``--input`` a synthetic release of ``--papers`` is written first, in the layout of S2ORC 2020. Everybody keeps
the papers with a year from 1500 to 2100, a title that is not blank, an abstract of 30 characters after runs of white
space are one space, and 3 outbound citations, and gives their columns. We read on 2 processes, which are started
before the clock is (``start_s`` says how long that takes), and do more for it: texts normalised, references as
distinct keys without the paper itself, every bad line accounted for. The loops are one process; Polars and DuckDB have
2 threads. Rounds are interleaved; medians of wall time, and of processor time, which other work on the machine moves
less. Decompression alone is the limit of all.

``--sizes`` then builds corpora of synthetic releases by the command itself under ``--memory`` and draws a pool from
the last: time, and the most memory the process and its children had together, sampled 20 times a second (resident:
pages of mapped files included; own: without them). A release takes about 0.9 GB a million papers, its corpus and the
scratch files of its making 3 GB more; all of it goes below ``--folder`` and is removed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import orjson
import polars as pl
import pyarrow.compute as pc

from pipeline.core import progress, provenance
from pipeline.core.config import parse_bytes, parse_count
from pipeline.core.resources import available_cores, available_memory
from pipeline.core.schema import NO_YEAR
from pipeline.sources.lines import read_blocks
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.sources.synthetic import Synthetic
from pipeline.sources.synthetic_s2orc import write_s2orc

PROCESSES = 2
COLUMNS = {
    "paper_id": pl.String,
    "title": pl.String,
    "abstract": pl.String,
    "year": pl.Int64,
    "mag_field_of_study": pl.List(pl.String),
    "outbound_citations": pl.List(pl.String),
    "inbound_citations": pl.List(pl.String),
    "doi": pl.String,
}
DUCKDB_TYPES = {pl.String: "VARCHAR", pl.Int64: "BIGINT", pl.List(pl.String): "VARCHAR[]"}

Result = tuple[int, int, float]
"""Papers read (0 where the engine does not say), papers kept, seconds of processor time in other processes."""


def ours(folder: Path, part: str) -> Result:
    started = time.process_time()
    read = kept = 0
    for batch in S2orc2020(folder).read(part):
        papers = batch.papers
        wanted = np.asarray(papers.column("year")) != NO_YEAR
        wanted &= np.asarray(pc.binary_length(papers.column("title"))) > 0
        wanted &= np.asarray(pc.utf8_length(papers.column("abstract"))) >= 30
        wanted &= np.asarray(pc.list_value_length(papers.column("outbound"))) >= 3
        read += batch.read
        kept += int(np.count_nonzero(wanted))
    return read, kept, time.process_time() - started


def inflate(folder: Path, part: str) -> Result:
    started = time.process_time()
    for _ in read_blocks(folder / part):
        pass
    return 0, 0, time.process_time() - started


def spread(
    function: Callable[[Path, str], Result], pool: ProcessPoolExecutor, folder: Path, parts: list[str]
) -> Result:
    read, kept, seconds = zip(*pool.map(partial(function, folder), parts), strict=True)
    return sum(read), sum(kept), sum(seconds)


def loop(loads: Callable[[bytes], Any], folder: Path, parts: list[str]) -> Result:
    read = kept = 0
    for part in parts:
        with gzip.open(folder / part, "rb") as lines:
            for line in lines:
                paper = loads(line)
                read += 1
                year, title, abstract = paper["year"], paper["title"], paper["abstract"]
                kept += (
                    year is not None
                    and 1500 <= year <= 2100
                    and bool(title)
                    and not title.isspace()
                    and bool(abstract)
                    and len(" ".join(abstract.split())) >= 30
                    and len(paper["outbound_citations"] or ()) >= 3
                )
    return read, kept, 0.0


def in_polars(folder: Path, parts: list[str]) -> Result:
    abstract = pl.col("abstract").str.replace_all(r"\s+", " ").str.strip_chars()
    papers = pl.scan_ndjson([folder / part for part in parts], schema=COLUMNS).filter(
        pl.col("year").is_between(1500, 2100),
        pl.col("title").str.strip_chars() != "",
        abstract.str.len_chars() >= 30,
        pl.col("outbound_citations").list.len() >= 3,
    )
    return 0, papers.collect().height, 0.0


def in_duckdb(folder: Path, parts: list[str]) -> Result:
    columns = {name: DUCKDB_TYPES[kind] for name, kind in COLUMNS.items()}
    query = f"""
        SELECT * FROM read_ndjson(?, columns = {columns}, maximum_object_size = 67108864)
        WHERE year BETWEEN 1500 AND 2100 AND trim(title) <> ''
        AND length(trim(regexp_replace(abstract, '\\s+', ' ', 'g'))) >= 30 AND len(outbound_citations) >= 3
    """  # noqa: S608
    with duckdb.connect(config={"threads": PROCESSES}) as connection:
        papers = connection.sql(query, params=[[str(folder / part) for part in parts]]).to_arrow_table()
    return 0, papers.num_rows, 0.0


def read_bench(folder: Path, rounds: int) -> dict[str, Any]:
    parts = list(S2orc2020(folder).parts())
    started = time.perf_counter()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        sizes = {part: (folder / part).stat().st_size for part in parts}
        smallest = [min(parts, key=sizes.__getitem__)] * PROCESSES
        spread(ours, pool, folder, smallest)
        start_s = time.perf_counter() - started
        engines: dict[str, Callable[[], Result]] = {
            "ours, 2 processes": partial(spread, ours, pool, folder, parts),
            "decompression alone, 2 processes": partial(spread, inflate, pool, folder, parts),
            "gzip + json.loads": partial(loop, json.loads, folder, parts),
            "gzip + orjson.loads": partial(loop, orjson.loads, folder, parts),
            "polars scan_ndjson, 2 threads": partial(in_polars, folder, parts),
            "duckdb read_ndjson, 2 threads": partial(in_duckdb, folder, parts),
        }
        wall: dict[str, list[float]] = {name: [] for name in engines}
        processor: dict[str, list[float]] = {name: [] for name in engines}
        found: dict[str, Result] = {}
        for _ in range(rounds):
            for name, engine in engines.items():
                clock, own = time.perf_counter(), time.process_time()
                found[name] = engine()
                wall[name].append(time.perf_counter() - clock)
                processor[name].append(time.process_time() - own + found[name][2])
    papers = found["ours, 2 processes"][0]
    ratios = {
        name: [theirs / mine for theirs, mine in zip(wall[name], wall["ours, 2 processes"], strict=True)]
        for name in engines
    }
    return {
        "papers": papers,
        "files": len(parts),
        "compressed_bytes": sum(sizes.values()),
        "rounds": rounds,
        "start_s": round(start_s, 2),
        "engines": {
            name: {
                "wall_s": round(statistics.median(wall[name]), 3),
                "cpu_s": round(statistics.median(processor[name]), 3),
                "papers_per_s": round(papers / statistics.median(wall[name])),
                "times_ours": round(statistics.median(ratios[name]), 2),
                "kept": found[name][1],
            }
            for name in engines
        },
    }


def memory_of(root: int) -> tuple[int, int]:
    """Return resident bytes of a process and all below it, and how many of them are no pages of files."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    resident = own = 0
    todo = [root]
    while todo:
        process = todo.pop()
        todo += children.get(process, [])
        try:
            status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
        except OSError:
            continue
        resident += int(status.get("VmRSS", "0").split()[0]) * 1024
        own += int(status.get("RssAnon", "0").split()[0]) * 1024
    return resident, own


def command(*arguments: str) -> dict[str, float]:
    """Run ``mdcr`` and return its wall time and peak memory."""
    started = time.perf_counter()
    running = subprocess.Popen([sys.executable, "-m", "pipeline", *arguments, "--quiet"], stdout=subprocess.DEVNULL)
    peaks = [0, 0]
    while running.poll() is None:
        peaks = [max(pair) for pair in zip(peaks, memory_of(running.pid), strict=True)]
        time.sleep(0.05)
    if running.returncode:
        raise SystemExit(f"mdcr {' '.join(arguments)} ended with {running.returncode}")
    resident, own = (round(peak / 2**30, 2) for peak in peaks)
    return {"wall_s": round(time.perf_counter() - started, 1), "resident_gib": resident, "own_gib": own}


def size_bench(sizes: list[str], memory: str, pool: str | None, folder: Path) -> Iterator[dict[str, Any]]:
    for size in sizes:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            work = Path(name)
            release, root = work / "release", work / "root"
            papers = parse_count(size, "--sizes")
            clock = time.perf_counter()
            citations = write_s2orc(Synthetic(papers), release, workers=PROCESSES)
            written = time.perf_counter() - clock
            limits = ("--root", str(root), "--memory", memory, "--workers", str(PROCESSES))
            built = command("corpus", "--source", "s2orc2020", "--input", str(release), "--corpus", "c", *limits)
            (manifest,) = root.glob("corpora/*/manifest.json")
            found = {
                "papers": papers,
                "citations": citations,
                "release_s": round(written, 1),
                "release_bytes": sum(path.stat().st_size for path in release.iterdir()),
                "corpus_bytes": sum(path.stat().st_size for path in manifest.parent.iterdir()),
                "build": built,
                "counts": {k: v for k, v in json.loads(manifest.read_text())["counts"].items() if k != "examples"},
            }
            if pool and size == sizes[-1]:
                shutil.rmtree(release)
                found["pool"] = command("pool", "--corpus", "c", "--size", pool, "--samples", "1", *limits)
            yield found


def print_read(found: dict[str, Any]) -> None:
    print(
        f"{found['papers']:,} papers in {found['files']} files, {found['compressed_bytes'] / 2**20:,.0f} MiB; median of"
    )
    print(f"{found['rounds']} interleaved rounds; processes started in {found['start_s']} s, not counted\n")
    print(f"{'':34}{'wall s':>9}{'cpu s':>9}{'papers/s':>12}{'x ours':>8}{'kept':>12}")
    for name, row in found["engines"].items():
        rate = f"{row['papers_per_s']:,}"
        print(f"{name:34}{row['wall_s']:9.2f}{row['cpu_s']:9.2f}{rate:>12}{row['times_ours']:8.2f}{row['kept']:12,}")


def print_size(found: dict[str, Any], memory: str) -> None:
    for what, figures in (("corpus", found["build"]), ("pool", found.get("pool"))):
        if figures:
            print(
                f"{what:7}{found['papers']:>12,} papers {found['citations']:>13,} citations  --memory {memory}  "
                f"{figures['wall_s']:8.1f} s  {figures['resident_gib']:.2f} GiB resident, {figures['own_gib']:.2f} own",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small release and two rounds")
    parser.add_argument("--papers", default=None, help="papers of the synthetic release (default: 200k)")
    parser.add_argument("--input", type=Path, default=None, help="a folder of S2ORC metadata instead")
    parser.add_argument("--rounds", type=int, default=None, help="interleaved rounds (default: 5)")
    parser.add_argument("--sizes", default="", help="build corpora of these sizes too")
    parser.add_argument("--memory", default="4G", help="what the builds may hold")
    parser.add_argument("--pool", default=None, help="draw a pool of this size from the last corpus")
    parser.add_argument("--folder", type=Path, default=None, help="where releases and corpora go for a while")
    options = parser.parse_args()
    parse_bytes(options.memory)
    progress.set_quiet(True)
    rounds = options.rounds or (2 if options.quick else 5)
    papers = parse_count(options.papers or ("20k" if options.quick else "200k"), "--papers")
    report: dict[str, Any] = {
        "machine": {"processor": provenance.processor(), "cores": available_cores(), "memory": available_memory()},
        "versions": {**provenance.versions(), "duckdb": duckdb.__version__, "orjson": orjson.__version__},
    }
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = options.input
        if folder is None:
            folder = Path(scratch) / "release"
            write_s2orc(Synthetic(papers), folder, shards=16, workers=PROCESSES)
        report["read"] = read_bench(folder, rounds)
    print_read(report["read"])
    report["sizes"] = []
    for found in size_bench([s for s in options.sizes.split(",") if s], options.memory, options.pool, options.folder):
        print_size(found, options.memory)
        report["sizes"].append(found | {"memory": options.memory})
    print(json.dumps(report))


if __name__ == "__main__":
    main()
