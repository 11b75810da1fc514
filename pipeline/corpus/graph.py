"""Resolve the references of a corpus into its citation graph, in CSR form and in both directions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core import files
from pipeline.core.csr import Ints, Keys, find_sorted, pack
from pipeline.core.errors import StageError
from pipeline.core.order import Rows
from pipeline.core.parallel import in_order
from pipeline.core.progress import Progress
from pipeline.core.workdir import Workdir
from pipeline.corpus.arrays import GrowingLists, map_array

NO_ROW = np.uint32(0xFFFF_FFFF)
"""Row of a reference to a paper that is not in the corpus."""

_KEY_BYTES = 32
"""Memory per key while an index is sorted, in bytes."""

_EDGE_BYTES = 24
"""Memory per citation while the graph is transposed, in bytes."""

_BLOCK_BITS = 16
"""Ranges of cited rows that are transposed together are multiples of 2 to this power."""

Pairs = npt.NDArray[np.uint64]


_TOP_BIT = np.uint64(1 << 63)
"""Bit of the keys of DOIs (:func:`pipeline.core.text.reference_keys`)."""


class KeyIndex(NamedTuple):
    """Keys, uint64, rising, and the uint32 row of each."""

    keys: Keys
    rows: Rows

    @classmethod
    def of(cls, keys: Keys, rows: Rows) -> KeyIndex:
        """Return the index of keys in any order; the lowest row counts for a key that several rows have."""
        order = np.lexsort((rows, keys))
        keys, rows = keys[order], rows[order]
        is_first = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
        return cls(keys[is_first], rows[is_first])

    def find(self, keys: Keys) -> Rows:
        """Return the row of each key, :data:`NO_ROW` if the index lacks it."""
        rows = np.full(len(keys), NO_ROW)
        order = np.argsort(keys)  # sorted look-ups stay in the processor's caches
        positions, present = find_sorted(self.keys, keys[order])
        rows[order[present]] = self.rows[positions[present]]
        return rows


class CitationGraph:
    """Builds both directions of a citation graph from the columns ``key`` and ``outbound`` of the scratch shards."""

    def __init__(self, shards: Sequence[Path], scratch: Path, workers: int, memory: int) -> None:
        self._shards, self._scratch, self._workers, self._memory = shards, scratch, workers, memory
        sizes = [len(self._keys(shard)) for shard in range(len(shards))]
        self._starts: list[int] = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        self._papers = self._starts[-1]

    def _keys(self, shard: int) -> Keys:
        keys: Keys = files.read_arrow(self._shards[shard]).column("key").to_numpy()
        return keys

    @functools.cached_property
    def _cites_hashed(self) -> bool:
        """Whether references may be DOIs: then papers are also found by theirs."""
        return any(np.any(self._cited(shard)[1] >= _TOP_BIT) for shard in range(len(self._shards)))

    def _dois(self, shards: range) -> KeyIndex:
        """Return the index of the DOIs of some shards."""
        columns = [files.read_arrow(self._shards[shard]).column("doi_key").to_numpy() for shard in shards]
        keys = np.concatenate(columns)
        rows = np.flatnonzero(keys)
        return KeyIndex.of(keys[rows] | _TOP_BIT, (rows + self._starts[shards.start]).astype(np.uint32))

    def _cited(self, shard: int) -> tuple[Ints, Keys]:
        """Return the number of references of each paper of a shard, and the keys of the cited papers."""
        cited = files.read_arrow(self._shards[shard]).column("outbound").combine_chunks()
        return np.diff(np.asarray(cited.offsets)), np.asarray(cited.flatten())

    def write(self, out: Workdir) -> dict[str, int]:
        """Write both directions; return the numbers of listed and found references. StageError if ids share a key."""
        listed = sum(len(self._cited(shard)[1]) for shard in range(len(self._shards)))
        outgoing, incoming = (GrowingLists(self._scratch, name) for name in ("outgoing", "incoming"))
        self._resolve(outgoing, listed)
        self._transpose(incoming)
        outgoing.write(out)
        incoming.write(out)
        return {"references": listed, "references_in_corpus": outgoing.edges}

    def _resolve(self, outgoing: GrowingLists, listed: int) -> None:
        """Append the rows that each paper cites.

        If an index of all keys does not fit into memory, references are looked up in one index per group of shards.
        """
        shards = range(len(self._shards))
        key_bytes = _KEY_BYTES * (1 + self._cites_hashed)
        group_size = max(1, len(shards) * (self._memory // 2) // max(self._papers * key_bytes, 1))
        groups = [shards[start : start + group_size] for start in shards[::group_size]]
        with Progress(listed * len(groups), "corpus: citations", "refs") as progress:
            for group in groups:
                look_up = functools.partial(
                    self._look_up, self._index(group), self._dois(group) if self._cites_hashed else None, group
                )
                for resolved in in_order(look_up, shards, self._workers):
                    progress.add(listed // len(shards))
                    if resolved is not None:
                        outgoing.append(*resolved)

    def _index(self, shards: range) -> KeyIndex:
        """Return the index of the keys of some shards; StageError if two papers share a key."""
        keys = np.concatenate([self._keys(shard) for shard in shards])
        order = np.argsort(keys)
        index = KeyIndex(keys[order], (order + self._starts[shards.start]).astype(np.uint32))
        repeats = np.flatnonzero(index.keys[1:] == index.keys[:-1])
        clashing = np.maximum(index.rows[repeats], index.rows[repeats + 1]).tolist()
        for shard in range(shards.stop, len(self._shards)):
            clashing += (self._starts[shard] + np.flatnonzero(index.find(self._keys(shard)) != NO_ROW)).tolist()
        if clashing:
            raise StageError(
                f"two paper ids share one 64-bit key (row {clashing[0]})", "Rename one of them in the release"
            )
        return index

    def _look_up(self, index: KeyIndex, dois: KeyIndex | None, group: range, shard: int) -> tuple[Ints, Rows] | None:
        """Look up the references of a shard; with the last group, return their number per paper and their rows."""
        lengths, cited = self._cited(shard)
        rows = index.find(cited) if dois is None else np.minimum(index.find(cited), dois.find(cited))
        path = self._scratch / f"rows-{shard:05d}.npy"
        if group.start > 0:
            rows = np.minimum(rows, np.load(path))
        if group.stop < len(self._shards):
            np.save(path, rows)
            return None
        path.unlink(missing_ok=True)
        citing: Ints = np.repeat(np.arange(len(lengths)), lengths)[rows != NO_ROW]
        found: Rows = rows[rows != NO_ROW]
        if dois is not None:  # an id and a DOI may name one paper, or the paper itself
            is_other = citing + self._starts[shard] != found
            pairs = np.unique(_sorted_pairs(citing[is_other], found[is_other]))
            citing, found = (pairs >> np.uint64(32)).astype(np.int64), pairs.astype(np.uint32)
        self._pairs_file(shard).write_bytes(_sorted_pairs(found, citing + self._starts[shard]).data)
        return np.bincount(citing, minlength=len(lengths)), _sorted_pairs(citing, found).astype(np.uint32)

    def _pairs_file(self, shard: int) -> Path:
        """Return the file of a shard's citations: sorted pairs of cited and citing row."""
        return self._scratch / f"cited-{shard:05d}.bin"

    def _transpose(self, incoming: GrowingLists) -> None:
        """Append the rows of the papers that cite each paper, in ranges of rows that fit into memory."""
        runs = [map_array(self._pairs_file(shard), np.uint64) for shard in range(len(self._shards))]
        with Progress(self._papers, "corpus: cited by", "papers") as progress:
            for counts, citing in in_order(functools.partial(_merge_runs, runs), self._row_ranges(runs), self._workers):
                incoming.append(counts, citing)
                progress.add(len(counts))

    def _row_ranges(self, runs: Sequence[Pairs]) -> list[tuple[int, int]]:
        """Return (first row, end row) of the ranges that are transposed together."""
        blocks = -(-self._papers >> _BLOCK_BITS)
        bounds = np.arange(blocks + 1, dtype=np.uint64) << np.uint64(32 + _BLOCK_BITS)
        counts = np.sum([np.diff(np.searchsorted(run, bounds)) for run in runs], axis=0, dtype=np.int64)
        ends = np.cumsum(_EDGE_BYTES * (counts + (1 << _BLOCK_BITS)))
        total = int(ends[-1]) if blocks else 0
        limit = max(1, min(self._memory // (self._workers + 2), -(-total // self._workers)))
        cuts = np.searchsorted(ends, np.arange(limit, total, limit), side="right")
        rows = np.unique(np.concatenate([[0], cuts, [blocks]])) << _BLOCK_BITS
        return list(pairwise(np.minimum(rows, self._papers).tolist()))


def _merge_runs(runs: Sequence[Pairs], rows: tuple[int, int]) -> tuple[Ints, Rows]:
    """Return the number of papers that cite each paper of a range of rows, and the rows of those papers."""
    first_row, end_row = rows
    bounds = np.array(rows, np.uint64) << np.uint64(32)
    pairs = np.concatenate([run[slice(*np.searchsorted(run, bounds))] for run in runs])
    pairs.sort()
    cited = (pairs >> np.uint64(32)).astype(np.int64) - first_row
    return np.bincount(cited, minlength=end_row - first_row), pairs.astype(np.uint32)


def _sorted_pairs(major: Ints | Rows, minor: Ints | Rows) -> Pairs:
    """Return rising pairs of rows, uint64, with the major row in the upper 32 bits."""
    pairs = pack(major, minor)
    pairs.sort()
    return pairs
