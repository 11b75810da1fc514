"""Vectors that make searches go wrong, and searches of them in many settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.csr import Groups
from pipeline.core.resources import Resources
from pipeline.retrieve import exact
from pipeline.retrieve.base import Exclusions, Metric, Ranking, VectorBlock
from tests.retrieve.reference import brute_force

METRICS: tuple[Metric, ...] = ("l2", "inner_product", "cosine")


@dataclass(frozen=True, eq=False)
class Case:
    """Queries, candidates and exclusions; rows are spread so that positions and rows differ."""

    queries: npt.NDArray[np.floating]
    vectors: npt.NDArray[np.floating]
    excluded: Exclusions

    @property
    def rows(self) -> npt.NDArray[np.uint32]:
        return np.arange(len(self.vectors), dtype=np.uint32) * 3 + 7

    def blocks(self, size: int) -> Iterator[VectorBlock]:
        for start in range(0, len(self.vectors), size):
            yield self.rows[start : start + size], self.vectors[start : start + size]

    def part(self, rows: npt.NDArray[np.uint32], size: int = 10**9) -> Iterator[VectorBlock]:
        """Yield blocks of those of some rows that are candidates."""
        inside = np.flatnonzero(np.isin(self.rows, rows))
        for start in range(0, len(inside), size):
            yield self.rows[inside[start : start + size]], self.vectors[inside[start : start + size]]

    def search(self, metric: Metric, depth: int, *, size: int = 10**9, **how: Any) -> Ranking:
        return search(self.queries, self.blocks(size), metric, depth, self.excluded, **how)


def search(
    queries: npt.NDArray[np.floating] | Groups,
    blocks: Iterable[VectorBlock],
    metric: Metric,
    depth: int,
    excluded: Exclusions,
    start: Ranking | None = None,
    **how: Any,
) -> Ranking:
    return exact.search(queries, blocks, excluded, metric=metric, depth=depth, resources=resources(**how), start=start)


def resources(**how: Any) -> Resources:
    return Resources(**{"memory": 64 << 20, "workers": 2, "device": "cpu", **how})


@cache
def expected(case: Case, metric: Metric, depth: int) -> Ranking:
    """Return the ranking of all candidates by brute force."""
    return brute_force(case.queries, case.rows, case.vectors, metric, depth, case.excluded)


def no_exclusions(queries: int) -> Exclusions:
    return np.zeros(queries + 1, np.int64), np.empty(0, np.uint32)


def exclusions(lists: Sequence[Sequence[int]]) -> Exclusions:
    offsets = np.cumsum([0, *map(len, lists)])
    return offsets, np.array([row for rows in lists for row in sorted(rows)], np.uint32)


@cache
def make_case(name: str, dimension: int = 40, candidates: int = 5_000, queries: int = 17) -> Case:
    """Return one of the cases, a third of whose queries lack their three nearest and a row that is no candidate."""
    rng = np.random.default_rng([len(name), dimension])
    x = rng.standard_normal((candidates, dimension), np.float32)
    q = rng.standard_normal((queries, dimension), np.float32)
    if name == "duplicates":
        x[1 : candidates // 2 : 2] = x[0 : candidates // 2 - 1 : 2]
        x[-40:] = x[:40]
    elif name == "identical":
        x[:] = x[0]
    elif name == "few values":
        x, q = np.rint(x), np.rint(q)
    elif name == "half precision":
        x, q = x.astype(np.float16), q.astype(np.float16)
    elif name == "far from the origin":
        x, q = x + np.float32(3000), q + np.float32(3000)
    elif name == "close together and far away":
        x = np.float32(0.05) * x + np.float32(3000)
    elif name == "one giant":
        x[candidates // 3] *= 1e12
    elif name == "tiny":
        x, q = x * np.float32(1e-25), q * np.float32(1e-25)
    elif name == "below the normal range":
        x[::2] = x[::2].astype(float) * 1e-41
        q[::2] = q[::2].astype(float) * 1e-41
    elif name == "zeros":
        x[::3] = 0
        q[0] = 0
    elif name == "outlying dimension":
        x[:, dimension // 2] *= 300
    elif name == "clusters":
        centres = 3 * rng.standard_normal((20, dimension), np.float32)
        x, q = 0.3 * x + centres[rng.integers(0, 20, candidates)], 0.3 * q + centres[rng.integers(0, 20, queries)]
    elif name == "crowded cuts":  # of half the queries; of equal candidates the last are the best
        x[candidates // 10 : -100] = 9
        q[::2] = 9
    elif name == "queries are candidates":
        q = x[:queries].copy()
    elif name != "random":
        raise ValueError(name)
    case = Case(q, x, exclusions([[]] * queries))
    nearest = ((q[:, None, :].astype(float) - x[None].astype(float)) ** 2).sum(axis=2).argsort(axis=1)[:, :3]
    lists = [[*case.rows[nearest[n]].tolist(), 1] if n % 3 == 0 else [] for n in range(queries)]
    return Case(q, x, exclusions(lists))


def same(a: Ranking, b: Ranking) -> bool:
    """Whether two rankings are equal in every bit."""
    return all(
        x.dtype == y.dtype and x.tobytes() == y.tobytes()
        for x, y in zip((a.query, a.row, a.score, a.rank), (b.query, b.row, b.score, b.rank), strict=True)
    )
