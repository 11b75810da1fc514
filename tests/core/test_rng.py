from __future__ import annotations

import itertools

import numpy as np

from pipeline.core.rng import generator, priorities, smallest


def test_a_generator_depends_on_seed_purpose_and_item_alone() -> None:
    items = list(itertools.product((1, 2), ("a", "b"), ("", "x")))
    draws = [generator(*item).integers(1 << 60) for item in items]
    assert len(set(draws)) == 8
    assert draws == [generator(*item).integers(1 << 60) for item in items]


def test_a_sample_does_not_depend_on_order_and_smaller_ones_are_subsets() -> None:
    keys = np.arange(10_000, dtype=np.uint64)

    def sample(of: np.ndarray, seed: int, count: int) -> list[int]:
        return of[smallest(priorities(of, seed, "draw"), count)].tolist()

    drawn = sample(keys, 7, 500)
    assert sample(generator(0, "shuffle").permutation(keys), 7, 500) == drawn
    assert set(sample(keys, 7, 100)) < set(drawn)
    assert len(set(drawn) & set(sample(keys, 8, 500))) < 100


def test_priorities_are_uniform() -> None:
    keys = np.arange(200_000, dtype=np.uint64)
    values = priorities(keys, 13, "draw")
    assert len(np.unique(values)) == len(keys)
    counts, expected = np.bincount((values >> np.uint64(58)).astype(int), minlength=64), len(keys) / 64
    assert 30 < float(((counts - expected) ** 2 / expected).sum()) < 110  # chi-square of 63 degrees of freedom
    bits = (values[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.all(np.abs(bits.mean(axis=0) - 0.5) < 0.01)


def test_smallest_breaks_ties_by_position() -> None:
    values = np.array([3, 1, 1, 1, 0], np.uint64)
    assert [smallest(values, count).tolist() for count in (3, 0, 9)] == [[4, 1, 2], [], [4, 1, 2, 3, 0]]
