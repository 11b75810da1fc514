"""Words of the synthetic corpus: common English, and pronounceable words spelled from the bits of a hash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.compiled import compiled, signed

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.floating[Any]]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

LONGEST = 24
"""Bytes a word may take, its ending included."""

_FUNCTION = """
the of and in to a is with for that by this was on are as from we were be at an it which or can has have these
not between been their than also its both but when more all may our into such some during through after other no
only while each there they however under most over about those will if against among then so thus how further
both within without because did do had he her his what where who would should could being
"""
FUNCTION_WORDS = tuple(_FUNCTION.split())
"""Function words by falling frequency."""

_GENERAL = """
results study model data method analysis system time based high two using used new approach different
significant effect effects paper process information number level large low research show shown groups
development function present problem control structure studies proposed factors methods first structures theory
rate response small performance found test increased order non changes values type important case state models
field distribution observed conditions general design properties specific obtained quality potential set use
well three surface evidence terms role systems experimental observations due simple common evaluation measures
given impact determined possible compared several various total including measured relationship parameters
provide average following particular comparison term lower main framework strong local range long key complex
known investigated standard behavior literature reported similar associated error size suggest identified
demonstrated higher multiple application mean current addition variables recent findings increase influence
estimated context previous overall empirical basis direct effective processes considered difference
understanding novel second practice discussed
"""
GENERAL_WORDS = tuple(_GENERAL.split())
"""General academic words by falling frequency; spelled words follow them down the ranks."""

_CLUSTERS = "br ch cr dr gl gr ph pl pr sh st str th tr"
_ONSETS = (*"bcdfghjklmnprstvwz", *_CLUSTERS.split())
_VOWELS = (*"aaaeeeiiiooouu", "io", "ea")
_CODAS = ("", "", "", "n", "n", "r", "r", "l", "m", "t", "x", "nd", "rt", "k", "d", "é")


def _letters(parts: Sequence[str]) -> tuple[Bytes, Bytes]:
    encoded = [part.encode() for part in parts]
    width = max(map(len, encoded))
    table = np.zeros((len(parts), width), np.uint8)
    for number, part in enumerate(encoded):
        table[number, : len(part)] = list(part)
    return table, np.array([len(part) for part in encoded], np.uint8)


_ONSET, _ONSET_LENGTH = _letters(_ONSETS)
_VOWEL, _VOWEL_LENGTH = _letters(_VOWELS)
_CODA, _CODA_LENGTH = _letters(_CODAS)


@compiled
def mix(value: np.uint64) -> np.uint64:
    """Return the SplitMix64 finaliser of ``value``: the random word of a counter."""
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))


@compiled
def below(value: np.uint64, bound: int) -> int:
    """Return a number in ``[0, bound)`` from the upper half of a random word; ``bound`` is under 2**32."""
    return signed(((value >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@compiled
def spell(word: np.uint64, syllables: int, out: Bytes) -> int:
    """Spell the word of hash ``word`` into ``out`` and return its length in bytes (UTF-8, at most 5 a syllable + 2)."""
    at = 0
    bits = word
    for _ in range(syllables):
        onset = bits & np.uint64(31)
        vowel = (bits >> np.uint64(5)) & np.uint64(15)
        bits >>= np.uint64(9)
        for letter in range(_ONSET_LENGTH[onset]):
            out[at] = _ONSET[onset, letter]
            at += 1
        for letter in range(_VOWEL_LENGTH[vowel]):
            out[at] = _VOWEL[vowel, letter]
            at += 1
    coda = bits & np.uint64(15)
    for letter in range(_CODA_LENGTH[coda]):
        out[at] = _CODA[coda, letter]
        at += 1
    return at


class WordTable(NamedTuple):
    """Words as bytes: ``letters`` uint8 ``[words, LONGEST]``, ``length`` uint8 ``[words]``."""

    letters: Bytes
    length: Bytes


def word_table(given: Sequence[str], hashes: npt.NDArray[np.uint64], syllables: npt.NDArray[np.int64]) -> WordTable:
    """Return a table of the ``given`` words, then one word spelled from each hash with as many syllables as it says."""
    count = len(given) + len(hashes)
    letters = np.zeros((count, LONGEST), np.uint8)
    length = np.zeros(count, np.uint8)
    table, lengths = _letters(given)
    letters[: len(given), : table.shape[1]] = table
    length[: len(given)] = lengths
    for number, (word, parts) in enumerate(zip(hashes, syllables, strict=True), start=len(given)):
        length[number] = spell(word, int(parts), letters[number])
    return WordTable(letters, length)


def quantiles(weights: Floats, size: int) -> npt.NDArray[np.uint16]:
    """Return uint16 ``[size]``: item at each quantile, so that a uniform index draws items by their ``weights``."""
    edges = np.cumsum(weights) / weights.sum()
    return np.searchsorted(edges, (np.arange(size) + 0.5) / size).astype(np.uint16)
