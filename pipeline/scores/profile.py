"""Counts of a corpus by what papers lack, year and field, to judge it before use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.prefilter import Mask, PrefilterConfig, prefilter
from pipeline.corpus.reader import Corpus
from pipeline.scores.tables import Table

Profile = Mapping[str, Any]


def profile(corpus: Corpus, name: str) -> dict[str, Any]:
    """Return counts of the papers of a corpus as plain data.

    ``prefiltered`` is None for a collection with its own queries, which is searched whole.
    """
    attributes, manifest = corpus.attributes, corpus.artifact.manifest
    kept, prefilter_counts = (None, {}) if corpus.has_query_texts() else prefilter(attributes, PrefilterConfig())
    marks = {"with_abstract": attributes["abstract_chars"] > 0} | ({} if kept is None else {"prefiltered": kept})
    by_year = pl.DataFrame({"year": attributes["year"], **marks}).group_by(pl.col("year").replace(NO_YEAR, None))
    years = by_year.agg(pl.len().alias("papers"), pl.exclude("year").sum()).sort("year", nulls_last=True)
    return {
        "corpus": name,
        "artifact": corpus.artifact.name,
        "source": manifest.config["source"],
        "papers": len(corpus),
        "with_title": int(np.count_nonzero(attributes["title_chars"])),
        "with_abstract": int(np.count_nonzero(marks["with_abstract"])),
        "with_doi": int(np.count_nonzero(attributes["doi_key"])),
        "prefiltered": prefilter_counts.get("kept"),
        "prefilter": prefilter_counts,
        "dropped": dict(manifest.counts.get("dropped", {})),
        "noted": dict(manifest.counts.get("noted", {})),
        "references": {
            "listed": int(attributes["n_outbound"].sum(dtype=np.int64)),
            "in_corpus": len(corpus.outgoing.indices),
        },
        "years": years.rows(named=True),
        "fields": list(_fields(attributes["fields"], marks)),
    }


def _fields(masks: Any, marks: Mapping[str, Mask]) -> Iterator[dict[str, Any]]:
    """Yield the counts of each field; a paper counts in each of its fields; papers without a field last."""
    for name, bit in (*FIELD_BIT.items(), (None, None)):
        in_field = masks == 0 if bit is None else (masks >> np.uint32(bit)) & np.uint32(1) == 1
        counts = {column: int(np.count_nonzero(in_field & marked)) for column, marked in marks.items()}
        yield {"field": name, "papers": int(np.count_nonzero(in_field)), **counts}


def profile_tables(profile: Profile) -> Iterator[Table]:
    """Yield the tables of a profile."""
    papers, references, kept = profile["papers"], profile["references"], profile["prefiltered"]
    facts: list[tuple[str, int, int | None]] = [
        ("papers", papers, None),
        ("with a title", profile["with_title"], papers),
        ("with an abstract", profile["with_abstract"], papers),
        ("with a DOI", profile["with_doi"], papers),
        *([] if kept is None else [("kept by the prefilter", kept, papers)]),
    ]
    facts += [
        (f"dropped, {name.removeprefix('dropped_').replace('_', ' ')}", count, None)
        for name, count in profile["prefilter"].items()
        if name.startswith("dropped_")
    ]
    facts += [
        ("references listed", references["listed"], None),
        ("references in the corpus", references["in_corpus"], references["listed"]),
    ]
    title = f"corpus {profile['corpus']} ({profile['source']}, {profile['artifact']})"
    lines = ((name, count, "" if total is None else _share(count, total, 1)) for name, count, total in facts)
    yield _table(title, "", ["count", "share"], lines)
    for corner, rows in (("year", profile["years"]), ("field", profile["fields"])):
        counted = ["prefiltered"] * (kept is not None)
        of_rows = (
            (row[corner] or "none", row["papers"], _share(row["with_abstract"], row["papers"], 0),
             *(row[name] for name in counted))
            for row in rows
        )  # fmt: skip
        yield _table("", corner, ["papers", "abstract", *counted], of_rows)
    for title, counts in (("dropped, records of the release", "dropped"), ("noted in the release", "noted")):
        if profile[counts]:
            yield _table(
                title, "", ["count"], ((name.replace("_", " "), n) for name, n in sorted(profile[counts].items()))
            )


def _share(count: int, total: int, decimals: int) -> str:
    return f"{count / total:.{decimals}%}" if total else ""


def _table(title: str, corner: str, labels: Sequence[str], lines: Iterable[Sequence[Any]]) -> Table:
    rows = ((first, *(f"{value:,}" if isinstance(value, int) else value for value in rest)) for first, *rest in lines)
    return Table.of(title, corner, labels, rows)
