"""Draws of queries and signs, in blocks. Sums run in NumPy's own loops, in one order, never through BLAS."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.core.rng import generator

Floats = npt.NDArray[np.float64]

_BLOCK = 1 << 22
"""Random numbers held at a time. Changing it changes the draws of every seed."""

_CACHED = 1 << 15
"""Weights multiplied at a time, which fit a core's cache."""

_EXACT_QUERIES = 13
"""Up to so many queries, all 2**queries sign patterns are enumerated instead of drawn."""


def resampled(items: int, *, seed: int, item: object = "", resamples: int) -> Iterator[Floats]:
    """Yield how often each resample of a bootstrap draws each item, float64 ``[resamples, items]``, in blocks.

    A resampled sum is then one dot product. The arguments are those of
    :func:`pipeline.measure.statistics.bootstrap_means`.
    """
    require_queries(items, resamples)
    random = generator(seed, "bootstrap", item)
    for part in _blocks(resamples, items):
        drawn = random.integers(0, items, size=(part.stop - part.start, items))
        flat = drawn + items * np.arange(len(drawn))[:, None]
        yield np.bincount(flat.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)


def sample_weights(samples: int, *, seed: int, item: object = "", resamples: int) -> Floats:
    """Return the weight of each sample of a pool in each resample of their mean, float64 ``[samples, resamples]``.

    They add up to 1. A weighted mean of figures is t-distributed about their mean, with its standard error and
    ``samples - 1`` degrees of freedom: three samples drawn with replacement would spread too little.
    """
    if samples == 1:
        return np.ones((1, resamples))
    random = generator(seed, "samples", item)
    normal = random.standard_normal((samples, resamples))
    scale = np.sqrt(random.chisquare(samples - 1, resamples) * samples)
    weights: Floats = 1 / samples + (normal - normal.mean(axis=0)) / scale
    return weights


def sign_patterns(queries: int, permutations: int, seed: int, item: object) -> tuple[Iterator[Floats], bool]:
    """Return who changes sides in each pattern, blocks of float64 ``[patterns, queries]``, and whether all are tried.

    All are tried where there are no more than ``permutations``, up to 13 queries; else patterns are drawn.
    """
    require_queries(queries, permutations)
    exact = queries <= _EXACT_QUERIES and 2**queries <= permutations
    return (_all_signs(queries) if exact else _drawn_signs(queries, permutations, seed, item)), exact


def _all_signs(queries: int) -> Iterator[Floats]:
    patterns = np.arange(2**queries)[:, None] >> np.arange(queries)
    yield (patterns & 1).astype(np.float64)


def _drawn_signs(queries: int, permutations: int, seed: int, item: object) -> Iterator[Floats]:
    random = generator(seed, "permutation", item)
    width = -(-queries // 8)
    for part in _blocks(permutations, queries):
        drawn = part.stop - part.start
        bits = np.unpackbits(np.frombuffer(random.bytes(drawn * width), np.uint8).reshape(drawn, width), axis=1)
        yield bits[:, :queries].astype(np.float64)


def require_queries(queries: int, draws: int) -> None:
    """Refuse to draw from no queries, or less than one draw."""
    if queries == 0:
        raise InputError("there are no queries to draw from", "Score at least one")
    if draws < 1:
        raise InputError(f"the number of random draws must be at least 1, got {draws}", "Ask for 1000")


def _blocks(draws: int, queries: int) -> Iterator[slice]:
    step = max(1, _BLOCK // queries)
    for start in range(0, draws, step):
        yield slice(start, min(start + step, draws))


def dots(values: Floats, weights: Floats) -> Floats:
    """Return ``values @ weights.T``, float64 ``[rows, draws]``, on one thread: BLAS adds in an order of its own."""
    sums = np.empty((len(values), len(weights)))
    values = np.ascontiguousarray(values)
    step = max(1, _CACHED // weights.shape[1])
    for start in range(0, len(weights), step):
        part = slice(start, start + step)
        np.einsum("dq,rq->rd", weights[part], values, out=sums[:, part])
    return sums
