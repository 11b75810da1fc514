"""Authors of papers, and the keys by which two papers share one."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.core.text import id_keys, same_title_form, title_keys

RESOLUTIONS = ("id", "initial", "full")
"""What tells authors apart: the ``id`` in the release; first ``initial`` and last name, which takes several people for
one (Milojević 2013, https://doi.org/10.1016/j.joi.2013.06.006); the ``full`` name as it is written, which takes one for
several. Case, accents and punctuation do not count."""


Authored = tuple[str, Sequence[tuple[str, str]]]
"""Id of a paper, and name (``Ada B. Lovelace`` or ``Lovelace, Ada B.``) and id of its authors, empty if unknown."""


def author_rows(papers: Sequence[Authored], place: int = 0) -> pa.Table:
    """Return a row for each author of papers, and one for a paper without any.

    Returns:
        ``place`` of the paper, from ``place`` on; its :func:`pipeline.core.text.id_keys`; and the author's key
        by each of :data:`RESOLUTIONS`, 0 if unknown.
    """
    of = [list(authors) or [("", "")] for _, authors in papers]
    people, lengths = [author for authors in of for author in authors], [len(authors) for authors in of]
    names, ids = [_parts(name) for name, _ in people], [author_id for _, author_id in people]
    return pa.table(
        {
            "place": np.repeat(np.arange(place, place + len(papers)), lengths),
            "key": np.repeat(id_keys([paper for paper, _ in papers]), lengths),
            "id": np.where(np.array(ids, object) == "", 0, id_keys(ids)).astype(np.uint64),
            "initial": title_keys([given[:1] + last for given, last in names]),
            "full": title_keys([given + last for given, last in names]),
        }
    )


def _parts(name: str) -> tuple[str, str]:
    """Return given and last name without accents, case and punctuation."""
    last, comma, given = name.partition(",")
    if not comma:
        given, _, last = last.strip().rpartition(" ")
    return _form(given), _form(last)


def _form(name: str) -> str:
    """Return a name without accents, case and punctuation."""
    letters = name if name.isascii() else unicodedata.normalize("NFKD", name)
    return same_title_form("".join(letter for letter in letters if not unicodedata.combining(letter)))
