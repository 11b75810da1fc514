"""Hostile rows about numbers, size, nesting, servers and what a terminal is shown."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable

from tests.faults.hostile import Input, line
from tests.releases import s2orc_record

_EMPTY = gzip.compress(b"", mtime=0)
_ONE, _OTHER = (gzip.compress(line(s2orc_record(number))) for number in "12")

# Members of a gzip file: what is counted.
MEMBERS: dict[str, bytes] = {
    "an empty member first": _EMPTY + _ONE,
    "empty members between": _ONE + _EMPTY * 2 + _OTHER,
    "an empty member last": _ONE + _OTHER + _EMPTY,
    "100,000 empty members": _ONE + _EMPTY * 100_000 + _OTHER,
}

# Records of JSON lines, and what is counted of each.
RECORDS: dict[str, tuple[bytes, dict[str, int]]] = {
    "a year in other digits": (line({"paper_id": "3", "year": "٢٠١٩"}), {"wrong_type": 1}),
    "a year with an underscore": (line({"paper_id": "3", "year": "2_019"}), {"wrong_type": 1}),
    "a lone surrogate": (line({"paper_id": "3", "title": "\ud800", "\udfff": 1}), {}),
    "deep nesting in an unknown field": (
        b'{"paper_id": "3", "x": ' + b"[" * 9_000 + b"]" * 9_000 + b"}\n",
        {"bad_json": 1},
    ),
}

_TERMINAL = "\x1b[31m\x00\u202e"

# Commands with an address, and what the refusal has to say; no later attempt is waited for.
ADDRESSES: list[tuple[str, str]] = [
    ("fetch s2ag --endpoint http://user:secret@no-such-host.invalid", "no address is known"),
    ("fetch openalex --endpoint http://no-such-host.invalid", "no address is known"),
    ("fetch openalex --endpoint ftp://user:secret@host", "address of HTTP"),
    ("fetch openalex --endpoint host", "address of HTTP"),
]

# Runs by name and content, and what the refusal has to say.
RUNS: dict[str, tuple[bytes, str]] = {
    "underscore.run": (b"q Q0 d 1 1_0 x\n", "underscore.run:1"),
    "digits.run": ("q Q0 d 1 ١ x\n".encode(), "digits.run:1"),
    "deep.json": (b'{"q": ' + b"[" * 100_000, "deep.json"),
    "surrogate.json": (b'{"q": {"\\udfff": 1}}', "surrogate.json"),
    "bomb.json.gz": (gzip.compress(b'{"q": {' + b'"d": 1, ' * 4_000_000, 1), "needs more than 512 MiB"),
    "bomb.run.gz": (gzip.compress(b"q Q0 d 1 1 x".ljust(999) + b"\n", 1) * 70_000, "needs more than 512 MiB"),
}


def inputs() -> Iterable[Input]:
    """Return the rows that are releases."""
    for name, data in MEMBERS.items():
        yield Input(f"gzip: {name}", "s2orc2020", {"metadata_0.jsonl.gz": data}, {})
    first = line({"paper_id": "1", "title": "A"})
    for name, (record, counted) in RECORDS.items():
        yield Input(f"jsonl: {name}", "jsonl", {"a.jsonl": first + record}, counted)


def shown() -> bytes:
    """Return JSON lines whose every text would act on a terminal."""
    return b"".join(
        json.dumps({"paper_id": f"{n}{_TERMINAL}", "title": f"T{_TERMINAL}", "fields": [f"F\n{_TERMINAL}"]}).encode()
        + b"\n"
        for n in range(3)
    )
