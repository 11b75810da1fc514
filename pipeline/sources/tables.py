"""Read rows of flat files: tables of text (CSV, TSV) and BibTeX."""

from __future__ import annotations

import csv
import io
import itertools
import logging
import re
from collections.abc import Iterator
from typing import Any

from pipeline.core.errors import InputError
from pipeline.core.markup import plain_latex
from pipeline.sources.content import MAX_LINE, first_line, read_text
from pipeline.sources.records import Tally

SEPARATORS = "\t,;|"
NULLS = ("NaN", "nan", "NA", "N/A", "<NA>", "NaT", "NULL", "null", "None", "\\N")
"""Cells of pandas, R and databases that stand for a missing value."""
_BEFORE_HEADER = re.compile(r"(?:\s*\n|sep=.\s*\n|#[^,;\t|\n]*\n)*")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")  # what surrogateescape makes of a bad byte
_ENCLOSED = re.compile(r'\A(?:\{(.*)\}|"(.*)")\Z', re.DOTALL)
_OPENS, _CLOSES = re.compile(r'(?m)(^|\t)"'), re.compile(r'(?m)"(\t|\r?$)')


def read_table(tally: Tally, *, header: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the rows of a CSV or TSV file as texts by column.

    The first line tells the separator (tab, comma, semicolon or bar) and, with ``header``, the names of the columns;
    otherwise they are ``0``, ``1`` and so on. Quotes are doubled or escaped, as at the beginning of the file; in a file
    with tabs they may also be text. A row with more cells than columns, or with broken quotes, is dropped; cells that
    it lacks are empty.

    Raises:
        InputError: a column occurs twice; the file is another kind of text.
        CorruptError: the file is truncated or damaged.
    """
    head, blocks = read_text(tally.path, "a table", tally.allow_truncated)
    texts = (block.decode("utf-8", "surrogateescape") if block else '"' for block in blocks)
    lines = itertools.chain.from_iterable(io.StringIO(text, newline="\n") for text in texts)
    sample = head.decode("utf-8", "replace")
    before = len(_BEFORE_HEADER.findall(sample)[0].splitlines()) if header else 0
    first = sample.split("\n")[before] if header else first_line(tally.path)
    separator = max(SEPARATORS + (" " if not header else ""), key=first.count)
    is_quoted = separator != "\t" or 0 < len(_OPENS.findall(sample)) == len(_CLOSES.findall(sample))
    is_escaped = re.search(r'[^\\]\\"', sample) and not re.search(r'[^,;|\t\n]""[^,;|\t\r\n]', sample)
    csv.field_size_limit(MAX_LINE)
    rows = csv.reader(
        itertools.islice(lines, before, None),
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
        escapechar="\\" if is_escaped and is_quoted else None,
        doublequote=not is_escaped,
        skipinitialspace=f'{separator} "' in sample,
        strict=True,
    )
    names = [name.strip() for name in next(rows)] if header else list(map(str, range(first.count(separator) + 1)))
    if twice := {name for name in names if name and names.count(name) > 1}:
        raise InputError(f"{tally.path} must have each column once, got {min(twice)!r} twice", "Rename one of them")
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            tally.line = before + rows.line_num
            tally.drop("bad_columns", str(error))
            continue
        if row is None:
            return
        tally.line = before + rows.line_num
        if not any(row) or (not header and row[0].startswith("#")):
            continue
        text = separator.join(row)
        if _NOT_UTF8.search(text):
            tally.drop("bad_utf8", text.encode("utf-8", "surrogateescape"))
        elif any(row[len(names) :]):
            tally.drop("bad_columns", f"{len(row)} cells, {len(names)} columns")
        else:
            cells = ["" if cell in NULLS else cell for cell in row]
            yield dict(zip(names, [*cells, *[""] * len(names)], strict=False))


def read_bibtex(tally: Tally) -> Iterator[dict[str, Any]]:
    """Yield the entries of a BibTeX file as plain texts by field; ``paper_id`` is the key of an entry.

    LaTeX becomes plain text, ``date`` is the year of entries without ``year``, and ``crossref`` is ignored. The file is
    held in memory. Entries that cannot be parsed are dropped.
    """
    from bibtexparser.entrypoint import parse_string
    from bibtexparser.model import DuplicateBlockKeyBlock, DuplicateFieldKeyBlock, Entry, ParsingFailedBlock

    logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # what it logs is counted here
    _, blocks = read_text(tally.path, "BibTeX", tally.allow_truncated)
    library = parse_string(b"".join(block or b"" for block in blocks).decode("utf-8", "surrogateescape"))
    for block in library.blocks:
        tally.line = (block.start_line or 0) + 1
        if isinstance(block, DuplicateBlockKeyBlock | DuplicateFieldKeyBlock):
            block = block.ignore_error_block  # type: ignore[assignment]  # an entry as it is written
            for field in block.fields if isinstance(block, Entry) else ():
                field.value = _ENCLOSED.sub(r"\1\2", str(field.value))
        if isinstance(block, ParsingFailedBlock):
            tally.drop("bad_bibtex", block.raw or "")
        if not isinstance(block, Entry):
            continue
        if _NOT_UTF8.search(block.raw or ""):
            tally.drop("bad_utf8", (block.raw or "").encode("utf-8", "surrogateescape"))
            continue
        values = {field.key.lower(): str(field.value) for field in reversed(block.fields)}
        values = {name: text if name in ("doi", "url") else plain_latex(text) for name, text in values.items()}
        yield {"year": values.get("date"), **values, "paper_id": block.key}
