"""What marks a positive: shares of missing data, results for positives with text, and for matched negatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.rng import priorities
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.prefilter import Attributes, Mask, PrefilterConfig, has_text
from pipeline.measure.hits import Hits
from pipeline.measure.inputs import Run
from pipeline.measure.measures import average_precision
from pipeline.measure.statistics import Floats
from pipeline.studies.large_scale.data import PoolRuns, restricted, restricted_qrels

YEARS = 3
"""Years of a stratum."""


class Matched(NamedTuple):
    """Candidates of a pool that are compared, bool ``[papers]`` each.

    Attributes:
        positives: positives that have a negative of their stratum, each one of its own.
        matched: these and their negatives.
        drawn: these and as many negatives drawn from the whole pool.
    """

    positives: Mask
    matched: Mask
    drawn: Mask


def strata(attributes: Attributes, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return the stratum of papers, int64 ``[rows]``: abstract or none, year, and length of title and abstract.

    A stratum spans :data:`YEARS` years, and lengths up to 1.4 times the shortest.
    """
    year = attributes["year"][rows].astype(np.int64)
    texts = has_text(attributes, PrefilterConfig())[rows]
    chars = attributes["title_chars"][rows].astype(np.float64) + attributes["abstract_chars"][rows]
    length = np.floor(2 * np.log2(np.maximum(chars, 1))).astype(np.int64)
    keys: npt.NDArray[np.int64] = (np.where(year == NO_YEAR, 0, year // YEARS + 1) * 128 + length) * 2 + texts
    return keys


def match(
    attributes: Attributes, positives: npt.NDArray[np.integer], candidates: npt.NDArray[np.integer], seed: int
) -> Matched:
    """Match each positive with one negative of its stratum; those without one are left out. All are rows of papers."""
    negatives = np.setdiff1d(candidates, positives)
    kept, own = _paired(attributes, positives, negatives, seed)
    chance = priorities(attributes["key"][negatives], seed, "matched", "all")
    others = negatives[np.argsort(chance, kind="stable")[: len(own)]]
    size = len(attributes["key"])
    return Matched(_mask(size, kept), _mask(size, kept, own), _mask(size, kept, others))


def _paired(
    attributes: Attributes, positives: npt.NDArray[np.integer], negatives: npt.NDArray[np.integer], seed: int
) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
    """Return the positives and negatives of one stratum with one number in it, in random order."""
    parts = []
    for rows in (positives, negatives):
        own, chance = strata(attributes, rows), priorities(attributes["key"][rows], seed, "matched")
        order = np.lexsort((chance, own))
        own = own[order]
        nth = np.arange(len(own)) - np.searchsorted(own, own)
        parts.append((rows[order], own * (len(positives) + len(negatives)) + nth))
    (left, ours), (right, theirs) = parts
    return left[np.isin(ours, theirs)], right[np.isin(theirs, ours)]


def _mask(size: int, *rows: npt.NDArray[np.integer]) -> Mask:
    found = np.zeros(size, bool)
    found[np.concatenate(rows)] = True
    return found


def results(ranked: PoolRuns, seed: int) -> Mapping[str, Mapping[str, Floats]]:
    """Return average precision by kind of candidates and system, float64 ``[queries]``; NaN without positives.

    Rankings are cut to the candidates of a kind, so they are as deep as what is left of them. The kinds are all
    candidates; candidates with text; positives with a match among their matched negatives; the same positives among
    as many random negatives.
    """
    attributes = ranked.pool.corpus.attributes
    candidates, positives = ranked.pool.candidates, np.unique(ranked.qrels.rows)
    found = match(attributes, positives, candidates, seed)
    everything = np.ones(len(attributes["key"]), bool)
    kinds = {
        "all": everything,
        "with text": has_text(attributes, PrefilterConfig()),
        "matched negatives": found.matched,
        "random negatives": found.drawn,
    }
    return {
        kind: {system: precision_among(ranked, run, kept) for system, run in ranked.runs.items()}
        for kind, kept in kinds.items()
    }


def precision_among(ranked: PoolRuns, run: Run, kept: Mask) -> Floats:
    """Return average precision with some papers alone, float64 ``[queries]``; NaN without positives."""
    qrels = restricted_qrels(ranked.qrels, kept[ranked.qrels.rows])
    some = qrels.positives() > 0
    with np.errstate(invalid="ignore"):
        return np.where(some, average_precision(Hits.of(qrels, restricted(run, kept))), np.nan)
