"""Vectors made elsewhere: finds their files, identifies them, and reads the vectors of corpus papers block by block."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.core.config import digest
from pipeline.core.errors import CorruptError, InputError
from pipeline.encode.base import Matrix
from pipeline.sources.base import check_files, check_finished, find_files, fingerprint
from pipeline.sources.content import read_lines

_ENDINGS = (".parquet", ".npy", ".jsonl", ".gz")
_AGAIN = "Write it again"

IDS = ("id", "_id", "paper_id", "corpusid")
VECTORS = ("vector", "embedding", "vectors", "embeddings")
"""Names of columns of ids and vectors; the first one present is read."""

BLOCK_ROWS = 2_048

LineNumbers = npt.NDArray[np.int64]
RowsOf = Callable[[pa.Array], npt.NDArray[np.int64]]
"""Function from ids, text ``[n]``, to rows of the corpus, int64 ``[n]``, or -1."""


class VectorFile(NamedTuple):
    """One file of vectors; ``ids`` is the text file beside a ``.npy``."""

    path: Path
    ids: Path | None = None


def find(path: Path) -> list[VectorFile]:
    """Return the files of vectors in a folder, or the one file; raise InputError at any other file."""
    if path.is_dir():
        for parent in (path, path.parent):
            check_finished(parent)
        paths = find_files(path, [f"*{end}" for end in _ENDINGS], "vectors")
    elif path.exists():
        paths = [path]
    else:
        raise InputError(f"{path} must be a file or folder of vectors, got nothing there", "Correct the path")
    check_files(paths)
    return [_vector_file(path) for path in paths]


def _vector_file(path: Path) -> VectorFile:
    if path.suffix not in _ENDINGS:
        what = f"{path} must be a file of vectors, got the ending {path.suffix!r}"
        raise InputError(what, "Write Parquet (.parquet), or .npy with its ids; S2AG's are .jsonl or .gz")
    ids = path.with_suffix(".ids.txt") if path.suffix == ".npy" else None
    if ids and not ids.is_file():
        raise InputError(f"{path} must have its ids in {ids.name}, got no such file", "Write it: one id a line")
    return VectorFile(path, ids)


def content(files: Sequence[VectorFile]) -> str:
    """Return ``sha256:`` and a digest of the files' content; large gzip files are sampled, as in releases."""
    stamps = tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for file in files for path in file if path)
    checksums = _checksums(stamps)
    return "sha256:" + digest(sorted([file.path.suffix, *(checksums[path] for path in file if path)] for file in files))


@functools.cache
def _checksums(stamps: tuple[tuple[Path, int, int], ...]) -> dict[Path, str]:
    """Return checksums by path; ``stamps`` has (path, size, modification time), which key the cache."""
    paths = [path for path, _, _ in stamps]
    return dict(zip(paths, fingerprint(paths, Path(paths[0].anchor or ".")).values(), strict=True))


class FileBlock(NamedTuple):
    """Vectors of corpus papers in one block of a file.

    Attributes:
        rows: int64 ``[m]``, in the file's order.
        line_numbers: int64 ``[m]``, line or row in the file, from 1.
        vectors: finite float32 ``[m, dimension]``.
        read: vectors in the block, of corpus papers or not.
        unknown: the first id that is not in the corpus; None if all are.
        models: number of vectors by model, where the file names it (S2AG).
    """

    rows: npt.NDArray[np.int64]
    line_numbers: LineNumbers
    vectors: Matrix
    read: int
    unknown: str | None
    models: Counter[str]


def read(file: VectorFile, rows_of: RowsOf) -> Iterator[FileBlock]:
    """Yield the vectors of corpus papers in a file, in bounded memory; other vectors are not converted.

    Raises:
        InputError: an id or a vector is missing or of a wrong type, a component is not finite, or dimensions differ.
        CorruptError: the file is damaged or truncated.
    """
    dimension = 0
    try:
        for block in _READERS[file.path.suffix](file, rows_of):
            if len(block.rows):
                found = block.vectors.shape[1]
                dimension = dimension or found
                if found != dimension:
                    raise _wrong(file, block.line_numbers[0], "vector", f"{dimension} components", found)
            yield block
    except CorruptError as error:
        raise CorruptError(error.what, _AGAIN) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptError(f"{' or '.join(map(str, filter(None, file)))} cannot be read ({error})", _AGAIN) from error


class _Line(msgspec.Struct, gc=False):
    corpusid: str | int | None = None
    vector: msgspec.Raw = msgspec.Raw(b"")
    model: str = ""


def _read_lines(file: VectorFile, rows_of: RowsOf) -> Iterator[FileBlock]:
    """Read the JSON lines of S2AG; a vector is a list of numbers, or text that holds one."""
    decode, decode_vector = msgspec.json.Decoder(_Line).decode, msgspec.json.Decoder(list[float]).decode
    lines = read_lines(file.path)
    while block := list(itertools.islice(lines, BLOCK_ROWS)):
        records, ids = [], []
        for number, line in block:
            try:
                record = decode(line or b"")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise _wrong(file, number, "record", "JSON of S2AG", error) from error
            if record.corpusid in (None, ""):
                raise _wrong(file, number, "corpusid", "an id of S2AG, whose JSON lines alone are read", "none")
            records.append(record)
            ids.append(str(record.corpusid))
        id_array, numbers = pa.array(ids, pa.large_string()), np.array([number for number, _ in block], np.int64)
        rows = rows_of(id_array)
        vectors = []
        for position in np.flatnonzero(rows >= 0).tolist():
            raw = bytes(records[position].vector)
            try:
                vectors.append(decode_vector(raw[1:-1] if raw[:1] == b'"' else raw))
            except msgspec.DecodeError as error:
                raise _wrong(file, numbers[position], "vector", "a list of finite numbers", error) from error
        matrix = _matrix(file, pa.array(vectors, pa.list_(pa.float64())), numbers[rows >= 0])
        models = Counter(record.model for record in records if record.model)
        yield _block(file, numbers, id_array, rows, matrix)._replace(models=models)


def _read_columns(file: VectorFile, rows_of: RowsOf) -> Iterator[FileBlock]:
    """Read Parquet: a column of ids, text or integers, and one of lists of numbers."""
    start = 1
    with pq.ParquetFile(file.path, memory_map=True) as parquet:
        present = [name for name in parquet.schema_arrow.names if name in (*IDS, *VECTORS)]
        names = [next((name for name in choices if name in present), "") for choices in (IDS, VECTORS)]
        if not all(names):
            wanted, got = (" or ".join(choices) for choices in (IDS, VECTORS)), ", ".join(present) or "nothing"
            raise InputError(f"{file.path} must have {' and '.join(wanted)}, got {got}", "Rename the columns")
        for batch in parquet.iter_batches(BLOCK_ROWS, columns=names):
            ids, vectors = (batch.column(name) for name in names)
            if ids.null_count or vectors.null_count:
                what = f"{file.path} must have an id and a vector in every row, got null after row {start - 1:,}"
                raise InputError(what, "Remove such rows")
            id_array, numbers = _ids_as_text(file, ids), np.arange(start, start + len(ids))
            rows = rows_of(id_array)
            known = rows >= 0
            yield _block(file, numbers, id_array, rows, _matrix(file, vectors.filter(pa.array(known)), numbers[known]))
            start += len(ids)


def _ids_as_text(file: VectorFile, ids: pa.Array) -> pa.Array:
    kind = ids.type
    if pa.types.is_dictionary(kind):
        ids, kind = ids.dictionary_decode(), kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
        raise InputError(f"the ids of {file.path} must be text or integers, got {kind}", "Write them as text")
    return pc.cast(ids, pa.large_string())


def _matrix(file: VectorFile, column: pa.Array, row_numbers: LineNumbers) -> npt.NDArray[Any]:
    """Return a column of lists as a matrix ``[n, dimension]`` of its own type."""
    kind = column.type
    numbers = kind.value_type if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType) else None
    if numbers is None or not (pa.types.is_floating(numbers) or pa.types.is_integer(numbers)):
        raise InputError(f"the vectors of {file.path} must be lists of numbers, got {kind}", "Write them as float32")
    if not len(column):
        return np.empty((0, 0))
    lengths = np.asarray(pc.list_value_length(column))
    if (uneven := lengths != max(lengths[0], 1)).any():
        position = int(np.flatnonzero(uneven)[0])
        raise _wrong(file, row_numbers[position], "vector", f"{lengths[0] or 'some'} components", lengths[position])
    return np.asarray(column.flatten()).reshape(len(column), -1)  # null becomes NaN


def _read_npy(file: VectorFile, rows_of: RowsOf) -> Iterator[FileBlock]:
    """Read a ``.npy`` and the ids beside it, one a line."""
    try:
        with np.errstate(over="ignore"):  # the size of a header's shape
            array = np.lib.format.open_memmap(file.path, mode="r")
    except Exception as error:  # a damaged header makes NumPy raise errors of every class
        reason = f"{error!s:.200}" or type(error).__name__
        raise CorruptError(f"{file.path} must be an array of numbers of NumPy ({reason})", _AGAIN) from error
    if array.ndim != 2 or not array.shape[1] or array.dtype.kind not in "fiu":
        raise InputError(
            f"the vectors of {file.path} must be a matrix of numbers, got shape {array.shape} and type {array.dtype}",
            "Save float32 [papers, dimension]",
        )
    ids, seen = _id_lines(file), 0
    for start in range(0, len(array), BLOCK_ROWS):
        block = array[start : start + BLOCK_ROWS]
        id_array = pa.array(itertools.islice(ids, len(block)), pa.large_string())
        seen += len(id_array)
        if len(id_array) == len(block):
            rows = rows_of(id_array)
            yield _block(file, np.arange(start + 1, seen + 1), id_array, rows, block[rows >= 0])
    if (seen := seen + sum(1 for _ in ids)) != len(array):
        raise InputError(
            f"{file.path} must have as many ids as vectors, got {seen:,} and {len(array):,}", "Write the ids again"
        )


def _id_lines(file: VectorFile) -> Iterator[str]:
    with (file.ids or file.path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise InputError(f"{file.ids}:{number} must be an id, got an empty line", "Write one id a line")
            yield line.strip()


def _block(
    file: VectorFile, positions: LineNumbers, ids: pa.Array, rows: npt.NDArray[np.int64], vectors: npt.NDArray[Any]
) -> FileBlock:
    """Check ``vectors``, those of ids with a row, and return a block; ``positions`` and ``rows`` are of all ids."""
    known, unknown = rows >= 0, np.flatnonzero(rows < 0)
    rows, positions = rows[known], positions[known]
    with np.errstate(over="ignore"):
        finite_vectors: Matrix = vectors.astype(np.float32)
    not_finite = ~np.isfinite(finite_vectors)
    if not_finite.any():
        row, column = (int(axis[0]) for axis in np.nonzero(not_finite))
        raise _wrong(file, positions[row], "vector", "finite float32 numbers", vectors[row, column])
    first_unknown = ids[int(unknown[0])].as_py() if len(unknown) else None
    return FileBlock(rows, positions, finite_vectors, len(ids), first_unknown, Counter())


def _wrong(file: VectorFile, position: int, name: str, expected: str, got: object) -> InputError:
    return InputError(
        f"the {name} at {file.path}:{position} must be {expected}, got {got}", "Correct it, or remove it from the file"
    )


_READERS = {".jsonl": _read_lines, ".gz": _read_lines, ".parquet": _read_columns, ".npy": _read_npy}
