"""Searches by postings in which a kernel fails, run as a program: a search that hangs can be ended from outside."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.retrieve.base import no_exclusions
from pipeline.retrieve.postings import grid, grid_kernels, kernels, pool
from pipeline.retrieve.postings.entries import pack
from pipeline.retrieve.postings.pool import Collection, Queries
from pipeline.retrieve.postings.search import search
from pipeline.retrieve.postings.store import Bags, Piece

THREADS, WORDS, TEXTS = 2, 300, 200


class Texts:
    """A store of random texts, each block of :data:`TEXTS`, made without Lucene."""

    def __init__(self, blocks: int) -> None:
        rng = np.random.default_rng(5)
        self._bags = []
        for _ in range(blocks):
            terms = np.concatenate([np.sort(rng.choice(WORDS, 20, replace=False)) for _ in range(TEXTS)])
            starts, times = np.arange(TEXTS + 1) * 20, rng.integers(1, 5, len(terms))
            offsets, entries = pack(starts, terms.astype(np.uint32), times.astype(np.uint32), np.arange(WORDS))
            lengths = np.add.reduceat(times, starts[:-1]).astype(np.uint32)
            words = pa.array([f"word{n}" for n in range(WORDS)], pa.large_string())
            self._bags.append(Bags(offsets, entries, lengths, words))

    def pieces(self, rows: npt.NDArray[np.uint32]) -> Iterator[Piece]:
        for block, bags in enumerate(self._bags):
            mine = rows[rows // TEXTS == block]
            if len(mine):
                yield Piece(mine, mine.astype(np.int64) % TEXTS, bags)


def find() -> None:
    """Search at one point and at several."""
    store: Any = Texts(3)
    rows = np.arange(3 * TEXTS, dtype=np.uint32)
    queries = Queries.read(store, rows[::5], THREADS)
    collection = Collection.read(store, rows, queries.vocabulary, THREADS)
    none = no_exclusions(len(queries))
    search(collection, queries, none, k1=0.9, b=0.4, depth=10, threads=THREADS)
    relevant = np.arange(len(queries) + 1), rows[1::5]
    points = [(0.9, 0.4), (1.2, 0.7)]
    grid.ranks(collection, queries, relevant, none, points=points, depth=10, threads=THREADS)


def fails_from(call: int, module: ModuleType, name: str) -> bool:
    """Whether the error of a kernel that fails from its n-th call on, in all threads, comes out of the search."""
    kernel: Callable[..., Any] = getattr(module, name)
    left = iter(range(call))

    def failing(*arguments: Any) -> Any:
        if next(left, None) is None:
            raise MemoryError("injected")
        return kernel(*arguments)

    setattr(module, name, failing)
    try:
        find()
    except MemoryError as error:
        return str(error) == "injected"
    finally:
        setattr(module, name, kernel)
    return False


if __name__ == "__main__":
    pool.BLOCK_DOCUMENTS = 50
    find()
    in_search = [(kernels, name) for name in ("mark", "decode", "tally", "weigh", "score", "judge", "invert")]
    for module, name in [*in_search, (grid_kernels, "judge"), (grid_kernels, "sift")]:
        for call in (0, 2):
            sys.stdout.write(f"{module.__name__} {name} {call}\n")
            assert fails_from(call, module, name)
    find()
    sys.stdout.write("all ended\n")
