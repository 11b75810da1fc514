"""Vectors made elsewhere: the files they are in, their identity, and reading the wanted ones block by block."""

from __future__ import annotations

import functools
import itertools
import math
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, NamedTuple

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
from pipeline.sources.records import read_lines

_COLUMNS, _ARRAYS, _LINES = (".parquet", ".arrow", ".feather"), (".npy", ".npz"), (".jsonl", ".ndjson", ".gz")
_ENDINGS = (*_COLUMNS, *_ARRAYS, *_LINES)
_AGAIN = "Write it again"

IDS = ("id", "_id", "paper_id", "corpusid")
VECTORS = ("vector", "embedding", "vectors", "embeddings")
"""Names of the columns, keys or arrays with ids and vectors: the first that is there is read."""

BLOCK_BYTES, BLOCK_ROWS = 2**24, 2_048

Places = npt.NDArray[np.int64]
RowsOf = Callable[[pa.Array], npt.NDArray[np.int64]]
"""Maps ids, text, to rows of the corpus; -1 where it has no such paper."""


class VectorFile(NamedTuple):
    """One file of vectors; ``ids`` is the text file beside a ``.npy``."""

    path: Path
    ids: Path | None = None


def find(place: Path) -> list[VectorFile]:
    """Return the files of vectors in a folder, or the one file.

    A folder of the Academic Graph's datasets may stand for the ``embeddings-*`` folder in it.

    Raises:
        InputError: there is no such file, its format is unknown, or a ``.npy`` has no ids beside it.
    """
    if place.is_dir():
        for parent in (place, place.parent):
            check_finished(parent)
        inside = sorted(place.glob("embeddings-*/"))
        if inside and not any(path.suffix in _ENDINGS for path in place.iterdir()):
            if len(inside) > 1:
                names = ", ".join(folder.name for folder in inside)
                raise InputError(f"{place} must hold one model's vectors, got {names}", "Name one of these folders")
            place = inside[0]
        paths = find_files(place, [f"*{end}" for end in _ENDINGS], "vectors")
    elif place.exists():
        paths = [place]
    else:
        raise InputError(f"{place} must be a file or folder of vectors, got nothing there", "Correct the path")
    check_files(paths)
    return [_vector_file(path) for path in paths]


def _vector_file(path: Path) -> VectorFile:
    if path.suffix not in _ENDINGS:
        endings = ", ".join((*_COLUMNS, *_ARRAYS, ".jsonl", ".jsonl.gz"))
        raise InputError(f"{path} must be a file of vectors, got the ending {path.suffix!r}", f"Known: {endings}")
    ids = path.with_suffix(".ids.txt") if path.suffix == ".npy" else None
    if ids and not ids.is_file():
        raise InputError(f"{path} must have its ids in {ids.name}, got no such file", "Write it: one id a line")
    return VectorFile(path, ids)


def content(files: Sequence[VectorFile]) -> str:
    """Return ``sha256:`` and a digest of what the files hold; large gzip files are sampled, as those of releases."""
    stamps = tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for file in files for path in file if path)
    checksums = _checksums(stamps)
    return "sha256:" + digest(sorted([file.path.suffix, *(checksums[path] for path in file if path)] for file in files))


@functools.cache
def _checksums(stamps: tuple[tuple[Path, int, int], ...]) -> dict[Path, str]:
    """Checksums by path; size and time only show when to read a file again."""
    paths = [path for path, _, _ in stamps]
    return dict(zip(paths, fingerprint(paths, Path(paths[0].anchor or ".")).values(), strict=True))


class Block(NamedTuple):
    """Wanted vectors among some that were read.

    Attributes:
        rows: int64 ``[m]``, in the file's order.
        places: int64 ``[m]``, line or row of each in its file, from 1.
        vectors: finite float32 ``[m, dimension]``.
        read: vectors that were passed, wanted or not.
        unknown: the first id that was not wanted; None where all were.
        models: vectors by the model that the file names (S2AG).
    """

    rows: npt.NDArray[np.int64]
    places: Places
    vectors: Matrix
    read: int
    unknown: str | None
    models: Counter[str]


def read(file: VectorFile, rows_of: RowsOf) -> Iterator[Block]:
    """Yield the wanted vectors of a file in bounded memory; those of other papers are not converted.

    Raises:
        InputError: an id or a vector is missing or of a wrong type, a component is not finite, or two vectors have
            different lengths; file and line (or row) are named.
        CorruptError: the file is empty, damaged or truncated.
    """
    dimension = 0
    try:
        for block in _READERS[file.path.suffix](file, rows_of):
            if len(block.rows):
                dimension = dimension or block.vectors.shape[1]
                if block.vectors.shape[1] != dimension:
                    raise _wrong(file, block.places[0], "vector", f"{dimension} components", block.vectors.shape[1])
            yield block
    except CorruptError as error:
        raise CorruptError(error.what, _AGAIN) from error
    except (pa.ArrowInvalid, OSError, EOFError, zipfile.BadZipFile) as error:
        raise CorruptError(f"{file.path} cannot be read ({error})", _AGAIN) from error


class _Line(msgspec.Struct, gc=False):
    id: str | int | None = None
    _id: str | int | None = None
    paper_id: str | int | None = None
    corpusid: str | int | None = None
    vector: msgspec.Raw = msgspec.Raw(b"")
    embedding: msgspec.Raw = msgspec.Raw(b"")
    model: str = ""

    def key(self) -> str | int | None:
        """Return the first id that is there."""
        return next((key for key in (self.id, self._id, self.paper_id, self.corpusid) if key is not None), None)


def _read_lines(file: VectorFile, rows_of: RowsOf) -> Iterator[Block]:
    """Read JSON lines; a vector is a list of numbers, or text that holds one (S2AG)."""
    decode, numbers = msgspec.json.Decoder(_Line).decode, msgspec.json.Decoder(list[float]).decode
    lines = read_lines(file.path)
    while block := list(itertools.islice(lines, BLOCK_ROWS)):
        records, ids = [], []
        for place, line in block:
            try:
                record = decode(line or b"")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise _wrong(file, place, "record", "JSON with an id and a vector", error) from error
            key = record.key()
            if key is None or key == "":
                raise _wrong(file, place, "id", f"text or an integer in one of {', '.join(IDS)}", "none")
            records.append(record)
            ids.append(str(key))
        texts = pa.array(ids, pa.large_string())
        rows = rows_of(texts)
        places = np.array([place for place, _ in block], np.int64)
        wanted = np.flatnonzero(rows >= 0).tolist()
        matrix = np.empty((0, 0))
        for number, position in enumerate(wanted):
            raw = bytes(records[position].vector or records[position].embedding)
            try:
                values = numbers(raw[1:-1] if raw[:1] == b'"' else raw)
            except msgspec.DecodeError as error:
                raise _wrong(file, places[position], "vector", "a list of finite numbers", error) from error
            if not number:
                matrix = np.empty((len(wanted), len(values)))
            if len(values) != matrix.shape[1] or not values:
                raise _wrong(file, places[position], "vector", f"{matrix.shape[1] or 'some'} components", len(values))
            matrix[number] = values
        models = Counter(record.model for record in records if record.model)
        yield _block(file, places, texts, rows, matrix)._replace(models=models)


def _read_columns(file: VectorFile, rows_of: RowsOf) -> Iterator[Block]:
    """Read Parquet or Arrow: a column of ids, text or integers, and one of lists of numbers."""
    start = 1
    for batch in _batches(file.path):
        names = batch.schema.names
        ids, vectors = (batch.column(_column(file, names, choices)) for choices in (IDS, VECTORS))
        for what, column in (("id", ids), ("vector", vectors)):
            if column.null_count:
                first = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                raise _wrong(file, start + first, what, "a value", "null")
        texts, places = _texts(file, ids), np.arange(start, start + len(ids))
        rows = rows_of(texts)
        kept = rows >= 0
        yield _block(file, places, texts, rows, _flat(file, vectors.filter(pa.array(kept)), places[kept]))
        start += len(ids)


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    if path.suffix == ".parquet":
        with pq.ParquetFile(path, memory_map=True) as parquet:
            names = [name for name in parquet.schema_arrow.names if name in (*IDS, *VECTORS)]
            yield from parquet.iter_batches(BLOCK_ROWS, columns=names)
        return
    with pa.memory_map(str(path)) as source:
        head = source.read(6)
        source.seek(0)
        if head == b"ARROW1":
            reader = pa.ipc.open_file(source)
            whole: Iterator[pa.RecordBatch] = (reader.get_batch(n) for n in range(reader.num_record_batches))
        else:
            whole = iter(pa.ipc.open_stream(source))
        for batch in whole:
            for start in range(0, batch.num_rows, BLOCK_ROWS):
                yield batch.slice(start, BLOCK_ROWS)


def _column(file: VectorFile, names: Sequence[str], choices: Sequence[str]) -> str:
    column = next((name for name in choices if name in names), None)
    if column is None:
        listed = " or ".join(choices)
        raise InputError(f"{file.path} must have {listed}, got {', '.join(names) or 'nothing'}", "Rename them")
    return column


def _texts(file: VectorFile, ids: pa.Array) -> pa.Array:
    kind = ids.type
    if pa.types.is_dictionary(kind):
        ids, kind = ids.dictionary_decode(), kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
        raise InputError(f"the ids of {file.path} must be text or integers, got {kind}", "Write them as text")
    return pc.cast(ids, pa.large_string())


def _flat(file: VectorFile, column: pa.Array, places: Places) -> npt.NDArray[Any]:
    """Return a column of lists as a matrix, in its own type."""
    kind = column.type
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_list(kind) for is_list in lists) or not _is_number(kind.value_type):
        raise InputError(f"the vectors of {file.path} must be lists of numbers, got {kind}", "Write them as float32")
    if not len(column):
        return np.empty((0, 0))
    lengths = np.asarray(pc.list_value_length(column))
    if (uneven := lengths != max(lengths[0], 1)).any():
        first = int(np.flatnonzero(uneven)[0])
        raise _wrong(file, places[first], "vector", f"{lengths[0] or 'some'} components", lengths[first])
    values = column.flatten()
    if values.null_count:
        first = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // int(lengths[0])
        raise _wrong(file, places[first], "vector", "finite numbers", "null")
    return np.asarray(values).reshape(len(column), -1)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


class _Array(NamedTuple):
    handle: IO[bytes]  # at the first byte behind the header
    shape: tuple[int, ...]
    kind: np.dtype[Any]


def _read_npy(file: VectorFile, rows_of: RowsOf) -> Iterator[Block]:
    """Read a ``.npy`` and the ids beside it, one a line."""
    with file.path.open("rb") as handle:
        yield from _pairs(file, _id_lines(file), _open_array(file, handle, file.path.name), rows_of)


def _read_npz(file: VectorFile, rows_of: RowsOf) -> Iterator[Block]:
    """Read an ``.npz`` with an array of ids and one of vectors, without unpacking it."""
    with zipfile.ZipFile(file.path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        ids, vectors = (_column(file, names, (*choices, f"{choices[0]}s")) for choices in (IDS, VECTORS))
        with archive.open(f"{ids}.npy") as id_handle, archive.open(f"{vectors}.npy") as handle:
            listed = _open_array(file, id_handle, ids)
            if len(listed.shape) != 1 or listed.kind.kind not in "iuUS":
                raise InputError(
                    f"{ids} of {file.path} must be a list of text or integers, got shape {listed.shape} and type "
                    f"{listed.kind}",
                    "Save it as np.array(ids, str)",
                )
            texts = (str(name) for block in _blocks(file, listed) for name in block.astype(str))
            yield from _pairs(file, texts, _open_array(file, handle, vectors), rows_of)


def _id_lines(file: VectorFile) -> Iterator[str]:
    with (file.ids or file.path).open(encoding="utf-8") as lines:
        try:
            for place, line in enumerate(lines, 1):
                if not line.strip():
                    raise InputError(f"{file.ids}:{place} must be an id, got an empty line", "Write one id a line")
                yield line.strip()
        except UnicodeDecodeError as error:
            raise CorruptError(f"{file.ids} must be UTF-8, got {error}", _AGAIN) from error


def _open_array(file: VectorFile, handle: IO[bytes], name: str) -> _Array:
    """Read the header of an array."""
    try:
        version = np.lib.format.read_magic(handle)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, kind = header(handle)
    except (ValueError, RecursionError, MemoryError, TokenError) as error:
        raise CorruptError(f"{name} of {file.path} must be an array of NumPy ({error})", _AGAIN) from error
    if kind.hasobject:
        raise InputError(f"{name} of {file.path} must hold plain values, got Python objects", "Save without pickle")
    if fortran and len(shape) > 1:
        raise InputError(f"{name} of {file.path} must be in C order, got Fortran order", "np.ascontiguousarray(array)")
    width = kind.itemsize * math.prod(shape[1:])
    if min(shape, default=1) < 0 or (0 not in shape and not 0 < width <= BLOCK_BYTES):
        raise CorruptError(
            f"{name} of {file.path} must have rows of 1 to {BLOCK_BYTES:,} bytes, got shape {shape} and type {kind}",
            _AGAIN,
        )
    return _Array(handle, shape, kind)


def _blocks(file: VectorFile, array: _Array) -> Iterator[npt.NDArray[Any]]:
    """Yield an array some rows at a time, read-only."""
    width = array.kind.itemsize * math.prod(array.shape[1:])
    rows = max(1, BLOCK_BYTES // max(width, 1))
    for start in range(0, array.shape[0], rows):
        count = min(rows, array.shape[0] - start)
        data = array.handle.read(count * width)
        if len(data) < count * width:
            raise CorruptError(f"{file.path} must hold {array.shape[0]:,} rows, got fewer: it is truncated")
        yield np.frombuffer(data, array.kind).reshape(count, *array.shape[1:])


def _pairs(file: VectorFile, ids: Iterator[str], array: _Array, rows_of: RowsOf) -> Iterator[Block]:
    """Yield the vectors of an array with ids beside it."""
    if len(array.shape) != 2 or not array.shape[1] or array.kind.kind not in "fiu":
        raise InputError(
            f"the vectors of {file.path} must be a matrix of numbers, got shape {array.shape} and type {array.kind}",
            "Save float32 [papers, dimension]",
        )
    if not array.shape[0]:
        raise CorruptError(f"{file.path} must hold vectors, got none")
    start = named = 0
    for block in _blocks(file, array):
        texts = pa.array(itertools.islice(ids, len(block)), pa.large_string())
        named += len(texts)
        if len(texts) < len(block):
            break
        places = np.arange(start + 1, start + 1 + len(block))
        rows = rows_of(texts)
        yield _block(file, places, texts, rows, block[rows >= 0])
        start += len(block)
    if (named := named + sum(1 for _ in ids)) != array.shape[0]:
        raise InputError(
            f"{file.path} must have as many ids as vectors, got {named:,} and {array.shape[0]:,}", "Write the ids again"
        )


def _block(
    file: VectorFile, places: Places, ids: pa.Array, rows: npt.NDArray[np.int64], vectors: npt.NDArray[Any]
) -> Block:
    """Return the vectors of the ids that have a row, after checking them; ``places`` and ``rows`` are of all ids."""
    wanted, unknown = rows >= 0, np.flatnonzero(rows < 0)
    rows, places = rows[wanted], places[wanted]
    with np.errstate(over="ignore"):
        matrix: Matrix = vectors.astype(np.float32)
    wrong = ~np.isfinite(matrix)
    if wrong.any():
        row, column = (int(axis[0]) for axis in np.nonzero(wrong))
        raise _wrong(file, places[row], "vector", "finite float32 numbers", vectors[row, column])
    first = ids[int(unknown[0])].as_py() if len(unknown) else None
    return Block(rows, places, matrix, len(ids), first, Counter())


def _wrong(file: VectorFile, place: int, what: str, expected: str, got: object) -> InputError:
    return InputError(
        f"the {what} at {file.path}:{place} must be {expected}, got {got}", "Correct it, or remove it from the file"
    )


_READERS = {
    **dict.fromkeys(_LINES, _read_lines),
    **dict.fromkeys(_COLUMNS, _read_columns),
    ".npy": _read_npy,
    ".npz": _read_npz,
}
