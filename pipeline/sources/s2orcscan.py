"""Compiled reading of S2ORC metadata: from lines of JSON straight to the columns of a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.blake2b import digest
from pipeline.core.compiled import BLOCK, Bytes, Ints, Keys, compiled, lowest_bit, newline_mask, signed
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.keykernels import id_key
from pipeline.core.schema import NO_YEAR
from pipeline.sources.jsoncopy import copy_keys, copy_text, distinct
from pipeline.sources.jsonscan import UNSURE, key_and_value, plain_end, skip_space, skip_value
from pipeline.sources.rows import YEARS

AT, LINE, ROWS, IDS, TITLES, ABSTRACTS, CITED, LISTED = range(8)
"""What a scan goes by and comes back with: place in the data, number of the line, and how much of each column is
written; :data:`LISTED` counts the references before repeated ones and self-citations are removed."""

DONE, ASK, FULL = range(3)
"""Why a scan stopped: nothing is left; a reader of JSON must look at the line at :data:`AT`; a column has no room."""

KEYS = (
    "paper_id",
    "title",
    "abstract",
    "year",
    "mag_field_of_study",
    "outbound_citations",
    "inbound_citations",
    "doi",
)
_ID, _TITLE, _ABSTRACT, _YEAR, _FIELDS, _OUTBOUND, _INBOUND, _DOI = range(len(KEYS))
_LONGEST_DOI = 512
_FIRST_YEAR, _LAST_YEAR = YEARS.start, YEARS.stop - 1


def _table(words: tuple[str, ...]) -> npt.NDArray[np.uint8]:
    """Return words of ASCII as rows: the length, then the letters."""
    table = np.zeros((len(words), 32), np.uint8)
    for row, word in zip(table, words, strict=True):
        row[0] = len(word)
        row[1 : 1 + len(word)] = list(word.encode())
    return table


_KEY_TABLE = _table(KEYS)
_FIELD_TABLE = _table(MAG_FIELDS)


class Columns(NamedTuple):
    """Columns that are written by a scan, each with room for more.

    Attributes:
        ids: uint8, the ids after each other; ``id_ends`` int64 ``[rows + 1]``, from the second on, where each ends.
        titles: uint8, as the ids, with ``title_ends``.
        abstracts: uint8, as the ids, with ``abstract_ends``.
        cited: uint64, keys of the references, with ``cited_ends``.
        years: int16.
        fields: uint32, masks.
        inbound: int32.
        dois: uint64.
    """

    ids: Bytes
    id_ends: Ints
    titles: Bytes
    title_ends: Ints
    abstracts: Bytes
    abstract_ends: Ints
    cited: Keys
    cited_ends: Ints
    years: npt.NDArray[np.int16]
    fields: npt.NDArray[np.uint32]
    inbound: npt.NDArray[np.int32]
    dois: Keys


class Scratch(NamedTuple):
    """What a scan works with.

    Attributes:
        classes: :func:`pipeline.core.characters.classes`.
        citing: uint64, room for the keys of one record's inbound citations.
        work: uint64 ``[24]``.
        lower: uint8 ``[512]``.
    """

    classes: Bytes
    citing: Keys
    work: Keys
    lower: Bytes


def scratch(classes: Bytes, keys: int) -> Scratch:
    """Return what a scan works with, with room for ``keys`` inbound citations."""
    return Scratch(classes, np.empty(keys, np.uint64), np.empty(24, np.uint64), np.empty(_LONGEST_DOI, np.uint8))


@compiled
def _which(table: npt.NDArray[np.uint8], data: Bytes, start: int, end: int) -> int:
    """Return the row of a table whose word is ``data[start:end]``, or -1."""
    size = end - start
    for row in range(len(table)):
        if table[row, 0] != size:
            continue
        place = 0
        while place < size and table[row, 1 + place] == data[start + place]:
            place += 1
        if place == size:
            return row
    return -1


@compiled
def _field_mask(data: Bytes, at: int) -> tuple[int, np.uint32]:
    """Return where a list of known fields ends, and their mask."""
    mask = np.uint32(0)
    at = skip_space(data, at + 1)
    if data[at] == 93:  # ]
        return at + 1, mask
    while True:
        if data[at] != 34:  # "
            return UNSURE, mask
        end = plain_end(data, at + 1)
        if end < 0:
            return UNSURE, mask
        field = _which(_FIELD_TABLE, data, at + 1, end)
        if field < 0:
            return UNSURE, mask
        mask |= np.uint32(1) << np.uint32(field)
        at = skip_space(data, end + 1)
        if data[at] == 93:
            return at + 1, mask
        if data[at] != 44:  # ,
            return UNSURE, mask
        at = skip_space(data, at + 1)


@compiled
def _year(data: Bytes, at: int) -> tuple[int, int]:
    """Return where a possible year of four digits ends, and the year."""
    year = 0
    for place in range(at, at + 4):
        if not 48 <= data[place] <= 57:
            return UNSURE, 0
        year = year * 10 + signed(data[place]) - 48
    after = data[at + 4]
    ends = after in (44, 125, 32)  # , } space
    return (at + 4 if ends and _FIRST_YEAR <= year <= _LAST_YEAR else UNSURE), year


@compiled
def _doi_key(data: Bytes, start: int, end: int, lower: Bytes, work: Keys) -> np.uint64:
    """Return :func:`pipeline.core.text.doi_key` of the printable ASCII ``data[start:end]``."""
    while start < end and not (data[start] == 49 and data[start + 1] == 48 and data[start + 2] == 46):  # 10.
        start += 1
    while end > start and data[end - 1] == 32:
        end -= 1
    slash = False
    for place in range(start, end):
        letter = data[place]
        slash |= letter == 47
        lower[place - start] = letter + np.uint8(32) if 65 <= letter <= 90 else letter
    if not slash:
        return np.uint64(0)
    return max(digest(lower, 0, end - start, work), np.uint64(1))


@compiled
def _record(data: Bytes, at: int, end: int, state: Ints, columns: Columns, scratch: Scratch) -> bool:
    """Write the record in ``data[at:end]`` behind the last one and return True; False: another reader must look."""
    row = state[ROWS]
    seen = 0
    id_start = id_end = 0
    title_end, abstract_end, cited_end = state[TITLES], state[ABSTRACTS], state[CITED]
    citing = 0
    columns.years[row], columns.fields[row], columns.dois[row] = NO_YEAR, 0, 0
    at = skip_space(data, at)
    if data[at] != 123:  # {
        return False
    at = skip_space(data, at + 1)
    while True:
        key_end, value = key_and_value(data, at)
        if value < 0:
            return False
        key = _which(_KEY_TABLE, data, at + 1, key_end)
        at = value
        if key >= 0:
            if seen >> key & 1:
                return False
            seen |= 1 << key
        null = data[at] == 110  # n
        if key < 0 or (null and key != _ID):
            at = skip_value(data, at)
        elif key == _OUTBOUND:
            at, cited_end = copy_keys(data, at, columns.cited, cited_end, scratch.work)
        elif key == _INBOUND:
            at, citing = copy_keys(data, at, scratch.citing, 0, scratch.work)
        elif key == _YEAR:
            at, year = _year(data, at)
            columns.years[row] = year
        elif key == _FIELDS:
            if data[at] != 91:  # [
                return False
            at, columns.fields[row] = _field_mask(data, at)
        elif data[at] != 34:  # "
            return False
        elif key == _TITLE:
            at, title_end = copy_text(data, at + 1, columns.titles, title_end, scratch.classes)
        elif key == _ABSTRACT:
            at, abstract_end = copy_text(data, at + 1, columns.abstracts, abstract_end, scratch.classes)
        else:
            start = at + 1
            at = plain_end(data, start)
            if at < 0:
                return False
            if key == _ID:
                id_start, id_end = start, at
            elif at - start > _LONGEST_DOI:
                return False
            else:
                columns.dois[row] = _doi_key(data, start, at, scratch.lower, scratch.work)
            at += 1
        if at < 0:
            return False
        at = skip_space(data, at)
        if data[at] == 125:  # }
            break
        if data[at] != 44:  # ,
            return False
        at = skip_space(data, at + 1)
    if skip_space(data, at + 1) != end or id_start == id_end:
        return False

    own = id_key(data, id_start, id_end, scratch.work)
    state[LISTED] += cited_end - state[CITED]
    state[CITED] = distinct(columns.cited, state[CITED], cited_end, own)
    columns.inbound[row] = distinct(scratch.citing, 0, citing, own)
    for place in range(id_start, id_end):
        columns.ids[state[IDS] + place - id_start] = data[place]
    state[IDS] += id_end - id_start
    state[TITLES], state[ABSTRACTS] = title_end, abstract_end
    row += 1
    columns.id_ends[row], columns.title_ends[row] = state[IDS], title_end
    columns.abstract_ends[row], columns.cited_ends[row] = abstract_end, state[CITED]
    state[ROWS] = row
    return True


@compiled
def line_end(data: Bytes, at: int, end: int) -> int:
    """Return where the line at ``at`` ends: at its newline, or at ``end``."""
    while at < end:
        found = lowest_bit(newline_mask(data, at))
        at += found
        if found < BLOCK:
            break
    return min(at, end)


@compiled
def scan(data: Bytes, end: int, state: Ints, columns: Columns, scratch: Scratch) -> int:
    """Read lines until all are read, a line needs another reader, or a column is full.

    Args:
        data: uint8, lines, and behind ``end`` at least a block of zero bytes.
        end: where the last line ends.
        state: int64 ``[8]``, changed.
        columns: where the records go.
        scratch: overwritten.

    Returns:
        :data:`DONE`, :data:`ASK` or :data:`FULL`; :data:`AT` and :data:`LINE` are then those of the next line.
    """
    while state[AT] < end:
        at = state[AT]
        stop = line_end(data, at, end)
        if skip_space(data, at) != stop:
            size = stop - at + BLOCK
            if (
                state[ROWS] + 1 >= len(columns.id_ends)
                or state[IDS] + size > len(columns.ids)
                or state[TITLES] + size > len(columns.titles)
                or state[ABSTRACTS] + size > len(columns.abstracts)
                or state[CITED] + size // 3 > len(columns.cited)
                or size // 3 > len(scratch.citing)
            ):
                return FULL
            if not _record(data, at, stop, state, columns, scratch):
                return ASK
        state[AT] = stop + 1
        state[LINE] += 1
    return DONE
