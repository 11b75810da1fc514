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
    return _hash(form) or 1


def doi_key(doi: str) -> int:
    """Return a 64-bit key of a DOI, whatever its case and prefix (``https://doi.org/``, ``doi:``); 0: it is none."""
    form = doi.strip().lower()
    start = form.find("10.")
    if start < 0 or "/" not in form[start:]:
        return 0
    return _hash(form[start:]) or 1


_MANY = 30_000
"""Strings from which on loading compiled code is worth it."""

_DECIMAL = r"\A(0|[1-9][0-9]{0,17})\z"
_LETTERED = r"\A[A-Za-z](0|[1-9][0-9]{0,15})\z"


def id_key(paper_id: str) -> int:
    """Return a 64-bit key of a paper id.

    A canonical decimal id of at most 18 digits (S2ORC, S2AG) is its own key. One letter before at most 16 digits
    (OpenAlex) gives bit 62, the letter in the six bits below it, and the number: exact too. Any other id is a 63-bit
    BLAKE2b hash with the top bit set. Corpus building refuses two ids of one corpus with the same key.
    """
    if _canonical(paper_id, 18):
        return int(paper_id)
    if _canonical(paper_id[1:], 16) and paper_id[0].isascii() and paper_id[0].isalpha():
        return 1 << 62 | (ord(paper_id[0]) - 64) << 56 | int(paper_id[1:])
    return _hash(paper_id) | 1 << 63


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _canonical(digits: str, most: int) -> bool:
    return 0 < len(digits) <= most and digits.isascii() and digits.isdecimal() and (digits[0] != "0" or digits == "0")


def id_keys(paper_ids: list[str] | pa.Array) -> npt.NDArray[np.uint64]:
    """Return :func:`id_key` of each id, uint64 ``[n]``; ids with a number in them are converted together."""
    ids = pa.array(paper_ids, pa.large_string()) if isinstance(paper_ids, list) else paper_ids
    if pc.all(pc.match_substring_regex(ids, _DECIMAL), min_count=0).as_py():
        return np.asarray(pc.cast(ids, pa.uint64()))
    if len(ids) and pc.all(pc.match_substring_regex(ids, _LETTERED)).as_py():
        characters = np.frombuffer(ids.buffers()[2], np.uint8)
        starts = np.frombuffer(ids.buffers()[1], np.int64)[ids.offset : ids.offset + len(ids)]
        letters = characters[starts].astype(np.uint64) - np.uint64(64)
        numbers = np.asarray(pc.cast(pc.utf8_slice_codeunits(ids, 1), pa.uint64()))
        keys: npt.NDArray[np.uint64] = np.uint64(1 << 62) | letters << np.uint64(56) | numbers
        return keys
    if len(ids) >= _MANY:
        from pipeline.core import keykernels

        return keykernels.id_keys(ids)
    return np.fromiter(map(id_key, ids.to_pylist()), dtype=np.uint64, count=len(ids))


def title_keys(titles: pa.LargeStringArray) -> npt.NDArray[np.uint64]:
    """Return :func:`title_key` of each title, uint64 ``[n]``."""
    if len(titles) < _MANY:
        return np.fromiter(map(title_key, titles.to_pylist()), np.uint64, len(titles))
    from pipeline.core import keykernels

    keys, others = keykernels.title_keys(titles)
    keys[others] = np.fromiter(map(title_key, titles.take(others).to_pylist()), np.uint64, len(others))
    return keys
