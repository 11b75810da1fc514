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
        mine = rng.choice(90, 0 if query in empty else depth, replace=False).astype(np.uint32)
        values = rng.standard_normal(len(mine)).astype(np.float32)
        values = np.rint(values) + np.float32(0) if tied else values
        best = order.best(values, mine, depth)
        rows.append(mine[best])
        scores.append(values[best])
        counts.append(len(mine))
    return Ranking.from_counts(np.array(counts), np.concatenate(rows), np.concatenate(scores))


def scores_of(ranked: Ranking, *, by_rank: bool) -> dict[str, dict[str, float]]:
    values = 1.0 - ranked.rank / 100 if by_rank else ranked.score.astype(float)
    found: dict[str, dict[str, float]] = {}
    for query, row, value in zip(ranked.query.tolist(), ranked.row.tolist(), values.tolist(), strict=True):
        found.setdefault(str(query), {})[str(row)] = value
    return found


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("method", "weights"), [("rrf", None), ("wsum", (0.3, 0.5, 0.2)), ("wsum", (0.0, 1.0, 0.0))])
def test_scores_are_those_of_ranx(
    plain_ranx: Any, method: Method, weights: tuple[float, ...] | None, tied: bool
) -> None:
    several = [ranking(seed, tied=tied, depth=30 + seed) for seed in range(3)]
    mine = scores_of(Fusion(several, QUERIES, method).ranking(1_000, weights), by_rank=False)
    params = {"k": 60} if method == "rrf" else {"weights": weights}
    runs = [plain_ranx.Run(scores_of(each, by_rank=method == "rrf")) for each in several]
    theirs = plain_ranx.fuse(runs, norm=None if method == "rrf" else "min-max", method=method, params=params).to_dict()
    assert mine.keys() == theirs.keys()
    for query, scores in mine.items():
        assert scores.keys() == theirs[query].keys()
        for row, score in scores.items():
            assert score == pytest.approx(theirs[query][row], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("method", ["rrf", "wsum"])
def test_order_is_the_one_total_order_cut_at_the_depth(method: Method) -> None:
    several = [ranking(seed, tied=True, empty=(2,) if seed else (2, 5)) for seed in range(2)]
    fusion = Fusion(several, QUERIES, method)
    whole, cut = fusion.ranking(1_000), fusion.ranking(11)
    assert len(np.unique(whole.score)) < len(whole)
    for query in range(QUERIES):
        mine = whole.query == query
        assert order.best(whole.score[mine], whole.row[mine], 1_000).tolist() == list(range(mine.sum()))
        assert cut.row[cut.query == query].tolist() == whole.row[mine][:11].tolist()
    assert set(whole.query.tolist()) == {0, 1, 3, 4, 5, 6}
    assert cut.rank.max() == 11


def test_one_ranking_alone_keeps_its_order() -> None:
    one = ranking(4)
    for method in ("rrf", "wsum"):
        assert Fusion([one], QUERIES, method).ranking(40).row.tolist() == one.row.tolist()  # type: ignore[arg-type]
