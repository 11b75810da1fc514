"""Fourth pass of corpus building: references become the citation graph, as CSR both ways."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import StageError
from pipeline.core.parallel import in_order
from pipeline.core.progress import Progress
from pipeline.core.schema import INDICES, INDPTR
from pipeline.core.workdir import Workdir
from pipeline.corpus.spill import Columns, Spill, write_columns

_BLOCK_BITS = 16
"""Rows that the incoming direction keeps together, as a power of two."""

_CURSOR_BYTES = 24

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint32]


class CitationGraph:
    """Builds both directions of the graph of a corpus.

    Args:
        shards: of each shard the columns ``key``, ``n_outbound`` and ``cited``.
        scratch: where intermediate files go.
        workers: threads.
        memory: bytes this may hold at once.
    """

    def __init__(self, shards: Sequence[Columns], scratch: Path, workers: int, memory: int) -> None:
        self._shards, self._scratch, self._workers, self._memory = shards, scratch, workers, memory
        sizes = [shard.length("key") for shard in shards]
        self._starts: list[int] = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        self._papers = self._starts[-1]

    def write(self, out: Workdir) -> dict[str, int]:
        """Write ``outgoing-*`` and ``incoming-*`` into ``out``.

        Returns:
            How many references there are, and how many of them are papers of the corpus.

        Raises:
            StageError: two ids have one key.
        """
        listed = sum(shard.length("cited") for shard in self._shards)
        directions = {name: self._spills(name) for name in ("outgoing", "incoming")}
        edges = self._resolve(*directions["outgoing"], listed)
        self._transpose(*directions["outgoing"], *directions["incoming"])
        for name, (ends, rows) in directions.items():
            write_columns(out, f"{name}-indptr.arrow", INDPTR, [ends.array()])
            write_columns(out, f"{name}-indices.arrow", INDICES, [rows.array()])
            ends.close()
            rows.close()
        return {"references": listed, "references_in_corpus": edges}

    def _spills(self, name: str) -> tuple[Spill, Spill]:
        ends = Spill(self._scratch / f"{name}-indptr.bin", np.int64)
        ends.append(np.zeros(1, np.int64))
        return ends, Spill(self._scratch / f"{name}-indices.bin", np.uint32)

    def _resolve(self, ends: Spill, rows: Spill, listed: int) -> int:
        """Write the rows that each paper cites and return how many there are.

        Where a table of all keys does not fit into memory, there are several, of some shards each, and the references
        are looked up in one after the other.
        """
        tables = self._tables()
        edges = 0
        with Progress(listed * len(tables), "corpus: citations", "refs") as progress:
            for number, (first, last) in enumerate(tables):
                table = self._table(first, last)
                look_up = functools.partial(self._look_up, table, number == 0, number == len(tables) - 1)
                for shard, found in enumerate(in_order(look_up, range(len(self._shards)), self._workers)):
                    progress.add(self._shards[shard].length("cited"))
                    if found is not None:
                        ends.append(edges + found[0])
                        rows.append(found[1])
                        edges += len(found[1])
        return edges

    def _tables(self) -> list[tuple[int, int]]:
        """Return the first and the last shard of each table."""
        from pipeline.corpus.kernels import SLOT_BYTES

        tables = max(1, -(-self._papers * SLOT_BYTES // max(self._memory // 2, 1)))
        each = -(-len(self._shards) // tables)
        return [(first, min(first + each, len(self._shards)) - 1) for first in range(0, len(self._shards), each)]

    def _table(self, first: int, last: int) -> npt.NDArray[np.uint64]:
        from pipeline.corpus.kernels import NOWHERE, SLOT_BYTES, fill_table, look_up

        papers = self._starts[last + 1] - self._starts[first]
        table = np.zeros(2 * (papers * SLOT_BYTES // 16 + 1), np.uint64)
        for shard in range(first, len(self._shards)):
            keys = self._shards[shard].read("key")
            if shard <= last:
                twice = fill_table(keys, self._starts[shard], table)
            else:
                rows = np.full(len(keys), NOWHERE)
                twice = int(np.argmax(rows != NOWHERE)) if look_up(keys, table, rows) else -1
            if twice >= 0:
                raise StageError(
                    f"two paper ids share one 64-bit key (row {self._starts[shard] + twice})",
                    "Rename one of them in the release",
                )
        return table

    def _look_up(self, table: npt.NDArray[np.uint64], first: bool, last: bool, shard: int) -> tuple[Ints, Rows] | None:
        """Look up the references of a shard; when the last table is through, return ends and rows of what was found."""
        from pipeline.corpus.kernels import NOWHERE, compact, look_up

        columns = self._shards[shard]
        path = self._scratch / f"found-{shard:05d}.npy"
        found: Rows = np.full(columns.length("cited"), NOWHERE) if first else np.load(path)
        look_up(columns.read("cited"), table, found)
        if not last:
            np.save(path, found)
            return None
        path.unlink(missing_ok=True)
        ends = np.empty(columns.length("key"), np.int64)
        kept = compact(found, columns.read("n_outbound"), ends)
        return ends, found[:kept]

    def _transpose(self, ends: Spill, rows: Spill, starts: Spill, sources: Spill) -> None:
        """Write who cites each paper; papers whose lists fit into memory together at a time."""
        edges = 0
        with Progress(self._papers, "corpus: cited by", "papers") as progress:
            step = functools.partial(self._incoming, ends, rows)
            for found in in_order(step, self._ranges(ends, rows), self._workers):
                starts.append(edges + found[0])
                sources.append(found[1])
                edges += len(found[1])
                progress.add(len(found[0]))

    def _ranges(self, ends: Spill, rows: Spill) -> list[tuple[int, int]]:
        """Return first and last row + 1 of the papers taken together."""
        from pipeline.corpus.kernels import count_targets

        blocks = -(-self._papers >> _BLOCK_BITS)
        counts = np.zeros(blocks, np.int64)
        for _, _, targets in self._edges(ends, rows):
            count_targets(targets, 0, counts, _BLOCK_BITS)
        sizes = np.cumsum(4 * counts + (_CURSOR_BYTES << _BLOCK_BITS))
        limit = max(1, min(self._memory // (self._workers + 2), -(-int(sizes[-1]) // self._workers) if blocks else 0))
        cuts = np.searchsorted(sizes, np.arange(limit, int(sizes[-1]) if blocks else 0, limit), side="right")
        bounds = np.unique(np.concatenate([[0], cuts, [blocks]])) << _BLOCK_BITS
        bounds = np.minimum(bounds, self._papers).tolist()
        return list(pairwise(bounds))

    def _incoming(self, ends: Spill, rows: Spill, bounds: tuple[int, int]) -> tuple[Ints, Rows]:
        """Return where the list of each paper of a range ends, and the lists."""
        from pipeline.corpus.kernels import count_targets, transpose

        first, last = bounds
        counts = np.zeros(last - first, np.int64)
        for _, _, targets in self._edges(ends, rows):
            count_targets(targets, first, counts, 0)
        cursors = np.cumsum(counts) - counts
        sources = np.empty(int(counts.sum()), np.uint32)
        for source, edges, targets in self._edges(ends, rows):
            transpose(edges, targets, source, first, cursors, sources)
        return cursors, sources

    def _edges(self, ends: Spill, rows: Spill) -> Iterator[tuple[int, Ints, Rows]]:
        """Yield of each shard its first row, where in its targets those of each paper begin, and its targets."""
        for first, last in pairwise(self._starts):
            edges = ends.read(first, last + 1)
            yield first, edges - edges[0], rows.read(int(edges[0]), int(edges[-1]))
