"""First pass of corpus building: each part of a release becomes texts in runs sorted by id, and tables for DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.core import files
from pipeline.core.csr import Ints, Keys
from pipeline.core.schema import schema_of
from pipeline.core.text import id_keys, reference_keys, title_keys
from pipeline.sources.base import RAW_PAPERS, Batch, PaperBatch, Release, TableBatch, grouped
from pipeline.sources.citations import read_citations

Part = tuple[int, str | None]
"""Number and name of a part of a release; its file of citations has no name."""

_TEXTS = schema_of(paper_id=pa.large_string(), title=pa.large_string(), abstract=pa.large_string())
_RUN_BYTES = 256 * 2**20
_LEAST_RUN_BYTES = 2**23
_RUN_BITS, _POSITION_BITS = 16, 28
_ROW_GROUP = 122_880
"""Rows of a Parquet row group, which one thread of DuckDB reads."""


def parts_of(release: Release) -> list[Part]:
    """Return the parts of a release, and its file of citations as the last."""
    parts: list[Part] = [*enumerate(release.parts())]
    return [*parts, (len(parts), None)] if release.citations else parts


def part_record(number: int) -> str:
    """Return the name of the file with the counts of part ``number``; it is written last."""
    return f"part-{number:05d}.json"


def run_bytes(memory: int, workers: int) -> int:
    """Return the size of runs, of which each worker holds one three times."""
    return max(_LEAST_RUN_BYTES, min(_RUN_BYTES, memory // (8 * workers)))


def read_part(release: Release, scratch: Path, size: int, part: Part) -> dict[str, Any]:
    """Write the runs of one part, once; return the ``kind`` of its records and their counts.

    Run ``n`` of a part has papers, abstracts or citations of about ``size`` bytes: a table ``KIND-PART-n.parquet`` and,
    unless of citations, ``texts-PART-n.arrow``. The corpus does not depend on the size of the runs. A ``place`` names
    the run and the position of a paper or an abstract there, sorted by id; among those of one id, the first in the
    order of the release has the lowest place.
    """
    number, name = part

    def read() -> dict[str, Any]:
        for abandoned in scratch.glob(f"*-{number:05d}-*"):  # of a killed process, whose runs may have had other sizes
            abandoned.unlink()
        total, kind = Batch(read=0), "papers"
        beside = Path(release.citations or "")
        batches = read_citations(beside, release.names) if name is None else release.read(name)
        for run, group in enumerate(grouped(batches, _bytes, size)):
            for batch in group:
                total.add_counts(batch)
                kind = batch.kind if isinstance(batch, TableBatch) else "papers"
            if group or run == 0:
                _write_run(scratch, number << _RUN_BITS | run, kind, group, release.is_joined())
        return {"kind": kind, **vars(total)}

    return files.once(scratch / part_record(number), read)


def _bytes(batch: PaperBatch | TableBatch) -> int:
    columns = batch.columns.values() if isinstance(batch, TableBatch) else [batch.papers]
    return sum(int(column.nbytes) for column in columns)


def _write_run(scratch: Path, run: int, kind: str, batches: Sequence[Any], is_joined: bool) -> None:
    """Write the texts and the table of a run."""
    if kind == "citations":
        columns = {name: np.concatenate([batch.columns[name] for batch in batches]) for name in batches[0].columns}
    else:
        texts, columns = _papers(batches, is_joined) if kind == "papers" else _abstracts(batches)
        files.write_arrow(_file(scratch, "texts", run), texts.combine_chunks().to_batches(), texts.schema)
        columns["place"] = (np.uint64(run) << np.uint64(_POSITION_BITS)) + np.arange(len(texts), dtype=np.uint64)
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(pa.table(columns), _file(scratch, kind, run), row_group_size=_ROW_GROUP, **options)


def _papers(batches: Sequence[PaperBatch], is_joined: bool) -> tuple[pa.Table, dict[str, Any]]:
    """Return the texts of papers, and the columns of their table; ``ref``: the key by which citations name a paper."""
    table = pa.Table.from_batches([batch.papers for batch in batches], RAW_PAPERS)
    arrays = {name: table.column(name).combine_chunks() for name in table.column_names}
    order = pc.sort_indices(arrays["paper_id"])
    papers = {name: array.take(order) for name, array in arrays.items()}
    key = id_keys(papers["paper_id"])
    columns = {name: papers[name] for name in ("paper_id", "year", "fields", "n_inbound", "doi_key", "outbound")}
    columns |= {
        "key": key,
        "ref": reference_keys(papers["paper_id"]) if is_joined else key,
        "title_key": title_keys(papers["title"].to_pylist()),
        "n_outbound": pc.list_value_length(papers["outbound"]).cast(pa.int32()),
        "title_chars": _characters(papers["title"]),
        "abstract_chars": _characters(papers["abstract"]),
    }
    return pa.table([papers[name] for name in _TEXTS.names], schema=_TEXTS), columns


def _abstracts(batches: Sequence[TableBatch]) -> tuple[pa.Table, dict[str, Any]]:
    """Return abstracts, sorted like the papers of decimal ids, and the columns of their table."""
    keys = np.concatenate([batch.columns["key"] for batch in batches])
    order = pc.sort_indices(pa.array(keys).cast(pa.string()))
    texts = pa.chunked_array([batch.columns["text"] for batch in batches]).combine_chunks().take(order)
    table = pa.table([texts], schema=pa.schema([_TEXTS.field("abstract")]))
    return table, {"key": keys[order], "abstract_chars": _characters(texts)}


def _characters(texts: pa.Array) -> pa.Array:
    """Return the number of characters of stored texts, int32, without the line end after the last given sentence."""
    return pc.subtract(pc.utf8_length(texts).cast(pa.int32()), pc.ends_with(texts, "\n").cast(pa.int32()))


def _file(scratch: Path, kind: str, run: int) -> Path:
    part, number = divmod(run, 1 << _RUN_BITS)
    return scratch / f"{kind}-{part:05d}-{number:05d}.{'arrow' if kind == 'texts' else 'parquet'}"


def part_of(place: int) -> int:
    """Return the number of the part of a place."""
    return place >> (_RUN_BITS + _POSITION_BITS)


def _by_run(scratch: Path, column: str, places: Keys) -> Iterator[tuple[pa.LargeStringArray, Ints]]:
    """Yield the texts at some places run by run, memory-mapped where they are a whole range, and their positions."""
    runs = places >> np.uint64(_POSITION_BITS)
    order = np.argsort(runs, kind="stable")
    numbers, starts = np.unique(runs[order], return_index=True)
    for run, positions in zip(numbers.tolist(), np.split(order, starts[1:]), strict=False):
        rows = (places[positions] & np.uint64((1 << _POSITION_BITS) - 1)).astype(np.int64)
        first, count = int(rows.min()), int(rows.max() - rows.min()) + 1
        texts = files.read_arrow(_file(scratch, "texts", run))[column].chunk(0).slice(first, count)
        yield texts if np.array_equal(rows, first + np.arange(count)) else texts.take(pa.array(rows - first)), positions


def texts_at(scratch: Path, column: str, places: Keys) -> pa.LargeStringArray:
    """Return the texts of a column (``paper_id``, ``title`` or ``abstract``) at places, in that order."""
    pieces = [(pa.array([], pa.large_string()), np.empty(0, np.int64)), *_by_run(scratch, column, places)]
    order = np.argsort(np.concatenate([positions for _, positions in pieces]))
    return pa.concat_arrays([texts for texts, _ in pieces]).take(order)


def text_bytes_at(scratch: Path, column: str, places: Keys) -> npt.NDArray[np.int64]:
    """Return the sizes of texts at places in bytes, int64 ``[places]``."""
    sizes = np.empty(len(places), np.int64)
    for texts, positions in _by_run(scratch, column, places):
        sizes[positions] = pc.binary_length(texts)
    return sizes
