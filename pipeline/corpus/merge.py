"""Merge sorted runs into the shards of a corpus, with papers in the order of their ids."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
from pipeline.core.schema import NO_YEAR, PAPERS
from pipeline.core.workdir import Workdir
from pipeline.corpus.arrays import write_attributes
from pipeline.corpus.extract import RUN
from pipeline.sources.base import WITHDRAWN

_MAX_WINDOW_IDS = 4_000_000
_MIN_WINDOW_IDS = 64
_ID_BYTES = 100
"""Approximate memory per id while ids are sorted, in bytes."""

_MAX_PAPERS = 1 << 31

_BLOCK_BYTES = 2**27
"""Texts and references of a block of papers, in bytes; ordering them needs three times as much memory. A shard has one
record batch per block, so this number is part of the format."""

SHARD = pa.schema([field for field in RUN if field.name not in ("paper_id", "title", "abstract")])
"""Scratch table of a shard: keys of the cited papers, and attributes."""

_RECORD = np.dtype([("run", np.uint32), ("position", np.uint32), ("first", np.bool_)])
Records = npt.NDArray[np.void]
"""Papers, each as the index of its run and its position there; ``first`` is false if an earlier record has its id."""

_COMPARED = 8_192
"""Number of papers that are compared at a time with the first of their id."""


@dataclass
class Merged:
    """The papers of a corpus.

    Attributes:
        papers: number of papers.
        shards: scratch tables of schema :data:`SHARD`, one per shard.
        dropped: number of papers that repeat an id, by reason.
        repeated: run and position of the first paper that repeats an id, in the order of ids; None: there is none.
    """

    papers: int = 0
    shards: list[Path] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    repeated: tuple[int, int] | None = None


def merge_runs(runs: Sequence[Path], out: Workdir, shard_rows: int, resources: Resources) -> Merged:
    """Write the shards and the attributes of a corpus from sorted runs, given in the order of the release.

    Of papers with the same id, the first in the order of the runs is kept; none, if that one is withdrawn. At least one
    block is held in memory.
    """
    total = sum(files.read_arrow(run).num_rows for run in runs)
    block_bytes = 3 * min(sum(run.stat().st_size for run in runs), _BLOCK_BYTES)
    workers = max(1, min(resources.workers, resources.memory * 3 // 4 // max(block_bytes, 1)))
    merged = Merged()
    ordered = _first_records(runs, order_papers(runs, resources.memory // 4), merged)
    with Progress(total, "corpus: write", "papers") as progress:
        shards = enumerate(_cut_shards(ordered, shard_rows))
        for papers in in_order(functools.partial(_write_shard, runs, out), shards, workers):
            merged.papers += papers
            if merged.papers > _MAX_PAPERS:
                raise InputError(
                    f"a corpus must have at most {_MAX_PAPERS:,} papers, got {merged.papers:,}",
                    "Build it from a part of them",
                )
            merged.shards.append(_scratch_file(out, len(merged.shards)))
            progress.add(papers)
        progress.add(total - merged.papers)
    columns = (files.read_arrow(shard).columns for shard in merged.shards)
    write_attributes(out, (dict(zip(SHARD.names, of_shard, strict=True)) for of_shard in columns))
    return merged


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


def _first_records(runs: Sequence[Path], ordered: Iterable[Records], merged: Merged) -> Iterator[Records]:
    """Yield the first record of each id, none if it withdraws the paper; count the other papers in ``merged``."""
    years = [files.read_arrow(run).column("year") for run in runs]
    starts = np.cumsum([0, *map(len, years)])
    rows = [start + np.flatnonzero(np.asarray(year) == WITHDRAWN) for start, year in zip(starts, years, strict=False)]
    withdrawing = np.concatenate([np.empty(0, np.int64), *rows])
    last = np.zeros(1, _RECORD)  # first record of the last id, which may go on in the next window
    for records in ordered:
        first = records["first"]
        originals = np.append(last, records[first])[np.cumsum(first)]
        withdraws = np.isin(starts[records["run"]] + records["position"], withdrawing)
        is_out = np.isin(starts[originals["run"]] + originals["position"], withdrawing)
        if count := int(np.count_nonzero(is_out & ~withdraws)):
            merged.dropped["withdrawn_later"] += count
        repeats = np.flatnonzero(~first & ~is_out & ~withdraws)
        if merged.repeated is None and len(repeats):
            merged.repeated = int(records["run"][repeats[0]]), int(records["position"][repeats[0]])
        for some in np.split(repeats, range(_COMPARED, len(repeats), _COMPARED)):
            merged.dropped += _count_repeats(runs, records[some], originals[some])
        last = originals[-1:]
        yield records[first & ~is_out]


def _count_repeats(runs: Sequence[Path], repeats: Records, originals: Records) -> Counter[str]:
    """Return the number of papers that repeat an id, by whether texts, year and references equal those of the first."""
    originals, numbers = np.unique(originals, return_inverse=True)
    papers, firsts = _gather(runs, repeats), _gather(runs, originals).take(numbers)
    same = np.ones(len(repeats), dtype=bool)
    for name in ("title", "abstract", "year", "n_outbound"):
        same &= np.asarray(pc.equal(papers.column(name), firsts.column(name)))
    cited, cited_first = papers.column("outbound"), firsts.column("outbound")
    for place in np.flatnonzero(same).tolist():
        same[place] = cited[place].equals(cited_first[place])
    return +Counter(duplicate_id=int(same.sum()), duplicate_id_other_text=int((~same).sum()))


def _window_ends(ids: list[pa.LargeStringArray], starts: Ints, stops: Ints) -> Ints:
    """Return where each run's ids up to the smallest last id of the windows end; complete runs set no bound."""
    windows = list(zip(ids, starts.tolist(), stops.tolist(), strict=True))
    bounds = [run_ids[stop - 1].as_py() for run_ids, _, stop in windows if stop < len(run_ids)]
    if not bounds:
        return stops
    bound = min(bounds)  # strings compare like their UTF-8 bytes
    return np.array([bisect_right(run_ids, bound, *window, key=pa.StringScalar.as_py) for run_ids, *window in windows])


def _cut_shards(ordered: Iterable[Records], shard_rows: int) -> Iterator[Records]:
    """Cut ordered papers into shards of ``shard_rows``; without papers there is one empty shard."""
    remaining = np.empty(0, _RECORD)
    for records in ordered:
        remaining = np.concatenate([remaining, records])
        *complete, remaining = np.split(remaining, range(shard_rows, len(remaining), shard_rows))
        yield from complete
    yield remaining


def _scratch_file(out: Workdir, shard: int) -> Path:
    return out.scratch() / f"shard-{shard:05d}.arrow"


def _write_shard(runs: Sequence[Path], out: Workdir, numbered: tuple[int, Records]) -> int:
    """Write a shard, ``papers-NUMBER.arrow``, and its scratch table; return the number of its papers."""
    shard, records = numbered
    name, scratch = f"papers-{shard:05d}.arrow", _scratch_file(out, shard)
    if out.done(name) and scratch.is_file():
        return len(records)
    scratch_tables: list[pa.Table] = []

    def papers() -> Iterator[pa.RecordBatch]:
        for block in _cut_blocks(runs, records):
            table = _gather(runs, block)
            scratch_tables.append(table.select(SHARD.names))
            yield _shard_papers(table)

    with out.file(name) as (path, written):
        written.rows = files.write_arrow(path, papers(), PAPERS)
        with files.replacing(scratch) as temporary:  # before the record that marks the shard as finished
            files.write_arrow(temporary, pa.concat_tables(scratch_tables).combine_chunks().to_batches(), SHARD)
    return len(records)


def _cut_blocks(runs: Sequence[Path], records: Records) -> list[Records]:
    """Cut the papers of a shard into blocks of about :data:`_BLOCK_BYTES` of texts and references."""
    sizes = np.empty(len(records), np.int64)
    for table, positions in _by_run(runs, records):
        texts = sum(np.asarray(pc.binary_length(table.column(name))) for name in ("title", "abstract"))
        sizes[positions] = texts + 8 * np.asarray(table.column("n_outbound"))
    block = (np.cumsum(sizes) - sizes) // _BLOCK_BYTES
    return np.split(records, np.flatnonzero(np.diff(block)) + 1)


def _gather(runs: Sequence[Path], records: Records) -> pa.Table:
    """Return consecutive papers as a table of schema :data:`RUN`."""
    positions = np.argsort(np.argsort(records["run"], kind="stable"))  # in the table, which is in order of run
    tables = [RUN.empty_table(), *(table for table, _ in _by_run(runs, records))]
    return pa.concat_tables(tables).combine_chunks().take(positions).combine_chunks()


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


def field_lists(masks: npt.NDArray[np.uint32]) -> pa.ListArray:
    """Return the field names of each bit mask, as the ``fields`` column of a corpus shard."""
    bits = (masks[:, None] >> np.arange(len(MAG_FIELDS), dtype=np.uint32)) & 1
    owner, bit = np.nonzero(bits)
    names = pa.DictionaryArray.from_arrays(pa.array(bit.astype(np.int8)), pa.array(MAG_FIELDS))
    offsets = offsets_of(owner, len(masks)).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, names, type=PAPERS.field("fields").type)
