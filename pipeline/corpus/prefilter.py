"""The prefilter of MDCR (Medić & Šnajder 2022, section 3; protocol 1), and counts of metadata gaps.

A system could separate positives from negatives by missing abstracts, years or references, so pools count them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.config import counted
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.poolconfig import PrefilterConfig as PrefilterConfig

Attributes = Mapping[str, npt.NDArray[Any]]
Mask = npt.NDArray[np.bool_]


def has_text(attributes: Attributes, config: PrefilterConfig) -> Mask:
    """Return whether each paper has a title and a long enough abstract, bool ``[papers]``."""
    long_enough = attributes["abstract_chars"] >= config.min_abstract_chars
    mask: Mask = (attributes["title_chars"] > 0) & long_enough
    return mask


def citation_counts(attributes: Attributes, config: PrefilterConfig) -> npt.NDArray[Any]:
    """Return the number of citations of each paper in the direction that counts, ``[papers]``."""
    outbound, inbound = attributes["n_outbound"], attributes["n_inbound"]
    citations = {"outbound": outbound, "inbound": inbound}.get(config.citation_direction)
    return outbound.astype(np.int64) + inbound if citations is None else citations


def prefilter(attributes: Attributes, config: PrefilterConfig) -> tuple[Mask, dict[str, int]]:
    """Return which papers pass, bool ``[papers]``, and the counts; a dropped paper counts under its first reason."""
    citations = citation_counts(attributes, config)
    failures = {
        "no_year": attributes["year"] == NO_YEAR,
        "no_title": attributes["title_chars"] == 0,
        "short_abstract": attributes["abstract_chars"] < config.min_abstract_chars,
        "few_citations": citations < config.min_citations,
    }
    is_kept = np.ones(len(attributes["year"]), dtype=bool)
    counts = {"read": len(is_kept)}
    for reason, fails in failures.items():
        counts[f"dropped_{reason}"] = int(np.count_nonzero(is_kept & fails))
        is_kept &= ~fails
    counts["kept"] = int(np.count_nonzero(is_kept))
    return is_kept, counts


def describe_dropped(counts: Mapping[str, int], config: PrefilterConfig) -> tuple[list[str], dict[str, int]]:
    """Return the number of papers that each rule dropped, in words, largest first; and that rule's loosest setting."""
    rules = {
        "few_citations": (f"with fewer than {counted(config.min_citations, 'citation')}", {"min_citations": 0}),
        "short_abstract": (f"with an abstract under {config.min_abstract_chars} characters", {"min_abstract_chars": 0}),
        "no_title": ("without a title", {}),
        "no_year": ("without a year", {}),
    }
    dropped = sorted(
        ((counts[f"dropped_{reason}"], *rule) for reason, rule in rules.items()), reverse=True, key=itemgetter(0, 1)
    )
    return [f"{counted(count, 'paper')} {words}" for count, words, _ in dropped if count], dropped[0][2]


def loosening(rule: Mapping[str, int]) -> str:
    """Return options that loosen a rule of the prefilter, such as ``--min-citations=0``."""
    return " ".join(f"--{name.replace('_', '-')}={value}" for name, value in rule.items())


FEW_NEGATIVES = 5
"""A pool with fewer drawn papers than this for each positive has a warning."""

MARKS = ("without_abstract", "without_year", "few_references")
"""Metadata gaps: no abstract; no year; fewer references than the prefilter requires."""


def count_marks(
    attributes: Attributes, positives: npt.NDArray[np.integer], candidates: npt.NDArray[np.integer]
) -> dict[str, dict[str, int]]:
    """Return the numbers of positives and negatives of a pool, and of those with each metadata gap.

    A positive counts once, even if several queries cite it.
    """

    def counts(rows: npt.NDArray[np.integer]) -> dict[str, int]:
        without_abstract = attributes["abstract_chars"][rows] == 0
        without_year = attributes["year"][rows] == NO_YEAR
        few_references = attributes["n_outbound"][rows] < PrefilterConfig().min_citations
        gaps = zip(MARKS, (without_abstract, without_year, few_references), strict=True)
        return {"papers": len(rows), **{mark: int(np.count_nonzero(has_gap)) for mark, has_gap in gaps}}

    return {"positives": counts(positives), "negatives": counts(np.setdiff1d(candidates, positives))}


UNEVEN = 0.05
"""Difference of the shares of positives and negatives without an abstract beyond which scores among the candidates
with an abstract stand beside the others."""


def uneven_abstracts(marks: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether positives and negatives (:func:`count_marks`) differ by much in the share without an abstract."""
    shares = [counts["without_abstract"] / max(counts["papers"], 1) for counts in marks.values()]
    return bool(shares) and max(shares) - min(shares) > UNEVEN


def describe_gaps(pools: Iterable[Mapping[str, Mapping[str, int]]]) -> str:
    """Return a sentence with the shares of several pools' :func:`count_marks` together; empty without positives."""
    totals = {kind: Counter[str]() for kind in ("positives", "negatives")}
    for pool in pools:
        for kind, counts in pool.items():
            totals[kind].update(counts)
    if not totals["positives"]["papers"]:
        return ""
    texts = [
        " and ".join(f"{counts[mark] / max(counts['papers'], 1):.1%}" for counts in totals.values()) for mark in MARKS
    ]
    shares = "; ".join(f"{mark.replace('_', ' ')} {text}" for mark, text in zip(MARKS, texts, strict=True))
    return f"Of the positives, and of the negatives: {shares}."
