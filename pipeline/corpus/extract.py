"""First pass of corpus building: each part of a release becomes runs of papers sorted by id."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.text import id_keys, title_keys
from pipeline.corpus.spill import Columns, ColumnWriter
from pipeline.sources.base import PaperBatch, Release

STRINGS = ("paper_id", "title", "abstract")
LISTS = ("cited",)
NUMBERS = (
    "key",
    "title_key",
    "fields",
    "year",
    "n_outbound",
    "n_inbound",
    "title_chars",
    "abstract_chars",
    "doi_key",
)
"""Columns of a run. Of strings and lists ``NAME`` holds the elements of all papers (UTF-8 bytes, uint64 keys) and
``NAME_ends`` int64 ``[papers + 1]`` where each paper's begin, and the last one's end. ``cited`` are the keys of the
references; the numbers are as in :data:`pipeline.core.schema.ATTRIBUTES`."""


@dataclass(frozen=True)
class Extraction:
    """Turns one part into runs; travels to worker processes.

    A run, ``run-PART-NUMBER.columns``, holds papers sorted by id; those of one id stand in the order of the release.

    Attributes:
        release: what is read.
        scratch: where the runs go.
        run_bytes: bytes of the papers of a run, about; three times as many are held. It changes no result.
    """

    release: Release
    scratch: Path
    run_bytes: int

    def __call__(self, numbered: tuple[int, str]) -> dict[str, Any]:
        """Read part ``numbered = (number, name)`` and return its counts."""
        number, part = numbered
        record = self.scratch / part_record(number)
        if record.is_file():
            counts: dict[str, Any] = json.loads(record.read_text())
            return counts
        total: dict[str, Any] = {"read": 0, "kept": 0, "examples": []}
        dropped: Counter[str] = Counter()
        noted: Counter[str] = Counter()
        runs = 0
        for batches in _grouped(self.release.read(part), self.run_bytes):
            for batch in batches:
                total["read"] += batch.read
                total["kept"] += batch.papers.num_rows
                total["examples"] += batch.examples
                dropped += batch.dropped
                noted += batch.noted
            if any(batch.papers.num_rows for batch in batches):
                _write_run(self.scratch / f"run-{number:05d}-{runs:05d}.columns", batches)
                runs += 1
        total |= {"runs": runs, "dropped": dropped, "noted": noted}
        files.write_text(record, json.dumps(total))
        return total


def _write_run(path: Path, batches: list[PaperBatch]) -> None:
    table = pa.Table.from_batches([batch.papers for batch in batches])
    order = pc.sort_indices(table.column("paper_id").combine_chunks())

    def column(name: str) -> pa.Array:
        return table.column(name).combine_chunks().take(order)

    with ColumnWriter(path) as run:
        for name in STRINGS:
            values = column(name)
            _, ends, characters = values.buffers()
            run.add(f"{name}_ends", ends.slice(0, 8 * (len(values) + 1)), np.int64)
            run.add(name, characters or pa.py_buffer(b""), np.uint8)
            if name == "paper_id":
                run.add("key", id_keys(values))
                continue
            run.add(f"{name}_chars", np.asarray(pc.utf8_length(values)).astype(np.int32))
            if name == "title":
                run.add("title_key", title_keys(values))
        outbound = column("outbound")
        run.add("cited_ends", np.asarray(outbound.offsets))
        run.add("cited", np.asarray(outbound.values))
        run.add("n_outbound", np.diff(np.asarray(outbound.offsets)).astype(np.int32))
        for name in ("fields", "year", "n_inbound", "doi_key"):
            run.add(name, np.asarray(column(name)))


def _grouped(batches: Iterator[PaperBatch], size: int) -> Iterator[list[PaperBatch]]:
    group: list[PaperBatch] = []
    held = 0
    for batch in batches:
        group.append(batch)
        held += batch.papers.nbytes
        if held >= size:
            yield group
            group, held = [], 0
    if group:
        yield group


def part_record(number: int) -> str:
    """Return the name of the file that says, once it is there, what part ``number`` of a release gave."""
    return f"part-{number:05d}.json"


def run_files(scratch: Path, runs_of_parts: list[int]) -> list[Path]:
    """Return the files of all runs, in the order of the release.

    Args:
        scratch: where they are.
        runs_of_parts: number of runs of each part.
    """
    return [scratch / f"run-{p:05d}-{r:05d}.columns" for p, runs in enumerate(runs_of_parts) for r in range(runs)]


def read_strings(run: Columns, name: str, start: int, stop: int) -> pa.LargeStringArray:
    """Return the strings of one column of a run, of the papers from ``start`` to ``stop``."""
    ends = run.read(f"{name}_ends", start, stop + 1)
    characters = run.read(name, ends[0], ends[-1])
    buffers = [None, pa.py_buffer(ends - ends[0]), pa.py_buffer(characters)]
    return pa.Array.from_buffers(pa.large_string(), stop - start, buffers)
