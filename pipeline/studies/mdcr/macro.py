"""Means over fields of what was measured of each query, with intervals and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.measure.statistics import bootstrap_means, holm, paired_permutation, percentile_interval
from pipeline.studies.mdcr.lists import Floats

OfFields = Mapping[str, Floats]
"""Values of each query by field, float64 ``[rows, queries]``; the rows of all fields are the same."""


class Macro(NamedTuple):
    """The mean over fields of some rows.

    Attributes:
        value: float64 ``[rows]``.
        low: lower end of the bootstrap interval over queries.
        high: upper end.
        draws: float64 ``[rows, resamples]``; all rows share the queries drawn.
    """

    value: Floats
    low: Floats
    high: Floats
    draws: Floats


def macro(values: OfFields, seed: int) -> Macro:
    """Return the mean over fields of the mean over queries; fields are resampled independently."""
    return bootstrapped(
        [each.mean(axis=1) for each in values.values()],
        [bootstrap_means(each, seed=seed, item=field) for field, each in values.items()],
    )


def bootstrapped(means: Sequence[Floats], draws: Sequence[Floats]) -> Macro:
    """Return the mean over fields from the mean of each field and its bootstrapped means."""
    averaged = np.mean(draws, axis=0)
    return Macro(np.mean(means, axis=0), *percentile_interval(averaged), averaged)


def interval(draws: Floats) -> tuple[float, float]:
    """Return the percentile interval of a statistic of each resample, float64 ``[resamples]``."""
    low, high = percentile_interval(draws[None, :])
    return float(low[0]), float(high[0])


def adjusted(differences: OfFields, seed: int) -> Floats:
    """Return p-values of mean differences over fields, corrected by Holm over the rows, float64 ``[rows]``.

    The paired permutation test flips signs query by query; a query weighs as much as its field has few.
    """
    weighted = [each / each.shape[1] for each in differences.values()]
    return holm(paired_permutation(np.concatenate(weighted, axis=1), seed=seed, item="fields"))
