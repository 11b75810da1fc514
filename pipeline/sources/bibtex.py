"""Entries of BibTeX files."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

from pipeline.core.markup import plain_latex
from pipeline.sources.content import read_text
from pipeline.sources.records import Tally
from pipeline.sources.tables import NOT_UTF8

_ENCLOSED = re.compile(r'\A(?:\{(.*)\}|"(.*)")\Z', re.DOTALL)


def read_bibtex(tally: Tally) -> Iterator[dict[str, Any]]:
    """Yield the entries of a BibTeX file as plain texts by field; ``paper_id`` is the key of an entry.

    LaTeX becomes plain text, ``date`` is the year of entries without ``year``, and ``crossref`` is ignored. The file is
    held in memory. Entries that cannot be parsed are dropped.
    """
    from bibtexparser.entrypoint import parse_string
    from bibtexparser.model import DuplicateBlockKeyBlock, DuplicateFieldKeyBlock, Entry, ParsingFailedBlock

    logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # what it logs is counted here
    blocks = read_text(tally.path, "BibTeX")
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
        if NOT_UTF8.search(block.raw or ""):
            tally.drop("bad_utf8", (block.raw or "").encode("utf-8", "surrogateescape"))
            continue
        values = {field.key.lower(): str(field.value) for field in reversed(block.fields)}
        values = {name: text if name in ("doi", "url") else plain_latex(text) for name, text in values.items()}
        yield {"year": values.get("date"), **values, "paper_id": block.key}
