"""Metadata gaps, which can tell positives from negatives: missing abstracts, years and references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from pipeline.core.schema import NO_YEAR
from pipeline.corpus.prefilter import Attributes, Mask, PrefilterConfig

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
