"""Citation contexts as queries: JSON lines with ``context``, ``cited`` (an id or several), ``year`` and ``citing``.

CiteRAG, unarXive and the contexts of Semantic Scholar are easy to convert. Without an ``id``, a context has the id of
its citing paper with the line number.
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
    """Citation contexts; ``origins`` has the id of each citing paper, empty if unknown, and the year."""

    origins: tuple[tuple[str, int], ...] = ()


def read_contexts(path: Path, max_text: int) -> ContextSet:
    """Return the contexts of a file: the first of several with the same id, without citations of the citing paper.

    Raises:
        InputError: the file has no context.
    """
    tally, contexts = Tally(path, max_text), dict[str, tuple[str, list[str], tuple[str, int]]]()
    for line_number, record in read_records(path, _Context, tally):
        text, citing = normalise(tally.cut(record.context)), str(record.citing)
        cited = record.cited if isinstance(record.cited, list) else [record.cited]
        papers = sorted({str(paper) for paper in cited} - {citing, ""})
        context_id = f"{citing}:{line_number}" if record.id is None else str(record.id)
        defects = {"no_context": not text, "no_cited": not papers, "impossible_year": record.year not in YEARS}
        reasons = [reason for reason, holds in {**defects, "context_repeated": context_id in contexts}.items() if holds]
        if reasons:
            tally.drop(reasons[0], line_number, context_id)
        else:
            contexts[context_id] = text, papers, (citing, record.year)
    if not contexts:
        remedy = 'Write lines like {"context": "...", "cited": "id", "year": 2019, "citing": "id"}'
        raise InputError(f"{path} must hold a context, got none", remedy)
    ids = sorted(contexts)
    return ContextSet(
        ids,
        [contexts[context_id][0] for context_id in ids],
        [(context_id, paper, 1) for context_id in ids for paper in contexts[context_id][1]],
        tally.dropped + tally.noted,
        tally.examples,
        origins=tuple(contexts[context_id][2] for context_id in ids),
    )
