"""Measuring a run by the definitions of the table or by ranx; average precision of parts of runs; chance levels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError, StageError, nearest
from pipeline.core.rng import generator
from pipeline.measure.hits import Hits, Relevant
from pipeline.measure.inputs import Mask, Qrels, Run, check_measurable, query_of, select, within
from pipeline.measure.measures import MEASURES, Measure

ENGINES = ("numpy", "ranx")
"""``numpy``: the definitions of the table. ``ranx``: the same values within 1e-12, after it compiled its kernels."""


def evaluate(qrels: Qrels, run: Run, measures: Sequence[Measure], engine: str = "numpy") -> npt.NDArray[np.float64]:
    """Return the value of each measure for each query.

    Args:
        qrels: relevant papers; every query has one.
        run: retrieved papers of the same queries; a query that retrieved nothing scores 0.
        measures: what to compute.
        engine: one of :data:`ENGINES`.

    Returns:
        Fractions, float64 ``[measures, queries]``, the same whatever the number of threads.

    Raises:
        InputError: a query has no positive, qrels and run are of different queries, there is no such engine, or it
            lacks a measure.
        StageError: numba finds no folder to cache the kernels of ranx in.
    """
    check_engine(engine)
    check_measurable(qrels, run)
    for measure in (measure for measure in measures if measure.relevant > 1):
        without = np.flatnonzero(qrels.graded(measure.relevant).positives() == 0)
        if len(without):
            raise InputError(
                f"{measure} needs a paper of grade {measure.relevant} or more of each query, got none of "
                f"{len(without):,} queries, first query {without[0]}",
                "Leave the measure out",
            )
    if engine == "ranx":
        return _by_ranx(qrels, run, measures)
    hits = Hits.of(qrels, run)
    return np.stack([measure.compute(hits) for measure in measures])


def evaluate_all(qrels: Qrels, run: Run, measures: Sequence[Measure], engine: str = "numpy") -> npt.NDArray[np.float64]:
    """Return :func:`evaluate` of every query, float64 ``[measures, queries]``; NaN: it has no relevant paper."""
    values = np.full((len(measures), len(qrels.offsets) - 1), np.nan)
    measurable = np.flatnonzero(qrels.positives())
    if len(measurable):
        run, qrels = select(run, qrels, measurable)
        values[:, measurable] = evaluate(qrels, run, measures, engine)
    return values


def check_engine(engine: str) -> None:
    """Refuse an engine that is none of :data:`ENGINES`."""
    if engine not in ENGINES:
        raise InputError(f"there is no measure engine {engine!r}", nearest(engine, ENGINES))


def average_precision(ranks: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the average precision of every query in every ranking, float64 ``[queries, rankings]``.

    Args:
        ranks: int64 ``[relevant, rankings]``, from 1; 0 where a relevant paper was not retrieved; in any order within a
            query.
        offsets: int64 ``[queries + 1]``, where each query's relevant papers start; a query without any has NaN.
    """
    query, positives = query_of(offsets), np.diff(offsets)
    values = np.empty((len(positives), ranks.shape[1]))
    for number, column in enumerate(ranks.T):
        order = np.lexsort((column, query))
        order = order[column[order] > 0]
        relevant = Relevant(query[order], column[order], np.ones(len(order), np.int64))
        with np.errstate(invalid="ignore"):
            values[:, number] = MEASURES["map"].compute(Hits(relevant, relevant, positives, positives))
    return values


def precision_among(qrels: Qrels, run: Run, kept: Mask) -> npt.NDArray[np.float64]:
    """Return average precision with the papers ``kept`` alone, float64 ``[queries]``; NaN without positives.

    ``kept`` is bool ``[papers of the corpus]``.
    """
    cut = qrels.among(kept)
    with np.errstate(invalid="ignore"):
        precision = MEASURES["map"].compute(Hits.of(cut, run.among(kept)))
    return np.where(cut.positives() > 0, precision, np.nan)


DRAWS = 1_000


def by_chance(
    qrels: Qrels, candidates: npt.NDArray[np.int64], measures: Sequence[Measure], seed: int, draws: int = DRAWS
) -> npt.NDArray[np.float64]:
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
    below = (within(others.offsets) + positives[query_of(others.offsets)]).astype(np.uint32)
    lower = Qrels(others.offsets, below, others.grades)
    numbered = Qrels(qrels.offsets, within(qrels.offsets).astype(np.uint32), qrels.grades, lower)
    offsets = np.concatenate([[0], np.cumsum(candidates)])
    of_query, rows, random = query_of(offsets), within(offsets).astype(np.uint32), generator(seed, "random ranking")
    total = np.zeros((len(measures), len(candidates)))
    for _ in range(draws):
        order = np.lexsort((random.random(len(rows)), of_query))
        total += evaluate(numbered, Run(offsets, rows[order]), measures)
    return total / draws


def above_chance(values: npt.ArrayLike, chance: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return values standardised so that a random ranking has 0, and 1 stays; 0 where a random ranking has 1 too."""
    expected = np.asarray(chance, np.float64)
    gains = np.asarray(values, np.float64) - expected
    return np.divide(gains, 1 - expected, out=np.zeros_like(gains), where=expected < 1)


_BLOCK_BYTES = 64 * 2**20
"""Memory of the arrays handed to ranx at a time."""

_PAIR_BYTES = 16
_PADDING = (-1.0, 0.0)
"""Row and grade that fill up short lists: ranx drops grades below 1 first."""

Lists = npt.NDArray[np.float64]
"""``[queries, length, 2]``: row and score, or row and grade. Any uint32 row is exact in float64."""

_lock = threading.Lock()


def _by_ranx(qrels: Qrels, run: Run, measures: Sequence[Measure]) -> npt.NDArray[np.float64]:
    """Return the values by ranx (Bassani 2022), through its array path: no dictionaries, no string ids, no sorting.

    * ranx does not define ties and ranks arrays by position: entries come in the one total order already
      (:class:`pipeline.measure.inputs.Run` checks it), under scores that fall by one a rank.
    * The ideal ranking of its NDCG is the order in which qrels are given: :class:`pipeline.measure.inputs.Qrels` has
      them by falling grade.
    * numba compiles its kernels, 3 to 4 s a measure, unless it finds them in its cache folder.
    * ``ranx.evaluate`` fails on one lone measure with a cutoff, and leaves numba on one thread after fewer than ten
      queries: its measure functions are called instead.
    * Its thread pool aborts the process when two threads enter it: one lock.
    """
    for measure in measures:
        if measure.share or measure.relevant > 1 or not MEASURES[measure.name].ranx:
            raise InputError(f"the measure must be one of ranx's, got {measure}", "Leave out --measure-engine=ranx")
    values = np.zeros((len(measures), len(qrels.offsets) - 1))
    for members in _blocks(qrels, run):
        judged, ranked = _qrels_lists(qrels, members), _run_lists(run, members)
        for number, measure in enumerate(measures):
            with _lock:
                values[number, members] = _function_of_ranx(measure.name)(judged, ranked, measure.cutoff or 0)
    return values


def _blocks(qrels: Qrels, run: Run) -> Iterator[npt.NDArray[np.int64]]:
    """Yield queries with equally long lists, as many as fit in memory; those without results are left at 0.

    Equal lengths, because a padded list would change precision and F1 without a cutoff, which divide by it.
    """
    retrieved, positives = run.retrieved(), qrels.positives()
    for length in np.unique(retrieved[retrieved > 0]):
        members = np.flatnonzero(retrieved == length)
        widest = int(length) + int(positives[members].max())
        step = max(1, _BLOCK_BYTES // (_PAIR_BYTES * widest))
        for start in range(0, len(members), step):
            yield members[start : start + step]


def _run_lists(run: Run, members: npt.NDArray[np.int64]) -> Lists:
    depth = int(run.offsets[members[0] + 1] - run.offsets[members[0]])
    lists = np.empty((len(members), depth, 2))
    lists[:, :, 0] = run.rows[run.offsets[members][:, None] + np.arange(depth)]
    lists[:, :, 1] = np.arange(depth, 0, -1)
    return lists


def _qrels_lists(qrels: Qrels, members: npt.NDArray[np.int64]) -> Lists:
    starts, lengths = qrels.offsets[members], qrels.positives()[members]
    within = np.arange(lengths.max())
    real = within < lengths[:, None]
    places = (starts[:, None] + within)[real]
    lists = np.empty((*real.shape, 2))
    lists[:] = _PADDING
    lists[real, 0] = qrels.rows[places]
    lists[real, 1] = qrels.grades[places]
    return lists


def _function_of_ranx(name: str) -> Callable[[Lists, Lists, int], npt.NDArray[np.float64]]:
    try:
        from ranx import metrics
    except RuntimeError as error:
        if "cannot cache function" not in str(error):
            raise
        raise StageError(
            f"numba finds no folder to keep compiled measures in ({error})",
            "Set NUMBA_CACHE_DIR to a folder that can be written",
        ) from error
    function: Callable[[Lists, Lists, int], npt.NDArray[np.float64]] = getattr(metrics, MEASURES[name].ranx)
    return function
