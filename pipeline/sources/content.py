"""Content of files, by their first bytes: gzip is unpacked, UTF-16 decoded, and what cannot be read is named."""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.core.errors import CorruptError, EmptyFileError, InputError
from pipeline.core.files import given

BLOCK_BYTES = 2**17  # fits in the cache of a core with the records decoded from it
_HEAD_BYTES = 2**12
_GZIP = b"\x1f\x8b"

MAX_LINE = 32 * 2**20
"""Maximum length of a line in bytes; a longer line is None."""
MAX_VALUES = 1_000_000
"""Maximum number of commas and opening brackets of a line: about its values, which take up to 100 bytes each."""

_BIBTEX = "Convert it to BibTeX, which most reference managers export"
_PAGE = "Fetch the file itself: the address gave a page"
_BINARY = rb"ARROW1|FEA1|Obj\x01|ORC|\x89HDF|SQLite format 3|%PDF-|\x80[\x02-\x05]|\x93NUMPY"
_KINDS = [
    (rb"version https://git-lfs", "a Git LFS pointer", "Fetch the file itself: git lfs pull, or hf download"),
    (rb"/annex/objects/", "a pointer of git-annex", "Fetch the file itself with git annex get"),
    (rb"(?is)\s*(<!--.*?-->\s*)*<(!doctype html|html|head|body|title|meta|script)\b", "an HTML page", _PAGE),
    (rb"\s*<(\?xml|[A-Za-z][\w:.-]*(\s[^<>]*)?>\s*<)", "XML", "Convert it to JSON lines, or fetch what it stands for"),
    (rb"(?s).{257}ustar", "a tar archive", "Unpack it with tar -xf"),
    (_GZIP, "gzip in gzip", "Unpack it once with gunzip"),
    (rb"PK\x03\x04", "a ZIP archive", "Unpack it (a spreadsheet: save it as CSV)"),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a file of Excel (.xls)", "Save it as CSV"),
    (rb"BZh[1-9]1AY|\xfd7zXZ\0|\x28\xb5\x2f\xfd", "bzip2, xz or Zstandard", "Unpack it with bunzip2, unxz or unzstd"),
    (rb"\x04\x22\x4d\x18|\x1f\x9d|\xff\x06\0\0sNaPpY|7z\xbc\xaf\x27\x1c|Rar!", "packed", "Unpack it"),
    (rb"PAR1", "Parquet", "Name it .parquet; papers have --source parquet"),
    (_BINARY, "a binary format", "Convert it to Parquet"),
]
"""Patterns of the first bytes of content that is not text, what it is, and what to do."""

_TEXTS = [
    (rb"\s*[{\[]", "JSON", "jsonl"),
    (rb"(?:[%#\s][^\n]*\n)*\s*@\w+\s*[{(]", "BibTeX", "bibtex"),
    (rb"(?:[^\n]*\n){0,9}?\s*TY {1,2}- ", "RIS", _BIBTEX),
    (rb"(?:[^\n]*\n){0,9}?PMID ?- ", "a list of PubMed", _BIBTEX),
    (rb"\s*%[0A-Z] ", "EndNote", _BIBTEX),
    (rb"FN [^\n]*\r?\n(VR|PT) ", "an export of Web of Science", "Export it as BibTeX from Web of Science"),
    (rb"\d*\s*#(\*|index)[^\n]*\n#[\w@!%*]", "a text of AMiner", "Take AMiner's JSON, or write JSON lines"),
    (rb"[^\n{}\[\]]*[^\n{}\[\],;\t|][,;\t|][^\n{}\[\]]*(\n|\Z)", "a table", "csv"),
]
"""The same of texts; a short one is the ``--source`` that reads them as papers."""

_ENCODINGS = {
    rb"\xff\xfe\0\0|\0\0\xfe\xff": "utf-32",
    rb"\xff\xfe|\xfe\xff": "utf-16",
    rb"([^\0]\0){2}": "utf-16-le",
    rb"(\0[^\0]){2}": "utf-16-be",
}
"""Encodings other than UTF-8 by patterns of the first bytes: those of a mark, or of ASCII without a mark."""

_DOCUMENT = re.compile(rb'\s*(\[\s*[\[{n\]]|\{\s*\n\s*"|\{\s*"(meta|results|data|total|offset|next)"\s*:)')
"""The beginning of a list, of an indented object, or of a page of an API, which may have line ends."""
_GAP = re.compile(r"[\s,\[\]]*")


def read_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number from 1, line without its end) of the lines that are not blank, without a byte order mark.

    A line over :data:`MAX_LINE` or :data:`MAX_VALUES` is None. A damaged or truncated file raises CorruptError.
    """
    return split_lines(read_blocks(path))


def read_pairs(
    path: Path, content: str, remedy: str, separator: str | None = None
) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield (line number, two columns) of a table, with white space or ``separator`` between them.

    InputError, which says that a line must be ``content``, if one has another number of columns.
    """
    for line_number, line in read_lines(path):
        columns = (line or b"").decode("utf-8", "replace").rstrip("\r").split(separator)
        if len(columns) != 2 or not all(columns):
            raise InputError(f"{path}:{line_number} must be {content}, got {len(columns)} columns", remedy)
        yield line_number, (columns[0], columns[1])


def read_text(path: Path, expected: str) -> Iterator[bytes | None]:
    """Return the blocks of whole lines of a text, None for a line that is too long (:func:`read_blocks`).

    InputError if the text is of another kind than ``expected``.
    """
    return _line_blocks(checked(path, expected, read_blocks(path))[1])


def refuse_as_parquet(path: Path) -> None:
    """Raise InputError if a file that cannot be read as Parquet is a text, a pointer, a page or an archive."""
    with path.open("rb") as handle:
        is_broken = handle.read(4) in (b"PAR1", b"")
    if not is_broken:
        checked(path, "Parquet", read_blocks(path))


def kind_of_text(path: Path) -> str:
    """Return what kind of text a file is, such as ``JSON`` or ``a table``; empty if unknown."""
    head = peek(read_blocks(path))[0]
    return next((kind for pattern, kind, _ in _TEXTS if re.match(pattern, head)), "")


def checked(path: Path, expected: str, blocks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes and all blocks; InputError if they are of another kind of text than ``expected``."""
    head, blocks = peek(blocks)
    kind, remedy = next(((kind, remedy) for pattern, kind, remedy in _TEXTS if re.match(pattern, head)), (expected, ""))
    if kind != expected:
        if " " not in remedy:
            remedy = f"Convert it to {expected.removeprefix('a ')}; papers: give it with --source {remedy}"
        raise InputError(f"{path} is {kind}, not {expected}", remedy)
    return head, blocks


def split_lines(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number from 1, line without its end) of blocks, as :func:`read_lines`."""
    line_number = 0
    for block in _line_blocks(blocks):
        if block is None:
            line_number += 1
            yield line_number, None
            continue
        for line in block.removesuffix(b"\n").split(b"\n"):
            line_number += 1
            if line and not line.isspace():
                yield line_number, line


def _line_blocks(blocks: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yield blocks of complete lines; None for a line over :data:`MAX_LINE` or :data:`MAX_VALUES`."""
    pending: list[bytes] = []  # start of a line whose end is not read yet; dropped once it is too long
    length = 0
    for block in blocks:
        first_end, last_end = block.find(b"\n"), block.rfind(b"\n") + 1
        if not last_end:
            if length <= MAX_LINE:
                pending.append(block)
            length += len(block)
            continue
        if _too_long(length + first_end, (*pending, block[:first_end])):
            yield None
            if first_end + 1 < last_end:
                yield block[first_end + 1 : last_end]
        else:
            yield b"".join((*pending, memoryview(block)[:last_end]))
        pending, length = [block[last_end:]], len(block) - last_end
    if length:
        yield None if _too_long(length, pending) else b"".join(pending)


def _too_long(length: int, pieces: Sequence[bytes]) -> bool:
    """Return whether a line exceeds :data:`MAX_LINE` or :data:`MAX_VALUES`."""
    if length <= MAX_VALUES or length > MAX_LINE:
        return length > MAX_LINE
    return sum(piece.count(mark) for piece in pieces for mark in (b",", b"[", b"{")) > MAX_VALUES


def up_to(blocks: Iterator[bytes], wanted: int) -> Iterator[bytes]:
    """Yield blocks of about ``wanted`` bytes together."""
    for block in blocks:
        yield block
        wanted -= len(block)
        if wanted <= 0:
            return


def peek(blocks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes, at least :data:`_HEAD_BYTES` if there are as many, and all blocks."""
    head = b"".join(up_to(blocks, _HEAD_BYTES))
    return head, itertools.chain([head] if head else [], blocks)


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in UTF-8 without byte order mark, in blocks of about 128 KiB.

    gzip files, also of several members, are unpacked; UTF-16 and UTF-32 are decoded; lines that end in carriage returns
    alone end in line feeds.

    Raises:
        EmptyFileError: the file has only zero bytes or none.
        CorruptError: it is truncated or damaged.
        InputError: its first bytes are those of an archive, a page, or a binary format.
    """
    with given(path).open("rb") as handle:
        head = handle.read(BLOCK_BYTES)
    if not head.strip(b"\0"):
        raise EmptyFileError(f"{path} holds no data", "Fetch it again")
    is_packed = head.startswith(_GZIP)
    head, blocks = peek(_blocks(path, is_packed))
    for pattern, kind, remedy in _KINDS:
        if re.match(pattern, head.removeprefix(codecs.BOM_UTF8)):
            raise InputError(f"{path} is {kind}", remedy)
    if path.suffix == ".gz" and not is_packed:
        raise CorruptError(f"{path} is not gzip", "If it is plain text, name it without .gz; else fetch it again")
    encoding = next((name for pattern, name in _ENCODINGS.items() if re.match(pattern, head)), None)
    if encoding:
        return _decoded(blocks, encoding)
    if b"\r" in head[:-1] and b"\n" not in head:
        return (block.replace(b"\r", b"\n") for block in blocks)
    return itertools.chain([head.removeprefix(codecs.BOM_UTF8)], itertools.islice(blocks, 1, None))


def _decoded(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for block in blocks:
        yield decoder.decode(block).encode()
    yield decoder.decode(b"", final=True).encode()


def _blocks(path: Path, is_packed: bool) -> Iterator[bytes]:
    from isal import igzip, isal_zlib

    try:
        with igzip.open(path, "rb") if is_packed else path.open("rb") as handle:
            while block := handle.read1(BLOCK_BYTES):
                yield block
    except EOFError as error:
        remedy = f"Fetch it again; gunzip -c {path.name} > OTHER keeps the lines that are there"
        raise CorruptError(f"{path} is a truncated gzip file", remedy) from error
    except (OSError, isal_zlib.error) as error:  # type: ignore[misc]  # an exception class; the stub says otherwise
        raise CorruptError(f"{path} is damaged ({error})", "Fetch it again") from error


def read_json(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number, JSON text) of the records of JSON lines, or of lists of records.

    As :func:`read_lines`.

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
