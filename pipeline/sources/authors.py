"""Authors of papers, and the keys by which two papers share one."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.core.csr import distinct_pairs, offsets_of
from pipeline.core.text import id_keys, same_title_form, title_keys

RESOLUTIONS = ("id", "initial", "full")
"""What tells authors apart: the ``id`` in the release; first ``initial`` and last name, which takes several people for
one (Milojević 2013, https://doi.org/10.1016/j.joi.2013.06.006); the ``full`` name as it is written, which takes one for
several. Case, accents and punctuation do not count."""


class Author(NamedTuple):
    """An author as in a release; what it lacks is empty."""

    given: str
    last: str
    id: str = ""

    @classmethod
    def of(cls, name: str | None, author_id: str = "") -> Author:
        """Return the author of a name such as ``Ada B. Lovelace`` or ``Lovelace, Ada B.``."""
        last, comma, given = (name or "").partition(",")
        if not comma:
            given, _, last = last.strip().rpartition(" ")
        return cls(given, last, author_id)


Authored = tuple[str, Sequence[Author]]
"""Id of a paper, and its authors."""


def author_lists(papers: Sequence[Authored], place: int = 0) -> pa.Table:
    """Return the authors of papers by each resolution.

    Returns:
        A row for each paper: its ``place``, from ``place`` on; ``key`` (:func:`pipeline.core.text.id_keys`); and for
        each of :data:`RESOLUTIONS` the distinct keys of its known authors, list<uint64>.
    """
    owner = np.repeat(np.arange(len(papers)), [len(authors) for _, authors in papers])
    people = [author for _, authors in papers for author in authors]
    names = [(_form(author.given), _form(author.last)) for author in people]
    ids = [author.id for author in people]
    keys = {
        "id": np.where(np.array(ids, object) == "", 0, id_keys(ids)).astype(np.uint64),
        "initial": title_keys([given[:1] + last for given, last in names]),
        "full": title_keys([given + last for given, last in names]),
    }
    places = np.arange(place, place + len(papers))
    columns = {"place": pa.array(places), "key": pa.array(id_keys([paper for paper, _ in papers]))}
    for name in RESOLUTIONS:
        of, distinct = distinct_pairs(owner[keys[name] != 0], keys[name][keys[name] != 0])
        columns[name] = pa.LargeListArray.from_arrays(offsets_of(of, len(papers)), distinct)
    return pa.table(columns)


def _form(name: str) -> str:
    """Return a name without accents, case and punctuation."""
    letters = name if name.isascii() else unicodedata.normalize("NFKD", name)
    return same_title_form("".join(letter for letter in letters if not unicodedata.combining(letter)))
