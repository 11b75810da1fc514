"""Citation contexts as queries: JSON lines, each in one of these layouts, which its keys tell.

- Ours: ``context``, ``cited`` (an id or several), ``citing``, ``year`` and, for ids of one's own, ``query_id``.
- ``citations`` of S2AG: ``citingcorpusid``, ``citedcorpusid`` and a list of ``contexts``.

A context without a year has that of its citing paper in the corpus; one without an id has the id of its citing paper
with the line number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.errors import InputError
from pipeline.core.text import normalise
from pipeline.sources.base import QuerySet
from pipeline.sources.options import Options
from pipeline.sources.papers import YEARS
from pipeline.sources.records import Tally, convert_record, read_records


class _Context(msgspec.Struct):
    _: str | None = None  # the first field is strict, the others are not
    context: str = ""
    cited: list[str | int] | str | int | None = None
    year: int | None = None
    citing: str | int = ""
    query_id: str | int | None = None


def read_contexts(path: Path, options: Options, names: Mapping[str, str]) -> QuerySet:
    """Return the contexts of a file: the first of several with the same id, without citations of the citing paper.

    ``names`` are the file's names of :data:`pipeline.sources.base.LINK_COLUMNS`.

    Raises:
        InputError: the file has no context.
    """
    tally, contexts = Tally(path, options), dict[str, tuple[str, list[str], tuple[str, int | None]]]()
    for values in read_records(dict[str, Any], tally):
        found = [convert_record(value, _Context, tally) for value in _contexts_of(values, names, tally.line)]
        if not found:
            tally.drop_expected("no_context")
        for record in found:
            text, citing = normalise(tally.cut(record.context)), str(record.citing)
            cited = record.cited if isinstance(record.cited, list) else [record.cited or ""]
            papers = sorted({str(paper) for paper in cited} - {citing, ""})
            context_id = f"{citing}:{tally.line}" if record.query_id is None else str(record.query_id)
            possible = record.year is None or record.year in YEARS
            defects = {"no_context": not text, "no_cited": not papers, "impossible_year": not possible}
            defects["context_repeated"] = context_id in contexts
            reasons = [reason for reason, holds in defects.items() if holds]
            if reasons:
                tally.drop(reasons[0], context_id)
            else:
                contexts[context_id] = text, papers, (citing, record.year)
    if not contexts:
        remedy = (
            'Write lines like {"context": "...", "cited": "id"}; docs/full_text_contexts.py makes them of full text'
        )
        raise InputError(f"{path} must hold a context, got none", remedy)
    return QuerySet(
        {context_id: text for context_id, (text, _, _) in contexts.items()},
        [(context_id, paper, 1) for context_id, (_, papers, _) in contexts.items() for paper in papers],
        tally.dropped + tally.noted,
        tally.examples,
        origins={context_id: origin for context_id, (_, _, origin) in contexts.items()},
    )


def _contexts_of(record: dict[str, Any], names: Mapping[str, str], line: int) -> Iterator[dict[str, Any]]:
    """Yield the contexts of a record of either layout, as values of :class:`_Context`."""
    year = record.get("year")
    if "citingcorpusid" not in record:
        own = record.get(names["query_id"], record.get("id"))
        linked = {name: record.get(names[name]) for name in ("context", "citing", "cited")}
        yield {**linked, "year": year, "query_id": own}
        return
    citing, contexts = record["citingcorpusid"], record.get("contexts")
    name = record.get("citationid") or f"{citing or ''}:{line}"
    for number, context in enumerate(contexts if isinstance(contexts, list) else [contexts] if contexts else ()):
        edge = {"citing": citing, "cited": record.get("citedcorpusid"), "year": year}
        yield {**edge, "context": context, "query_id": f"{name}:{number}"}
