"""The text rules: how a title or an abstract is normalised, and when two titles are the same (protocol 1, 2)."""

from __future__ import annotations

import hashlib
import unicodedata

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def normalise(text: str | None) -> str:
    """Return ``text`` in Unicode NFC with each run of white space as one space, stripped; nothing else changes."""
    if not text:
        return ""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())


def same_title_form(title: str) -> str:
    """Return the form in which two titles are compared: NFKC, casefolded, letters and digits only."""
    if not title.isascii():
        title = unicodedata.normalize("NFKC", title)
    return "".join(filter(str.isalnum, title.casefold()))


def title_key(title: str) -> int:
    """Return a 64-bit key of the compared form of a title; 0 where nothing of it remains."""
    form = same_title_form(title)
    if not form:
        return 0
    return int.from_bytes(hashlib.blake2b(form.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") or 1


def id_key(paper_id: str) -> int:
    """Return a 64-bit key of a paper id.

    A canonical decimal id of at most 18 digits is its own key; any other id is a 63-bit BLAKE2b hash with the top bit
    set. Corpus building refuses two ids of one corpus with the same key.
    """
    if len(paper_id) <= 18 and paper_id.isascii() and paper_id.isdecimal() and (paper_id[0] != "0" or paper_id == "0"):
        return int(paper_id)
    hashed = int.from_bytes(
        hashlib.blake2b(paper_id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )
    return hashed | (1 << 63)


def id_keys(paper_ids: list[str] | pa.Array) -> npt.NDArray[np.uint64]:
    """Return :func:`id_key` of each id, uint64 ``[n]``; decimal ids are converted together."""
    ids = pa.array(paper_ids, pa.large_string()) if isinstance(paper_ids, list) else paper_ids
    decimal = pc.match_substring_regex(ids, r"\A(0|[1-9][0-9]{0,17})\z")
    if pc.all(decimal, min_count=0).as_py():
        return np.asarray(pc.cast(ids, pa.uint64()))
    return np.fromiter(map(id_key, ids.to_pylist()), dtype=np.uint64, count=len(ids))
