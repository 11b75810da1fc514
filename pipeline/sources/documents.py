"""Records of JSON: a record a line, or lists of records."""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.core.errors import CorruptError, InputError
from pipeline.sources.content import BLOCK_BYTES, MAX_LINE, checked, read_blocks, split_lines, up_to

_DOCUMENT = re.compile(rb'\s*(\[\s*[\[{n\]]|\{\s*\n\s*")')
_GAP = re.compile(r"[\s,\[\]]*")


def read_json(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number, JSON text) of the records of JSON lines, or of lists of records.

    As :func:`pipeline.sources.content.read_lines`.

    Raises:
        InputError: the file is another kind of text.
        CorruptError: a list breaks off, or has what is not JSON; the file is truncated or damaged.
    """
    head, blocks = checked(path, "JSON", read_blocks(path))
    return _split_document(path, blocks) if _DOCUMENT.match(head) else split_lines(blocks)


def first_record(path: Path) -> dict[str, Any]:
    """Return the first object of JSON lines or a list; an empty one if the file is something else."""
    try:
        values = (json.loads(text or b"") for _, text in itertools.islice(read_json(path), 100))
        return next((value for value in values if isinstance(value, dict)), {})
    except (InputError, ValueError, RecursionError):
        return {}  # the reader of the records says what is wrong


def lines_command(path: Path, record: Any, depth: int = 3) -> str:
    """Return the command that writes the records within an answer of an API a line each; empty if there are none."""

    def place(value: Any, depth: int) -> str | None:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "[]"
        items = value.items() if isinstance(value, dict) and depth else ()
        within = ((name, place(inner, depth - 1)) for name, inner in items)
        return next((f".{name}{rest}" for name, rest in within if rest), None)

    found = place(record, depth)
    reader = f"gunzip -c {path.name} | jq" if path.suffix == ".gz" else "jq"
    return f"{reader} -c '{found}'{'' if path.suffix == '.gz' else f' {path.name}'} > lines.jsonl" if found else ""


def _split_document(path: Path, blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, JSON text) of the values in lists, nested ones too, or one after the other."""
    decode = json.JSONDecoder().raw_decode
    utf8 = codecs.getincrementaldecoder("utf-8")("surrogateescape")  # bad bytes are those of one record
    text, position, line, depth, ended = "", 0, 1, 0, False
    while True:
        start = _GAP.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty text
        depth += text.count("[", position, start) - text.count("]", position, start)
        line += text.count("\n", position, start)
        try:
            position = decode(text, start)[1]
        except (ValueError, RecursionError):
            position = start
        if not ended and position in (start, len(text)) and len(text) - start <= MAX_LINE:
            wanted = max(BLOCK_BYTES, len(text) - start)  # doubles, so that a long value is not read often
            read = b"".join(up_to(blocks, wanted))
            ended = not read
            text, position = text[start:] + utf8.decode(read, final=ended), 0
            continue
        if position == start:
            if start == len(text) and depth <= 0:
                return
            found = f"it has {text[start : start + 40]!r}" if start < len(text) else "it breaks off"
            what = f"{path}:{line} is not complete JSON: {found}"
            raise CorruptError(what, "Correct it, or write a record a line")
        yield line, text[start:position].encode("utf-8", "surrogateescape")
        line += text.count("\n", start, position)
