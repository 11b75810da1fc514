"""Text rules: normalisation of titles and abstracts, equality of titles (protocol 1, 2), keys of ids."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence, Set
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.csr import Keys

_OTHER_SPACES = "".join(space for space in map(chr, range(0x3001)) if space.isspace() and space != " ")
_IRREGULAR_SPACES = rf"[{_OTHER_SPACES}]|  |\A | \z"
_NOT_ALPHANUMERIC = {code: None for code in range(128) if not chr(code).isalnum()}
_LETTERED = r"\A[A-Za-z](0|[1-9][0-9]{0,15})\z"
_DOI = re.compile(r"(?:[a-z:/.]*doi(?:\.org)?[:/]\s*)?(10\.[0-9]+(?:\.[0-9]+)*/\S+)")
_FORMULA = re.compile(r"[=@]|[+-](?![\d.]+\Z)")
_ESCAPED = re.compile(r"[\s%]")

ENCODED = "percent-encoded"
"""Second column of the TREC files that we write, if their ids are escaped (:func:`escape`)."""


def normalise(text: str | None) -> str:
    """Return ``text`` in Unicode NFC, stripped, with runs of white space as one space."""
    if not text:
        return ""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())


class Sentences(str):
    """A text with sentences from its release.

    Attributes:
        given: the sentences, normalised and not empty; the text joins them by spaces.
    """

    given: tuple[str, ...]

    def __new__(cls, given: Iterable[str]) -> Sentences:
        """Join sentences into a text."""
        sentences = tuple(given)
        text = super().__new__(cls, " ".join(sentences))
        text.given = sentences
        return text

    def __getnewargs__(self) -> tuple[Any]:
        return (self.given,)


def one_a_line(sentences: Iterable[str]) -> str:
    """Return the stored form of given sentences: normalised, one a line, without empty ones."""
    return "".join(f"{sentence}\n" for sentence in map(normalise, sentences) if sentence)


def stored_text(text: str) -> str:
    """Return the text of a stored one: :class:`Sentences` if it has lines (:func:`one_a_line`)."""
    return Sentences(text.split("\n")[:-1]) if text.endswith("\n") else text


def stored_texts(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the texts of stored ones, with spaces instead of the line ends of given sentences."""
    if not pc.any(pc.ends_with(texts, "\n")).as_py():
        return texts
    return pc.utf8_rtrim_whitespace(pc.replace_substring(texts, "\n", " "))


def normalise_all(texts: Sequence[str | None], lined: Set[int] = frozenset()) -> pa.LargeStringArray:
    """Return the texts by :func:`normalise`, and those at positions ``lined`` by :func:`one_a_line` of their lines.

    White space is searched in all texts together.
    """
    normalised = ["" if not text else text if text.isascii() else unicodedata.normalize("NFC", text) for text in texts]
    array = pa.array(normalised, pa.large_string())
    irregular = pc.indices_nonzero(pc.match_substring_regex(array, _IRREGULAR_SPACES)).to_pylist()
    if not irregular and not lined:
        return array
    for row in {*irregular, *lined}:
        normalised[row] = one_a_line(normalised[row].split("\n")) if row in lined else " ".join(normalised[row].split())
    return pa.array(normalised, pa.large_string())


def integer(text: str) -> int:
    """Return an integer in ASCII digits, else raise ValueError; ``int`` also accepts ``1_0`` and ``١``."""
    return int(_plain(text))


def number(text: str) -> float:
    """Return a number in ASCII, also ``inf`` and ``nan``; raise ValueError for others."""
    return float(_plain(text))


def _plain(text: str) -> str:
    if "_" in text or not text.isascii():
        raise ValueError(f"{text[:80]!r} is not a number in ASCII digits")
    return text


def printable(text: str) -> str:
    r"""Return text as one line for a terminal or a table, with unprintable characters escaped: ``\x1b``.

    These are control characters (also line ends and NUL), direction marks and other invisible ones, lone surrogates,
    and spaces other than U+0020.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escape(text: str) -> str:
    """Return an id with white space and ``%`` in percent-encoding of their UTF-8 bytes: ``a b`` is ``a%20b``."""
    return _ESCAPED.sub(lambda match: quote(match[0]), text)


def unescape(text: str) -> str:
    """Return the id of an escaped one (:func:`escape`); invalid codes stay."""
    return unquote(text, errors="replace") if "%" in text else text


def csv_cell(text: str) -> str:
    """Return text as a cell of a CSV table: one line, after an apostrophe if a spreadsheet would run it."""
    return "'" * bool(_FORMULA.match(text.lstrip("'"))) + printable(text)


def without_credentials(text: str) -> str:
    """Return text without users and passwords of addresses (``https://user:password@host/``)."""
    return re.sub(r"(?<=://)[^/?#\s]*@", "", text)


def same_title_form(title: str) -> str:
    """Return the form of a title for comparison: NFKC, casefolded, letters and digits only."""
    if title.isascii():
        return title.lower().translate(_NOT_ALPHANUMERIC)
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", title).casefold()))


def title_keys(titles: Sequence[str]) -> Keys:
    """Return 64-bit keys of the compared forms of titles, uint64 ``[n]``; 0 for an empty form."""
    forms = map(same_title_form, titles)
    return np.fromiter(((_hash(form) or 1) if form else 0 for form in forms), np.uint64, len(titles))


def doi_key(doi: str) -> int:
    """Return a 64-bit key of a DOI, independent of case and prefix (``https://doi.org/``); 0 if it is no DOI."""
    form = doi.strip().lower()
    start = form.find("10.")
    if start < 0 or "/" not in form[start:]:
        return 0
    return _hash(form[start:]) or 1


def plain_doi(text: str) -> str:
    """Return a DOI in lower case without prefix (``https://doi.org/``, ``doi:``); an empty text if it is none."""
    found = _DOI.fullmatch(text.strip().lower())
    return found[1] if found else ""


def reference_keys(references: Sequence[str] | pa.Array) -> Keys:
    """Return 64-bit keys of references, uint64 ``[n]``: of a DOI :func:`doi_key` and the top bit, else the id's key."""
    ids = references if isinstance(references, pa.Array) else pa.array(references, pa.large_string())
    if pc.any(pc.match_substring(ids, "/")).as_py():
        ids = pa.array([plain_doi(text) or text for text in ids.to_pylist()], pa.large_string())
    return id_keys(ids)


def id_keys(paper_ids: Sequence[str] | pa.Array) -> Keys:
    """Return 64-bit keys of paper ids, uint64 ``[n]``.

    A canonical decimal id of at most 18 digits (S2ORC, S2AG) is its own key. A letter and at most 16 digits (OpenAlex)
    give bit 62, the letter in the six bits below it, and the number, which is also unique. Other ids give a 63-bit
    BLAKE2b hash and the top bit. Corpus building refuses two ids with the same key.
    """
    ids = paper_ids if isinstance(paper_ids, pa.Array) else pa.array(paper_ids, pa.large_string())
    keys = np.empty(len(ids), np.uint64)
    digits = pc.and_(pc.ascii_is_decimal(ids), pc.less_equal(pc.binary_length(ids), 18))
    decimal = pc.and_(digits, pc.or_(pc.invert(pc.starts_with(ids, "0")), pc.equal(ids, "0")))
    keys[np.asarray(decimal)] = _numbers(ids.filter(decimal))
    remaining = np.flatnonzero(pc.invert(decimal))
    ids = ids.take(remaining)
    lettered = pc.match_substring_regex(ids, _LETTERED)
    with_letter = ids.filter(lettered)
    letters = pc.binary_slice(with_letter.cast(pa.large_binary()), 0, 1)
    codes = np.frombuffer(b"".join(letters.to_pylist()), np.uint8).astype(np.uint64) - np.uint64(64)
    numbers = _numbers(pc.utf8_slice_codeunits(with_letter, 1))
    keys[remaining[np.asarray(lettered)]] = np.uint64(1 << 62) | codes << np.uint64(56) | numbers
    other_ids = pc.invert(lettered)
    keys[remaining[np.asarray(other_ids)]] = [_hash(text) | 1 << 63 for text in ids.filter(other_ids).to_pylist()]
    return keys


def _numbers(digits: pa.LargeStringArray) -> Keys:
    numbers: Keys = np.asarray(pc.cast(digits, pa.uint64()))
    return numbers


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
