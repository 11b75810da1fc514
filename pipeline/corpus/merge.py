"""Merging sorted runs into a corpus: papers are put in the order of their ids, and shards are written."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.csr import Ints, offsets_of, ranges
from pipeline.core.errors import InputError
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.parallel import in_order
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.schema import ATTRIBUTES, NO_YEAR, PAPERS
from pipeline.core.workdir import Workdir
from pipeline.corpus.arrays import write_attributes
from pipeline.corpus.extract import CITED, RUN

_HELD_IDS = 4_000_000
_SMALLEST_WINDOW = 64
_ID_BYTES = 100
"""Memory an id takes while it is sorted, about."""

_MOST_PAPERS = 1 << 31

_BLOCK_BYTES = 2**27
"""Bytes of texts and references of the papers that are put in order together; three times as many are held. A shard
has one record batch for each block, so this is part of the format."""

SHARD = pa.schema([CITED, *ATTRIBUTES])
"""Scratch table of a shard: keys of the cited papers, and attributes."""

_RECORD = np.dtype([("run", np.uint32), ("place", np.uint32), ("first", np.bool_)])
Records = npt.NDArray[np.void]
"""Papers by the number of their run and their place in it; ``first`` unless an earlier record has the same id."""


class Merged(NamedTuple):
    """The papers of a corpus.

    Attributes:
        papers: how many there are.
        shards: scratch tables of schema :data:`SHARD`, one for each shard.
        dropped: papers that repeat an id, by reason.
        repeated: run and place of the paper that repeats the lowest id; None: none does.
    """

    papers: int
    shards: list[Path]
    dropped: Counter[str]
    repeated: tuple[int, int] | None


def merge_runs(runs: Sequence[Path], out: Workdir, shard_rows: int, resources: Resources) -> Merged:
    """Write the shards and the attributes of a corpus from sorted runs in the order of the release.

    Of several papers with one id the first in the order of the runs is kept. One block always fits in memory.
    """
    total = sum(files.read_arrow(run).num_rows for run in runs)
    block_bytes = 3 * min(sum(run.stat().st_size for run in runs), _BLOCK_BYTES)
    workers = max(1, min(resources.workers, resources.memory * 3 // 4 // max(block_bytes, 1)))
    papers, repeated = 0, None
    shards: list[Path] = []
    dropped: Counter[str] = Counter()
    numbered = enumerate(_shards_of(order_papers(runs, resources.memory // 4), shard_rows))
    with Progress(total, "corpus: write", "papers") as progress:
        for records, counts in in_order(functools.partial(_write_shard, runs, out), numbered, workers):
            papers += int(np.count_nonzero(records["first"]))
            if papers > _MOST_PAPERS:
                raise InputError(
                    f"{papers:,} papers are more than a corpus can have", f"Give {_MOST_PAPERS:,} or fewer"
                )
            again = np.flatnonzero(~records["first"])
            if repeated is None and len(again):
                repeated = int(records["run"][again[0]]), int(records["place"][again[0]])
            shards.append(_scratch_of(out, len(shards)))
            dropped.update(counts)
            progress.add(len(records))
    write_attributes(out, (dict(zip(SHARD.names, files.read_arrow(shard).columns, strict=True)) for shard in shards))
    return Merged(papers, shards, dropped, repeated)


def order_papers(runs: Sequence[Path], memory: int) -> Iterator[Records]:
    """Yield the papers of sorted runs in the order of their ids, and of the runs where they share an id.

    Each step takes a window of ids from every run, up to the smallest last id of the windows: no run has a smaller id
    left.
    """
    ids = [files.read_arrow(run).column("paper_id").combine_chunks() for run in runs]
    sizes = np.array([len(part) for part in ids], np.int64)
    window = max(_SMALLEST_WINDOW, min(_HELD_IDS, memory // _ID_BYTES) // max(len(runs), 1))
    taken = np.zeros(len(runs), np.int64)
    previous: str | None = None
    while np.any(taken < sizes):
        stops = _window_ends(ids, taken, np.minimum(taken + window, sizes))
        merged = pa.concat_arrays([part[start:stop] for part, start, stop in zip(ids, taken, stops, strict=True)])
        rising = np.asarray(pc.sort_indices(merged))
        merged = merged.take(rising)
        records = np.empty(len(rising), _RECORD)
        records["run"] = np.repeat(np.arange(len(runs)), stops - taken)[rising]
        records["place"] = ranges(taken, stops - taken)[rising]
        records["first"] = np.append(merged[0].as_py() != previous, pc.not_equal(merged[1:], merged[:-1]))
        yield records
        taken, previous = stops, merged[-1].as_py()


def _window_ends(ids: list[pa.LargeStringArray], starts: Ints, stops: Ints) -> Ints:
    """Return where in each run the ids up to the smallest last id of the windows end; complete runs set no bound."""
    windows = list(zip(ids, starts.tolist(), stops.tolist(), strict=True))
    bounds = [part[stop - 1].as_py() for part, _, stop in windows if stop < len(part)]
    if not bounds:
        return stops
    bound = min(bounds)  # strings compare like their UTF-8 bytes
    return np.array([bisect_right(part, bound, *window, key=lambda paper: paper.as_py()) for part, *window in windows])


def _shards_of(ordered: Iterable[Records], shard_rows: int) -> Iterator[Records]:
    """Cut ordered papers into shards of so many ids; without papers there is one empty shard."""
    held = np.empty(0, _RECORD)
    for records in ordered:
        held = np.concatenate([held, records])
        *complete, held = np.split(held, np.flatnonzero(held["first"])[shard_rows::shard_rows])
        yield from complete
    yield held


def _scratch_of(out: Workdir, number: int) -> Path:
    return out.scratch() / f"shard-{number:05d}.arrow"


def _write_shard(runs: Sequence[Path], out: Workdir, numbered: tuple[int, Records]) -> tuple[Records, dict[str, int]]:
    """Write a shard, ``papers-NUMBER.arrow``, and its scratch table; return its papers and how many repeat an id."""
    number, records = numbered
    name, scratch = f"papers-{number:05d}.arrow", _scratch_of(out, number)
    if out.done(name) and scratch.is_file():
        return records, out.counts(name)
    dropped: Counter[str] = Counter()
    blocks: list[pa.Table] = []

    def papers() -> Iterator[pa.RecordBatch]:
        for block in _blocks(runs, records):
            tables = [RUN.empty_table(), *(table for table, _ in _by_run(runs, block))]
            place = np.argsort(np.argsort(block["run"], kind="stable"))  # in the table, run after run
            table = pa.concat_tables(tables).combine_chunks()
            kept, again = place[block["first"]], np.flatnonzero(~block["first"])
            dropped.update(_count_repeated(table, place[again], kept[np.cumsum(block["first"])[again] - 1]))
            shard = table.take(kept).combine_chunks()
            blocks.append(shard.select(SHARD.names))
            yield _shard_papers(shard)

    with out.file(name) as (path, written):
        written.rows = files.write_arrow(path, papers(), PAPERS)
        written.counts = dict(dropped)
        with files.replacing(scratch) as temporary:  # before the record that calls the shard finished
            files.write_arrow(temporary, pa.concat_tables(blocks).combine_chunks().to_batches(), SHARD)
    return records, dict(dropped)


def _blocks(runs: Sequence[Path], records: Records) -> list[Records]:
    """Cut the papers of a shard into blocks of about :data:`_BLOCK_BYTES` of texts and references."""
    sizes = np.empty(len(records), np.int64)
    for table, where in _by_run(runs, records):
        texts = sum(np.asarray(pc.binary_length(table.column(name))) for name in ("title", "abstract"))
        sizes[where] = texts + 8 * np.asarray(table.column("n_outbound"))
    begins = np.flatnonzero(records["first"])
    block = (np.cumsum(sizes) - sizes)[begins] // _BLOCK_BYTES
    return np.split(records, begins[np.flatnonzero(np.diff(block)) + 1])


def _by_run(runs: Sequence[Path], records: Records) -> Iterator[tuple[pa.Table, Ints]]:
    """Yield, run by run, the rows of neighbouring papers and where each stands among them.

    Runs are sorted, so each has a slice of the papers.
    """
    order = np.argsort(records["run"], kind="stable")
    numbers, starts = np.unique(records["run"][order], return_index=True)
    for run, where in zip(numbers.tolist(), np.split(order, starts[1:]), strict=False):
        yield files.read_arrow(runs[run]).slice(int(records["place"][where[0]]), len(where)), where


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
