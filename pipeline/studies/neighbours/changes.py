"""A page that shows what each class changes: papers with their neighbours, deletions and insertions marked."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from html import escape

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.rng import priorities, smallest
from pipeline.corpus.reader import Corpus, Text
from pipeline.studies.neighbours.artifacts import TITLE
from pipeline.studies.neighbours.operators import CLASSES
from pipeline.studies.neighbours.pools import Members

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Textual neighbours</title>
<style>
body {{ font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; white-space: pre-wrap }}
summary {{ cursor: pointer }} details details {{ margin-left: 1.5em }}
del {{ background: #fdd; text-decoration: line-through }} ins {{ background: #dfd; text-decoration: none }}
</style>
<h1>Textual neighbours</h1>{papers}
</html>
"""


def page(corpora: list[Artifact], papers: int, seed: int) -> str:
    """Return an HTML page with some papers of each corpus of neighbours; it needs no script and no other file."""
    return _PAGE.format(papers="".join(_section(corpus, papers, seed) for corpus in corpora))


def marked(before: str, after: str) -> str:
    """Return a text as HTML with what was deleted in ``del`` and what was inserted in ``ins``."""
    old, new = (re.findall(r"\s|\w+|[^\w\s]", text) for text in (before, after))
    pieces = []
    for kind, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, come = escape("".join(old[start:end])), escape("".join(new[first:last]))
        pieces += [come] if kind == "equal" else [f"<del>{gone}</del>" * bool(gone), f"<ins>{come}</ins>" * bool(come)]
    return "".join(pieces)


def _section(artifact: Artifact, papers: int, seed: int) -> str:
    corpus, members = Corpus(artifact), Members.read(artifact)
    changed = np.unique(members.of[members.names != TITLE])
    chosen = changed[smallest(priorities(corpus.attributes["key"][changed], seed, "shown"), papers)]
    shown = [f"<h2>{escape(artifact.manifest.slug)}</h2>"]
    for original in np.sort(chosen).tolist():
        places = np.flatnonzero((members.of == original) & (members.names != TITLE))
        made = {str(members.names[place]): _text(corpus, int(members.rows[place])) for place in places}
        before = _text(corpus, original)
        classes = "".join(_class(name, before, made[name]) for name in CLASSES if name in made)
        shown.append(f"<details><summary>{escape(before.title)}</summary>{classes}</details>")
    return "".join(shown)


def _class(name: str, before: Text, after: Text) -> str:
    about = CLASSES[name]
    changes = " ⏐ ".join(marked(*pair) for pair in zip(before, after, strict=True))
    return f"<details><summary>{name} ({about.category}): {escape(about.definition)}</summary>{changes}</details>"


def _text(corpus: Corpus, row: int) -> Text:
    ((text,),) = corpus.texts(np.array([row]))
    return text
