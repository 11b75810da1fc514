"""Counts and distributions of a corpus, to judge it before use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.fields import FIELD_BIT
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.duplicates import DuplicatesConfig, groups
from pipeline.corpus.prefilter import Attributes, Mask, PrefilterConfig, prefilter
from pipeline.corpus.reader import Corpus, Graph
from pipeline.scores.tables import Table

QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.99)
Profile = Mapping[str, Any]
_BLOCK = 4_000_000


def profile(corpus: Corpus, name: str, memory: int) -> dict[str, Any]:
    """Return counts, shares and distributions of a corpus, as plain data.

    ``prefiltered`` is None for a collection with its own queries. Uses ``memory`` bytes, and 2 bytes per paper.
    """
    attributes = corpus.attributes
    papers = len(corpus)
    # A collection with its own queries is searched whole: no prefilter, which needs years and references.
    own_queries = corpus.has_query_texts()
    kept, prefilter_counts = (None, {}) if own_queries else prefilter(attributes, PrefilterConfig())
    degrees = {
        "references listed": _blocks(attributes["n_outbound"]),
        "references in the corpus": _degrees_of(corpus.outgoing),
        "citations listed": _blocks(attributes["n_inbound"]),
        "citations in the corpus": _degrees_of(corpus.incoming),
    }
    listed = int(sum(block.sum(dtype=np.int64) for block in _blocks(attributes["n_outbound"])))
    resolved = len(corpus.outgoing.indices)
    counts = corpus.artifact.manifest.counts
    return {
        "corpus": name,
        "artifact": corpus.artifact.name,
        "source": corpus.artifact.manifest.config["source"],
        "papers": papers,
        "prefiltered": prefilter_counts.get("kept"),
        "prefilter": prefilter_counts,
        "dropped": dict(counts.get("dropped", {})),
        "noted": dict(counts.get("noted", {})),
        "text": _text(attributes),
        "years": _years(attributes, kept),
        "fields": _fields(attributes, kept),
        "references": {"listed": listed, "in_corpus": resolved, "share": share(resolved, listed)},
        "degrees": {name: _distribution(values) for name, values in degrees.items()},
        "duplicates": _duplicates(attributes, memory),
    }


def _blocks(values: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    return (values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK))


def _degrees_of(graph: Graph) -> Iterator[npt.NDArray[np.int64]]:
    indptr = graph.indptr
    return (np.diff(indptr[start : start + _BLOCK + 1]) for start in range(0, len(indptr) - 1, _BLOCK))


def share(count: int, total: int) -> float | None:
    """Return the fraction, or None if the total is 0."""
    return count / total if total else None


def _text(attributes: Attributes) -> dict[str, Any]:
    papers, chars = len(attributes["key"]), attributes["abstract_chars"]
    masks = {"title": attributes["title_chars"] > 0, "abstract": chars > 0}
    masks |= {"abstract_of_30_chars": chars >= PrefilterConfig().min_abstract_chars}
    found = dict[str, Any]()
    for name, mask in masks.items():
        count = int(np.count_nonzero(mask))
        found |= {name: count, f"{name}_share": share(count, papers)}
    return found | {"abstract_chars": _distribution(_blocks(chars), among_nonzero=True)}


def _years(attributes: Attributes, kept: Mask | None) -> list[dict[str, Any]]:
    """Return by year the numbers of papers, with an abstract, and kept by the prefilter; papers without a year last."""
    papers = pl.DataFrame({"year": attributes["year"], **_marks(attributes, kept)})
    by_year = papers.group_by(pl.col("year").replace(NO_YEAR, None)).agg(
        pl.len().alias("papers"), pl.exclude("year").sum()
    )
    return list(by_year.sort("year", nulls_last=True).iter_rows(named=True))


def _fields(attributes: Attributes, kept: Mask | None) -> list[dict[str, Any]]:
    """Return the same counts by field; a paper counts in each of its fields; papers without a field last."""
    masks, marks = attributes["fields"], _marks(attributes, kept)
    rows: list[dict[str, Any]] = []
    for name, bit in (*FIELD_BIT.items(), (None, None)):
        in_field = masks == 0 if bit is None else (masks >> np.uint32(bit)) & np.uint32(1) == 1
        counts = {column: int(np.count_nonzero(in_field & marked)) for column, marked in marks.items()}
        rows.append({"field": name, "papers": int(np.count_nonzero(in_field)), **counts})
    return rows


def _marks(attributes: Attributes, kept: Mask | None) -> dict[str, Mask]:
    """Return which papers have an abstract, and which the prefilter keeps, bool ``[papers]`` each."""
    return {"with_abstract": attributes["abstract_chars"] > 0} | ({} if kept is None else {"prefiltered": kept})


def _distribution(blocks: Iterable[npt.NDArray[Any]], *, among_nonzero: bool = False) -> dict[str, Any]:
    """Return the exact mean, quantiles and maximum of integers, by counting them.

    The ``histogram`` counts zeros, then values from 2^i to 2^(i+1) - 1.
    """
    counts = np.zeros(1, np.int64)
    for block in blocks:
        block_counts = np.bincount(block)
        counts = np.pad(counts, (0, max(0, len(block_counts) - len(counts))))
        counts[: len(block_counts)] += block_counts
    zero = int(counts[0])
    if among_nonzero:
        counts[0] = 0
    total = int(counts.sum())
    cumulated = np.cumsum(counts)
    edges = 2 ** np.arange(int(np.log2(max(len(counts) - 1, 1))) + 2)
    below = np.concatenate([[0], cumulated])[np.minimum(edges, len(counts))]
    return {
        "zero": zero,
        "mean": float((counts * np.arange(len(counts))).sum() / total) if total else None,
        "quantiles": {f"{q:g}": int(np.searchsorted(cumulated, q * total)) if total else None for q in QUANTILES},
        "max": len(counts) - 1 if total else None,
        "histogram": [zero, *map(int, np.diff(below))],
    }


def _duplicates(attributes: Attributes, memory: int) -> dict[str, Any]:
    """Return the numbers of papers that duplicate another one, by each rule."""
    config = DuplicatesConfig()
    short = (attributes["title_chars"] > 0) & (attributes["title_chars"] < config.min_title_chars)
    profile: dict[str, Any] = {
        "with_doi": int(np.count_nonzero(attributes["doi_key"])),
        "titles_too_short_to_tell": int(np.count_nonzero(short)),
    }
    for rule, label in (("doi", "same_doi"), ("title", "same_title_and_year")):
        same = groups(attributes, rule, config.min_title_chars, memory)
        profile[label] = {"groups": len(same.rows) - same.extra, "extra_papers": same.extra}
    return profile


_RECENT = 20


def profile_tables(profile: Profile) -> Iterator[Table]:
    """Yield the tables of a profile; years before the last twenty are added by decade."""
    text, references, duplicates = profile["text"], profile["references"], profile["duplicates"]
    last = max((row["year"] for row in profile["years"] if row["year"] is not None), default=0)
    papers, kept = profile["papers"], profile["prefiltered"]
    facts: dict[str, tuple[int, float | None]] = {
        "papers": (papers, None),
        "with a title": (text["title"], text["title_share"]),
        "with an abstract": (text["abstract"], text["abstract_share"]),
        "abstract of 30 characters": (text["abstract_of_30_chars"], text["abstract_of_30_chars_share"]),
    }
    facts |= {} if kept is None else {"kept by the prefilter": (kept, share(kept, papers))}
    facts |= {
        f"dropped, {name.removeprefix('dropped_').replace('_', ' ')}": (count, None)
        for name, count in profile["prefilter"].items()
        if name.startswith("dropped_")
    }
    facts |= {
        "references listed": (references["listed"], None),
        "references in the corpus": (references["in_corpus"], references["share"]),
        "with a DOI": (duplicates["with_doi"], share(duplicates["with_doi"], papers)),
        "same DOI as another": (duplicates["same_doi"]["extra_papers"], None),
        "same title and year": (duplicates["same_title_and_year"]["extra_papers"], None),
    }
    title = f"corpus {profile['corpus']} ({profile['source']}, {profile['artifact']})"
    yield _table(
        title, "", ["count", "share"], ((name, count, _percent(part)) for name, (count, part) in facts.items())
    )
    for corner, rows in (("year", _decades(profile["years"], last - _RECENT + 1)), ("field", profile["fields"])):
        counted = ["prefiltered"] if rows and "prefiltered" in rows[0] else []
        lines = (
            (row[corner], row["papers"], _percent(share(row["with_abstract"], row["papers"]), 0),
             *(row[name] for name in counted))
            for row in rows
        )  # fmt: skip
        yield _table("", corner, ["papers", "abstract", *counted], lines)
    degrees = {**profile["degrees"], "abstract, characters": text["abstract_chars"]}
    lines = ((name, row["zero"], row["mean"], *row["quantiles"].values(), row["max"]) for name, row in degrees.items())
    yield _table("", "of a paper", ["none", "mean", *(f"{q:.0%}" for q in QUANTILES), "most"], lines)
    for title, counts in (("dropped, records of the release", "dropped"), ("noted in the release", "noted")):
        if profile[counts]:
            lines = ((name.replace("_", " "), count) for name, count in sorted(profile[counts].items()))
            yield _table(title, "", ["count"], lines)


def _percent(fraction: float | None, decimals: int = 1) -> str:
    return "" if fraction is None else f"{fraction:.{decimals}%}"


def _table(title: str, corner: str, labels: Sequence[str], lines: Iterable[Sequence[Any]]) -> Table:
    def text(value: Any) -> str | None:
        return (
            value if value is None or isinstance(value, str) else f"{value:{',.1f' * isinstance(value, float) or ','}}"
        )

    rows = (("none" if first is None else first, *map(text, values)) for first, *values in lines)
    return Table.of(title, corner, labels, rows)


def _decades(years: Sequence[dict[str, Any]], since: int) -> list[dict[str, Any]]:
    """Return the rows of years; decades before that of ``since`` are added into one row each."""
    summed: dict[Any, dict[str, Any]] = {}
    for row in years:
        year = row["year"]
        label = f"{year // 10 * 10}s" if year is not None and year < since // 10 * 10 else year
        decade = summed.setdefault(label, dict.fromkeys(row, 0) | {"year": label})
        decade |= {name: decade[name] + row[name] for name in row if name != "year"}
    return list(summed.values())
