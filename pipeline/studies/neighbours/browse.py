"""Papers with their neighbours one by one, for the page of the study."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Literal

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode.aspire import split_sentences
from pipeline.scores.page.parts import Mark, TextBrowser, TextEntry, TextTable
from pipeline.studies.neighbours.corpus import TITLE, Members, Rows, drawn
from pipeline.studies.neighbours.operators import CLASSES
from pipeline.studies.neighbours.plan import DEPTHS

SHOWN = 5
"""Papers of each set on the page."""

_MARKS: dict[Mark, str] = {"strike": "deleted", "underline": "inserted", "bold": "moved"}
_COLUMNS = ("system", "rank of the paper", "10 nearest in common")


def browser(readings: list[TextEntry]) -> TextBrowser:
    """Return the part of the page."""
    note = (
        f"{SHOWN} papers drawn from each set, title ¶ abstract. The rank is that of the paper among the originals, "
        "with its neighbour as the query."
    )
    return TextBrowser("What each class changes", ("Set", "Class"), _MARKS, readings, note)


def drawn_papers(artifact: Artifact, papers: int | Literal["all"], seed: int) -> Rows:
    """Return rows of some originals whose neighbours are queries, rising."""
    members = Members.read(artifact)
    rows = np.unique(members.of[members.names != TITLE])
    keys = Corpus(artifact).attributes["key"][rows]
    return np.sort(rows[drawn(keys, SHOWN if papers == "all" else min(SHOWN, papers), seed)])


def readings_of(name: str, artifact: Artifact, originals: Rows, values: pl.DataFrame) -> Iterator[TextEntry]:
    """Yield each neighbour of some papers of a set, with what was deleted, inserted and moved.

    ``values`` are of :func:`values.values_of`, with a column ``system``.
    """
    corpus, members = Corpus(artifact), Members.read(artifact)
    found = {(row, each, system, measure): value for row, each, measure, value, system in values.iter_rows()}
    systems = values["system"].unique(maintain_order=True).to_list()
    for each in CLASSES.values():
        for original in originals.tolist():
            for row in members.rows[(members.of == original) & (members.names == each.name)].tolist():
                lines = []
                for system in systems:
                    rank, common = (found[original, each.name, system, measure] for measure in ("MRR", "AOP-10"))
                    shown = f"{1 / rank:.0f}" if rank else f"over {DEPTHS['neighbours']}"
                    lines.append((system, shown, f"{10 * common:.0f}"))
                before, after = (_text(corpus, place) for place in (original, row))
                spans = [*marked(before.title, after.title), (" ¶ ", ""), *marked(before.abstract, after.abstract)]
                facts = {"category": each.category, "change": each.definition}
                yield TextEntry((name, each.name), before.title, spans, [TextTable("", _COLUMNS, lines)], facts)


def marked(before: str, after: str) -> list[tuple[str, Mark]]:
    """Return a text and its neighbour as one text: what was deleted, inserted and, of whole sentences, moved.

    Inserted spaces do not break lines, so a page shows each.
    """
    old, new = split_sentences(before), split_sentences(after)
    if sorted(old) == sorted(new):
        spans: list[tuple[str, Mark]] = []
        for kind, _, _, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            spans += [(f"{sentence} ", "" if kind == "equal" else "bold") for sentence in new[first:last]]
        return spans
    old, new = (re.findall(r"\s|\w+|[^\w\s]", text) for text in (before, after))
    spans = []
    for kind, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, come = "".join(old[start:end]), "".join(new[first:last])
        if kind == "equal":
            spans.append((come, ""))
        else:
            spans += [(gone, "strike"), (come.replace(" ", "\u00a0") if come.isspace() else come, "underline")]
    return [(text, mark) for text, mark in spans if text]


def _text(corpus: Corpus, row: int) -> Text:
    ((text,),) = corpus.texts(np.array([row]))
    return text
