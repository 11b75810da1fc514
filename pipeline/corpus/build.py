"""Building a corpus from a release, in bounded memory: extract sorted runs, merge them, resolve the citations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress, say
from pipeline.core.resources import Resources
from pipeline.core.schema import JUDGEMENTS, QUERY_TEXTS, SHARD_ROWS
from pipeline.core.workdir import Workdir
from pipeline.corpus.extract import Extraction, run_files
from pipeline.corpus.graph import write_graph
from pipeline.corpus.merge import Merge
from pipeline.corpus.prefilter import PrefilterConfig, prefilter
from pipeline.sources.base import QuerySet, Release

_RUN_BYTES = 128 * 2**20
_RANGE_BYTES = 256 * 2**20
_SHOWN = 5


def build_corpus(release: Release, out: Workdir, resources: Resources) -> dict[str, Any]:
    """Write the corpus of a release into ``out`` and return its counts.

    Holds at most ``resources.memory`` bytes, beside about 300 MB for each process.
    """
    scratch = out.scratch()
    parts = list(release.parts())
    run_bytes = min(_RUN_BYTES, resources.memory // (8 * resources.workers))
    extracted = _extract(Extraction(release, scratch, run_bytes), parts, resources.workers)
    counts = _total(extracted)
    runs = [part["runs"] for part in extracted]

    range_bytes = min(_RANGE_BYTES, resources.memory // 6)
    merge = Merge(run_files(scratch, "run", runs), scratch, range_bytes)
    papers = merge.write(out)
    dropped = Counter(counts["dropped"]) + merge.counts
    counts |= {"kept": papers, "dropped": dict(dropped), "shards": -(-papers // SHARD_ROWS)}

    table = files.read_arrow(out.path / "attributes.arrow")
    attributes = {name: table.column(name).chunk(0).to_numpy() for name in table.column_names}
    counts |= write_graph(out, run_files(scratch, "refs", runs), scratch, attributes["key"], resources.memory // 2)
    counts["prefilter"] = prefilter(attributes, PrefilterConfig())[1]
    brought = release.queries()
    if brought is not None:
        counts |= _write_queries(out, brought, papers)
    return counts


def _extract(extraction: Extraction, parts: list[str], workers: int) -> list[dict[str, Any]]:
    done: dict[int, dict[str, Any]] = {}
    with Progress(len(parts), f"corpus: read {extraction.release.source}", "parts") as progress:
        for (number, _), counts in unordered(extraction, list(enumerate(parts)), workers):
            done[number] = counts
            progress.add(1, f"{sum(c['read'] for c in done.values()):,} records")
    return [done[number] for number in range(len(parts))]


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
        "dropped": dict(sorted(dropped.items())),
        "noted": dict(sorted(noted.items())),
        "examples": examples[:100],
    }


def _write_queries(out: Workdir, brought: QuerySet, papers: int) -> dict[str, int]:
    """Write the queries a release brings, and its judgements of papers the corpus has."""
    if papers == 0:
        raise InputError("the release has queries but no papers", "Check the input folder")
    row_of = {paper_id: row for row, paper_id in enumerate(_all_ids(out.path))}
    position = {query_id: i for i, query_id in enumerate(brought.query_ids)}
    known = [
        (position[query], row_of[paper], grade)
        for query, paper, grade in brought.judgements
        if query in position and paper in row_of
    ]
    columns = np.array(sorted(known), np.int64).reshape(-1, 3).T
    out.arrow("queries.arrow", pa.table([brought.query_ids, brought.texts], schema=QUERY_TEXTS), QUERY_TEXTS)
    out.arrow("judgements.arrow", pa.table([pa.array(c) for c in columns], names=JUDGEMENTS.names), JUDGEMENTS)
    return {
        "queries": len(brought.query_ids),
        "judgements": len(known),
        "judgements_of_nothing": len(brought.judgements) - len(known),
    }


def _all_ids(folder: Path) -> list[str]:
    ids: list[str] = []
    for path in sorted(folder.glob("papers-*.arrow")):
        ids += files.read_arrow(path).column("paper_id").to_pylist()
    return ids
