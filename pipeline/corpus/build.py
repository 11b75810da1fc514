"""Building a corpus from a release, in bounded memory: extract sorted runs, merge them, resolve the citations."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress, say
from pipeline.core.resources import Resources
from pipeline.core.schema import ATTRIBUTES, CONTEXTS, EXCLUSIONS, JUDGEMENTS, MISSING, QUERY_TEXTS, SHARD_ROWS
from pipeline.core.workdir import Workdir
from pipeline.corpus.extract import part_of_run, read_part, run_files
from pipeline.corpus.graph import CitationGraph
from pipeline.corpus.join import Joined, join
from pipeline.corpus.merge import merge_runs
from pipeline.corpus.pools import table
from pipeline.corpus.prefilter import PrefilterConfig, prefilter
from pipeline.corpus.reader import rows_of
from pipeline.sources.base import Batch, JoinedRelease, QuerySet, Release
from pipeline.sources.contexts import ContextSet, read_contexts

_RUN_BYTES = 256 * 2**20
_SHOWN, _MOST_EXAMPLES = 5, 100
MOST_EXCLUSIONS = 2**27
"""Pairs of a query and a paper that lists of candidates may leave out: 1 GiB in a corpus, and as much in its pool."""


def build_corpus(release: Release, out: Workdir, resources: Resources) -> dict[str, Any]:
    """Write the corpus of a release into ``out`` and return its counts.

    Holds at most ``resources.memory`` bytes, beside about 300 MB for each process and the pages of memory-mapped
    scratch files, which the system takes back at need. Scratch files take about the size of the corpus twice.
    """
    scratch = out.scratch()
    contexts = read_contexts(Path(release.contexts), release.max_text) if release.contexts else None
    brought = contexts or release.queries()  # a bad query is refused before the papers are read
    read = join(release, scratch, resources) if isinstance(release, JoinedRelease) else release
    parts = extract(read, list(enumerate(read.parts())), out, resources)
    total = read.counts() if isinstance(read, Joined) else Batch(read=0)
    for part in parts:
        total.add_counts(Batch(**{name: part[name] for name in vars(total)}))
    _say_dropped(total.examples)
    if isinstance(read, Joined):
        read.discard()

    if total.read == total.dropped.total() and not release.allow_empty:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(total.dropped.items()))
        raise InputError(
            f"a corpus must have a paper, got none from {total.read:,} records"
            f"{f' (dropped: {reasons})' if reasons else ''}",
            "Check the input; mdcr corpus --allow-empty accepts an empty corpus",
        )
    runs = run_files(scratch, [part["runs"] for part in parts])
    merged = merge_runs(runs, out, SHARD_ROWS, resources)
    examples = total.examples[:_MOST_EXAMPLES]
    if merged.repeated is not None:
        run, place = merged.repeated
        origin = release.source if isinstance(release, JoinedRelease) else release.parts()[part_of_run(runs[run])]
        examples.append(f"duplicate_id: {origin}: {files.read_arrow(runs[run]).column('paper_id')[place].as_py():.80}")
        _say_dropped(examples[-1:])
    counts: dict[str, Any] = {"read": total.read, "kept": merged.papers, "dropped": total.dropped + merged.dropped}
    counts |= CitationGraph(merged.shards, scratch, resources.workers, resources.memory // 2).write(out)
    if brought is not None:
        counts |= _write_queries(out, brought, merged.papers)
        total.noted += brought.noted
        examples += brought.examples
        _say_dropped(brought.examples)
    return {
        **counts,
        "noted": total.noted,
        "examples": examples,
        "shards": -(-merged.papers // SHARD_ROWS),
        "prefilter": _prefilter(merged.shards),
    }


def extract(release: Release, parts: list[tuple[int, str]], out: Workdir, resources: Resources) -> list[dict[str, Any]]:
    """Read some parts of a release, given with their numbers, into sorted runs; return the counts of each."""
    run_bytes = min(_RUN_BYTES, resources.memory // (8 * resources.workers))
    read = functools.partial(read_part, release, out.scratch(), run_bytes)
    done: dict[int, dict[str, Any]] = {}
    with Progress(len(parts), f"corpus: read {release.source}", "parts") as progress:
        for (number, _), counts in unordered(read, parts, resources.workers):
            done[number] = counts
            progress.add(1, f"{sum(c['read'] for c in done.values()):,} records")
    return [done[number] for number, _ in parts]


def _say_dropped(examples: Sequence[str]) -> None:
    for example in examples[:_SHOWN]:
        say(f"dropped {example}")


def _prefilter(shards: list[Path]) -> dict[str, int]:
    """Return what the prefilter drops and keeps under its default settings."""
    total: Counter[str] = Counter()
    for path in shards:
        shard = files.read_arrow(path)
        attributes = {field.name: shard.column(field.name).to_numpy() for field in ATTRIBUTES}
        total.update(prefilter(attributes, PrefilterConfig())[1])
    return dict(total)


def _write_queries(out: Workdir, brought: QuerySet, papers: int) -> dict[str, int]:
    """Write the queries a release brings, their judgements and exclusions, and the positives the corpus lacks."""
    if papers == 0:
        raise InputError("the release has queries but no papers", "Check the input folder")
    row_of = _rows_of({paper for _, paper, _ in brought.judgements}, out.path)
    position = {query_id: i for i, query_id in enumerate(brought.query_ids)}
    judged = [(position[query], row_of.get(paper, -1), grade) for query, paper, grade in brought.judgements]
    known = [judgement for judgement in judged if judgement[1] >= 0]
    missing = [(query, grade) for query, row, grade in judged if row < 0 and grade >= 1]
    out.arrow("queries.arrow", pa.table([brought.query_ids, brought.texts], schema=QUERY_TEXTS), QUERY_TEXTS)
    if isinstance(brought, ContextSet):
        papers_of = _rows_of({citing for citing, _ in brought.asked}, out.path)
        asked = [(year, papers_of.get(citing, -1)) for citing, year in brought.asked]
        out.arrow("contexts.arrow", table(CONTEXTS, *np.array(asked, np.int64).T), CONTEXTS)
    out.arrow("judgements.arrow", _sorted(JUDGEMENTS, known), JUDGEMENTS)
    if brought.exclusions is not None:
        row_of = _rows_of({paper for _, paper in brought.exclusions}, out.path)
        excluded = {(position[q], row_of[p]) for q, p in brought.exclusions if q in position and p in row_of}
        out.arrow("exclusions.arrow", _sorted(EXCLUSIONS, excluded), EXCLUSIONS)
    elif brought.ranked:
        out.arrow("exclusions.arrow", _unranked(brought, out.path, papers), EXCLUSIONS)
    out.arrow("missing.arrow", _sorted(MISSING, missing), MISSING)
    return {
        "queries": len(brought.query_ids),
        "judgements": len(known),
        "judgements_of_nothing": len(brought.judgements) - len(known),
    }


def _unranked(brought: QuerySet, folder: Path, papers: int) -> pa.Table:
    """Return each query with all papers that are not among those it ranks; InputError if the pairs are too many."""
    if papers * len(brought.ranked) > MOST_EXCLUSIONS:
        raise InputError(
            f"{len(brought.ranked):,} queries with lists of their own among {papers:,} papers must leave out at most "
            f"{MOST_EXCLUSIONS:,} pairs of query and paper, got {papers * len(brought.ranked):,}",
            "Rank a part of the queries",
        )
    row_of = _rows_of({paper for _, listed in brought.ranked for paper in listed}, folder)
    lists = dict(brought.ranked)
    left_out = [
        np.setdiff1d(np.arange(papers, dtype=np.uint32), [row_of[paper] for paper in lists[query] if paper in row_of])
        if query in lists
        else np.empty(0, np.uint32)
        for query in brought.query_ids
    ]
    return table(EXCLUSIONS, np.repeat(np.arange(len(left_out)), list(map(len, left_out))), np.concatenate(left_out))


def _sorted(schema: pa.Schema, rows: Collection[tuple[int, ...]]) -> pa.Table:
    return table(schema, *np.array(sorted(rows), np.int64).reshape(-1, len(schema)).T)


def _rows_of(ids: set[str], folder: Path) -> dict[str, int]:
    """Return the rows of those papers that the corpus has."""
    rows = rows_of(list(ids), map(files.read_arrow, sorted(folder.glob("papers-*.arrow"))))
    return {paper: row for paper, row in zip(ids, rows.tolist(), strict=True) if row >= 0}
