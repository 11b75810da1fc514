"""Second pass of corpus building: the papers of all runs get their rows, in the order of their ids."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.progress import Progress
from pipeline.corpus.arrays import Array, read_array

REPEATED = np.uint32(1 << 31)
"""Flag in the row of a paper whose id an earlier record of the release has too."""

_HELD_IDS = 4_000_000
_SMALLEST_WINDOW = 64
_ID_BYTES = 100
"""Memory an id takes while it is sorted, about."""


@dataclass(frozen=True)
class Order:
    """Which row each paper of each run has.

    Attributes:
        papers: number of rows.
        cuts: int64 ``[shards + 1, runs]``, where in each run the papers of each shard begin.
        path: file of uint32, the row of each paper, run after run; for a repeated id the row of the first paper, with
            :data:`REPEATED` set.
        starts: int64 ``[runs]``, where in the file each run begins.
    """

    papers: int
    cuts: npt.NDArray[np.int64]
    path: Path
    starts: npt.NDArray[np.int64]

    def rows(self, run: int, start: int, stop: int) -> npt.NDArray[np.uint32]:
        """Return the rows of the papers of one run from ``start`` to ``stop``."""
        first = int(self.starts[run])
        rows: npt.NDArray[np.uint32] = read_array(self.path, np.uint32, first + start, first + stop)
        return rows


def order_papers(runs: list[Path], scratch: Path, shard_rows: int, memory: int) -> Order:
    """Merge the ids of sorted runs; of several papers with one id, the first in the order of the runs gets the row.

    Each step takes a window of ids from every run, up to the smallest last id of the windows: no run has a smaller id
    left.

    Raises:
        InputError: there are more papers than rows.
    """
    ids = [files.read_arrow(run).column("paper_id").combine_chunks() for run in runs]
    sizes = np.array([len(part) for part in ids], np.int64)
    starts = np.cumsum(sizes) - sizes
    window = max(_SMALLEST_WINDOW, min(_HELD_IDS, memory // _ID_BYTES) // max(len(runs), 1))
    path = scratch / "rows.bin"
    taken = np.zeros(len(runs), np.int64)
    cuts = [taken]
    papers = 0
    previous: str | None = None
    with Progress(int(sizes.sum()), "corpus: sort", "papers") as progress, path.open("wb") as handle:
        while np.any(taken < sizes):
            stops = _window_ends(ids, taken, np.minimum(taken + window, sizes))
            lengths = stops - taken
            merged = pa.concat_arrays([part[start:stop] for part, start, stop in zip(ids, taken, stops, strict=True)])
            rising = np.asarray(pc.sort_indices(merged)).astype(np.int64)
            merged = merged.take(rising)
            first = _is_first(merged, previous)
            row = papers + np.cumsum(first) - 1
            rows = np.empty(len(rising), np.uint32)
            rows[rising] = np.where(first, row, row | int(REPEATED))
            for start, place, length in zip(np.cumsum(lengths) - lengths, starts + taken, lengths, strict=True):
                handle.seek(4 * int(place))
                handle.write(rows[start : start + length].data)
            owner = np.repeat(np.arange(len(runs)), lengths)[rising]
            begun = np.flatnonzero(first & (row % shard_rows == 0) & (row > 0))
            cuts += [taken + np.bincount(owner[:place], minlength=len(runs)) for place in begun]
            taken = stops
            papers = int(row[-1]) + 1
            previous = merged[-1].as_py()
            progress.add(len(rising))
    if papers > REPEATED:
        raise InputError(f"{papers:,} papers are more than a corpus can have", f"Give {REPEATED:,} or fewer")
    return Order(papers, np.array([*cuts, taken]), path, starts)


def _window_ends(ids: list[pa.LargeStringArray], starts: Array, stops: Array) -> Array:
    """Return where in each run the ids up to the smallest last id of the windows end; complete runs set no bound."""
    bound = min(
        (part[stop - 1].as_py() for part, stop in zip(ids, stops.tolist(), strict=True) if stop < len(part)),
        default=None,
    )
    if bound is None:
        return stops
    return np.array(
        [
            _place_after(bound, part, start, stop)
            for part, start, stop in zip(ids, starts.tolist(), stops.tolist(), strict=True)
        ],
        np.int64,
    )


def _place_after(bound: str, ids: pa.LargeStringArray, start: int, stop: int) -> int:
    """Return where in ``ids[start:stop]`` the ids after ``bound`` begin; strings compare like their UTF-8 bytes."""

    def id_at(place: int) -> str:
        value: str = ids[place].as_py()
        return value

    return start + bisect_right(range(start, stop), bound, key=id_at)


def _is_first(ids: pa.LargeStringArray, previous: str | None) -> npt.NDArray[np.bool_]:
    """Return where a sorted array has an id that differs from the one before it; ``previous`` precedes the array."""
    first = np.ones(len(ids), dtype=bool)
    first[0] = ids[0].as_py() != previous
    first[1:] = np.asarray(pc.not_equal(ids[1:], ids[:-1]))
    return first
