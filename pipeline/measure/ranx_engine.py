"""Measures by ranx (Bassani 2022), through its array path: no dictionaries, no string ids, no sorting.

* ranx does not define ties and ranks arrays by position: entries come in the one total order already
  (:class:`pipeline.measure.inputs.Run` checks it), under scores that fall by one a rank.
* The ideal ranking of its NDCG is the order in which qrels are given: :class:`pipeline.measure.inputs.Qrels` has them
  by falling grade.
* numba compiles its kernels, 3 to 4 s a measure, unless it finds them in its cache folder.
* ``ranx.evaluate`` fails on one lone measure with a cutoff, and leaves numba on one thread after fewer than ten
  queries: its measure functions are called instead.
* Its thread pool aborts the process when two threads enter it: one lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError, StageError
from pipeline.measure.inputs import Qrels, Run
from pipeline.measure.measures import MEASURES, Measure

_BLOCK_BYTES = 64 * 2**20
"""Memory of the arrays handed to ranx at a time."""

_PAIR_BYTES = 16
_PADDING = (-1.0, 0.0)
"""Row and grade that fill up short lists: ranx drops grades below 1 first."""

Lists = npt.NDArray[np.float64]
"""``[queries, length, 2]``: row and score, or row and grade. Any uint32 row is exact in float64."""

_lock = threading.Lock()


def evaluate(qrels: Qrels, run: Run, measures: Sequence[Measure]) -> npt.NDArray[np.float64]:
    """Return the value of each measure for each query, as :func:`pipeline.measure.engines.evaluate`, which checks both.

    Raises:
        InputError: ranx lacks a measure.
        StageError: numba finds no folder to cache its kernels in.
    """
    for measure in measures:
        if measure.share or measure.relevant > 1 or not MEASURES[measure.name].ranx:
            raise InputError(f"the measure must be one of ranx's, got {measure}", "Leave out --measure-engine=ranx")
    values = np.zeros((len(measures), len(qrels.offsets) - 1))
    for members in _blocks(qrels, run):
        judged, ranked = _qrels_lists(qrels, members), _run_lists(run, members)
        for number, measure in enumerate(measures):
            with _lock:
                values[number, members] = _function(measure.name)(judged, ranked, measure.cutoff or 0)
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


def _function(name: str) -> Callable[[Lists, Lists, int], npt.NDArray[np.float64]]:
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
