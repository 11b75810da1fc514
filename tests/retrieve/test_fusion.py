"""Fusion against ranx's own, and what ranx leaves open: ties, queries without results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.core import order
from pipeline.retrieve.base import Ranking
from pipeline.retrieve.fusion import Fusion, Method

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
@pytest.mark.parametrize(("method", "weights"), [("rrf", None), ("wsum", (0.3, 0.5, 0.2)), ("wsum", (0.0, 1.0, 0.0))])
def test_scores_are_those_of_ranx(
    plain_ranx: Any, method: Method, weights: tuple[float, ...] | None, tied: bool
) -> None:
    rankings = [ranking(seed, tied=tied, depth=30 + seed) for seed in range(3)]
    ours = scores_of(Fusion(rankings, QUERIES, method).ranking(1_000, weights), by_rank=False)
    params = {"k": 60} if method == "rrf" else {"weights": weights}
    runs = [plain_ranx.Run(scores_of(run, by_rank=method == "rrf")) for run in rankings]
    theirs = plain_ranx.fuse(runs, norm=None if method == "rrf" else "min-max", method=method, params=params).to_dict()
    assert ours.keys() == theirs.keys()
    for query, scores in ours.items():
        assert scores.keys() == theirs[query].keys()
        for row, score in scores.items():
            assert score == pytest.approx(theirs[query][row], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("method", ["rrf", "wsum"])
def test_order_is_the_one_total_order_cut_at_the_depth(method: Method) -> None:
    rankings = [ranking(seed, tied=True, empty=(2,) if seed else (2, 5)) for seed in range(2)]
    fusion = Fusion(rankings, QUERIES, method)
    whole, cut = fusion.ranking(1_000), fusion.ranking(11)
    assert len(np.unique(whole.score)) < len(whole)
    for query in range(QUERIES):
        rows, scores = whole.row[whole.query == query], whole.score[whole.query == query]
        assert order.best(scores, rows, 1_000).tolist() == list(range(len(rows)))
        assert cut.row[cut.query == query].tolist() == rows[:11].tolist()
    assert set(whole.query.tolist()) == {0, 1, 3, 4, 5, 6}
    assert cut.rank.max() == 11


@pytest.mark.parametrize("method", ["rrf", "wsum"])
def test_one_ranking_alone_keeps_its_order(method: Method) -> None:
    alone = ranking(4)
    assert Fusion([alone], QUERIES, method).ranking(40).row.tolist() == alone.row.tolist()
