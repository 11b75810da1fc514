"""Draws of queries, in blocks. Sums use NumPy's loops in one fixed order, not BLAS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.core.rng import generator

Floats = npt.NDArray[np.float64]

_BLOCK = 1 << 22
"""Random numbers of a block. Another value changes the draws of all seeds."""

_CACHED = 1 << 15
"""Weights of a block of products, which fit in a core's cache."""


def resampled(items: int, *, seed: int, item: object = "", resamples: int) -> Iterator[Floats]:
    """Yield the counts of items in bootstrap resamples, float64 ``[resamples, items]``, in blocks.

    A resampled sum is a dot product with them. The arguments are those of
    :func:`pipeline.measure.statistics.bootstrap_means`.
    """
    require_queries(items, resamples)
    random = generator(seed, "bootstrap", item)
    for block in blocks(resamples, items):
        draws = random.integers(0, items, size=(block.stop - block.start, items))
        flat = draws + items * np.arange(len(draws))[:, None]
        yield np.bincount(flat.ravel(), minlength=draws.size).reshape(draws.shape).astype(np.float64)


def bootstrap(
    statistics: Sequence[Callable[[Floats], Floats]],
    items: int,
    *,
    seed: int,
    item: object = "",
    resamples: int,
    repetition: object = "",
) -> tuple[float, Floats]:
    """Return a statistic of items that is not their mean, and its value in each resample, float64 ``[resamples]``.

    Args:
        statistics: of counts of the items, float64 ``[resamples, items]``, each returns float64 ``[resamples]``.
            Several are repetitions: their mean is taken, and they are resampled independently of the items.
        items: number of items.
        seed: the user's seed.
        item: name of the set of items.
        resamples: number of resamples.
        repetition: name of the set of repetitions.
    """
    value = float(np.mean([statistic(np.ones((1, items)))[0] for statistic in statistics]))
    counts = [*resampled(items, seed=seed, item=item, resamples=resamples)]
    values = np.stack([np.concatenate([statistic(of_block) for of_block in counts]) for statistic in statistics])
    if len(statistics) == 1:
        return value, values[0]
    weights = np.concatenate([*resampled(len(statistics), seed=seed, item=repetition, resamples=resamples)])
    return value, (values.T * weights).sum(axis=1) / len(statistics)


def sample_weights(samples: int, *, seed: int, item: object = "", resamples: int) -> Floats:
    """Return the weights of a pool's samples in resamples of their mean, float64 ``[samples, resamples]``, with sum 1.

    The weighted mean of figures is t-distributed around their mean, with its standard error and ``samples - 1`` degrees
    of freedom; few samples drawn with replacement would vary too little.
    """
    if samples == 1:
        return np.ones((1, resamples))
    random = generator(seed, "samples", item)
    normal = random.standard_normal((samples, resamples))
    scale = np.sqrt(random.chisquare(samples - 1, resamples) * samples)
    weights: Floats = 1 / samples + (normal - normal.mean(axis=0)) / scale
    return weights


def require_queries(queries: int, draws: int) -> None:
    """Raise InputError if there are no queries, or fewer than one draw."""
    if queries == 0:
        raise InputError("there are no queries to draw from", "Score at least one")
    if draws < 1:
        raise InputError(f"the number of random draws must be at least 1, got {draws}", "Ask for 1000")


def blocks(draws: int, queries: int) -> Iterator[slice]:
    """Yield slices of draws, so that the random numbers of a block fit in memory."""
    step = max(1, _BLOCK // queries)
    for start in range(0, draws, step):
        yield slice(start, min(start + step, draws))


def dots(values: Floats, weights: Floats) -> Floats:
    """Return ``values @ weights.T``, float64 ``[rows, draws]``, in a fixed order of additions, unlike BLAS."""
    sums = np.empty((len(values), len(weights)))
    values = np.ascontiguousarray(values)
    step = max(1, _CACHED // weights.shape[1])
    for start in range(0, len(weights), step):
        block = slice(start, start + step)
        np.einsum("dq,rq->rd", weights[block], values, out=sums[:, block])
    return sums
