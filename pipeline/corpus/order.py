"""Second pass of corpus building: the papers of all runs get their rows, in the order of their ids."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import InputError
from pipeline.core.progress import Progress
from pipeline.corpus.extract import read_strings
from pipeline.corpus.spill import Columns, read_at

REPEATED = np.uint32(1 << 31)
"""Set in the row of a paper whose id another record, before it in the release, has too."""

_HELD_IDS = 4_000_000
_SMALLEST_WINDOW = 64
_ID_BYTES = 100
"""Memory an id takes while it is sorted, about."""


@dataclass(frozen=True)
class Order:
    """Which row each paper of each run has.

    Attributes:
        papers: how many rows there are.
        cuts: int64 ``[shards + 1, runs]``, where in each run the papers of each shard begin.
        path: file of uint32, the row of each paper, run after run; of a repeated one that of the first, with
            :data:`REPEATED`.
        starts: int64 ``[runs]``, where in the file each run begins.
    """

    papers: int
    cuts: npt.NDArray[np.int64]
    path: Path
    starts: npt.NDArray[np.int64]

    def rows(self, run: int, start: int, stop: int) -> npt.NDArray[np.uint32]:
        """Return the rows of the papers of one run from ``start`` to ``stop``."""
        rows = np.empty(stop - start, np.uint32)
        read_at(self.path, 4 * (int(self.starts[run]) + start), rows)
        return rows


def order_papers(runs: list[Columns], scratch: Path, shard_rows: int, memory: int) -> Order:
    """Merge the ids of sorted runs; of one id the first paper in the order of the runs gets the row.

    Each turn takes from every run the ids up to the smallest of the last ids held, so that none that belongs before
    them can be missing.

    Args:
        runs: columns of :mod:`pipeline.corpus.extract`, in the order of the release.
        scratch: where the rows go.
        shard_rows: rows of a shard.
        memory: bytes this may hold at once.

    Raises:
        InputError: there are more papers than rows.
    """
    windows = [_Window(run) for run in runs]
    size = max(_SMALLEST_WINDOW, min(_HELD_IDS, memory // _ID_BYTES) // max(len(runs), 1))
    sizes = np.array([window.papers for window in windows], np.int64)
    starts = np.cumsum(sizes) - sizes
    path = scratch / "rows.bin"
    taken = np.zeros(len(runs), np.int64)
    cuts = [taken]
    papers = 0
    previous: str | None = None
    with Progress(int(sizes.sum()), "corpus: sort", "papers") as progress, path.open("wb") as handle:
        while np.any(taken < sizes):
            for window in windows:
                window.fill(size)
            bound = min((window.last for window in windows if not window.complete), default=None)
            parts = [window.take(bound) for window in windows]
            lengths = np.array([len(part) for part in parts], np.int64)
            ids = pa.concat_arrays(parts)
            rising = np.asarray(pc.sort_indices(ids)).astype(np.int64)
            ids = ids.take(rising)
            first = _is_first(ids, previous)
            row = papers + np.cumsum(first) - 1
            rows = np.empty(len(rising), np.uint32)
            rows[rising] = np.where(first, row, row | int(REPEATED))
            for start, place, length in zip(np.cumsum(lengths) - lengths, starts + taken, lengths, strict=True):
                handle.seek(4 * int(place))
                handle.write(rows[start : start + length].data)
            owner = np.repeat(np.arange(len(runs)), lengths)[rising]
            begun = np.flatnonzero(first & (row % shard_rows == 0) & (row > 0))
            cuts += [taken + np.bincount(owner[:place], minlength=len(runs)) for place in begun]
            taken = taken + lengths
            papers = int(row[-1]) + 1
            previous = ids[-1].as_py()
            progress.add(len(rising))
    if papers > REPEATED:
        raise InputError(f"{papers:,} papers are more than a corpus can have", f"Give {REPEATED:,} or fewer")
    return Order(papers, np.array([*cuts, taken]), path, starts)


class _Window:
    """The next ids of one run."""

    def __init__(self, run: Columns) -> None:
        self._run = run
        self.papers = run.length("key")
        self._read = 0
        self._ids = pa.array([], pa.large_string())

    @property
    def complete(self) -> bool:
        """Whether all ids that are left are here."""
        return self._read == self.papers

    @property
    def last(self) -> str:
        """The last id that is here."""
        last: str = self._ids[-1].as_py()
        return last

    def fill(self, size: int) -> None:
        """Have at least ``size`` ids, or all that are left."""
        if len(self._ids) < size and not self.complete:
            stop = min(self._read + size, self.papers)
            self._ids = pa.concat_arrays([self._ids, read_strings(self._run, "paper_id", self._read, stop)])
            self._read = stop

    def take(self, bound: str | None) -> pa.LargeStringArray:
        """Return the ids up to ``bound`` (None: all) and go on behind them."""
        count = len(self._ids) if bound is None else bisect_right(_Ids(self._ids), bound)
        taken, self._ids = self._ids[:count], self._ids[count:]
        return taken


class _Ids:
    """An Arrow array of strings as :mod:`bisect` wants it, compared like UTF-8 bytes."""

    def __init__(self, ids: pa.LargeStringArray) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, position: int) -> str:
        value: str = self._ids[position].as_py()
        return value


def _is_first(ids: pa.LargeStringArray, previous: str | None) -> npt.NDArray[np.bool_]:
    """Return at which places of a sorted array an id stands that does not stand before, nor is ``previous``."""
    first = np.ones(len(ids), dtype=bool)
    first[0] = ids[0].as_py() != previous
    first[1:] = np.asarray(pc.not_equal(ids[1:], ids[:-1]))
    return first
