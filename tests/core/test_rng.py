from __future__ import annotations

import numpy as np

from pipeline.core.rng import generator, priorities, smallest


def test_a_generator_depends_on_seed_purpose_and_item_alone() -> None:
    draws = {
        (seed, purpose, item): generator(seed, purpose, item).integers(1 << 60)
        for seed in (1, 2)
        for purpose in ("a", "b")
        for item in ("", "x")
    }
    assert len(set(draws.values())) == 8
    assert draws[1, "a", "x"] == generator(1, "a", "x").integers(1 << 60)


def test_a_sample_does_not_depend_on_order_and_smaller_ones_are_subsets() -> None:
    keys = np.arange(10_000, dtype=np.uint64)
    shuffled = generator(0, "shuffle").permutation(keys)
    chosen = keys[smallest(priorities(keys, 7, "draw"), 500)]
    again = shuffled[smallest(priorities(shuffled, 7, "draw"), 500)]
    assert chosen.tolist() == again.tolist()
    smaller = keys[smallest(priorities(keys, 7, "draw"), 100)]
    assert set(smaller) < set(chosen)
    assert len(set(chosen) & set(keys[smallest(priorities(keys, 8, "draw"), 500)])) < 100


def test_priorities_are_uniform() -> None:
    keys = np.arange(200_000, dtype=np.uint64)
    values = priorities(keys, 13, "draw")
    assert len(np.unique(values)) == len(keys)
    counts = np.bincount((values >> np.uint64(58)).astype(int), minlength=64)
    expected = len(keys) / 64
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert 30 < chi2 < 110  # 63 degrees of freedom
    bits = (values[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.all(np.abs(bits.mean(axis=0) - 0.5) < 0.01)


def test_smallest_breaks_ties_by_position() -> None:
    values = np.array([3, 1, 1, 1, 0], np.uint64)
    assert smallest(values, 3).tolist() == [4, 1, 2]
    assert smallest(values, 0).tolist() == []
    assert smallest(values, 9).tolist() == [4, 1, 2, 3, 0]
