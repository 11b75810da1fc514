"""What a random ranking scores: the floor of a measure where a query has few candidates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.core.rng import generator
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, Run, query_of
from pipeline.measure.measures import Measure
from pipeline.measure.resampling import Floats

DRAWS = 1_000


def by_chance(
    qrels: Qrels, candidates: npt.NDArray[np.int64], measures: Sequence[Measure], seed: int, draws: int = DRAWS
) -> Floats:
    """Return the expected value of each measure of each query over random orders of all candidates.

    Args:
        qrels: judgements; every query has a positive.
        candidates: int64 ``[queries]``, how many papers each query ranks, the judged ones among them.
        measures: what to compute.
        seed: the user's seed.
        draws: random orders; the standard error is the deviation between orders over its root.

    Returns:
        Fractions, float64 ``[measures, queries]``.

    Raises:
        InputError: a query has more judged papers than candidates.
    """
    others = qrels.others or Qrels(np.zeros_like(qrels.offsets), qrels.rows[:0], qrels.grades[:0])
    positives = qrels.positives()
    if (positives + others.positives() > candidates).any():
        query = int(np.argmax(positives + others.positives() > candidates))
        raise InputError(
            f"query {query} ranks {candidates[query]} candidates, fewer than are judged", "Count all candidates"
        )
    # Orders are exchangeable: candidate 0 stands for the first positive, and so on.
    below = (_numbers(others.offsets) + positives[query_of(others.offsets)]).astype(np.uint32)
    lower = Qrels(others.offsets, below, others.grades)
    numbered = Qrels(qrels.offsets, _numbers(qrels.offsets), qrels.grades, lower)
    offsets = np.concatenate([[0], np.cumsum(candidates)])
    of_query, rows, random = query_of(offsets), _numbers(offsets), generator(seed, "random ranking")
    total = np.zeros((len(measures), len(candidates)))
    for _ in range(draws):
        order = np.lexsort((random.random(len(rows)), of_query))
        total += evaluate(numbered, Run(offsets, rows[order]), measures)
    return total / draws


def above_chance(values: npt.ArrayLike, chance: npt.ArrayLike) -> Floats:
    """Return values standardised so that a random ranking has 0, and 1 stays; 0 where a random ranking has 1 too."""
    expected = np.asarray(chance, np.float64)
    gains = np.asarray(values, np.float64) - expected
    return np.divide(gains, 1 - expected, out=np.zeros_like(gains), where=expected < 1)


def _numbers(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Return the number of each entry within its query, from 0."""
    return (np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))).astype(np.uint32)
