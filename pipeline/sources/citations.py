"""Citations in a file beside the papers: two columns of ids, in JSON, CSV, TSV or Parquet.

The columns are ``citing`` and ``cited``, by ``--columns`` any other, or ``citingcorpusid`` and ``citedcorpusid``; of
only two columns, whatever their names, the first cites the second. A table of two columns needs no header; there lines
that start with ``#`` are comments. ``cited`` may be a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.errors import InputError
from pipeline.core.text import reference_keys
from pipeline.sources.base import BATCH_EDGES, Citations
from pipeline.sources.content import first_line
from pipeline.sources.records import Tally, convert_record, open_parquet, plain_id, read_columns, read_records
from pipeline.sources.tables import read_table


class _Edge(msgspec.Struct):
    _: str | None = None  # the first field is strict, the ends are not
    citing: str | int | None = None
    cited: list[str | int] | str | int | None = None


def read_citations(path: Path, names: Mapping[str, str]) -> Iterator[Citations]:
    """Yield the citations of a file; ``names`` has the file's names of ``citing`` and ``cited``."""
    tally = Tally(path)
    citing, cited = list[str](), list[str]()
    named = (names["citing"], names["cited"]), ("citingcorpusid", "citedcorpusid")
    for line_number, row in _rows(path, named[0], tally):
        pair = next((pair for pair in named if set(pair) <= row.keys()), (*row,))
        if len(pair) != 2:
            raise InputError(
                f"{path}:{line_number} must have columns {' and '.join(map(repr, named[0]))}, got {', '.join(row)}",
                "Name yours with --columns citing=NAME,cited=NAME",
            )
        edge = convert_record({"citing": row[pair[0]], "cited": row[pair[1]]}, _Edge, tally, line_number)
        of_edge = [plain_id(paper) for paper in (edge.cited if isinstance(edge.cited, list) else [edge.cited])]
        if edge.citing in (None, "") or not any(of_edge):
            tally.drop("null_citing_id" if any(of_edge) else "null_cited_id", line_number, f"{row}")
            continue
        tally.read += 1
        citing.extend([plain_id(edge.citing)] * len(of_edge))
        cited.extend(of_edge)
        if len(citing) >= BATCH_EDGES:
            yield Citations(reference_keys(citing), reference_keys(cited), **tally.counts())
            citing, cited = [], []
    yield Citations(reference_keys(citing), reference_keys(cited), **tally.counts())


def _rows(path: Path, names: tuple[str, str], tally: Tally) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.suffix == ".parquet":
        found = open_parquet(path).schema_arrow.names
        return read_columns(path, [name for name in found if name in names] or found[:3], tally)
    first = first_line(path)
    if first.startswith(("{", "[")):
        return read_records(path, dict[str, Any], tally)
    return read_table(path, tally, header=any(name in first for name in names) or "corpusid" in first)
