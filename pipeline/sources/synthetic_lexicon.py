"""The vocabulary of the synthetic corpus.

A paper's words are function words, general academic words, words of its field, and a few of its own, its
lexicon: concepts around its place in the field (fine ones shared with near papers, coarse ones with a wider
neighbourhood), words it coined itself, and words coined by papers it cites. A concept has several surface forms and a
paper keeps to one: whoever matches words sees a part of the topic, whoever matches topics loses the coined words.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.compiled import compiled, signed
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.rng import priorities
from pipeline.sources.synthetic_layout import Graph, Ints, Keys, lognormal, place, salt
from pipeline.sources.synthetic_words import (
    FUNCTION_WORDS,
    GENERAL_WORDS,
    GOLDEN,
    Bytes,
    WordTable,
    below,
    mix,
    quantiles,
    spell,
    word_table,
)

_GENERAL, FIELD_WORDS = 6_000, 600
"""Words in the general vocabulary, and in that of each field."""

_CONCEPTS = 12
"""Concepts that a topic adds to its field's ring; a coarse concept spans 16 of them."""

_FINE, _COARSE, COINED, _INHERITED = 8, 3, 2, 14
SLOTS = _FINE + _COARSE + COINED + _INHERITED
OWN = _FINE + _COARSE
BORROWED = OWN + COINED

_PICKS = 1 << 16

_PLURAL = ord("s")


class Lexicon(NamedTuple):
    """What the kernels need to write.

    Attributes:
        words: function, general and field words, in this order.
        functions, fields: number of function words; first field word.
        pick_function, pick_general, pick_field: uint16 ``[65536]``, word at each quantile of its kind.
        pick_concept: uint16 ``[256]``, slot at each quantile of a paper's concepts.
        abstract_words, title_words: uint16 ``[1024]``, length in words at each quantile.
        salts: uint64 ``[4]``: concepts, coined words, abstracts, titles.
    """

    words: WordTable
    functions: int
    fields: int
    pick_function: npt.NDArray[np.uint16]
    pick_general: npt.NDArray[np.uint16]
    pick_field: npt.NDArray[np.uint16]
    pick_concept: npt.NDArray[np.uint16]
    abstract_words: npt.NDArray[np.uint16]
    title_words: npt.NDArray[np.uint16]
    salts: Keys


@lru_cache(maxsize=2)
def lexicon(seed: int) -> Lexicon:
    """Return the vocabulary of a seed."""
    spelled = _GENERAL - len(GENERAL_WORDS) + FIELD_WORDS * len(MAG_FIELDS)
    hashes = priorities(np.arange(spelled, dtype=np.uint64), seed, "synthetic/vocabulary")
    syllables = 2 + (hashes >> np.uint64(62) == 0).astype(np.int64)
    functions = 1.0 / (np.arange(len(FUNCTION_WORDS)) + 2.0)
    concepts = np.concatenate([(np.arange(_FINE) + 2.0) ** -0.7, (np.arange(_COARSE) + 3.0) ** -0.7])
    return Lexicon(
        words=word_table([*FUNCTION_WORDS, *GENERAL_WORDS], hashes, syllables),
        functions=len(FUNCTION_WORDS),
        fields=len(FUNCTION_WORDS) + _GENERAL,
        pick_function=quantiles(functions, _PICKS),
        pick_general=quantiles((np.arange(_GENERAL) + 8.0) ** -1.05, _PICKS),
        pick_field=quantiles((np.arange(FIELD_WORDS) + 5.0) ** -0.9, _PICKS),
        pick_concept=quantiles(concepts, 256),
        abstract_words=lognormal(148, 0.45, 18, 700),
        title_words=lognormal(9.5, 0.4, 3, 30),
        salts=np.array([salt(seed, purpose) for purpose in ("concepts", "coined", "abstracts", "titles")]),
    )


@compiled
def _concept(v: Lexicon, field: int, scale: int, index: int, paper: np.uint64, out: Bytes) -> int:
    """Spell the form a paper uses of a concept: its first name, that name's plural, or one of two other names."""
    concept = mix(v.salts[0] + np.uint64(((field * 2 + scale) << 40) + index) * GOLDEN)
    form = mix(concept + paper) >> np.uint64(60)
    name = np.uint64(0) if form < np.uint64(9) else np.uint64(1) if form < np.uint64(13) else np.uint64(2)
    length = spell(mix(concept + name), 3, out)
    if np.uint64(5) <= form < np.uint64(9):
        out[length] = _PLURAL
        length += 1
    return length


@compiled
def _coined(v: Lexicon, row: int, number: int, out: Bytes) -> int:
    """Spell one of the words a paper brought into the world."""
    word = mix(v.salts[1] + np.uint64(row * COINED + number) * GOLDEN)
    return spell(word, 3 + signed(word >> np.uint64(63)), out)


@compiled
def own_words(g: Graph, v: Lexicon, row: int, topic: int, slots: WordTable) -> None:
    """Fill the slots of a paper's concepts and coined words."""
    field = g.topic_field[topic]
    ring = _CONCEPTS * (g.field_topic[field + 1] - g.field_topic[field])
    centre = (_CONCEPTS * place(g, row, topic)) >> 8
    paper = mix(v.salts[0] + np.uint64(row))
    state = paper
    for slot in range(OWN):
        state += GOLDEN
        random = mix(state)
        reach = 6 if slot < _FINE else 3
        offset = below(random, reach + 1) + below(random << np.uint64(32), reach + 1) - reach
        if slot < _FINE:
            length = _concept(v, field, 0, (centre + offset) % ring, paper, slots.letters[slot])
        else:
            length = _concept(v, field, 1, (centre // 16 + offset) % (ring // 16 + 1), paper, slots.letters[slot])
        slots.length[slot] = length
    for number in range(COINED):
        slots.length[OWN + number] = _coined(v, row, number, slots.letters[OWN + number])


@compiled
def borrowed_words(g: Graph, v: Lexicon, row: int, cited: Ints, slots: WordTable) -> int:
    """Fill the slots of words coined by cited papers and return their number."""
    state = mix(v.salts[1] + np.uint64(row) * GOLDEN)
    count = 0
    for target in cited:
        if count == _INHERITED:
            break
        state += GOLDEN
        random = mix(state)
        if target < g.papers and random & np.uint64(7) < np.uint64(5):
            slot = BORROWED + count
            slots.length[slot] = _coined(v, target, below(random, COINED), slots.letters[slot])
            count += 1
    return count
