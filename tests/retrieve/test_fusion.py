"""Fusion against ranx's own, and what ranx leaves open: ties, queries without results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.core import order
from pipeline.retrieve.base import Ranking
from pipeline.retrieve.fusion import fuse

QUERIES = 7


def ranking(seed: int, *, depth: int = 40, tied: bool = False, empty: tuple[int, ...] = ()) -> Ranking:
    rng = np.random.default_rng(seed)
    rows, scores, counts = [], [], []
    for query in range(QUERIES):
        chosen = rng.choice(90, 0 if query in empty else depth, replace=False).astype(np.uint32)
        values = rng.standard_normal(len(chosen)).astype(np.float32)
        values = np.rint(values) + np.float32(0) if tied else values
        best = order.best(values, chosen, depth)
        rows.append(chosen[best])
        scores.append(values[best])
        counts.append(len(chosen))
    return Ranking.from_counts(np.array(counts), np.concatenate(rows), np.concatenate(scores))


def scores_of(ranked: Ranking, *, by_rank: bool) -> dict[str, dict[str, float]]:
    values = 1.0 - ranked.rank / 100 if by_rank else ranked.score.astype(float)
    scores: dict[str, dict[str, float]] = {}
    for query, row, value in zip(ranked.query.tolist(), ranked.row.tolist(), values.tolist(), strict=True):
        scores.setdefault(str(query), {})[str(row)] = value
    return scores


@pytest.mark.parametrize("tied", [False, True])
def test_scores_are_those_of_ranx(plain_ranx: Any, tied: bool) -> None:
    rankings = [ranking(seed, tied=tied, depth=30 + seed) for seed in range(3)]
    ours = scores_of(fuse(rankings, QUERIES, 1_000), by_rank=False)
    runs = [plain_ranx.Run(scores_of(run, by_rank=True)) for run in rankings]
    theirs = plain_ranx.fuse(runs, norm=None, method="rrf", params={"k": 60}).to_dict()
    assert ours.keys() == theirs.keys()
    for query, scores in ours.items():
        assert scores == pytest.approx(theirs[query], rel=1e-6, abs=1e-9)


def test_order_is_the_one_total_order_cut_at_the_depth() -> None:
    rankings = [ranking(seed, tied=True, empty=(2,) if seed else (2, 5)) for seed in range(2)]
    whole, cut = fuse(rankings, QUERIES, 1_000), fuse(rankings, QUERIES, 11)
    assert len(np.unique(whole.score)) < len(whole)
    for query in range(QUERIES):
        rows, scores = whole.row[whole.query == query], whole.score[whole.query == query]
        assert order.best(scores, rows, 1_000).tolist() == list(range(len(rows)))
        assert cut.row[cut.query == query].tolist() == rows[:11].tolist()
    assert set(whole.query.tolist()) == {0, 1, 3, 4, 5, 6}
    assert cut.rank.max() == 11
