"""Compiled kernels of the citation graph: a hash join of keys, and the transpose of a graph in CSR form."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.core.compiled import Ints, Keys, compiled, signed

NOWHERE = np.uint32(0xFFFF_FFFF)
"""Row of a reference to nothing."""

SLOT_BYTES = 24
"""Bytes of a join table for each key in it: 16 a slot, three slots for two keys."""

Rows = npt.NDArray[np.uint32]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@compiled
def _slot(key: np.uint64, slots: np.uint64) -> int:
    mixed = (key ^ key >> np.uint64(32)) * _GOLDEN
    return signed((mixed >> np.uint64(32)) * slots >> np.uint64(32))


@compiled
def fill_table(keys: Keys, first_row: int, table: Keys) -> int:
    """Put keys and their rows into a table of open addressing, and return -1, or the place of a key that is there.

    Args:
        keys: uint64 ``[n]``, of the rows from ``first_row`` on.
        first_row: at least 0.
        table: uint64 ``[2 * slots]``, zeros: in each slot a key and its row plus 1. More slots than keys.
    """
    slots = np.uint64(len(table) // 2)
    for place in range(len(keys)):
        slot = _slot(keys[place], slots)
        while table[2 * slot + 1]:
            if table[2 * slot] == keys[place]:
                return place
            slot += 1
            if slot == signed(slots):
                slot = 0
        table[2 * slot] = keys[place]
        table[2 * slot + 1] = first_row + place + 1
    return -1


@compiled
def look_up(keys: Keys, table: Keys, rows: Rows) -> int:
    """Set the row of each key that a table holds, leave the others, and return how many it holds."""
    slots = np.uint64(len(table) // 2)
    found = 0
    for place in range(len(keys)):
        slot = _slot(keys[place], slots)
        while table[2 * slot + 1]:
            if table[2 * slot] == keys[place]:
                rows[place] = np.uint32(table[2 * slot + 1] - np.uint64(1))
                found += 1
                break
            slot += 1
            if slot == signed(slots):
                slot = 0
    return found


@compiled
def compact(rows: Rows, listed: npt.NDArray[np.int32], ends: Ints) -> int:
    """Leave of each paper's references those that are somewhere, rising, and return how many there are.

    Args:
        rows: uint32, row of each reference or :data:`NOWHERE`, paper after paper; what is left moves to the front.
        listed: int32 ``[papers]``, references each paper lists.
        ends: int64 ``[papers]``, set to where each paper's end.
    """
    kept = start = 0
    for paper in range(len(listed)):
        first = kept
        for place in range(start, start + listed[paper]):
            row = rows[place]
            if row == NOWHERE:
                continue
            before = kept
            while before > first and rows[before - 1] > row:
                rows[before] = rows[before - 1]
                before -= 1
            rows[before] = row
            kept += 1
        start += listed[paper]
        ends[paper] = kept
    return kept


@compiled
def count_targets(rows: Rows, first: int, counts: Ints, shift: int) -> None:
    """Count how often rows from ``first`` on occur, ``2**shift`` of them together."""
    for place in range(len(rows)):
        target = (signed(rows[place]) - first) >> shift
        if 0 <= target < len(counts):
            counts[target] += 1


@compiled
def transpose(ends: Ints, rows: Rows, source: int, first: int, cursors: Ints, sources: Rows) -> None:
    """Write the sources of edges behind those their targets have.

    Args:
        ends: int64 ``[papers + 1]``, where in ``rows`` the targets of each paper begin.
        rows: uint32, targets.
        source: row of the first paper.
        first: row of the first target that is wanted.
        cursors: int64, where the next source of each wanted target goes; raised.
        sources: uint32, written.
    """
    for paper in range(len(ends) - 1):
        for place in range(ends[paper], ends[paper + 1]):
            target = signed(rows[place]) - first
            if 0 <= target < len(cursors):
                sources[cursors[target]] = source + paper
                cursors[target] += 1
