"""First pass of corpus building: each part of a release becomes runs of papers sorted by id, and their references."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core import files
from pipeline.core.text import id_keys, title_key
from pipeline.sources.base import Batch, Release

RUN = pa.schema(
    [
        pa.field("paper_id", pa.large_string(), nullable=False),
        pa.field("title", pa.large_string(), nullable=False),
        pa.field("abstract", pa.large_string(), nullable=False),
        pa.field("key", pa.uint64(), nullable=False),
        pa.field("title_key", pa.uint64(), nullable=False),
        pa.field("fields", pa.uint32(), nullable=False),
        pa.field("year", pa.int16(), nullable=False),
        pa.field("n_outbound", pa.int32(), nullable=False),
        pa.field("n_inbound", pa.int32(), nullable=False),
        pa.field("title_chars", pa.int32(), nullable=False),
        pa.field("abstract_chars", pa.int32(), nullable=False),
    ]
)
"""A sorted run, ``run-PART-NUMBER.arrow``; papers of one id stand in the order of the release."""

REFERENCES = pa.schema(
    [
        pa.field("position", pa.uint32(), nullable=False),
        pa.field("key", pa.uint64(), nullable=False),
    ]
)
"""References of a run, ``refs-PART-NUMBER.arrow``: position of the citing paper in the run, key of the cited id."""


@dataclass(frozen=True)
class Extraction:
    """Turns one part into runs; travels to worker processes.

    Attributes:
        release: what is read.
        scratch: where the runs go.
        run_bytes: text a run holds, about; it bounds the memory of a worker and changes no result.
    """

    release: Release
    scratch: Path
    run_bytes: int

    def __call__(self, numbered: tuple[int, str]) -> dict[str, Any]:
        """Read part ``numbered = (number, name)`` and return its counts."""
        number, part = numbered
        record = self.scratch / f"part-{number:05d}.json"
        if record.is_file():
            counts: dict[str, Any] = json.loads(record.read_text())
            return counts
        total: dict[str, Any] = {"read": 0, "kept": 0, "references": 0, "examples": []}
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
            total["references"] += self._write_run(f"{number:05d}-{runs:05d}", batches)
            runs += 1
        total |= {"runs": runs, "dropped": dropped, "noted": noted}
        files.write_text(record, json.dumps(total))
        return total

    def _write_run(self, name: str, batches: list[Batch]) -> int:
        table = pa.Table.from_batches([batch.papers for batch in batches])
        order = pc.sort_indices(table.column("paper_id").combine_chunks())
        table = table.take(order).combine_chunks()
        ids, titles, abstracts = (table.column(c).combine_chunks() for c in ("paper_id", "title", "abstract"))
        outbound = table.column("outbound").combine_chunks()
        lengths = np.asarray(pc.list_value_length(outbound).cast(pa.int32()))
        columns = {
            "paper_id": ids,
            "title": titles,
            "abstract": abstracts,
            "key": id_keys(ids),
            "title_key": np.fromiter(map(title_key, titles.to_pylist()), np.uint64, len(titles)),
            "fields": table.column("fields").combine_chunks(),
            "year": table.column("year").combine_chunks(),
            "n_outbound": lengths,
            "n_inbound": table.column("n_inbound").combine_chunks(),
            "title_chars": pc.utf8_length(titles).cast(pa.int32()),
            "abstract_chars": pc.utf8_length(abstracts).cast(pa.int32()),
        }
        references = {
            "position": np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths),
            "key": outbound.flatten(),
        }
        for kind, schema, values in (("run", RUN, columns), ("refs", REFERENCES, references)):
            batch = pa.RecordBatch.from_arrays([pa.array(values[field.name]) for field in schema], schema=schema)
            files.write_arrow(self.scratch / f"{kind}-{name}.arrow", [batch], schema)
        return int(lengths.sum())


def _grouped(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    group: list[Batch] = []
    held = 0
    for batch in batches:
        group.append(batch)
        held += batch.papers.nbytes
        if held >= size:
            yield group
            group, held = [], 0
    if group:
        yield group


def run_files(scratch: Path, kind: str, runs_of_parts: list[int]) -> list[Path]:
    """Return the files of all runs (``run`` or ``refs``), in the order of the release.

    Args:
        scratch: where they are.
        kind: ``run`` or ``refs``.
        runs_of_parts: number of runs of each part.
    """
    return [scratch / f"{kind}-{p:05d}-{r:05d}.arrow" for p, runs in enumerate(runs_of_parts) for r in range(runs)]


def columns(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the numeric columns of a run or references file by memory map."""
    table = files.read_arrow(path)
    return {
        field.name: table.column(field.name).chunk(0).to_numpy()
        for field in table.schema
        if not pa.types.is_large_string(field.type)
    }
