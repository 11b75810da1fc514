"""First pass of corpus building: each part of a release becomes runs of papers sorted by id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.errors import EmptyFileError
from pipeline.core.schema import ATTRIBUTES
from pipeline.core.text import id_keys, title_keys
from pipeline.sources.base import RAW_PAPERS, Batch, PaperBatch, Release, grouped

_Batch = TypeVar("_Batch")

RUN = pa.schema([*RAW_PAPERS, *(field for field in ATTRIBUTES if field.name not in RAW_PAPERS.names)])
"""Schema of a run: papers of a source and the other attributes of the corpus."""


def read_part(release: Release, scratch: Path, run_bytes: int, numbered: tuple[int, str]) -> dict[str, Any]:
    """Write the sorted runs of one part, given as (number, name), once; return its counts and number of ``runs``.

    A run, ``run-PART-NUMBER.arrow``, holds papers sorted by id; papers with the same id keep the release's order. It
    has about ``run_bytes`` and needs three times as much memory. The corpus does not depend on the size of the runs.
    """
    number, name = numbered

    def read() -> dict[str, Any]:
        total, runs = Batch(read=0), 0
        stream = read_or_empty(release.read(name), release.allow_empty)
        for batches in grouped(stream, lambda batch: batch.papers.nbytes, run_bytes):
            for batch in batches:
                total.add_counts(batch)
            if any(batch.papers.num_rows for batch in batches):
                _write_run(scratch / f"run-{number:05d}-{runs:05d}.arrow", batches)
                runs += 1
        return {"runs": runs, **vars(total)}

    return files.once(scratch / part_record(number), read)


def _write_run(path: Path, batches: list[PaperBatch]) -> None:
    table = pa.Table.from_batches([batch.papers for batch in batches]).combine_chunks()
    order = pc.sort_indices(table.column("paper_id").chunk(0))
    columns = {name: table.column(name).chunk(0).take(order) for name in table.column_names}
    columns |= {
        "key": pa.array(id_keys(columns["paper_id"])),
        "title_key": pa.array(title_keys(columns["title"].to_pylist())),
        "n_outbound": pc.list_value_length(columns["outbound"]).cast(pa.int32()),
        "title_chars": _characters(columns["title"]),
        "abstract_chars": _characters(columns["abstract"]),
    }
    files.write_arrow(path, [pa.RecordBatch.from_arrays([columns[name] for name in RUN.names], schema=RUN)], RUN)


def _characters(texts: pa.Array) -> pa.Array:
    """Return the number of characters of stored texts, int32, without the line end after the last given sentence."""
    return pc.subtract(pc.utf8_length(texts).cast(pa.int32()), pc.ends_with(texts, "\n").cast(pa.int32()))


def read_or_empty(batches: Iterator[_Batch], allow_empty: bool) -> Iterator[_Batch]:
    """Yield the batches of a part; with ``allow_empty``, nothing from a file without data."""
    try:
        yield from batches
    except EmptyFileError as error:
        if not allow_empty:
            raise EmptyFileError(error.what, f"{error.remedy}; mdcr corpus --allow-empty accepts it") from error


def part_record(number: int) -> str:
    """Return the name of the file with the counts of part ``number``; it is written last."""
    return f"part-{number:05d}.json"


def run_files(scratch: Path, runs_by_part: list[int]) -> list[Path]:
    """Return the files of all runs, in the order of the release."""
    numbers = ((part, run) for part, count in enumerate(runs_by_part) for run in range(count))
    return [scratch / f"run-{part:05d}-{run:05d}.arrow" for part, run in numbers]


def part_of_run(run: Path) -> int:
    """Return the number of the part of a run."""
    return int(run.name.split("-")[1])
