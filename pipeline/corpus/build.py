"""Building a corpus from a release, in bounded memory: extract sorted runs, merge them, resolve the citations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress, say
from pipeline.core.resources import Resources
from pipeline.core.schema import ATTRIBUTES, EXCLUSIONS, JUDGEMENTS, MISSING, QUERY_TEXTS, SHARD_ROWS
from pipeline.core.workdir import Workdir
from pipeline.corpus.extract import Extraction, part_of_run, run_files
from pipeline.corpus.graph import CitationGraph
from pipeline.corpus.join import Joined, join
from pipeline.corpus.merge import Merge
from pipeline.corpus.order import REPEATED, Order, order_papers
from pipeline.corpus.pools import table
from pipeline.corpus.prefilter import PrefilterConfig, prefilter
from pipeline.corpus.reader import rows_of
from pipeline.sources.base import JoinedRelease, QuerySet, Release

_RUN_BYTES = 256 * 2**20
_SHOWN = 5


def build_corpus(release: Release | JoinedRelease, out: Workdir, resources: Resources) -> dict[str, Any]:
    """Write the corpus of a release into ``out`` and return its counts.

    Holds at most ``resources.memory`` bytes, beside about 300 MB for each process and the pages of memory-mapped
    scratch files, which the system takes back at need. Scratch files take about the size of the corpus twice.
    """
    scratch = out.scratch()
    brought = release.queries()  # a bad query is refused before the papers are read
    read = join(release, scratch, resources) if isinstance(release, JoinedRelease) else release
    extracted = extract(read, release.allow_empty, list(enumerate(read.parts())), out, resources)
    counts = _total(extracted)
    if isinstance(read, Joined):
        read.discard()

    if not counts["kept"] and not release.allow_empty:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts["dropped"].items())
        raise InputError(
            f"a corpus must have a paper, got none from {counts['read']:,} records"
            f"{f' (dropped: {reasons})' if reasons else ''}",
            "Check the input; mdcr corpus --allow-empty accepts an empty corpus",
        )
    runs = run_files(scratch, [part["runs"] for part in extracted])
    order = order_papers(runs, scratch, SHARD_ROWS, resources.memory // 2)
    merge = Merge(runs, order, SHARD_ROWS, scratch)
    dropped = Counter(counts["dropped"]) + merge.write(out, resources.workers, resources.memory)
    if repeated := _first_repeated(runs, order, read):
        counts["examples"].append(repeated)
        say(f"dropped {repeated}")
    counts |= {"kept": order.papers, "dropped": dict(dropped), "shards": -(-order.papers // SHARD_ROWS)}
    counts |= CitationGraph(merge.shards, scratch, resources.workers, resources.memory // 2).write(out)
    counts["prefilter"] = _prefilter(merge.shards)
    if brought is not None:
        counts |= _write_queries(out, brought, order.papers)
        counts["noted"] = dict(sorted((Counter(counts["noted"]) + brought.noted).items()))
        counts["examples"] += brought.examples
        for example in brought.examples[:_SHOWN]:
            say(f"dropped {example}")
    return counts


def extract(
    release: Release | Joined, allow_empty: bool, parts: list[tuple[int, str]], out: Workdir, resources: Resources
) -> list[dict[str, Any]]:
    """Read some parts of a release, given with their numbers, into sorted runs; return the counts of each."""
    run_bytes = min(_RUN_BYTES, resources.memory // (8 * resources.workers))
    extraction = Extraction(release, allow_empty, out.scratch(), run_bytes)
    done: dict[int, dict[str, Any]] = {}
    with Progress(len(parts), f"corpus: read {release.source}", "parts") as progress:
        for (number, _), counts in unordered(extraction, parts, resources.workers):
            done[number] = counts
            progress.add(1, f"{sum(c['read'] for c in done.values()):,} records")
    return [done[number] for number, _ in parts]


def _total(parts: list[dict[str, Any]]) -> dict[str, Any]:
    dropped: Counter[str] = Counter()
    noted: Counter[str] = Counter()
    examples: list[str] = []
    for part in parts:
        dropped.update(part["dropped"])
        noted.update(part["noted"])
        examples += part["examples"]
    for example in examples[:_SHOWN]:
        say(f"dropped {example}")
    return {
        "read": sum(part["read"] for part in parts),
        "kept": sum(part["kept"] for part in parts),
        "dropped": dict(sorted(dropped.items())),
        "noted": dict(sorted(noted.items())),
        "examples": examples[:100],
    }


def _first_repeated(runs: list[Path], order: Order, release: Release | Joined) -> str | None:
    """Return ``reason: part: id`` of the lowest id that an earlier record has too."""
    parts = list(release.parts())
    lowest, example = 2 * int(REPEATED), None
    for number, run in enumerate(runs):
        ids = files.read_arrow(run).column("paper_id")
        rows = order.rows(number, 0, len(ids))
        repeated = np.flatnonzero(rows >= REPEATED)
        if len(repeated) and rows[repeated[0]] < lowest:
            lowest = int(rows[repeated[0]])
            place = release.source if isinstance(release, Joined) else parts[part_of_run(run)]
            example = f"duplicate_id: {place}: {ids[int(repeated[0])].as_py():.80}"
    return example


def _prefilter(shards: list[Path]) -> dict[str, int]:
    """Return what the prefilter drops and keeps under its default settings."""
    total: Counter[str] = Counter()
    for path in shards:
        shard = files.read_arrow(path)
        attributes = {field.name: shard.column(field.name).to_numpy() for field in ATTRIBUTES}
        total.update(prefilter(attributes, PrefilterConfig())[1])
    return dict(total)


def _write_queries(out: Workdir, brought: QuerySet, papers: int) -> dict[str, int]:
    """Write the queries a release brings, and its judgements: of papers the corpus has, and positives it lacks."""
    if papers == 0:
        raise InputError("the release has queries but no papers", "Check the input folder")
    row_of = _rows_of({paper for _, paper, _ in brought.judgements}, out.path)
    position = {query_id: i for i, query_id in enumerate(brought.query_ids)}
    judged = [(position[query], row_of.get(paper, -1), grade) for query, paper, grade in brought.judgements]
    known = [judgement for judgement in judged if judgement[1] >= 0]
    missing = sorted((query, grade) for query, row, grade in judged if row < 0 and grade >= 1)
    columns = np.array(sorted(known), np.int64).reshape(-1, 3).T
    out.arrow("queries.arrow", pa.table([brought.query_ids, brought.texts], schema=QUERY_TEXTS), QUERY_TEXTS)
    out.arrow("judgements.arrow", table(JUDGEMENTS, *columns), JUDGEMENTS)
    if brought.exclusions is not None:
        out.arrow("exclusions.arrow", _excluded(brought.exclusions, position, out.path), EXCLUSIONS)
    columns = np.array(missing, np.int64).reshape(-1, 2).T
    out.arrow("missing.arrow", table(MISSING, *columns), MISSING)
    return {
        "queries": len(brought.query_ids),
        "judgements": len(known),
        "judgements_of_nothing": len(brought.judgements) - len(known),
    }


def _excluded(pairs: Sequence[tuple[str, str]], position: dict[str, int], folder: Path) -> pa.Table:
    """Return the pairs whose query and paper the corpus has, sorted, each once."""
    row_of = _rows_of({paper for _, paper in pairs}, folder)
    known = {(position[query], row_of[paper]) for query, paper in pairs if query in position and paper in row_of}
    columns = np.array(sorted(known), np.int64).reshape(-1, 2).T
    return table(EXCLUSIONS, *columns)


def _rows_of(ids: set[str], folder: Path) -> dict[str, int]:
    """Return the rows of those papers that the corpus has."""
    rows = rows_of(list(ids), map(files.read_arrow, sorted(folder.glob("papers-*.arrow"))))
    return {paper: row for paper, row in zip(ids, rows.tolist(), strict=True) if row >= 0}
