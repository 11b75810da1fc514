"""Exports the vectors of a store for other tools; ``vectors:FILE`` reads them back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.progress import Progress
from pipeline.core.schema import schema_of
from pipeline.core.schema import vectors as vectors_schema
from pipeline.corpus.reader import Rows
from pipeline.encode.base import Matrix
from pipeline.encode.store import VectorStore

FORMATS = (".parquet", ".npy")

IdsOf = Callable[[Rows], Sequence[str]]
"""Function from rows to ids, such as :meth:`pipeline.corpus.reader.Corpus.ids`."""

_BLOCK = 8_192


def export_vectors(store: VectorStore, rows: Rows, ids_of: IdsOf, path: Path) -> Path:
    """Write the vectors of papers as float32, in order of row, in bounded memory; return ``path``.

    Args:
        store: their store.
        rows: uint32, rising, without repeats.
        ids_of: returns their ids.
        path: ``.parquet`` (columns ``id`` and ``vector``), or ``.npy`` (``[papers, dimension]``) with ``.ids.txt``
            beside it, one id a line.

    Raises:
        InputError: the format is unknown, an id has a line break, or papers have several vectors.
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


def _blocks(
    store: VectorStore, rows: Rows, ids_of: IdsOf, progress: Progress
) -> Iterator[tuple[Sequence[str], Matrix]]:
    for start, block in zip(range(0, len(rows), _BLOCK), store.blocks(rows, _BLOCK), strict=True):
        block_rows = rows[start : start + _BLOCK]
        if len(block.rows) != len(block_rows):
            raise InputError(
                f"{len(block_rows):,} papers must have one vector each, got {len(block.rows):,}",
                "Export an encoder of one vector per paper",
            )
        yield ids_of(block_rows), block.vectors
        progress.add(len(block_rows))


def _write_parquet(path: Path, blocks: Iterator[tuple[Sequence[str], Matrix]], shape: tuple[int, int]) -> None:
    kind = vectors_schema(shape[1], "float32").field("vector").type
    schema = schema_of(id=pa.large_string(), vector=kind)
    with files.replacing(path) as temporary, pq.ParquetWriter(temporary, schema, use_dictionary=False) as writer:
        for ids, vectors in blocks:
            column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind)
            writer.write_batch(pa.record_batch([pa.array(ids, pa.large_string()), column], schema=schema))


def _write_npy(path: Path, blocks: Iterator[tuple[Sequence[str], Matrix]], shape: tuple[int, int]) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with (
        files.replacing(path.with_suffix(".ids.txt")) as id_path,
        files.replacing(path) as temporary,
        temporary.open("wb") as handle,
        id_path.open("w", encoding="utf-8", newline="\n") as lines,
    ):
        np.lib.format.write_array_header_1_0(handle, header)
        for ids, vectors in blocks:
            for paper_id in ids:
                if paper_id.splitlines() != [paper_id] or paper_id.strip() != paper_id:
                    raise InputError(f"the id {paper_id!r} must fit on a line", "Export to .parquet")
            lines.writelines(f"{paper_id}\n" for paper_id in ids)
            handle.write(vectors.astype("<f4", copy=False).tobytes())
