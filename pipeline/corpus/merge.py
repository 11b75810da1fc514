"""Merging sorted runs into a corpus: papers get their rows, in the order of their ids; then shards are written."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.csr import Ints, offsets_of
from pipeline.core.errors import InputError
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.parallel import in_order
from pipeline.core.progress import Progress
from pipeline.core.schema import ATTRIBUTES, NO_YEAR, PAPERS
from pipeline.core.workdir import Workdir
from pipeline.corpus.arrays import Array, GrowingArray, read_array
from pipeline.corpus.extract import CITED, RUN

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
    cuts: Ints
    path: Path
    starts: Ints

    def rows(self, run: int, start: int, stop: int) -> npt.NDArray[np.uint32]:
        """Return the rows of the papers of one run from ``start`` to ``stop``."""
        first = int(self.starts[run])
        rows: npt.NDArray[np.uint32] = read_array(self.path, np.uint32, first + start, first + stop)
        return rows


def order_papers(runs: list[Path], scratch: Path, shard_rows: int, memory: int) -> Order:
    """Merge the ids of sorted runs; of several papers with one id, the first in the order of the runs gets the row.

    Each step takes a window of ids from every run, up to the smallest last id of the windows: no run has a smaller id
    left.
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
    windows = list(zip(ids, starts.tolist(), stops.tolist(), strict=True))
    bounds = [part[stop - 1].as_py() for part, _, stop in windows if stop < len(part)]
    if not bounds:
        return stops
    bound = min(bounds)  # strings compare like their UTF-8 bytes
    return np.array([bisect_right(part, bound, *window, key=lambda paper: paper.as_py()) for part, *window in windows])


def _is_first(ids: pa.LargeStringArray, previous: str | None) -> npt.NDArray[np.bool_]:
    """Return where a sorted array has an id that differs from the one before it; ``previous`` precedes the array."""
    first = np.ones(len(ids), dtype=bool)
    first[0] = ids[0].as_py() != previous
    first[1:] = np.asarray(pc.not_equal(ids[1:], ids[:-1]))
    return first


SHARD = pa.schema([CITED, *ATTRIBUTES])
"""Scratch table of a shard: keys of the cited papers, and attributes."""

_BLOCK_BYTES = 2**27
"""Bytes of texts and references of the papers that are put in order together; three times as many are held. A shard
has one record batch for each block, so this is part of the format."""

Rows = npt.NDArray[np.uint32]


class Merge:
    """Writes the shards of a corpus from runs in the order of the release, each on its own.

    Beside a shard, ``papers-NUMBER.arrow``, goes ``shard-NUMBER.arrow`` of schema :data:`SHARD` into scratch.
    """

    def __init__(self, runs: list[Path], order: Order, shard_rows: int, scratch: Path) -> None:
        self._runs, self._order, self._shard_rows, self._scratch = runs, order, shard_rows, scratch
        self.shards = [scratch / f"shard-{number:05d}.arrow" for number in range(len(order.cuts) - 1)]

    def write(self, out: Workdir, workers: int, memory: int) -> Counter[str]:
        """Write shards and attributes; return the papers dropped, by reason. One block always fits in memory."""
        block_bytes = 3 * min(sum(run.stat().st_size for run in self._runs), _BLOCK_BYTES)
        workers = max(1, min(workers, memory // max(block_bytes, 1)))
        dropped: Counter[str] = Counter()
        with Progress(len(self.shards), "corpus: write", "shards") as progress:
            for counts in in_order(lambda number: self._write(out, number), range(len(self.shards)), workers):
                dropped.update(counts)
                progress.add(1)
        self._write_attributes(out)
        return dropped

    def _write(self, out: Workdir, number: int) -> dict[str, int]:
        name = f"papers-{number:05d}.arrow"
        if out.done(name) and self.shards[number].is_file():
            return out.counts(name)
        dropped: Counter[str] = Counter()
        blocks: list[pa.Table] = []

        def papers() -> Iterator[pa.RecordBatch]:
            for first, papers, rows in self._blocks(number):
                shard, repeated = _distinct(papers, rows, first)
                dropped.update(repeated)
                blocks.append(shard.select(SHARD.names))
                yield _shard_papers(shard)

        with out.file(name) as (path, written):
            written.rows = files.write_arrow(path, papers(), PAPERS)
            written.counts = dict(dropped)
            with files.replacing(self.shards[number]) as scratch:  # before the record that calls the shard finished
                files.write_arrow(scratch, pa.concat_tables(blocks).combine_chunks().to_batches(), SHARD)
        return dict(dropped)

    def _blocks(self, shard: int) -> Iterator[tuple[int, pa.Table, Rows]]:
        """Yield the papers of a shard in blocks of rows of about :data:`_BLOCK_BYTES`: first row, papers, their rows.

        A block has the papers of one run after the other's. The runs are sorted, so a block has a slice of each.
        """
        bounds = zip(self._order.cuts[shard].tolist(), self._order.cuts[shard + 1].tolist(), strict=True)
        slices = [(run, start, stop) for run, (start, stop) in enumerate(bounds) if start < stop]
        if not slices:
            yield 0, RUN.empty_table(), np.empty(0, np.uint32)
            return
        rows = [self._order.rows(run, start, stop) for run, start, stop in slices]
        places = [(numbered & ~REPEATED).astype(np.int64) for numbered in rows]
        first = shard * self._shard_rows
        sizes = np.bincount(np.concatenate(places) - first, np.concatenate([self._sizes(*part) for part in slices]))
        block = (np.cumsum(sizes) - sizes) // _BLOCK_BYTES
        edges = first + np.concatenate([[0], np.flatnonzero(np.diff(block)) + 1, [len(sizes)]])
        for low, high in pairwise(edges.tolist()):
            tables, numbers = [], []
            for (run, start, _), place, row in zip(slices, places, rows, strict=True):
                begin, end = np.searchsorted(place, [low, high])
                tables.append(files.read_arrow(self._runs[run]).slice(start + begin, end - begin))
                numbers.append(row[begin:end])
            yield low, pa.concat_tables(tables).combine_chunks(), np.concatenate(numbers)

    def _sizes(self, run: int, start: int, stop: int) -> Ints:
        """Return the bytes of the texts and references of some papers of a run."""
        papers = files.read_arrow(self._runs[run]).slice(start, stop - start)
        texts = sum(np.asarray(pc.binary_length(papers.column(name))) for name in ("title", "abstract"))
        sizes: Ints = texts + 8 * np.asarray(papers.column("n_outbound"))
        return sizes

    def _write_attributes(self, out: Workdir) -> None:
        types = {field.name: field.type.to_pandas_dtype() for field in ATTRIBUTES}
        arrays = {name: GrowingArray(self._scratch / f"{name}.bin", dtype) for name, dtype in types.items()}
        for path in self.shards:
            shard = files.read_arrow(path)
            for name, array in arrays.items():
                array.append(shard.column(name).to_numpy())
        out.arrow("attributes.arrow", pa.table([a.array() for a in arrays.values()], schema=ATTRIBUTES), ATTRIBUTES)
        for array in arrays.values():
            array.close()


def _distinct(papers: pa.Table, rows: Rows, first: int) -> tuple[pa.Table, dict[str, int]]:
    """Return the papers of the rows from ``first``, in order, and how many repeat an id."""
    kept = rows < REPEATED
    places = np.empty(np.count_nonzero(kept), np.int64)
    places[rows[kept].astype(np.int64) - first] = np.flatnonzero(kept)
    repeated = np.flatnonzero(~kept)
    dropped = _count_repeated(papers, repeated, places[(rows[repeated] ^ REPEATED).astype(np.int64) - first])
    return papers.take(places).combine_chunks(), dropped


def _shard_papers(shard: pa.Table) -> pa.RecordBatch:
    """Return the columns of a corpus shard."""
    years = shard.column("year").to_numpy()
    columns = {column: shard.column(column) for column in ("paper_id", "title", "abstract", "n_outbound", "n_inbound")}
    columns["year"] = pa.array(years, mask=years == NO_YEAR)
    columns["fields"] = field_lists(shard.column("fields").to_numpy())
    table = pa.table([columns[field.name] for field in PAPERS], schema=PAPERS)
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=PAPERS)


def _count_repeated(papers: pa.Table, repeated: Ints, originals: Ints) -> dict[str, int]:
    """Return how many papers repeat an id, by whether their texts are those of the first paper with it."""
    same = np.ones(len(repeated), dtype=bool)
    for name in ("title", "abstract"):
        texts = papers.column(name)
        same &= np.asarray(pc.equal(texts.take(repeated), texts.take(originals)))
    counts = {"duplicate_id": int(same.sum()), "duplicate_id_other_text": int((~same).sum())}
    return {reason: count for reason, count in counts.items() if count}


def field_lists(masks: npt.NDArray[np.uint32]) -> pa.ListArray:
    """Return the names of each mask's fields, as the ``fields`` column of a corpus shard."""
    bits = (masks[:, None] >> np.arange(len(MAG_FIELDS), dtype=np.uint32)) & 1
    owner, bit = np.nonzero(bits)
    names = pa.DictionaryArray.from_arrays(pa.array(bit.astype(np.int8)), pa.array(MAG_FIELDS))
    offsets = offsets_of(owner, len(masks)).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, names, type=PAPERS.field("fields").type)
