"""Hostile runs and vectors of other tools: what each is, and what the refusal has to say."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Import(NamedTuple):
    """Files that cannot be imported: what ``--model`` says, with ``{}`` for their folder, and the message."""

    name: str
    system: str
    files: Mapping[str, bytes]
    said: str


_DEEP = b"[" * 100_000

_RUNS: Mapping[str, tuple[bytes, str]] = {
    "packed.json.gz": (gzip.compress(_DEEP), "packed.json.gz"),
    "surrogate.json": (b'{"q": {"\\ud800": 1.0}}', "surrogate.json"),
    "twice.json": (b'{"q": {"d": 1}, "q": {"e": 2}}', "got 'q' twice"),
    "text.json": (b'{"q": {"d": "1"}}', "must be a number"),
    "empty.json": (b"", "empty.json"),
    "zeros.trec": (bytes(1000), "zeros.trec"),
    "underscore.run": (b"q Q0 d 1 1_0 x\n", "underscore.run:1"),
    "digits.run": ("q Q0 d 1 ١ x\n".encode(), "digits.run:1"),
    "x.parquet": (b"PAR1PAR1", "x.parquet"),
    "bomb.json.gz": (gzip.compress(b'{"q": {' + b'"d": 1, ' * 4_000_000, 1), "needs more than 512 MiB"),
    "bomb.run.gz": (gzip.compress(b"q Q0 d 1 1 ".ljust(999, b"x") + b"\n", 1) * 70_000, "needs more than 512 MiB"),
}

_LINES: Mapping[str, tuple[bytes, str]] = {
    "deep": (b'{"corpusid": "1", "vector": ' + _DEEP + b"}\n", ":1 must be"),
    "surrogate": (b'{"corpusid": "\\ud800", "vector": [1.0]}\n', ":1 must be"),
    "null": (b"null\n", ":1 must be"),
    "a vector of null": (b'{"corpusid": "p", "vector": null}\n', ""),
}


def _header(text: str) -> bytes:
    """Return a ``.npy`` of version 1 with that header, and 64 bytes of zeros."""
    data = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(data).to_bytes(2, "little") + data + bytes(64)


def _npy(shape: object, kind: object = "<f4") -> bytes:
    return _header(repr({"descr": kind, "fortran_order": False, "shape": shape}))


_NPY: Mapping[str, tuple[bytes, str]] = {
    "a huge row": (_npy((2, 10**12)), "NumPy (mmap length is greater than file size)"),
    "rows beyond 128 bits": (_npy((2**130, 4)), "NumPy (Python int too large"),
    "no rows": (_npy((0, 4)), "got 2 and 0"),
    "text of no characters": (_npy((2, 2), "<U0"), "x.npy"),
    "records in records": (_npy((2, 2), [("a", [("b", "|O")])]), "Python objects"),
    "a type of no parts": (_npy((2, 2), ()), "array of numbers of NumPy"),
    "a header with code": (_header("__import__('os').system('true')"), "NumPy (malformed node"),
    "a header of signs": (_header("-" * 9_000 + "1"), "NumPy (MemoryError)"),
    "a header of brackets": (_header("(" * 9_000), "EOF in multi-line statement"),
    "a header without end": (b"\x93NUMPY\x01\x00\xff\xff{", "NumPy (EOF: reading array header"),
    "a version of its own": (b"\x93NUMPY\x09\x09" + bytes(100), "NumPy (we only support format version"),
}


def imports() -> Iterator[Import]:
    """Yield every row."""
    for name, (data, said) in _RUNS.items():
        yield Import(f"run: {name}", f"run:{{}}/{name}", {name: data}, said)
    for name, (data, said) in _LINES.items():
        yield Import(f"vectors: lines, {name}", "vectors:{}/x.jsonl", {"x.jsonl": data}, said)
    for name, (data, said) in _NPY.items():
        files = {"x.npy": data, "x.ids.txt": b"1\n2\n"}
        yield Import(f"vectors: npy of {name}", "vectors:{}/x.npy", files, said)
    for system in ("run:/dev/zero", "vectors:/dev/zero"):
        yield Import(system, system, {}, "/dev/zero")
