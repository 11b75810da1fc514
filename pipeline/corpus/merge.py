"""Merge sorted runs into the shards of a corpus, with papers in the order of their ids."""

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
from pipeline.sources.base import WITHDRAWN

_MAX_WINDOW_IDS = 4_000_000
_MIN_WINDOW_IDS = 64
_ID_BYTES = 100
"""Approximate memory per id while ids are sorted, in bytes."""

_MAX_PAPERS = 1 << 31

_BLOCK_BYTES = 2**27
"""Texts and references of a block of papers, in bytes; ordering them needs three times as much memory. A shard has one
record batch per block, so this number is part of the format."""

SHARD = pa.schema([CITED, *ATTRIBUTES])
"""Scratch table of a shard: keys of the cited papers, and attributes."""

_RECORD = np.dtype([("run", np.uint32), ("position", np.uint32), ("first", np.bool_)])
Records = npt.NDArray[np.void]
"""Papers, each as the index of its run and its position there; ``first`` is false if an earlier record has its id."""


class Merged(NamedTuple):
    """The papers of a corpus.

    Attributes:
        papers: number of papers.
        shards: scratch tables of schema :data:`SHARD`, one per shard.
        dropped: number of papers that repeat an id, by reason.
        repeated: run and position of the first paper that repeats an id, in the order of ids; None: there is none.
    """

    papers: int
    shards: list[Path]
    dropped: Counter[str]
    repeated: tuple[int, int] | None


def merge_runs(runs: Sequence[Path], out: Workdir, shard_rows: int, resources: Resources) -> Merged:
    """Write the shards and the attributes of a corpus from sorted runs, given in the order of the release.

    Of papers with the same id, the first in the order of the runs is kept; none, if that one is withdrawn. At least one
    block is held in memory.
    """
    total = sum(files.read_arrow(run).num_rows for run in runs)
    block_bytes = 3 * min(sum(run.stat().st_size for run in runs), _BLOCK_BYTES)
    workers = max(1, min(resources.workers, resources.memory * 3 // 4 // max(block_bytes, 1)))
    papers, repeated = 0, None
    shards: list[Path] = []
    dropped: Counter[str] = Counter()
    ordered = _without_withdrawn(runs, order_papers(runs, resources.memory // 4), dropped)
    numbered = enumerate(_cut_shards(ordered, shard_rows))
    with Progress(total, "corpus: write", "papers") as progress:
        for records, counts in in_order(functools.partial(_write_shard, runs, out), numbered, workers):
            papers += int(np.count_nonzero(records["first"]))
            if papers > _MAX_PAPERS:
                raise InputError(
                    f"a corpus must have at most {_MAX_PAPERS:,} papers, got {papers:,}", "Build it from a part of them"
                )
            repeats = np.flatnonzero(~records["first"])
            if repeated is None and len(repeats):
                repeated = int(records["run"][repeats[0]]), int(records["position"][repeats[0]])
            shards.append(_scratch_file(out, len(shards)))
            dropped.update(counts)
            progress.add(len(records))
    write_attributes(out, (dict(zip(SHARD.names, files.read_arrow(shard).columns, strict=True)) for shard in shards))
    return Merged(papers, shards, dropped, repeated)


def order_papers(runs: Sequence[Path], memory: int) -> Iterator[Records]:
    """Yield the papers of sorted runs by rising id; papers with the same id are in the order of the runs.

    Each step takes a window of ids from every run, up to the smallest last id of the windows, so that no run has a
    smaller id left.
    """
    ids = [files.read_arrow(run).column("paper_id").combine_chunks() for run in runs]
    sizes = np.array([len(run_ids) for run_ids in ids], np.int64)
    window = max(_MIN_WINDOW_IDS, min(_MAX_WINDOW_IDS, memory // _ID_BYTES) // max(len(runs), 1))
    starts = np.zeros(len(runs), np.int64)
    previous: str | None = None
    while np.any(starts < sizes):
        stops = _window_ends(ids, starts, np.minimum(starts + window, sizes))
        windows = zip(ids, starts, stops, strict=True)
        merged = pa.concat_arrays([run_ids[start:stop] for run_ids, start, stop in windows])
        rising = np.asarray(pc.sort_indices(merged))
        merged = merged.take(rising)
        records = np.empty(len(rising), _RECORD)
        records["run"] = np.repeat(np.arange(len(runs)), stops - starts)[rising]
        records["position"] = ranges(starts, stops - starts)[rising]
        records["first"] = np.append(merged[0].as_py() != previous, pc.not_equal(merged[1:], merged[:-1]))
        yield records
        starts, previous = stops, merged[-1].as_py()


def _without_withdrawn(runs: Sequence[Path], ordered: Iterable[Records], dropped: Counter[str]) -> Iterator[Records]:
    """Leave out rows that withdraw papers, and the papers whose first row is one; count these in ``dropped``."""
    years = [files.read_arrow(run).column("year") for run in runs]
    starts = np.cumsum([0, *map(len, years)])
    rows = [start + np.flatnonzero(np.asarray(year) == WITHDRAWN) for start, year in zip(starts, years, strict=False)]
    withdrawing = np.concatenate([np.empty(0, np.int64), *rows])
    is_out = np.array([False])  # of the last id: it may go on in the next window
    for records in ordered:
        withdraws = np.isin(starts[records["run"]] + records["position"], withdrawing)
        is_out = np.append(is_out[-1], withdraws[records["first"]])
        left_out = is_out[np.cumsum(records["first"])]
        if count := int(np.count_nonzero(left_out & ~withdraws)):
            dropped["withdrawn_later"] += count
        yield records[~left_out & ~withdraws]


def _window_ends(ids: list[pa.LargeStringArray], starts: Ints, stops: Ints) -> Ints:
    """Return where each run's ids up to the smallest last id of the windows end; complete runs set no bound."""
    windows = list(zip(ids, starts.tolist(), stops.tolist(), strict=True))
    bounds = [run_ids[stop - 1].as_py() for run_ids, _, stop in windows if stop < len(run_ids)]
    if not bounds:
        return stops
    bound = min(bounds)  # strings compare like their UTF-8 bytes
    return np.array([bisect_right(run_ids, bound, *window, key=pa.StringScalar.as_py) for run_ids, *window in windows])


def _cut_shards(ordered: Iterable[Records], shard_rows: int) -> Iterator[Records]:
    """Cut ordered papers into shards of ``shard_rows`` ids; without papers there is one empty shard."""
    remaining = np.empty(0, _RECORD)
    for records in ordered:
        remaining = np.concatenate([remaining, records])
        *complete, remaining = np.split(remaining, np.flatnonzero(remaining["first"])[shard_rows::shard_rows])
        yield from complete
    yield remaining


def _scratch_file(out: Workdir, shard: int) -> Path:
    return out.scratch() / f"shard-{shard:05d}.arrow"


def _write_shard(runs: Sequence[Path], out: Workdir, numbered: tuple[int, Records]) -> tuple[Records, dict[str, int]]:
    """Write a shard, ``papers-NUMBER.arrow``, and its scratch table; return its papers and counts of repeated ids."""
    shard, records = numbered
    name, scratch = f"papers-{shard:05d}.arrow", _scratch_file(out, shard)
    if out.done(name) and scratch.is_file():
        return records, out.counts(name)
    dropped: Counter[str] = Counter()
    scratch_tables: list[pa.Table] = []

    def papers() -> Iterator[pa.RecordBatch]:
        for block in _cut_blocks(runs, records):
            tables = [RUN.empty_table(), *(table for table, _ in _by_run(runs, block))]
            positions = np.argsort(np.argsort(block["run"], kind="stable"))  # in the table, which is in order of run
            table = pa.concat_tables(tables).combine_chunks()
            first, repeats = positions[block["first"]], np.flatnonzero(~block["first"])
            dropped.update(_count_repeats(table, positions[repeats], first[np.cumsum(block["first"])[repeats] - 1]))
            papers_of_block = table.take(first).combine_chunks()
            scratch_tables.append(papers_of_block.select(SHARD.names))
            yield _shard_papers(papers_of_block)

    with out.file(name) as (path, written):
        written.rows = files.write_arrow(path, papers(), PAPERS)
        written.counts = dict(dropped)
        with files.replacing(scratch) as temporary:  # before the record that marks the shard as finished
            files.write_arrow(temporary, pa.concat_tables(scratch_tables).combine_chunks().to_batches(), SHARD)
    return records, dict(dropped)


def _cut_blocks(runs: Sequence[Path], records: Records) -> list[Records]:
    """Cut the papers of a shard into blocks of about :data:`_BLOCK_BYTES` of texts and references."""
    sizes = np.empty(len(records), np.int64)
    for table, positions in _by_run(runs, records):
        texts = sum(np.asarray(pc.binary_length(table.column(name))) for name in ("title", "abstract"))
        sizes[positions] = texts + 8 * np.asarray(table.column("n_outbound"))
    starts = np.flatnonzero(records["first"])
    block = (np.cumsum(sizes) - sizes)[starts] // _BLOCK_BYTES
    return np.split(records, starts[np.flatnonzero(np.diff(block)) + 1])


def _by_run(runs: Sequence[Path], records: Records) -> Iterator[tuple[pa.Table, Ints]]:
    """Yield, by run, its rows among consecutive papers (a slice but for left-out rows) and their positions there."""
    order = np.argsort(records["run"], kind="stable")
    numbers, starts = np.unique(records["run"][order], return_index=True)
    for run, positions in zip(numbers.tolist(), np.split(order, starts[1:]), strict=False):
        rows = records["position"][positions].astype(np.int64)  # rising, as runs are sorted
        table = files.read_arrow(runs[run]).slice(int(rows[0]), int(rows[-1] - rows[0]) + 1)
        yield table if len(table) == len(rows) else table.take(rows - rows[0]), positions


def _shard_papers(shard: pa.Table) -> pa.RecordBatch:
    """Return the papers of a block as one batch of schema :data:`PAPERS`."""
    years = shard.column("year").to_numpy()
    columns = {column: shard.column(column) for column in ("paper_id", "title", "abstract", "n_outbound", "n_inbound")}
    columns["year"] = pa.array(years, mask=years == NO_YEAR)
    columns["fields"] = field_lists(shard.column("fields").to_numpy())
    table = pa.table([columns[field.name] for field in PAPERS], schema=PAPERS)
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=PAPERS)


def _count_repeats(papers: pa.Table, repeats: Ints, originals: Ints) -> dict[str, int]:
    """Return the number of papers that repeat an id, by whether texts, year and references equal those of the first."""
    same = np.ones(len(repeats), dtype=bool)
    for name in ("title", "abstract", "year", "n_outbound"):
        values = papers.column(name)
        same &= np.asarray(pc.equal(values.take(repeats), values.take(originals)))
    cited = papers.column("cited")
    for place in np.flatnonzero(same).tolist():
        same[place] = cited[int(repeats[place])].equals(cited[int(originals[place])])
    counts = {"duplicate_id": int(same.sum()), "duplicate_id_other_text": int((~same).sum())}
    return {reason: count for reason, count in counts.items() if count}


def field_lists(masks: npt.NDArray[np.uint32]) -> pa.ListArray:
    """Return the field names of each bit mask, as the ``fields`` column of a corpus shard."""
    bits = (masks[:, None] >> np.arange(len(MAG_FIELDS), dtype=np.uint32)) & 1
    owner, bit = np.nonzero(bits)
    names = pa.DictionaryArray.from_arrays(pa.array(bit.astype(np.int8)), pa.array(MAG_FIELDS))
    offsets = offsets_of(owner, len(masks)).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, names, type=PAPERS.field("fields").type)
