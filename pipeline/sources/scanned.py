"""Batches of S2ORC metadata by the compiled scan; lines it is not sure of go through the reader of all sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import characters
from pipeline.core.compiled import BLOCK, Bytes
from pipeline.core.text import doi_key, id_keys, normalise
from pipeline.sources import s2orcscan as scan
from pipeline.sources.base import BATCH_ROWS, RAW_PAPERS, Batch
from pipeline.sources.lines import read_line_blocks
from pipeline.sources.rows import Kept, Rows, distinct_references

_ROOM = {"ids": 2**20, "titles": 2 * 2**20, "abstracts": 16 * 2**20, "cited": 2**20}
"""Elements of each growing column of a batch: more than most batches need; what is not written takes no memory."""
_PLACES = (scan.IDS, scan.TITLES, scan.ABSTRACTS, scan.CITED)

Slow = Callable[["ScannedRows", bytes, int], None]


def read_scanned(path: Path, slow: Slow, *, allow_truncated: bool = False) -> Iterator[Batch]:
    """Yield the papers of one file of S2ORC metadata, in its order.

    Args:
        path: the file.
        slow: reads one line the scan is not sure of, given its number, and adds or drops it.
        allow_truncated: keep the whole lines of a gzip file that breaks off.

    Raises:
        CorruptError: the file breaks off, or is damaged.
    """
    rows = ScannedRows(path)
    for block in read_line_blocks(path, allow_truncated=allow_truncated, padding=BLOCK):
        if block is None:
            rows.drop("line_too_long", rows.next_number())
            continue
        rows.begin(block)
        while (reason := rows.scan()) != scan.DONE:
            if reason == scan.FULL:
                yield rows.flush()
                continue
            line, number = rows.next_line()
            if line.strip():
                slow(rows, line, number)
        if rows.full:
            yield rows.flush()
    yield rows.flush()


class ScannedRows(Rows):
    """The columns of one batch after the other, filled by scans of blocks of lines, and by :meth:`add`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._state = np.zeros(8, np.int64)
        self._block = b""
        self._data: Bytes = np.zeros(BLOCK, np.uint8)
        self._scratch = scan.scratch(characters.classes(), _ROOM["cited"])
        self._columns = _columns(_ROOM)

    @property
    def full(self) -> bool:
        """Whether a batch's worth is there."""
        return bool(self._state[scan.ROWS] >= BATCH_ROWS)

    def begin(self, block: bytes) -> None:
        """Take the next block: whole lines, then zero bytes."""
        self._block, self._data = block, np.frombuffer(block, np.uint8)
        self._state[scan.AT] = 0
        if len(block) // 3 > len(self._scratch.citing):
            self._scratch = scan.scratch(characters.classes(), len(block) // 3)

    def scan(self) -> int:
        """Read on in the block and return why the scan stopped."""
        if self._state[scan.ROWS] == 0:
            self._make_room(*[len(self._block)] * 4)
        return int(scan.scan(self._data, len(self._block) - BLOCK, self._state, self._columns, self._scratch))

    def next_number(self) -> int:
        """Pass over a line and return its number."""
        self._state[scan.LINE] += 1
        return int(self._state[scan.LINE])

    def next_line(self) -> tuple[bytes, int]:
        """Pass over the next line of the block and return it, with its number."""
        at, last = int(self._state[scan.AT]), len(self._block) - BLOCK
        end = self._block.find(b"\n", at, last)
        end = last if end < 0 else end
        self._state[scan.AT] = end + 1
        return self._block[at:end], self.next_number()

    def add(self, paper: Kept) -> None:
        """Add one record; there must be room for a row."""
        texts = [_bytes(paper.id), _bytes(normalise(paper.title)), _bytes(normalise(paper.abstract))]
        outbound = list(paper.outbound)
        _, cited = distinct_references(id_keys([paper.id]), np.array([len(outbound)]), id_keys(outbound))
        self._make_room(*(len(written) for written in (*texts, cited)))
        state, columns = self._state, self._columns
        row = state[scan.ROWS]
        growing: list[Any] = list(columns[:8])
        for place, column, ends, written in zip(_PLACES, growing[::2], growing[1::2], (*texts, cited), strict=True):
            column[state[place] : state[place] + len(written)] = written
            state[place] += len(written)
            ends[row + 1] = state[place]
        columns.years[row] = self.year(paper.year)
        columns.fields[row] = self.mask(paper.fields)
        columns.inbound[row] = paper.citing
        columns.dois[row] = doi_key(paper.doi) if paper.doi else 0
        state[scan.LISTED] += len(outbound)
        state[scan.ROWS] = row + 1

    def flush(self) -> Batch:
        """Return what was read since the last flush."""
        state, columns = self._state, self._columns
        rows = int(state[scan.ROWS])
        self._read += rows
        self._noted["references_repeated_or_self"] += int(state[scan.LISTED] - state[scan.CITED])
        cited = pa.array(columns.cited[: state[scan.CITED]])
        papers = pa.RecordBatch.from_arrays(
            [
                _strings(columns.ids, columns.id_ends, rows),
                _strings(columns.titles, columns.title_ends, rows),
                _strings(columns.abstracts, columns.abstract_ends, rows),
                pa.array(columns.years[:rows]),
                pa.array(columns.fields[:rows]),
                pa.LargeListArray.from_arrays(
                    columns.cited_ends[: rows + 1], cited, type=RAW_PAPERS.field("outbound").type
                ),
                pa.array(columns.inbound[:rows]),
                pa.array(columns.dois[:rows]),
            ],
            schema=RAW_PAPERS,
        )
        self._columns = _columns(_ROOM)
        state[scan.ROWS :] = 0
        return self.batch(papers)

    def _make_room(self, *sizes: int) -> None:
        """Have room for ``sizes`` more elements in ids, titles, abstracts and references."""
        for name, place, size in zip(_ROOM, _PLACES, sizes, strict=True):
            column, used = getattr(self._columns, name), int(self._state[place])
            if used + size > len(column):
                larger = np.empty(2 * (used + size), column.dtype)
                larger[:used] = column[:used]
                self._columns = self._columns._replace(**{name: larger})


def _columns(room: dict[str, int]) -> scan.Columns:
    rows = BATCH_ROWS + 1
    ids, titles, abstracts = (np.empty(room[name], np.uint8) for name in ("ids", "titles", "abstracts"))
    cited = np.empty(room["cited"], np.uint64)
    ends = [np.zeros(rows + 1, np.int64) for _ in room]
    return scan.Columns(
        *(ids, ends[0], titles, ends[1], abstracts, ends[2], cited, ends[3]),
        years=np.empty(rows, np.int16),
        fields=np.empty(rows, np.uint32),
        inbound=np.empty(rows, np.int32),
        dois=np.empty(rows, np.uint64),
    )


def _strings(characters: Bytes, ends: npt.NDArray[np.int64], rows: int) -> pa.LargeStringArray:
    buffers = [None, pa.py_buffer(ends[: rows + 1]), pa.py_buffer(characters[: ends[rows]])]
    return pa.Array.from_buffers(pa.large_string(), rows, buffers)


def _bytes(text: str) -> Bytes:
    return np.frombuffer(text.encode(), np.uint8)
