"""Citation contexts as queries: JSON lines with ``context``, ``cited`` (an id or several), ``year`` and ``citing``.

CiteRAG, unarXive and the contexts of Semantic Scholar are written so in a few lines. An ``id`` names a context;
without one it is the citing paper's, with the number of the line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline.core.errors import InputError
from pipeline.core.text import normalise
from pipeline.sources.base import QuerySet
from pipeline.sources.papers import YEARS
from pipeline.sources.records import Tally, read_records


class _Context(msgspec.Struct):
    context: str
    cited: list[str | int] | str | int
    year: int
    citing: str | int = ""
    id: str | int | None = None


@dataclass(frozen=True)
class ContextSet(QuerySet):
    """Citation contexts; ``asked`` has the id of each one's citing paper, empty for none, and its year."""

    asked: tuple[tuple[str, int], ...] = ()


def read_contexts(path: Path, max_text: int) -> ContextSet:
    """Read a file of contexts; of several with one id the first counts, and nothing cites itself.

    Raises:
        InputError: it holds no context.
    """
    tally, found = Tally(path, max_text), dict[str, tuple[str, list[str], tuple[str, int]]]()
    for number, record in read_records(path, _Context, tally):
        text, citing = normalise(tally.cut(record.context)), str(record.citing)
        cited = record.cited if isinstance(record.cited, list) else [record.cited]
        papers = sorted({str(paper) for paper in cited} - {citing, ""})
        name = f"{citing}:{number}" if record.id is None else str(record.id)
        wrong = {"no_context": not text, "no_cited": not papers, "impossible_year": record.year not in YEARS}
        reasons = [reason for reason, is_so in {**wrong, "context_repeated": name in found}.items() if is_so]
        if reasons:
            tally.drop(reasons[0], number, name)
        else:
            found[name] = text, papers, (citing, record.year)
    if not found:
        remedy = 'Write lines like {"context": "...", "cited": "id", "year": 2019, "citing": "id"}'
        raise InputError(f"{path} must hold a context, got none", remedy)
    ids = sorted(found)
    return ContextSet(
        ids,
        [found[name][0] for name in ids],
        [(name, paper, 1) for name in ids for paper in found[name][1]],
        tally.dropped + tally.noted,
        tally.examples,
        asked=tuple(found[name][2] for name in ids),
    )
