"""Build a corpus from a release in bounded memory: read its parts, join them by DuckDB, write the papers in order."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
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
from pipeline.core.schema import SHARD_ROWS, schema_of
from pipeline.core.workdir import Workdir
from pipeline.corpus.joins import Joins, joins
from pipeline.corpus.parts import Part, part_of, parts_of, read_part, run_bytes
from pipeline.corpus.prefilter import PrefilterConfig, prefilter
from pipeline.corpus.querytexts import write_queries
from pipeline.corpus.shards import Array, Attributes, GrowingColumns, write_attributes, write_graph, write_shards
from pipeline.sources.base import Batch, Release
from pipeline.sources.contexts import read_contexts
from pipeline.sources.records import UNREADABLE

_FEW_FOUND = 20
"""Number of references of which one at least should be found."""
_EXAMPLES_SHOWN, _MAX_EXAMPLES = 5, 100
_MAX_PAPERS = 1 << 31

_PLACES = schema_of(place=pa.uint64(), abstract=pa.uint64())


def build_corpus(release: Release, out: Workdir, resources: Resources) -> dict[str, Any]:
    """Write the corpus of a release into ``out`` and return its counts.

    Uses at most ``resources.memory`` bytes, plus about 300 MB per process and the page cache of memory-mapped scratch
    files. The scratch files take about twice the size of the corpus.
    """
    path = Path(release.contexts) if release.contexts else None
    contexts = read_contexts(path, release, release.names) if path else None
    queries = contexts or release.queries()  # before the papers are read, so that a bad query fails early
    total = _total(read_parts(release, parts_of(release), out, resources))
    _say_examples(total.examples, total.noted)
    if total.read == total.dropped.total():
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(total.dropped.items()))
        raise InputError(
            f"a corpus must have a paper, got none from {counted(total.read, 'record')}"
            f"{f' (dropped: {reasons})' if reasons else ''}",
            "Give files of this --source whose records have an id",
        )
    unreadable = _check_readable(total, release)
    examples = total.examples[:_MAX_EXAMPLES]
    with joins(out.scratch(), resources, release.is_joined(), release.citations is not None) as tables:
        total.dropped += tables.dropped()
        total.noted += tables.noted() if release.is_joined() else Counter()
        if repeat := tables.first_repeat():
            origin = release.source if release.is_joined() else release.parts()[part_of(repeat[1])]
            examples.append(f"duplicate_id: {origin}: {repeat[0]:.80}")
            _say_examples(examples[-1:], {})
        attributes, (places, abstracts), links = _write_joined(tables, release, out)
    papers = len(places)
    shards = write_shards(attributes, places, abstracts, SHARD_ROWS, out, resources)
    counts: dict[str, Any] = {"read": total.read, "kept": papers, "dropped": total.dropped}
    counts |= {"references": int(attributes["n_outbound"].sum(dtype=np.int64)), "references_in_corpus": links}
    _warn_of_unfound(counts, total, release, out)
    if queries is not None:
        counts |= write_queries(out, queries, papers)
        total.noted += queries.noted
        examples += queries.examples
        _say_examples(queries.examples, {reason for reason in queries.noted if " " in reason})  # odd values
    for problem in unreadable:
        warn(problem)
    return {
        **counts,
        "noted": total.noted,
        "examples": examples,
        "shards": shards,
        "prefilter": prefilter(attributes, PrefilterConfig())[1],
    }


def read_parts(release: Release, parts: Sequence[Part], out: Workdir, resources: Resources) -> list[dict[str, Any]]:
    """Read parts of a release in several processes; return the kind and the counts of each."""
    read = functools.partial(read_part, release, out.scratch(), run_bytes(resources.memory, resources.workers))
    found: dict[int, dict[str, Any]] = {}
    with Progress(len(parts), f"corpus: read {release.source}", "parts") as progress:
        for (number, _), counts in unordered(read, parts, resources.workers):
            found[number] = counts
            progress.add(1, counted(sum(part["read"] for part in found.values()), "record"))
    return [found[number] for number, _ in parts]


def _total(parts: Sequence[dict[str, Any]]) -> Batch:
    """Return the counts of the papers; those of abstracts and citations are noted."""
    total = Batch(read=0)
    for part in parts:
        counts = Batch(**{name: part[name] for name in vars(total)})
        if part["kind"] != "papers":
            dropped = {f"{part['kind']}: dropped, {reason}": count for reason, count in counts.dropped.items()}
            counts.noted = Counter(counts.noted) + Counter({f"{part['kind']}: read": counts.read, **dropped})
            counts.read, counts.dropped = 0, Counter()
        total.add_counts(counts)
    return total


def _write_joined(tables: Joins, release: Release, out: Workdir) -> tuple[Attributes, list[Array], int]:
    """Write attributes and citations; return the attributes, the places of texts and the number of citations."""
    places = GrowingColumns(out.scratch(), "places", _PLACES)

    def attributes_of_papers() -> Iterator[list[Array]]:
        for *columns, place, abstract in tables.papers():
            places.append(place, abstract)
            yield columns

    with Progress(4, "corpus: order and join", "steps") as progress:
        attributes = write_attributes(out, attributes_of_papers())
        progress.add(1)
        papers = len(attributes["key"])
        if papers > _MAX_PAPERS:
            remedy = "Build it from a part of them"
            raise InputError(f"a corpus must have at most {_MAX_PAPERS:,} papers, got {papers:,}", remedy)
        if papers and not attributes["title_chars"].any():
            release.refuse_untitled()
        tables.resolve()
        progress.add(1)
        for name in ("outgoing", "incoming"):
            links = write_graph(out, name, papers, tables.links(name))
            progress.add(1)
    return attributes, places.arrays(), links


def _warn_of_unfound(counts: dict[str, Any], total: Batch, release: Release, out: Workdir) -> None:
    """Warn if hardly a reference, or hardly a citation beside the papers, is of papers of the corpus."""
    if counts["references_in_corpus"] * _FEW_FOUND < counts["references"]:
        few = f"{counts['references_in_corpus']:,} of {counts['references']:,} references"
        first_id = files.read_arrow(out.path / "papers-00000.arrow").column("paper_id")[0].as_py()
        warn(f"only {few} are papers of this corpus: they must be ids like {first_id:.60}, or DOIs of its papers")
    edges = total.noted["citations: read"]
    found = edges - total.noted["citations: dropped, citing_paper_unknown"]
    if release.citations and found * _FEW_FOUND <= edges:
        warn(f"only {found:,} of {edges:,} citations of {release.citations} are of papers of this corpus")


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
