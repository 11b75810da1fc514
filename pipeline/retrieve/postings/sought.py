"""The terms of queries, found among those of a block of the store.

Few of the half million terms that a block can have are a query's. A table, by length and a few characters, says of
nearly all others that they are none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.compiled import compiled
from pipeline.retrieve.postings.words import text_bytes

_SLOTS = 16
"""Slots of the table for each term, at least."""


class Sought:
    """Terms to be found.

    Args:
        vocabulary: the terms by number, large strings.
    """

    def __init__(self, vocabulary: pa.Array) -> None:
        self._vocabulary = vocabulary
        self._slots = np.zeros(1 << (_SLOTS * len(vocabulary)).bit_length(), bool)
        _enter(*text_bytes(vocabulary), self._slots)

    def numbers(self, words: pa.Array, kind: type[np.unsignedinteger]) -> npt.NDArray[np.unsignedinteger]:
        """Return the number of each word, ``kind [words]``, as many as there are terms where it is none of them."""
        likely = np.empty(len(words), np.int64)
        likely = likely[: _likely(*text_bytes(words), self._slots, likely)]
        found = pc.fill_null(pc.index_in(words.take(pa.array(likely)), self._vocabulary), len(self._vocabulary))
        numbers = np.full(len(words), len(self._vocabulary), kind)
        numbers[likely] = found.to_numpy(zero_copy_only=False)
        return numbers


@compiled
def _slot(letters: Any, first: Any, last: Any, slots: Any) -> Any:
    """Return the slot of a word by its length and five of its bytes."""
    length = last - first
    key = np.uint64(length)
    if length > 0:
        for at in (first, first + length // 4, first + length // 2, last - 1 - length // 4, last - 1):
            key = key * np.uint64(0x9E3779B97F4A7C15) + np.uint64(letters[at])
        key ^= key >> np.uint64(32)
    return key & np.uint64(len(slots) - 1)


@compiled
def _enter(letters: Any, offsets: Any, slots: Any) -> None:
    for word in range(len(offsets) - 1):
        slots[_slot(letters, offsets[word], offsets[word + 1], slots)] = True


@compiled
def _likely(letters: Any, offsets: Any, slots: Any, likely: Any) -> Any:
    """Write which words may be among those entered; return how many."""
    count: Any = 0
    for word in range(len(offsets) - 1):
        likely[count] = word
        count += np.int64(slots[_slot(letters, offsets[word], offsets[word + 1], slots)])
    return count
