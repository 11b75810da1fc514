"""Hostile runs and vectors of other tools: what each is, and what the refusal has to say."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple


class Import(NamedTuple):
    """A file that cannot be imported.

    Attributes:
        name: of the row.
        system: what ``--model`` says, where ``{}`` is the folder.
        make: writes the file.
        said: what the message holds.
    """

    name: str
    system: str
    make: Callable[[Path], object]
    said: str


_DEEP = b"[" * 100_000
_NESTED = b'{"q": ' * 100_000

_RUNS: Mapping[str, tuple[bytes, str]] = {
    "x.json": (_DEEP, "x.json"),
    "objects.json": (_NESTED, "objects.json"),
    "packed.json.gz": (gzip.compress(_DEEP), "packed.json.gz"),
    "surrogate.json": (b'{"q": {"\\ud800": 1.0}}', "surrogate.json"),
    "query.json": (b'{"\\udfff": {"d": 1.0}}', "query.json"),
    "null.json": (b"null", "null.json"),
    "list.json": (b"[1]", "list.json"),
    "text.json": (b'{"q": {"d": "1"}}', "must be a number"),
    "empty.json": (b"", "empty.json"),
    "zeros.trec": (bytes(1000), "zeros.trec"),
    "x.parquet": (b"PAR1PAR1", "x.parquet"),
}

_LINES: Mapping[str, tuple[bytes, str]] = {
    "deep": (b'{"corpusid": "1", "vector": ' + _DEEP + b"}\n", ":1 must be"),
    "deep beside": (b'{"corpusid": "1", "x": ' + _DEEP + b', "vector": [1.0]}\n', ":1 must be"),
    "deep.lines": (_DEEP + b"\n", ":1 must be"),
    "surrogate": (b'{"corpusid": "\\ud800", "vector": [1.0]}\n', ":1 must be"),
    "null": (b"null\n", ":1 must be"),
    "a vector of null": (b'{"corpusid": "p", "vector": null}\n', ""),
}


def _header(text: str) -> bytes:
    """Return a ``.npy`` of version 1 with that header, and 64 bytes of zeros."""
    data = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(data).to_bytes(2, "little") + data + bytes(64)


def _npy(shape: object, kind: object = "<f4", fortran: object = False) -> bytes:
    return _header(repr({"descr": kind, "fortran_order": fortran, "shape": shape}))


_NPY: Mapping[str, tuple[bytes, str]] = {
    "a huge row": (_npy((2, 10**12)), "NumPy (mmap length is greater than file size)"),
    "a row beyond 64 bits": (_npy((2, 2**62)), "NumPy (array is too big"),
    "rows beyond 128 bits": (_npy((2**130, 4)), "NumPy (Python int too large"),
    "many rows": (_npy((10**15, 2)), "NumPy (mmap length is greater than file size)"),
    "a negative dimension": (_npy((-1, 4)), "NumPy (negative dimensions"),
    "a negative row": (_npy((2, -4)), "NumPy (negative dimensions"),
    "no rows": (_npy((0, 4)), "must hold vectors"),
    "no components": (_npy((2, 0)), "matrix of numbers"),
    "no dimension": (_npy(()), "matrix of numbers"),
    "30 dimensions": (_npy((1,) * 30), "matrix of numbers"),
    "a shape of text": (_npy("ab"), "NumPy (shape is not valid"),
    "a shape of floats": (_npy((2.0, 4.0)), "NumPy (shape is not valid"),
    "objects": (_npy((2, 2), "|O"), "Python objects"),
    "text": (_npy((2, 2), "<U4"), "matrix of numbers"),
    "text of no characters": (_npy((2, 2), "<U0"), "x.npy"),
    "complex numbers": (_npy((2, 2), "<c8"), "matrix of numbers"),
    "records": (_npy((2, 2), [("a", "<f4")]), "matrix of numbers"),
    "records in records": (_npy((2, 2), [("a", [("b", "|O")])]), "Python objects"),
    "an order of text": (_npy((2, 2), fortran="yes"), "NumPy (fortran_order is not"),
    "a type that is none": (_npy((2, 2), "nothing"), "NumPy (descr is not"),
    "a type of no parts": (_npy((2, 2), ()), "array of numbers of NumPy"),
    "a header that is no mapping": (_header("[]"), "NumPy (Header is not a dictionary"),
    "a header with code": (_header("__import__('os').system('true')"), "NumPy (malformed node"),
    "a header of signs": (_header("-" * 9_000 + "1"), "NumPy (MemoryError)"),
    "a header of brackets": (_header("(" * 9_000), "EOF in multi-line statement"),
    "a header without end": (b"\x93NUMPY\x01\x00\xff\xff{", "NumPy (EOF: reading array header"),
    "a version of its own": (b"\x93NUMPY\x09\x09" + bytes(100), "NumPy (we only support format version"),
}


def _files(files: Mapping[str, bytes]) -> Callable[[Path], object]:
    return lambda folder: [(folder / name).write_bytes(data) for name, data in files.items()]


def imports() -> Iterator[Import]:
    """Return every row."""
    for name, (data, said) in _RUNS.items():
        yield Import(f"run: {name}", f"run:{{}}/{name}", _files({name: data}), said)
    for name, (data, said) in _LINES.items():
        yield Import(f"vectors: lines, {name}", "vectors:{}/x.jsonl", _files({"x.jsonl": data}), said)
    for name, (data, said) in _NPY.items():
        files = {"x.npy": data, "x.ids.txt": b"1\n2\n"}
        yield Import(f"vectors: npy of {name}", "vectors:{}/x.npy", _files(files), said)
    for system in ("run:{}/x", "vectors:{}/x.npy", "vectors:{}/x.jsonl"):
        name = Path(system).name
        for what, make in {
            "a pipe": os.mkfifo,
            "a link to itself": lambda path: path.symlink_to(path.name),
            "a link to a device": lambda path: path.symlink_to("/dev/zero"),
            "a folder": Path.mkdir,
        }.items():
            if (what, name) != ("a folder", "x.npy") and not (what == "a folder" and name == "x.jsonl"):
                yield Import(
                    f"{system}: {what}", system, lambda folder, make=make, name=name: make(folder / name), name
                )
    yield Import("run: a device", "run:/dev/zero", lambda folder: folder, "/dev/zero")
    yield Import("vectors: a device", "vectors:/dev/zero", lambda folder: folder, "/dev/zero")
