"""Citations in a file beside the papers: two columns of ids, in JSON, CSV, TSV or Parquet.

The columns are ``citing`` and ``cited``, by ``--columns`` any other, or have names such as :data:`_CITING`; of only two
columns, whatever their names, the first cites the second. A table needs no header; then further columns are left out,
and lines that start with ``#`` are comments. ``cited`` may be a list, and a JSON object may have lists by citing paper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.errors import InputError
from pipeline.core.text import reference_keys
from pipeline.sources.base import BATCH_EDGES, Citations, grouped
from pipeline.sources.content import first_line
from pipeline.sources.records import (
    Tally,
    convert_record,
    open_parquet,
    plain_id,
    read_columns,
    read_records,
    split_ids,
)
from pipeline.sources.tables import read_table


class _Edge(msgspec.Struct):
    _: str | None = None  # the first field is strict, the ends are not
    citing: str | int | None = None
    cited: list[str | int] | str | int | None = None


_CITING, _CITED = (
    ("citing", "source", "src", "from", "citingcorpusid"),
    ("cited", "target", "dst", "to", "citedcorpusid"),
)
"""Words of the names of the columns."""
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


def read_citations(path: Path, names: Mapping[str, str]) -> Iterator[Citations]:
    """Yield the citations of a file; ``names`` has the file's names of ``citing`` and ``cited``."""
    tally = Tally(path)
    return citation_batches(_edges(names, tally), tally)


def citation_batches(edges: Iterable[tuple[str, str]], tally: Tally) -> Iterator[Citations]:
    """Yield citations, pairs of a citing and a cited id, in batches with the counts of ``tally``."""
    for block in grouped(edges, lambda _: 1, BATCH_EDGES):
        citing, cited = zip(*block, strict=True) if block else ((), ())
        yield Citations(reference_keys(citing), reference_keys(cited), **tally.counts())


def _edges(names: Mapping[str, str], tally: Tally) -> Iterator[tuple[str, str]]:
    for row in _rows(names, tally):
        lists = row.items() if row and all(isinstance(value, list) for value in row.values()) else ()
        for one, several in lists or [_ends(row, names, f"{tally.path}:{tally.line}")]:
            edge = convert_record({"citing": one, "cited": several}, _Edge, tally)
            cited = split_ids(edge.cited)
            if edge.citing in (None, "") or not cited:
                tally.drop("null_citing_id" if cited else "null_cited_id", f"{row}")
                continue
            tally.read += 1
            for paper in cited:
                yield plain_id(edge.citing), paper


def _ends(row: dict[str, Any], names: Mapping[str, str], place: str) -> tuple[Any, Any]:
    """Return the citing and the cited ids of a row; InputError if it does not tell which they are."""
    if names["citing"] in row and names["cited"] in row:
        return row[names["citing"]], row[names["cited"]]
    citing, cited = ([name for name in row if _words(name) & {*words}] for words in (_CITING, _CITED))
    pair = (citing + cited) if len(citing) == len(cited) == 1 else [*row]
    if [*row] == [*map(str, range(len(row)))]:  # a table without a header
        pair = pair[:2]
    if len(pair) != 2:
        raise InputError(
            f"{place} must have columns {names['citing']!r} and {names['cited']!r}, got {', '.join(row)}",
            "Name yours with --columns citing=NAME,cited=NAME",
        )
    return row[pair[0]], row[pair[1]]


def _words(name: str) -> set[str]:
    return {*re.split(r"[^a-z]+", name.casefold())}


def _rows(names: Mapping[str, str], tally: Tally) -> Iterator[dict[str, Any]]:
    ends = (names["citing"], names["cited"])
    if tally.path.suffix == ".parquet":
        found = open_parquet(tally.path).schema_arrow.names
        of_words = [name for name in found if name in ends or _words(name) & {*_CITING, *_CITED}]
        return read_columns(of_words if len(of_words) > 1 else found[:3], tally)
    first = first_line(tally.path)
    if first.startswith(("{", "[")):
        return read_records(dict[str, Any], tally)
    cells = re.split(r"[\t,;|]", first)
    is_named = any(cell.strip(' "') in ends or _words(cell) & {*_CITING, *_CITED} for cell in cells)
    has_header = is_named or (len(cells) > 2 and not any(_NUMBER.fullmatch(cell.strip(' "')) for cell in cells))
    return read_table(tally, header=has_header)
