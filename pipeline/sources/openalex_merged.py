"""OpenAlex works that became part of another work."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pipeline.core.errors import CorruptError
from pipeline.core.text import Keys, id_keys
from pipeline.sources.base import PaperBatch
from pipeline.sources.papers import distinct_references


class Merged(NamedTuple):
    """Works that became part of another: ``ids`` rising, and what each one is now."""

    ids: Keys
    into: Keys

    def place(self, keys: Keys) -> tuple[np.ndarray, np.ndarray]:
        """Return where each key stands in ``ids``, and whether it does."""
        if not len(self.ids):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
        place = np.minimum(np.searchsorted(self.ids, keys), len(self.ids) - 1)
        return place, self.ids[place] == keys

    def apply(self, batch: PaperBatch) -> PaperBatch:
        """Drop the merged works of a batch, and let references to merged works mean what they became part of."""
        papers = batch.papers
        keys = id_keys(papers.column("paper_id"))
        gone = self.place(keys)[1]
        if gone.any():
            papers, keys = papers.filter(pa.array(~gone)), keys[~gone]
            batch.dropped["merged_into_another"] += int(np.count_nonzero(gone))
        outbound = papers.column("outbound")
        cited = outbound.flatten().to_numpy()
        place, moved = self.place(cited)
        if moved.any():
            lengths = np.asarray(pc.list_value_length(outbound))
            offsets, kept = distinct_references(keys, lengths, np.where(moved, self.into[place], cited))
            batch.noted["references_redirected_to_merged"] += int(np.count_nonzero(moved))
            batch.noted["references_repeated_or_self"] += len(cited) - len(kept)
            lists = pa.LargeListArray.from_arrays(offsets, kept, type=papers.schema.field("outbound").type)
            papers = papers.set_column(papers.schema.names.index("outbound"), papers.schema.field("outbound"), lists)
        batch.papers = papers
        return batch


@functools.lru_cache(maxsize=2)
def read_merged(paths: tuple[Path, ...]) -> Merged:
    """Read the CSV files of merged ids (``merge_date,id,merge_into_id``); of several lines of a work the last counts.

    Holds 16 bytes a merged work, about 80 while it reads. Once a process.

    Raises:
        CorruptError: a file is no such CSV.
    """
    tables = [_read_csv(path) for path in paths]
    ids = np.concatenate([np.empty(0, np.uint64), *(id_keys(table.column("id").combine_chunks()) for table in tables)])
    into = np.concatenate([ids[:0], *(id_keys(table.column("merge_into_id").combine_chunks()) for table in tables)])
    distinct, last = np.unique(ids[::-1], return_index=True)
    merged = Merged(distinct, into[::-1][last])
    for _ in range(64):
        place, again = merged.place(merged.into)
        again &= merged.into[place] != merged.into
        if not again.any():
            break
        merged = Merged(merged.ids, np.where(again, merged.into[place], merged.into))
    if not again.any() and not np.any(merged.into == merged.ids):
        return merged
    raise CorruptError(f"the merged ids of {paths[0].parent} go in a circle", "Fetch them again")


def _read_csv(path: Path) -> pa.Table:
    text = pa.large_string()
    try:
        table = pa.csv.read_csv(
            path, convert_options=pa.csv.ConvertOptions(column_types={"id": text, "merge_into_id": text})
        ).select(["id", "merge_into_id"])
    except (pa.ArrowInvalid, KeyError, OSError) as error:
        raise CorruptError(f"{path} is not a list of merged ids ({error})", "Fetch it again") from error
    prefix = r"^https://openalex\.org/"
    for number, name in enumerate(table.column_names):
        table = table.set_column(number, name, pc.replace_substring_regex(table.column(name), prefix, ""))
    return table
