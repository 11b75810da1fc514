"""The prefilter of MDCR (Medić & Šnajder 2022, section 3; protocol 1), and gaps in metadata.

Missing abstracts, years and references can tell positives from negatives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.schema import NO_YEAR
from pipeline.corpus.poolconfig import PrefilterConfig as PrefilterConfig

Attributes = Mapping[str, npt.NDArray[Any]]
Mask = npt.NDArray[np.bool_]


def has_text(attributes: Attributes, config: PrefilterConfig) -> Mask:
    """Return which papers have a title and a long enough abstract, bool ``[papers]``."""
    long_enough = attributes["abstract_chars"] >= config.min_abstract_chars
    mask: Mask = (attributes["title_chars"] > 0) & long_enough
    return mask


def prefilter(attributes: Attributes, config: PrefilterConfig) -> tuple[Mask, dict[str, int]]:
    """Return which papers are kept, bool ``[papers]``, and the counts: each dropped one under its first reason."""
    outbound, inbound = attributes["n_outbound"], attributes["n_inbound"]
    citations = {"outbound": outbound, "inbound": inbound}.get(config.citation_direction)
    if citations is None:
        citations = outbound.astype(np.int64) + inbound
    tests = {
        "no_year": attributes["year"] == NO_YEAR,
        "no_title": attributes["title_chars"] == 0,
        "short_abstract": attributes["abstract_chars"] < config.min_abstract_chars,
        "few_citations": citations < config.min_citations,
    }
    kept = np.ones(len(attributes["year"]), dtype=bool)
    counts = {"read": len(kept)}
    for reason, failing in tests.items():
        counts[f"dropped_{reason}"] = int(np.count_nonzero(kept & failing))
        kept &= ~failing
    counts["kept"] = int(np.count_nonzero(kept))
    return kept, counts


MARKS = ("without_abstract", "without_year", "few_references")
"""No abstract; no year; fewer references than the prefilter asks for."""


def marked(
    attributes: Attributes, rows: npt.NDArray[np.integer], few: int = PrefilterConfig().min_citations
) -> dict[str, Mask]:
    """Return which papers have each of :data:`MARKS`, bool ``[rows]``; ``few`` references and more are enough."""
    return {
        "without_abstract": attributes["abstract_chars"][rows] == 0,
        "without_year": attributes["year"][rows] == NO_YEAR,
        "few_references": attributes["n_outbound"][rows] < few,
    }


def counted(
    attributes: Attributes, positives: npt.NDArray[np.integer], candidates: npt.NDArray[np.integer]
) -> dict[str, dict[str, int]]:
    """Return how many positives and negatives of a pool have each metadata gap, and how many there are.

    Each positive counts once, whatever number of queries cite it.
    """
    parts = {"positives": positives, "negatives": np.setdiff1d(candidates, positives)}
    return {
        name: {"papers": len(rows), **{k: int(np.count_nonzero(v)) for k, v in marked(attributes, rows).items()}}
        for name, rows in parts.items()
    }


def sentence(pools: Iterable[Mapping[str, Mapping[str, int]]]) -> str:
    """Return what :func:`counted` says of several pools together, in one sentence; empty if nothing was counted."""
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
