"""Citations in a file beside the papers: two columns of ids, in JSON, CSV, TSV or Parquet.

The columns are ``citing`` and ``cited``, by ``--columns`` any other, or have names with words such as :data:`_CITING`;
of only two columns, whatever their names, the first cites the second. A table without header has two columns, or
columns named by their numbers (``--columns citing=0,cited=2``). A cell is one id. In JSON ``cited`` may be a list, both
may be lists of the same length, and an object may have lists by citing paper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.errors import InputError
from pipeline.core.text import reference_keys
from pipeline.sources.base import BATCH_EDGES, TableBatch, grouped
from pipeline.sources.content import kind_of_text, lines_command
from pipeline.sources.lists import one_id, written_items
from pipeline.sources.records import Tally, convert_record, open_parquet, read_columns, read_records
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


def read_citations(path: Path, names: Mapping[str, str]) -> Iterator[TableBatch]:
    """Yield the citations of a file; ``names`` has the file's names of ``citing`` and ``cited``."""
    tally = Tally(path)
    return citation_batches(_edges(names, tally), tally)


def citation_batches(edges: Iterable[tuple[str, str]], tally: Tally) -> Iterator[TableBatch]:
    """Yield citations, pairs of a citing and a cited id, in batches with the counts of ``tally``."""
    for block in grouped(edges, lambda _: 1, BATCH_EDGES):
        citing, cited = zip(*block, strict=True) if block else ((), ())
        columns = {"citing": reference_keys(citing), "cited": reference_keys(cited)}
        yield TableBatch("citations", columns, **tally.counts())


def _edges(names: Mapping[str, str], tally: Tally) -> Iterator[tuple[str, str]]:
    for row in _rows(names, tally):
        for one, several in _pairs(row, names, tally):
            edge = convert_record({"citing": one, "cited": several}, _Edge, tally)
            cited = _ids(edge.cited)
            if edge.citing in (None, "") or not cited:
                tally.drop("null_citing_id" if cited else "null_cited_id", f"{row}")
                continue
            tally.read += 1
            for paper in cited:
                yield one_id(edge.citing), paper


def _ids(cited: list[str | int] | str | int | None) -> list[str]:
    """Return cited ids: a text is one, but for a list that is written as a text."""
    if isinstance(cited, str) and not isinstance(written := written_items(cited), str):
        return [one_id(item) for item in written]
    return [paper for item in (cited if isinstance(cited, list) else [cited]) if (paper := one_id(item))]


def _pairs(row: dict[str, Any], names: Mapping[str, str], tally: Tally) -> Iterable[tuple[Any, Any]]:
    """Return pairs of a citing id and cited ids of a row: one, or those of lists."""
    place = f"{tally.path}:{tally.line}"
    columns = {name: [*value.values()] if isinstance(value, Mapping) else value for name, value in row.items()}
    if not row or not all(isinstance(value, list) for value in columns.values()):
        citing, cited = _ends(row, names, place)
        return [(row[citing], row.get(cited))]
    if any(isinstance(item, Mapping) for value in columns.values() for item in value[:1]):
        raise InputError(f"{place} must hold ids, got objects", f"Write them a line: {lines_command(tally.path, row)}")
    if not {names["citing"], names["cited"]} <= {*row}:
        return columns.items()
    first, second = (columns[names[end]] for end in ("citing", "cited"))
    if len(first) != len(second):
        what = f"{place} must have as many citing as cited ids, got {len(first):,} and {len(second):,}"
        raise InputError(what, "Write the file again")
    return zip(first, second, strict=True)


def _ends(row: Mapping[str, Any], names: Mapping[str, str], place: str) -> tuple[str, str]:
    """Return the names of the columns of the citing and the cited id; InputError if a row does not tell them."""
    found = _named_ends([*row], names)
    if found:
        return found
    is_table = [*row] == [*map(str, range(len(row)))]  # without header
    pair = [*row]
    if is_table and not any(cell for cell in [*row.values()][2:]):
        pair = ["0", "1"]
    if len(pair) == 2:
        return pair[0], pair[1]
    got = " ".join(map(str, row.values())) if is_table else ", ".join(row)
    remedy = "citing=0,cited=1, by their numbers" if is_table else "citing=NAME,cited=NAME"
    raise InputError(
        f"{place} must have two columns, or columns {names['citing']!r} and {names['cited']!r}, got {got!r:.90}",
        f"Name the columns of a table with --columns {remedy}; write neighbours of a paper a pair a line",
    )


def _named_ends(found: Sequence[str], names: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the columns that are named as ``names`` says, else those with a word of an end; None without both."""
    if names["citing"] in found and names["cited"] in found:
        return names["citing"], names["cited"]
    citing, cited = ([name for name in found if _words(name) & {*words}] for words in (_CITING, _CITED))
    return (citing[0], cited[0]) if len(citing) == len(cited) == 1 and citing != cited else None


def _words(name: str) -> set[str]:
    return {*re.split(r"[^a-z]+", name.casefold())}


def _rows(names: Mapping[str, str], tally: Tally) -> Iterator[dict[str, Any]]:
    if tally.path.suffix == ".parquet":
        found = open_parquet(tally.path).schema_arrow.names
        return read_columns([*(_named_ends(found, names) or found[:3])], tally)
    if kind_of_text(tally.path) == "JSON":
        return read_records(dict[str, Any], tally)
    by_number = names["citing"].isdigit() and names["cited"].isdigit()
    return read_table(tally, None if by_number else lambda row: _named_ends(row, names) is not None, header=False)
