"""Variance between samples beside variance between queries, and how many samples are needed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pipeline.core.rng import generator
from pipeline.measure.statistics import RESAMPLES, Floats

ENOUGH = 0.1
"""Share of the variance of a mean that may come from the draw of candidates."""


class Components(NamedTuple):
    """Variance components of a query's value on one sample; the rest is between samples, query by query."""

    queries: float
    samples: float
    rest: float

    def share(self, samples: int, queries: int) -> float:
        """Return the share of the variance of a mean over queries and samples that more samples would lower."""
        drawn = self.samples / samples + self.rest / (samples * queries)
        total = drawn + self.queries / queries
        return drawn / total if total else 0.0

    def needed(self, queries: int, enough: float = ENOUGH) -> int:
        """Return the number of samples from which on the draw of candidates has at most ``enough`` of the variance."""
        drawn, fixed = self.samples + self.rest / queries, self.queries / queries
        return max(1, math.ceil(drawn * (1 - enough) / (enough * fixed) - 1e-9)) if fixed else 1


def components(values: Floats) -> Components:
    """Return the variance components of values float64 ``[samples, queries]``; negative estimates are 0."""
    samples, queries = values.shape
    by_query, by_sample, mean = values.mean(axis=0), values.mean(axis=1), values.mean()
    rest = ((values - by_query - by_sample[:, None] + mean) ** 2).sum() / ((samples - 1) * (queries - 1))
    between_queries = (samples * ((by_query - mean) ** 2).sum() / (queries - 1) - rest) / samples
    between_samples = (queries * ((by_sample - mean) ** 2).sum() / (samples - 1) - rest) / queries
    return Components(max(between_queries, 0.0), max(between_samples, 0.0), float(rest))


def share_interval(values: Floats, seed: int, item: str = "", resamples: int = RESAMPLES) -> tuple[float, float]:
    """Return the 95% bootstrap interval over queries of :meth:`Components.share` at the samples there are."""
    samples, queries = values.shape
    random = generator(seed, "variance", item)
    draws = random.integers(0, queries, size=(resamples, queries))
    shares = [components(values[:, drawn]).share(samples, queries) for drawn in draws]
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(low), float(high)
