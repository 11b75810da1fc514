"""Evaluates runs by the definitions of the table or by ranx; average precision of parts of runs; chance levels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pipeline.core.config import counted
from pipeline.core.errors import InputError, StageError, require_known
from pipeline.core.rng import generator
from pipeline.measure.hits import Hits, Relevant
from pipeline.measure.inputs import Qrels, RankedRun, query_of, select, within
from pipeline.measure.measures import MEASURES, Measure

ENGINES = ("numpy", "ranx")
"""``numpy``: the definitions of the table. ``ranx``: the same values within 1e-12, after it has compiled kernels."""


def evaluate(
    qrels: Qrels, run: RankedRun, measures: Sequence[Measure], engine: str = "numpy"
) -> npt.NDArray[np.float64]:
    """Return the values of measures for queries.

    Args:
        qrels: judgements; each query has a relevant paper.
        run: retrieved papers of the same queries; a query without results scores 0.
        measures: the measures.
        engine: one of :data:`ENGINES`.

    Returns:
        Fractions, float64 ``[measures, queries]``, independent of the number of threads.

    Raises:
        InputError: a query has no positive, qrels and run have different queries, or the engine is unknown or lacks a
            measure.
        StageError: numba finds no cache folder for the kernels of ranx.
    """
    check_engine(engine)
    for measure in {measure.relevant: measure for measure in measures}.values():
        _check_measurable(qrels, run, measure)
    if engine == "ranx":
        return _by_ranx(qrels, run, measures)
    hits = Hits.of(qrels, run)
    return np.stack([measure.compute(hits) for measure in measures])


def evaluate_all(
    qrels: Qrels, run: RankedRun, measures: Sequence[Measure], engine: str = "numpy"
) -> npt.NDArray[np.float64]:
    """Return :func:`evaluate` of all queries, float64 ``[measures, queries]``.

    NaN where a query has no paper of the grade that a measure calls relevant.
    """
    values = np.full((len(measures), len(qrels.offsets) - 1), np.nan)
    for relevant in {measure.relevant for measure in measures}:
        rows = [row for row, measure in enumerate(measures) if measure.relevant == relevant]
        measurable = np.flatnonzero(qrels.graded(relevant).positives())
        if len(measurable):
            of_queries = select(run, qrels, measurable)[::-1]
            chosen = [measures[row] for row in rows]
            values[np.ix_(np.array(rows), measurable)] = evaluate(*of_queries, chosen, engine)
    return values


def _check_measurable(qrels: Qrels, run: RankedRun, measure: Measure) -> None:
    """Raise InputError if run and qrels have different queries, or a query has no paper that is relevant to a measure.

    Measures are undefined for such a query; counting it as 0 would lower all means.
    """
    judged, ranked = len(qrels.offsets) - 1, len(run.offsets) - 1
    if judged != ranked:
        remedy = "Rank the queries of this pool"
        raise InputError(f"the qrels have {counted(judged, 'query')}, the ranking {ranked:,}", remedy)
    if without := np.count_nonzero(qrels.graded(measure.relevant).positives() == 0):
        raise InputError(
            f"{measure} must have a paper of grade {measure.relevant} or more of each query, got none of {without:,}",
            "Leave these queries out before measuring: they can be counted, not scored",
        )


def check_engine(engine: str) -> None:
    """Raise InputError for an engine that is not in :data:`ENGINES`."""
    require_known(engine, ENGINES, f"there is no measure engine {engine!r}")


def average_precision(ranks: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the average precision of queries in rankings, float64 ``[queries, rankings]``.

    Args:
        ranks: int64 ``[relevant, rankings]``, ranks of relevant papers from 1, in any order within a query; 0 if not
            retrieved.
        offsets: int64 ``[queries + 1]``, start of each query's relevant papers; a query without any has NaN.
    """
    query, positives = query_of(offsets), np.diff(offsets)
    values = np.empty((len(positives), ranks.shape[1]))
    for ranking, column in enumerate(ranks.T):
        order = np.lexsort((column, query))
        order = order[column[order] > 0]
        relevant = Relevant(query[order], column[order], np.ones(len(order), np.int64))
        with np.errstate(invalid="ignore"):
            values[:, ranking] = MEASURES["map"].compute(Hits(relevant, relevant, positives, positives))
    return values


DRAWS = 1_000


def by_chance(
    qrels: Qrels, candidates: npt.NDArray[np.int64], measures: Sequence[Measure], seed: int, draws: int = DRAWS
) -> npt.NDArray[np.float64]:
    """Return the expected values of measures for queries over random orders of all candidates.

    Args:
        qrels: judgements; each query has a positive.
        candidates: int64 ``[queries]``, number of candidates of each query, judged ones included.
        measures: the measures.
        seed: the user's seed.
        draws: number of random orders; the standard error is the deviation between orders over its root.

    Returns:
        Fractions, float64 ``[measures, queries]``.

    Raises:
        InputError: a query has more judged papers than candidates.
    """
    other_papers = qrels.others or Qrels(np.zeros_like(qrels.offsets), qrels.rows[:0], qrels.grades[:0])
    positives = qrels.positives()
    if (positives + other_papers.positives() > candidates).any():
        query = int(np.argmax(positives + other_papers.positives() > candidates))
        raise InputError(
            f"a query has {candidates[query]} candidates, fewer than are judged of it", "Count all candidates"
        )
    # Orders are exchangeable: candidate 0 stands for the first positive, and so on.
    other_rows = (within(other_papers.offsets) + positives[query_of(other_papers.offsets)]).astype(np.uint32)
    numbered_others = Qrels(other_papers.offsets, other_rows, other_papers.grades)
    numbered = Qrels(qrels.offsets, within(qrels.offsets).astype(np.uint32), qrels.grades, numbered_others)
    offsets = np.concatenate([[0], np.cumsum(candidates)])
    of_query, rows, random = query_of(offsets), within(offsets).astype(np.uint32), generator(seed, "random ranking")
    total = np.zeros((len(measures), len(candidates)))
    for _ in range(draws):
        order = np.lexsort((random.random(len(rows)), of_query))
        total += evaluate(numbered, RankedRun(offsets, rows[order]), measures)
    return total / draws


Lists = npt.NDArray[np.float64]
"""``[1, length, 2]``: row and score, or row and grade. Any uint32 row is exact in float64."""

_lock = threading.Lock()


def _by_ranx(qrels: Qrels, run: RankedRun, measures: Sequence[Measure]) -> npt.NDArray[np.float64]:
    """Return the values by ranx (Bassani 2022), from arrays: no dictionaries, no string ids, no sorting.

    * ranx does not define ties and ranks arrays by position. So entries are in the one total order
      (:class:`pipeline.measure.inputs.RankedRun` checks it), with scores that fall by one a rank.
    * The ideal ranking of its NDCG is the order of the qrels: :class:`pipeline.measure.inputs.Qrels` sorts them by
      descending grade.
    * numba compiles its kernels, 3 to 4 s a measure, unless they are in its cache folder.
    * ``ranx.evaluate`` fails for a single measure with a cutoff, and leaves numba on one thread after fewer than ten
      queries. So we call its measure functions.
    * Its thread pool aborts the process if two threads enter it, hence the lock.
    """
    for measure in measures:
        if measure.share or measure.relevant > 1 or measure.gains or not MEASURES[measure.name].ranx:
            raise InputError(f"the measure must be one of ranx's, got {measure}", "Leave out --measure-engine=ranx")
    values = np.zeros((len(measures), len(qrels.offsets) - 1))
    for query in np.flatnonzero(run.retrieved()).tolist():
        papers = run.rows[slice(*run.offsets[query : query + 2])]
        judged = slice(*qrels.offsets[query : query + 2])
        lists = _list_of(qrels.rows[judged], qrels.grades[judged]), _list_of(papers, np.arange(len(papers), 0, -1))
        for index, measure in enumerate(measures):
            with _lock:
                (values[index, query],) = _ranx_function(measure.name)(*lists, measure.cutoff or 0)
    return values


def _list_of(rows: npt.NDArray[np.uint32], values: npt.NDArray[np.integer]) -> Lists:
    return np.stack([rows, values], axis=1).astype(np.float64)[None]


def _ranx_function(name: str) -> Callable[[Lists, Lists, int], npt.NDArray[np.float64]]:
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
