"""Score against pool size: a fitted curve, its prediction of a size left out, and its extrapolation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.measure.statistics import Floats, Interval, bootstrap_means

SIZES = (16_000_000, 200_000_000)
"""Sizes of the extrapolation: candidates of S2ORC with an abstract and references, about, and papers of S2AG."""

FORMS = ("logit", "power")
"""``logit``: the log odds of the score fall linearly with the log of the size. ``power``: the log of the score does."""

APART = 1.25
"""Ratio of two sizes from which on both are fitted: nearly equal pools are one point."""

_LEAST = 1e-6
"""Scores are at least this where their logarithm is taken."""


def apart(sizes: Sequence[int]) -> list[int]:
    """Return rising sizes that are each :data:`APART` times the one before, from the smallest on."""
    kept: list[int] = []
    for size in sorted(sizes):
        if not kept or size >= APART * kept[-1]:
            kept.append(size)
    return kept


def predict(sizes: Sequence[int], scores: Floats, at: Sequence[int], form: str) -> Floats:
    """Fit a line by least squares through transformed scores, ``[..., sizes]``; return it at other sizes."""
    x, new = np.log(np.asarray(sizes, np.float64)), np.log(np.asarray(at, np.float64))
    bounded = np.clip(scores, _LEAST, 1 - _LEAST)
    y = np.log(bounded) - (np.log1p(-bounded) if form == "logit" else 0.0)
    slope = ((y - y.mean(axis=-1, keepdims=True)) * (x - x.mean())).sum(axis=-1) / ((x - x.mean()) ** 2).sum()
    line = y.mean(axis=-1)[..., None] + slope[..., None] * (new - x.mean())
    fitted: Floats = 1 / (1 + np.exp(-line)) if form == "logit" else np.exp(line)
    return fitted


def extrapolate(
    sizes: Sequence[int], values: Floats, at: Sequence[int], form: str, seed: int, item: str = ""
) -> list[Interval]:
    """Return the curve at some sizes with 95% percentile intervals over queries; values are ``[sizes, queries]``."""
    means = bootstrap_means(values, seed=seed, item=item)
    low, high = np.quantile(predict(sizes, means.T, at, form), [0.025, 0.975], axis=0)
    return list(zip(predict(sizes, values.mean(axis=1), at, form).tolist(), low.tolist(), high.tolist(), strict=True))
