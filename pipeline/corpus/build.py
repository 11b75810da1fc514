"""Build a corpus from a release in bounded memory: extract sorted runs, merge them, resolve the citations."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core import files
from pipeline.core.config import counted
from pipeline.core.errors import InputError
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress, say, warn
from pipeline.core.resources import Resources
from pipeline.core.schema import ATTRIBUTES, CONTEXTS, EXCLUSIONS, JUDGEMENTS, MISSING, NO_YEAR, QUERY_TEXTS, SHARD_ROWS
from pipeline.core.text import doi_key, plain_doi
from pipeline.core.workdir import Workdir
from pipeline.corpus.extract import part_of_run, read_part, run_files
from pipeline.corpus.graph import NO_ROW, CitationGraph, KeyIndex
from pipeline.corpus.join import Joined, join
from pipeline.corpus.merge import merge_runs
from pipeline.corpus.pools import table
from pipeline.corpus.prefilter import PrefilterConfig, prefilter
from pipeline.corpus.reader import rows_of
from pipeline.sources.base import Batch, QuerySet, Release
from pipeline.sources.contexts import read_contexts
from pipeline.sources.records import UNREADABLE

_RUN_BYTES = 256 * 2**20
_FEW_FOUND = 20
"""Number of references of which one at least should be found."""
_EXAMPLES_SHOWN, _MAX_EXAMPLES = 5, 100
MAX_EXCLUSIONS = 2**27
"""Maximum number of (query, excluded paper) pairs: 1 GiB in a corpus, and as much in its pool."""


def build_corpus(release: Release, out: Workdir, resources: Resources) -> dict[str, Any]:
    """Write the corpus of a release into ``out`` and return its counts.

    Uses at most ``resources.memory`` bytes, plus about 300 MB per process and the page cache of memory-mapped scratch
    files. The scratch files take about twice the size of the corpus.
    """
    scratch = out.scratch()
    path = Path(release.contexts) if release.contexts else None
    contexts = read_contexts(path, release, release.names) if path else None
    queries = contexts or release.queries()  # before the papers are read, so that a bad query fails early
    readable = join(release, scratch, resources) if release.is_joined() else release
    part_counts = extract(readable, list(enumerate(readable.parts())), out, resources)
    total = readable.counts() if isinstance(readable, Joined) else Batch(read=0)
    for part in part_counts:
        total.add_counts(Batch(**{name: part[name] for name in vars(total)}))
    _say_examples(total.examples, total.noted)
    if isinstance(readable, Joined):
        readable.discard()

    if total.read == total.dropped.total() and not release.allow_empty:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(total.dropped.items()))
        raise InputError(
            f"a corpus must have a paper, got none from {counted(total.read, 'record')}"
            f"{f' (dropped: {reasons})' if reasons else ''}",
            "Check the input; mdcr corpus --allow-empty accepts an empty corpus",
        )
    unreadable = _check_readable(total, release)
    runs = run_files(scratch, [part["runs"] for part in part_counts])
    merged = merge_runs(runs, out, SHARD_ROWS, resources)
    if merged.papers and not any(files.read_arrow(path)["title_chars"].to_numpy().any() for path in merged.shards):
        release.refuse_untitled()
    examples = total.examples[:_MAX_EXAMPLES]
    if merged.repeated is not None:
        run, position = merged.repeated
        origin = release.source if release.is_joined() else release.parts()[part_of_run(runs[run])]
        paper_id = files.read_arrow(runs[run]).column("paper_id")[position].as_py()
        examples.append(f"duplicate_id: {origin}: {paper_id:.80}")
        _say_examples(examples[-1:], {})
    counts: dict[str, Any] = {"read": total.read, "kept": merged.papers, "dropped": total.dropped + merged.dropped}
    counts |= CitationGraph(merged.shards, scratch, resources.workers, resources.memory // 2).write(out)
    if counts["references_in_corpus"] * _FEW_FOUND < counts["references"]:
        few = f"{counts['references_in_corpus']:,} of {counts['references']:,} references"
        first_id = files.read_arrow(runs[0]).column("paper_id")[0].as_py()
        warn(f"only {few} are papers of this corpus: they must be ids like {first_id:.60}, or DOIs of its papers")
    edges = total.noted["citations: read"]
    found = edges - total.noted["citations: dropped, citing_paper_unknown"]
    if release.citations and found * _FEW_FOUND <= edges:
        warn(f"only {found:,} of {edges:,} citations of {release.citations} are of papers of this corpus")
    if queries is not None:
        counts |= _write_queries(out, queries, merged.papers)
        total.noted += queries.noted
        examples += queries.examples
        _say_examples(queries.examples, {reason for reason in queries.noted if " " in reason})  # odd values
    for problem in unreadable:
        warn(problem)
    return {
        **counts,
        "noted": total.noted,
        "examples": examples,
        "shards": -(-merged.papers // SHARD_ROWS),
        "prefilter": _prefilter(merged.shards),
    }


def extract(release: Release, parts: list[tuple[int, str]], out: Workdir, resources: Resources) -> list[dict[str, Any]]:
    """Read parts of a release, given as (number, name), into sorted runs; return the counts of each part."""
    run_bytes = min(_RUN_BYTES, resources.memory // (8 * resources.workers))
    read_one = functools.partial(read_part, release, out.scratch(), run_bytes)
    counts_by_part: dict[int, dict[str, Any]] = {}
    with Progress(len(parts), f"corpus: read {release.source}", "parts") as progress:
        for (number, _), counts in unordered(read_one, parts, resources.workers):
            counts_by_part[number] = counts
            progress.add(1, counted(sum(part_counts["read"] for part_counts in counts_by_part.values()), "record"))
    return [counts_by_part[number] for number, _ in parts]


def _say_examples(examples: Sequence[str], noted: Collection[str]) -> None:
    """Print the first examples of what is dropped, or of values that count as missing (``noted``)."""
    for example in examples[:_EXAMPLES_SHOWN]:
        say(f"{'missing' if example.partition(': ')[0] in noted else 'dropped'} {example}")


_MANY, _MOST = 0.1, 0.5
"""Share of unreadable records beyond which there is a warning, or an error."""


def _check_readable(total: Batch, release: Release) -> list[str]:
    """Return warnings of many unreadable records and of columns without a readable value.

    Raises:
        InputError: most of the records of a table cannot be read, and the release does not allow it.
    """
    warnings = []
    for label, is_table in (("", False), ("abstracts: ", True), ("citations: ", True)):
        counts, prefix = (total.noted, f"{label}dropped, ") if is_table else (total.dropped, "")
        read = total.noted[f"{label}read"] if is_table else total.read
        dropped = {reason: counts[prefix + reason] for reason in UNREADABLE if counts[prefix + reason]}
        if sum(dropped.values()) <= _MANY * read:
            continue
        first = next((text for text in total.examples if text.partition(": ")[0] in dropped), "")
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
        problem = f"{label}{sum(dropped.values()):,} of {read:,} records cannot be read ({reasons}), first {first}"
        problem += "; iconv -f latin1 -t utf-8 converts older texts" if "bad_utf8" in dropped else ""
        if sum(dropped.values()) > _MOST * read and not release.allow_dropped:
            raise InputError(problem, "Correct the input; mdcr corpus --allow-dropped builds from the other records")
        warnings.append(problem)
    first_of = {example.partition(": ")[0]: example for example in reversed(total.examples)}
    for reason, example in first_of.items():
        if " not " in reason and total.noted[reason] >= max(1, total.read - total.dropped.total()):
            hint = "; name one of its keys: --columns NAME=NAME.KEY" if ": {" in example else ""
            warnings.append(f"no value of this column can be read: {example}{hint}")
    return warnings


def _prefilter(shards: list[Path]) -> dict[str, int]:
    """Return the prefilter's counts under its default settings."""
    total: Counter[str] = Counter()
    for path in shards:
        shard = files.read_arrow(path)
        attributes = {field.name: shard.column(field.name).to_numpy() for field in ATTRIBUTES}
        total.update(prefilter(attributes, PrefilterConfig())[1])
    return dict(total)


def _write_queries(out: Workdir, queries: QuerySet, papers: int) -> dict[str, int]:
    """Write a release's queries, judgements and exclusions, and the positives that the corpus lacks."""
    if papers == 0:
        raise InputError("the release has queries but no papers", "Check the input folder")
    row_of = _rows_of({paper for _, paper, _ in queries.judgements}, out.path)
    position_of = {query_id: position for position, query_id in enumerate(queries.query_ids)}
    judgements = [(position_of[query], row_of.get(paper, -1), grade) for query, paper, grade in queries.judgements]
    in_corpus = [judgement for judgement in judgements if judgement[1] >= 0]
    missing = [(query, grade) for query, row, grade in judgements if row < 0 and grade >= 1]
    if judgements and not in_corpus:
        judged = {paper for _, paper, _ in queries.judgements}
        first_id = files.read_arrow(min(out.path.glob("papers-*.arrow"))).column("paper_id")[0].as_py()
        raise InputError(
            f"0 of {len(judged):,} judged documents are in the corpus: judged is {min(judged)!r:.60}, but papers have "
            f"ids such as {first_id!r:.60}",
            "Give the judgements of this collection, or the ids that they use",
        )
    texts = [queries.texts[query_id] for query_id in queries.query_ids]
    out.arrow("queries.arrow", pa.table([queries.query_ids, texts], schema=QUERY_TEXTS), QUERY_TEXTS)
    if queries.origins:
        origins = [queries.origins[query_id] for query_id in queries.query_ids]
        papers_of = _rows_of({citing for citing, _ in origins}, out.path)
        year_of = files.read_arrow(out.path / "attributes.arrow").column("year").to_numpy()
        rows = [papers_of.get(citing, -1) for citing, _ in origins]
        years = [int(year_of[row]) if row >= 0 else NO_YEAR for row in rows]
        years = [known if given is None else given for known, (_, given) in zip(years, origins, strict=True)]
        contexts = list(zip(years, rows, strict=True))
        if NO_YEAR in years:
            queries.noted["context_without_year"] += years.count(NO_YEAR)
            undated = counted(years.count(NO_YEAR), "context")
            warn(f"no pool has {undated} without a year of its own or of its citing paper")
        out.arrow("contexts.arrow", table(CONTEXTS, *np.array(contexts, np.int64).T), CONTEXTS)
    out.arrow("judgements.arrow", _sorted_table(JUDGEMENTS, in_corpus), JUDGEMENTS)
    if queries.exclusions is not None:
        row_of = _rows_of({paper for _, paper in queries.exclusions}, out.path)
        excluded = {(position_of[q], row_of[p]) for q, p in queries.exclusions if q in position_of and p in row_of}
        out.arrow("exclusions.arrow", _sorted_table(EXCLUSIONS, excluded), EXCLUSIONS)
    elif queries.ranked:
        out.arrow("exclusions.arrow", _unranked(queries, out.path, papers), EXCLUSIONS)
    out.arrow("missing.arrow", _sorted_table(MISSING, missing), MISSING)
    return {
        "queries": len(queries.query_ids),
        "judgements": len(in_corpus),
        "judgements_of_nothing": len(queries.judgements) - len(in_corpus),
    }


def _unranked(queries: QuerySet, folder: Path, papers: int) -> pa.Table:
    """Return pairs of a query and a paper that its candidate list lacks; InputError if there are too many."""
    if papers * len(queries.ranked) > MAX_EXCLUSIONS:
        raise InputError(
            f"{len(queries.ranked):,} queries with candidate lists and {papers:,} papers must have at most "
            f"{MAX_EXCLUSIONS:,} pairs of query and paper, got {papers * len(queries.ranked):,}",
            "Give lists for fewer queries",
        )
    lists = queries.ranked
    row_of = _rows_of({paper for ranked in lists.values() for paper in ranked}, folder)
    unranked = [
        np.setdiff1d(np.arange(papers, dtype=np.uint32), [row_of[paper] for paper in lists[query] if paper in row_of])
        if query in lists
        else np.empty(0, np.uint32)
        for query in queries.query_ids
    ]
    return table(EXCLUSIONS, np.repeat(np.arange(len(unranked)), list(map(len, unranked))), np.concatenate(unranked))


def _sorted_table(schema: pa.Schema, rows: Collection[tuple[int, ...]]) -> pa.Table:
    return table(schema, *np.array(sorted(rows), np.int64).reshape(-1, len(schema)).T)


def _rows_of(ids: set[str], folder: Path) -> dict[str, int]:
    """Return the row of each id that the corpus has; of a DOI that is no id, the row of the paper with it."""
    rows = rows_of(list(ids), map(files.read_arrow, sorted(folder.glob("papers-*.arrow"))))
    found = {paper: row for paper, row in zip(ids, rows.tolist(), strict=True) if row >= 0}
    dois = {paper: doi_key(doi) for paper in ids - found.keys() if (doi := plain_doi(paper))}
    if dois:
        keys = files.read_arrow(folder / "attributes.arrow").column("doi_key").to_numpy()
        by_doi = KeyIndex.of(keys, np.arange(len(keys), dtype=np.uint32)).find(np.array([*dois.values()], np.uint64))
        found |= {paper: row for paper, row in zip(dois, by_doi.tolist(), strict=True) if row != NO_ROW}
    return found
