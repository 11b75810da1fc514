"""Means over fields of what was measured of each query, with intervals and tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pipeline.measure.statistics import LEVEL, bootstrap_means, confidence_interval, paired_permutation
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
    draws = np.mean([bootstrap_means(each, seed=seed, item=field) for field, each in values.items()], axis=0)
    means = np.mean([each.mean(axis=1) for each in values.values()], axis=0)
    return Macro(means, *confidence_interval(draws, *values.values()), draws)


def interval(draws: Floats, level: float = LEVEL) -> tuple[float, float]:
    """Return the percentile interval of a statistic of each resample, float64 ``[resamples]``."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def p_value(one: OfFields, other: OfFields, seed: int) -> Floats:
    """Return the p-value of each row's mean difference over fields, float64 ``[rows]``.

    The paired permutation test flips signs query by query; a query weighs as much as its field has few.
    """
    weighted = [(values - other[field]) / values.shape[1] for field, values in one.items()]
    return paired_permutation(np.concatenate(weighted, axis=1), seed=seed, item="fields")
