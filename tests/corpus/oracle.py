"""The corpus and the pools of S2ORC records by plain Python: slow, and obviously what the protocol says."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from pipeline.core.fields import MAG_FIELDS

Record = dict[str, Any]


def papers_of(records: Iterable[Record]) -> dict[str, Record]:
    """Return the papers by id, the first record of each id, in order of id, with normalised values."""
    papers: dict[str, Record] = {}
    for record in records:
        paper_id, year = record["paper_id"], record["year"]
        paper = {
            "title": _normal(record["title"]),
            "abstract": _normal(record["abstract"]),
            "year": year if year is not None and 1500 <= year <= 2100 else None,
            "fields": sorted(set(record["mag_field_of_study"] or ()) & set(MAG_FIELDS)),
            "out": set(record["outbound_citations"] or ()) - {paper_id},
            "in": set(record["inbound_citations"] or ()) - {paper_id},
        }
        papers.setdefault(paper_id, paper)
    return dict(sorted(papers.items()))


def _normal(text: str | None) -> str:
    return " ".join(unicodedata.normalize("NFC", text or "").split())


def first_drop(paper: Record, direction: str = "outbound") -> str | None:
    """Return the first reason that drops a paper, or None."""
    citations = {"outbound": len(paper["out"]), "inbound": len(paper["in"])}
    citations["total"] = citations["outbound"] + citations["inbound"]
    if paper["year"] is None:
        return "no_year"
    if not paper["title"]:
        return "no_title"
    if len(paper["abstract"]) < 30:
        return "short_abstract"
    return "few_citations" if citations[direction] < 3 else None


def title_form(paper: Record) -> str:
    """Return what two titles are compared by; empty where nothing of a title remains."""
    return "".join(c for c in unicodedata.normalize("NFKC", paper["title"]).casefold() if c.isalnum())


def same_title(one: Record, other: Record) -> bool:
    """Whether two papers have the same normalised title."""
    return title_form(one) == title_form(other) != ""


def positives_of(paper_id: str, papers: dict[str, Record]) -> set[str]:
    """Return the positives of a query under the default settings."""
    query = papers[paper_id]
    cited = {i for i in query["out"] if i in papers and papers[i]["title"]}
    return {i for i in cited if not same_title(query, papers[i])}


def drawable(papers: dict[str, Record], year: int, field: str | None) -> set[str]:
    """Return the papers a pool's candidates are drawn from."""
    if field is None:
        return {i for i, p in papers.items() if first_drop(p) is None and p["year"] <= year}
    cited = {c for p in papers.values() if field in p["fields"] for c in p["out"] if c in papers}
    texts = {i for i in cited if papers[i]["title"] and len(papers[i]["abstract"]) >= 30}
    return {i for i in texts if papers[i]["year"] is not None and papers[i]["year"] <= year}
