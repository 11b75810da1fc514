"""BM25 in the float32 arithmetic of Lucene 9 (``BM25Similarity``, ``SmallFloat``).

The score of a document is the sum, in float64, of ``w - w / (1 + f n)`` over the terms of the query, rounded to
float32. ``w`` is the frequency of the term in the query times :func:`idf`, ``f`` its frequency in the document, and
``n`` the :func:`inverse_norms` entry of the document's length. All but the sum is float32, in the order written here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_EXACT = 24
"""Lengths below this are stored exactly."""


def length_codes(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the bytes that store lengths in Lucene, uint8 ``[n]``; above 24 they keep four leading bits."""
    above = np.maximum(lengths - _EXACT, 0)
    shift = np.maximum(np.frexp(above.astype(np.float64))[1] - 4, 0)
    mantissa = above >> shift
    codes = np.where(mantissa < 8, mantissa, (shift + 1) * 8 + (mantissa & 7))
    return np.where(lengths < _EXACT, lengths, _EXACT + codes).astype(np.uint8)


def stored_lengths() -> npt.NDArray[np.int64]:
    """Return the length of each byte of :func:`length_codes`, int64 ``[256]``."""
    code = np.maximum(np.arange(256) - _EXACT, 0)
    above = np.where(code < 8, code, ((code & 7) | 8) << np.maximum(code // 8 - 1, 0))
    return np.where(np.arange(256) < _EXACT, np.arange(256), _EXACT + above)


def inverse_norms(k1: float, b: float, average: float) -> Floats:
    """Return the factor of a term frequency for each stored document length, float32 ``[256]``.

    ``average`` is the mean length of the documents that have terms.
    """
    unit, k, share = np.float32(1), np.float32(k1), np.float32(b)
    lengths = stored_lengths().astype(np.float32)
    with np.errstate(divide="ignore"):
        norms: Floats = unit / (k * ((unit - share) + share * lengths / np.float32(average)))
    return norms


def idf(frequencies: npt.NDArray[np.int64], documents: int) -> Floats:
    """Return inverse document frequencies, float32 ``[n]``.

    ``documents`` is the number of documents that have terms.
    """
    weights: Floats = np.log(1 + (documents - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
    return weights
