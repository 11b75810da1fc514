"""Compact data inside a page: columns of numbers and text in one block, compressed, in base64.

A block is ``{"header": ..., "columns": {name: [kind, start, length]}}`` on one line of JSON, then the columns. Numbers
are little-endian and aligned to 4 bytes; texts are UTF-8, one a line.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.scores.page.parts import Spans, TextBrowser

_KINDS = {"uint8": "Uint8", "uint16": "Uint16", "uint32": "Uint32", "int16": "Int16", "float32": "Float32"}
"""Kinds of numbers, and the JavaScript array of each (its name without ``Array``)."""

Column = Sequence[str] | npt.NDArray[Any]


def pack(header: Any, columns: Mapping[str, Column]) -> str:
    """Return a block as base64; the same input gives the same text."""
    placed: dict[str, tuple[str, int, int]] = {}
    body = bytearray()
    for name, column in columns.items():
        body += bytes(-len(body) % 4)
        if isinstance(column, np.ndarray):
            kind, raw = _KINDS[column.dtype.name], np.ascontiguousarray(column).astype(column.dtype.newbyteorder("<"))
            data = raw.tobytes()
        else:
            kind, data = "text", "\n".join(" ".join(text.split()) for text in column).encode("utf-8", "replace")
        placed[name] = (kind, len(body), len(data))
        body += data
    first = json.dumps({"header": header, "columns": placed}).encode() + b"\n"
    return base64.b64encode(gzip.compress(first + bytes(-len(first) % 4) + body, 6, mtime=0)).decode()


def narrow(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[Any]:
    """Return numbers in 8 or 16 bits if they fit."""
    largest = numbers.max(initial=0)
    return numbers.astype(np.uint8 if largest < 2**8 else np.uint16) if largest < 2**16 else numbers


def pack_texts(part: TextBrowser) -> str:
    """Return a browser of texts as a block; a piece of text that occurs often is stored once."""
    pieces: dict[str, int] = {}

    def numbered(spans: Spans) -> list[tuple[int, str]]:
        return [(pieces.setdefault(text, len(pieces)), mark) for text, mark in spans]

    readings = [
        {
            "chosen": dict(zip(part.choosers, entry.chosen, strict=True)),
            "heading": entry.heading,
            "spans": numbered(entry.spans),
            "listings": [vars(listing) | {"texts": list(map(numbered, listing.texts))} for listing in entry.listings],
            "facts": dict(entry.facts),
        }
        for entry in part.readings
    ]
    header = {"choosers": list(part.choosers), "marks": dict(part.marks), "readings": readings, "pieces": list(pieces)}
    return pack(header, {})
