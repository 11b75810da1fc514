"""Vectors of a store as files that other tools read, and that ``vectors:FILE`` reads again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.progress import Progress
from pipeline.core.schema import vectors as vectors_schema
from pipeline.corpus.reader import Rows
from pipeline.encode.base import Matrix
from pipeline.encode.store import VectorStore

FORMATS = (".parquet", ".npy")

IdsOf = Callable[[Rows], Sequence[str]]
"""Maps rows to ids: of papers :meth:`pipeline.corpus.reader.Corpus.ids`."""

_BLOCK = 8_192


def export_vectors(store: VectorStore, rows: Rows, ids_of: IdsOf, path: Path) -> Path:
    """Write the vectors of some papers as float32, in order of row, in bounded memory.

    Args:
        store: their store.
        rows: uint32, rising, each once.
        ids_of: gives the ids.
        path: ``.parquet`` (columns ``id`` and ``vector``), or ``.npy`` (``[papers, dimension]``), whose ids go into
            ``.ids.txt`` beside it, one a line.

    Raises:
        InputError: the format is unknown, an id does not fit on a line, or papers have several vectors.
        StageError: papers have no vector.
    """
    if path.suffix not in FORMATS:
        raise InputError(f"{path.name} must end in {' or '.join(FORMATS)}, got {path.suffix!r}", "Rename it")
    with files.disk_errors(path.parent), Progress(len(rows), f"write {path.name}", "vectors") as progress:
        write = _write_parquet if path.suffix == ".parquet" else _write_npy
        write(path, _blocks(store, rows, ids_of, progress), (len(rows), store.dimension))
    return path


def open_vectors(path: Path) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Open an exported ``.npy``: (ids, float32 ``[papers, dimension]`` memory-mapped)."""
    return path.with_suffix(".ids.txt").read_text(encoding="utf-8").splitlines(), np.load(path, mmap_mode="r")


def record(path: Path, source: str) -> None:
    """Write beside an exported ``.npy``, into ``.json``, what it was made of and the checksums of its files."""
    files.write_text(path.with_suffix(".json"), json.dumps(_described(path, source)))


def intact(path: Path, source: str) -> bool:
    """Return whether an exported ``.npy`` and its ids are as :func:`record` left them, made of ``source``."""
    return bool(files.read_json(path.with_suffix(".json")) == _described(path, source))


def _described(path: Path, source: str) -> dict[str, Any]:
    written = [file for file in (path, path.with_suffix(".ids.txt")) if file.is_file()]
    return {"source": source, "sha256": {file.name: files.sha256(file) for file in written}}


def _blocks(
    store: VectorStore, rows: Rows, ids_of: IdsOf, progress: Progress
) -> Iterator[tuple[Sequence[str], Matrix]]:
    for start, block in zip(range(0, len(rows), _BLOCK), store.blocks(rows, _BLOCK), strict=True):
        some = rows[start : start + _BLOCK]
        if len(block.rows) != len(some):
            raise InputError(
                f"{len(some):,} papers must have one vector each, got {len(block.rows):,}",
                "Export an encoder of one vector a paper",
            )
        yield ids_of(some), block.vectors
        progress.add(len(some))


def _write_parquet(path: Path, blocks: Iterator[tuple[Sequence[str], Matrix]], shape: tuple[int, int]) -> None:
    kind = vectors_schema(shape[1], "float32").field("vector")
    schema = pa.schema([pa.field("id", pa.large_string(), nullable=False), kind])
    with files.replacing(path) as temporary, pq.ParquetWriter(temporary, schema, use_dictionary=False) as writer:
        for ids, vectors in blocks:
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind.type)
            writer.write_batch(pa.record_batch([pa.array(ids, pa.large_string()), column], schema=schema))


def _write_npy(path: Path, blocks: Iterator[tuple[Sequence[str], Matrix]], shape: tuple[int, int]) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with (
        files.replacing(path.with_suffix(".ids.txt")) as listed,
        files.replacing(path) as temporary,
        temporary.open("wb") as handle,
        listed.open("w", encoding="utf-8", newline="\n") as lines,
    ):
        np.lib.format.write_array_header_1_0(handle, header)
        for ids, vectors in blocks:
            for paper_id in ids:
                if paper_id.splitlines() != [paper_id] or paper_id.strip() != paper_id:
                    raise InputError(f"the id {paper_id!r} must fit on a line", "Export to .parquet")
            lines.writelines(f"{paper_id}\n" for paper_id in ids)
            handle.write(vectors.astype("<f4", copy=False).tobytes())
