"""Building a corpus from S2ORC compared with other libraries: reading and prefiltering.

    python bench/corpus.py [--quick] [--papers 200k] [--input DIR] [--sizes 500k,2M,8M --memory 4G]

Without ``--input`` a synthetic release in the layout of S2ORC 2020 is written first. All readers keep the papers with a
year from 1500 to 2100, a title, an abstract of 30 characters and 3 outbound citations. Ours runs in 2 processes,
started before the clock, and also normalises texts and makes distinct reference keys; Polars and DuckDB have 2 threads;
the loops are one process. Rounds are interleaved; figures are medians of wall and processor time.

``--sizes`` builds corpora of synthetic releases with ``mdcr corpus --memory``, and samples the memory of the processes
20 times a second (resident: with mapped files; own: without). It takes about 4 GB of disk a million papers.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from mmap import PAGESIZE
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from isal import igzip

from pipeline.core import files, progress, provenance
from pipeline.core.config import parse_bytes, parse_count
from pipeline.core.errors import InputError
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.parallel import unordered
from pipeline.core.resources import available_cores, available_memory
from pipeline.core.rng import generator
from pipeline.core.schema import NO_YEAR
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.sources.synthetic import Synthetic

PROCESSES = 2
OURS = "ours, 2 processes"
LISTS = ("mag_field_of_study", "outbound_citations", "inbound_citations")
POLARS = {
    **dict.fromkeys(("paper_id", "title", "abstract", "doi"), pl.String),
    "year": pl.Int64,
    **dict.fromkeys(LISTS, pl.List(pl.String)),
}
DUCKDB = {name: "VARCHAR[]" if name in LISTS else "BIGINT" if name == "year" else "VARCHAR" for name in POLARS}

Result = tuple[int, int, float]
"""Papers read (0 where the engine does not say), papers kept, seconds of processor time in other processes."""


_AUTHORS: list[dict[str, Any]] = [
    {"first": first, "middle": [], "last": last, "suffix": ""}
    for first in ("Ada", "Bao", "Chinwe", "Dmitri", "Élodie", "Fatima", "Grace", "Haruto")
    for last in ("Abe", "Brown", "Cruz", "Diaz", "Eriksen", "Fischer", "Gupta", "Hernández", "Ivanov", "Johnson")
]
_MOST_AUTHORS = 6


def write_s2orc(release: Synthetic, folder: Path, workers: int = 1) -> int:
    """Write one ``metadata_N.jsonl.gz`` for each part into ``folder``; return the number of citations in the release.

    :class:`pipeline.sources.s2orc2020.S2orc2020` reads from them the papers that ``release`` gives. Each process holds
    about 300 MB.

    Args:
        release: what to write.
        folder: created if it is missing.
        workers: processes; the files do not depend on their number.

    Raises:
        InputError: the folder holds metadata files already.
        StageError: the disk is full.
    """
    if any(folder.glob("metadata_*.jsonl*")):
        raise InputError(f"{folder} holds metadata files already", "Name an empty folder, or remove them")
    citations = 0
    with files.disk_errors(folder), progress.Progress(release.papers, "write synthetic release", "papers") as bar:
        folder.mkdir(parents=True, exist_ok=True)
        for _, (papers, cited) in unordered(_Part(release, folder), release.parts(), workers):
            bar.add(papers)
            citations += cited
    return citations


@dataclass(frozen=True)
class _Part:
    """Writes one part of the release and returns its numbers of papers and citations; travels to worker processes."""

    release: Synthetic
    folder: Path

    def __call__(self, part: str) -> tuple[int, int]:
        encoder = msgspec.json.Encoder()
        papers = citations = 0
        with (
            files.replacing(self.folder / f"metadata_{int(part.partition('-')[0])}.jsonl.gz") as path,
            path.open("wb") as handle,
            igzip.IGzipFile(filename="", fileobj=handle, mode="wb", compresslevel=1, mtime=0) as packed,
        ):
            for batch in self.release.read(part):
                packed.write(encoder.encode_lines(list(_records(batch.papers, self.release.seed))))
                papers += batch.read
                citations += sum(batch.papers.column("n_inbound").to_pylist())
        return papers, citations


def _records(unit: pa.RecordBatch, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the papers of a unit as metadata records, keys as in the real release."""
    ids, titles, abstracts, years, masks, outbound = (column.to_pylist() for column in unit.columns[:6])
    inbound = defaultdict[str, list[str]](list)
    for paper_id, cited in sorted(zip(ids, outbound, strict=True), key=lambda paper: int(paper[0])):
        for key in cited:
            inbound[str(key)].append(paper_id)
    # What no reader of this project looks at: authors, other identifiers, what was found in the full text.
    other = generator(seed, "synthetic s2orc", ids[0]).integers(1 << 40, size=len(ids)).tolist()
    for row, (paper_id, bits) in enumerate(zip(ids, other, strict=True)):
        references, citations = [str(key) for key in outbound[row]], inbound[paper_id]
        first = bits % (len(_AUTHORS) - _MOST_AUTHORS)
        parsed = bool(references) or bits % 20 == 0
        record: dict[str, Any] = {
            "paper_id": paper_id,
            "title": titles[row] or None,
            "authors": _AUTHORS[first : first + 1 + bits % _MOST_AUTHORS],
            "abstract": abstracts[row] or None,
            "year": None if years[row] == NO_YEAR else years[row],
            "arxiv_id": f"{bits % 10_000:04d}.{bits % 99_991:05d}" if bits % 9 == 0 else None,
            "acl_id": None,
            "pmc_id": None,
            "pubmed_id": str(bits % 33_000_000) if bits % 5 == 0 else None,
            "doi": f"10.{1000 + bits % 9000}/{bits:x}" if bits % 2 == 0 else None,
            "venue": None,
            "journal": f"Journal of Studies {bits % 40}" if bits % 4 < 2 else None,
            "mag_id": str(bits % 3_000_000_000),
            "mag_field_of_study": [name for bit, name in enumerate(MAG_FIELDS) if masks[row] >> bit & 1] or None,
            "outbound_citations": references,
            "inbound_citations": citations,
            "has_outbound_citations": bool(references),
            "has_inbound_citations": bool(citations),
            "has_pdf_parse": parsed,
            "s2_url": f"https://api.semanticscholar.org/CorpusID:{paper_id}",
        }
        if parsed:
            record |= {
                "has_pdf_parsed_abstract": bits % 3 == 0,
                "has_pdf_parsed_body_text": True,
                "has_pdf_parsed_bib_entries": bool(references),
                "has_pdf_parsed_ref_entries": bits % 7 == 0,
            }
        yield record


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


def in_processes(pool: ProcessPoolExecutor, folder: Path, parts: list[str]) -> Result:
    read, kept, seconds = zip(*pool.map(partial(ours, folder), parts), strict=True)
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
    papers = pl.scan_ndjson([folder / part for part in parts], schema=POLARS).filter(
        pl.col("year").is_between(1500, 2100),
        pl.col("title").str.strip_chars() != "",
        abstract.str.len_chars() >= 30,
        pl.col("outbound_citations").list.len() >= 3,
    )
    return 0, papers.collect().height, 0.0


def in_duckdb(folder: Path, parts: list[str]) -> Result:
    import duckdb

    query = f"""
        SELECT * FROM read_ndjson(?, columns = {DUCKDB}, maximum_object_size = 67108864)
        WHERE year BETWEEN 1500 AND 2100 AND trim(title) <> ''
        AND length(trim(regexp_replace(abstract, '\\s+', ' ', 'g'))) >= 30 AND len(outbound_citations) >= 3
    """  # noqa: S608
    with duckdb.connect(config={"threads": PROCESSES}) as connection:
        papers = connection.sql(query, params=[[str(folder / part) for part in parts]]).to_arrow_table()
    return 0, papers.num_rows, 0.0


def read_bench(folder: Path, rounds: int) -> dict[str, Any]:
    import orjson

    parts = list(S2orc2020(folder).parts())
    started = time.perf_counter()
    smallest = min(parts, key=lambda part: (folder / part).stat().st_size)
    # Each process reads a part before the clock starts: first use imports pandas through PyArrow.
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), initializer=ours, initargs=(folder, smallest)) as pool:
        in_processes(pool, folder, [smallest] * PROCESSES)
        start_s = time.perf_counter() - started
        engines: dict[str, Callable[[], Result]] = {
            OURS: partial(in_processes, pool, folder, parts),
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
    papers = found[OURS][0]
    rows = {
        name: {
            "wall_s": round(statistics.median(wall[name]), 3),
            "cpu_s": round(statistics.median(processor[name]), 3),
            "papers_per_s": round(papers / statistics.median(wall[name])),
            "times_ours": round(statistics.median(np.divide(wall[name], wall[OURS])), 2),
            "kept": found[name][1],
        }
        for name in engines
    }
    return {"papers": papers, "rounds": rounds, "start_s": round(start_s, 2), "engines": rows}


def memory_of(session: int) -> tuple[int, int]:
    """Return the resident bytes of the processes of a session, and those that are not pages of files."""
    resident = own = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rsplit(")", 1)[1].split()[3]) == session:
                _, pages, shared, *_ = map(int, stat.with_name("statm").read_text().split())
                resident, own = resident + pages, own + pages - shared
        except OSError:  # the process ended
            continue
    return resident * PAGESIZE, own * PAGESIZE


def watched(command: list[str]) -> tuple[bytes, list[int]]:
    """Run Python to its end; return what it printed and the most bytes its processes held: resident, without files."""
    running = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, start_new_session=True)
    peaks = [0, 0]
    while running.poll() is None:
        peaks = [max(pair) for pair in zip(peaks, memory_of(running.pid), strict=True)]
        time.sleep(0.05)
    if running.returncode or running.stdout is None:
        raise SystemExit(f"{' '.join(command)} ended with {running.returncode}")
    return running.stdout.read(), peaks


def size_bench(size: str, memory: str, folder: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        release, root = Path(name) / "release", Path(name) / "root"
        citations = write_s2orc(Synthetic(parse_count(size, "--sizes")), release, workers=PROCESSES)
        started = time.perf_counter()
        arguments = f"-m pipeline corpus --source s2orc2020 --input {release} --corpus c --root {root} --quiet"
        _, peaks = watched([*arguments.split(), "--memory", memory, "--workers", str(PROCESSES)])
        resident, own = (round(peak / 2**30, 2) for peak in peaks)
        seconds = round(time.perf_counter() - started, 1)
    figures = {"wall_s": seconds, "resident_gib": resident, "own_gib": own, "memory": memory}
    return {"papers": size, "citations": citations, **figures}


def print_read(found: dict[str, Any]) -> None:
    print(f"{found['papers']:,} papers, median of {found['rounds']} interleaved rounds\n")
    print(f"{'':34}{'wall s':>9}{'cpu s':>9}{'papers/s':>12}{'x ours':>8}{'kept':>12}")
    for name, row in found["engines"].items():
        rate = f"{row['papers_per_s']:,}"
        print(f"{name:34}{row['wall_s']:9.2f}{row['cpu_s']:9.2f}{rate:>12}{row['times_ours']:8.2f}{row['kept']:12,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small release and two rounds")
    parser.add_argument("--papers", default=None, help="papers of the synthetic release (default: 200k)")
    parser.add_argument("--input", type=Path, default=None, help="a folder of S2ORC metadata instead")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--sizes", default="", help="build corpora of these sizes too")
    parser.add_argument("--memory", default="4G", help="what the builds may hold")
    parser.add_argument("--folder", type=Path, default=None, help="where releases and corpora go for a while")
    options = parser.parse_args()
    parse_bytes(options.memory)
    progress.set_quiet(True)
    rounds = 2 if options.quick else options.rounds
    papers = parse_count(options.papers or ("20k" if options.quick else "200k"), "--papers")
    report: dict[str, Any] = {
        "machine": {"processor": provenance.processor(), "cores": available_cores(), "memory": available_memory()},
        "peers": {"python": platform.python_version(), **provenance.versions(("polars", "duckdb", "orjson"))},
    }
    print("peers:", *(f"{name} {version}" for name, version in report["peers"].items()))
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        folder = options.input
        if folder is None:
            folder = Path(scratch) / "release"
            write_s2orc(Synthetic(papers), folder, workers=PROCESSES)
        report["read"] = read_bench(folder, rounds)
        print_read(report["read"])
    report["sizes"] = [size_bench(size, options.memory, options.folder) for size in options.sizes.split(",") if size]
    for found in report["sizes"]:
        print(*(f"{name} {value}" for name, value in found.items()), sep="  ")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
