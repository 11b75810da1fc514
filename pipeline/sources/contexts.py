"""Citation contexts as queries: JSON lines, each in one of these layouts, which its keys tell.

- Ours: ``context``, ``cited`` (an id or several), ``citing``, ``year`` and, for ids of one's own, ``query_id``.
- ``citations`` of S2AG: ``citingcorpusid``, ``citedcorpusid`` and a list of ``contexts``.
- Full text of S2ORC (2020: ``body_text`` and ``bib_entries``; later: ``content``, or ``body`` and ``bibliography``) and
  unarXive. A sentence with citations is a context of all papers it cites. Of the ids that unarXive has for a paper, the
  one named by ``cited`` in ``--columns`` counts, else the first of :data:`_IDS`.

A context without a year has that of its citing paper in the corpus; one without an id has the id of its citing paper
with the line number.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.errors import InputError
from pipeline.core.text import normalise
from pipeline.sources.base import QuerySet
from pipeline.sources.options import Options
from pipeline.sources.papers import YEARS
from pipeline.sources.records import Tally, convert_record, read_records

_IDS = ("open_alex_id", "doi", "arxiv_id", "pubmed_id", "pmc_id", "sem_open_alex_id")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!al\.)(?<!Fig\.)(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<!vs\.)\s+(?=[A-Z])")
_MARKER = re.compile(r"\{\{cite:[^}]*\}\}")
_ARXIV_YEAR = re.compile(r"(?:[a-z-]+(?:\.[A-Z]{2})?/)?([0-9]{2})(?:0[1-9]|1[0-2])\.?[0-9]+")


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
        found = [convert_record(value, _Context, tally) for value in _contexts_of(values, names, tally)]
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
        remedy = 'Write lines like {"context": "...", "cited": "id", "year": 2019, "citing": "id"}'
        raise InputError(f"{path} must hold a context, got none", remedy)
    return QuerySet(
        {context_id: text for context_id, (text, _, _) in contexts.items()},
        [(context_id, paper, 1) for context_id, (_, papers, _) in contexts.items() for paper in papers],
        tally.dropped + tally.noted,
        tally.examples,
        origins={context_id: origin for context_id, (_, _, origin) in contexts.items()},
    )


def _contexts_of(record: dict[str, Any], names: Mapping[str, str], tally: Tally) -> Iterator[dict[str, Any]]:
    """Yield the contexts of a record of any layout, as values of :class:`_Context`."""
    year = record.get("year")
    if "citingcorpusid" in record:
        citing, contexts = record["citingcorpusid"], record.get("contexts")
        name = record.get("citationid") or f"{citing or ''}:{tally.line}"
        for number, context in enumerate(contexts if isinstance(contexts, list) else [contexts] if contexts else ()):
            edge = {"citing": citing, "cited": record.get("citedcorpusid"), "year": year}
            yield {**edge, "context": context, "query_id": f"{name}:{number}"}
        return
    paragraphs = _paragraphs(record, names["cited"], tally)
    if paragraphs is None:
        own = record.get(names["query_id"], record.get("id"))
        linked = {name: record.get(names[name]) for name in ("context", "citing", "cited")}
        yield {**linked, "year": year, "query_id": own}
        return
    citing, number = str(record.get("paper_id") or record.get("corpusid") or ""), 0
    if not year and "_source_hash" in record and (of_id := _ARXIV_YEAR.fullmatch(citing)):
        year = int(of_id[1]) + (1900 if of_id[1] > "90" else 2000)
    for text, spans in paragraphs:
        ends = [match.start() for match in _SENTENCE_END.finditer(text)]
        for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
            if cited := sorted({paper for place, paper in spans if start <= place < end and paper}):
                context = {"context": _MARKER.sub("", text[start:end]), "cited": cited, "citing": citing, "year": year}
                yield context | {"query_id": f"{citing or tally.line}:{number}"}
                number += 1


_Paragraph = tuple[str, list[tuple[int, str]]]


def _paragraphs(record: dict[str, Any], wanted: str, tally: Tally) -> list[_Paragraph] | None:
    """Return text and citations (place, cited id) of the paragraphs of full text; None if the record is none."""
    body: Any = record.get("content", record.get("body"))
    if "body_text" in record:
        entries, paragraphs = record.get("bib_entries"), _objects(record["body_text"], "body_text", tally)
    elif isinstance(body, dict):
        listed = _annotations(record.get("bibliography") or body, tally, "bibentry", "bib_entry")
        entries = {str(entry.get("id")): {"link": entry.get("matched_paper_id")} for entry in listed}
        paragraphs = [{"text": body.get("text"), "cite_spans": [*_annotations(body, tally, "bibref", "bib_ref")]}]
    else:
        return None
    ids = {ref: _cited_id(entry, wanted) for ref, entry in entries.items()} if isinstance(entries, dict) else {}
    return [
        (text, _spans(_objects(paragraph.get("cite_spans"), "cite_spans", tally), ids, tally))
        for paragraph in paragraphs
        if isinstance(text := paragraph.get("text"), str)
    ]


def _spans(found: Iterable[dict[str, Any]], ids: Mapping[str, str], tally: Tally) -> list[tuple[int, str]]:
    """Return place and cited id of citations in a text; those without a place are left out."""
    spans = []
    for span in found:
        try:
            spans.append((int(span["start"]), ids.get(str(span.get("ref_id")), "")))
        except (KeyError, TypeError, ValueError):
            tally.odd("start not a number", span)
    return spans


def _annotations(part: Any, tally: Tally, *names: str) -> Iterator[dict[str, Any]]:
    """Yield place and attributes of annotations of S2ORC, which are lists, or lists in texts."""
    annotations = part.get("annotations") if isinstance(part, dict) else None
    if not isinstance(annotations, dict):
        return
    for name in names:
        for annotation in _objects(annotations.get(name), name, tally):
            attributes = annotation.get("attributes")
            yield {**(attributes if isinstance(attributes, dict) else {}), "start": annotation.get("start")}


def _objects(value: Any, name: str, tally: Tally) -> list[dict[str, Any]]:
    """Return the objects of a list, which may be written as text; other items are left out and counted."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(value)
    if not isinstance(value, list):
        if value is not None:
            tally.odd(f"{name} not a list", value)
        return []
    for item in value:
        if not isinstance(item, dict):
            tally.odd(f"null in {name}" if item is None else f"{name} not an object", item)
    return [item for item in value if isinstance(item, dict)]


def _cited_id(entry: Any, wanted: str) -> str:
    """Return the id of a paper in a bibliography: ``link`` of S2ORC, or one of the ``ids`` of unarXive."""
    entry = entry if isinstance(entry, dict) else {}
    ids = entry.get("ids")
    of_ids = ids if isinstance(ids, dict) else {}
    found = next((of_ids[name] for name in ((wanted,) if wanted != "cited" else _IDS) if of_ids.get(name)), "")
    return str(found or entry.get("link") or "").removeprefix("https://openalex.org/")
