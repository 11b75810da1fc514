"""Digests of exact rankings, of fusions, and of BM25's rankings and grids: a change of any bit changes results."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.csr import Groups
from pipeline.corpus.reader import Text
from pipeline.measure.engines import average_precision
from pipeline.retrieve.base import Exclusions, Metric, Ranking
from pipeline.retrieve.fusion import fuse
from pipeline.stages.tune import GRID_B, GRID_K1
from tests.retrieve.bm25 import POINTS, Asked, analysed, by_index, grid_ranks, publish
from tests.retrieve.cases import METRICS, Case, exclusions, search

EXPECTED = json.loads(Path(__file__).with_name("golden.json").read_text())
DEPTHS = (1, 10, 500)


def make_case(kind: str) -> Case:
    """Return 40 queries and 3,000 candidates made of integers: with duplicates, zero vectors and large norms."""
    rng = np.random.Generator(np.random.PCG64(18))
    x = rng.integers(-2, 3, (3_000, 24)) if kind == "tied" else rng.integers(-2_000, 2_001, (3_000, 96))
    q = x[:40] + rng.integers(-1, 2, (40, x.shape[1]))
    x[1_000:1_400] = x[:400]
    x[2_990:], q[7] = 0, 0
    dtype = np.float16 if kind == "float16" else np.float32
    scale = 1e12 if kind == "large" else 1.0
    vectors = (x * scale).astype(dtype)
    rows = 3 * rng.integers(0, 3_000, (40, 6)) + 7
    return Case((q * scale).astype(dtype), vectors, exclusions([np.unique(excluded).tolist() for excluded in rows]))


def digest(*columns: np.ndarray[Any, Any]) -> str:
    content = hashlib.sha256()
    for column in columns:
        content.update(column.tobytes())
    return content.hexdigest()


def ranking_digest(*rankings: Ranking) -> str:
    return digest(*(column for r in rankings for column in (r.query, r.row, r.score, r.rank)))


def pools(case: Case) -> list[tuple[Any, Exclusions]]:
    """Return rows and exclusions of nested and overlapping pools, one of all candidates and one with none."""
    empty = exclusions([[]] * len(case.queries))
    parts = [case.rows, case.rows[::2], case.rows[::6], case.rows[500:2_000], case.rows[:0]]
    return [(part, case.excluded if number % 2 else empty) for number, part in enumerate(parts)]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["tied", "float16", "float32", "large"])
def test_rankings(kind: str, metric: Metric) -> None:
    case = make_case(kind)
    for depth in DEPTHS:
        ranking = case.search(metric, depth, size=1_100, workers=2)
        assert ranking_digest(ranking) == EXPECTED[f"{kind} {metric} {depth}"]
    rankings = (search(case.queries, case.part(rows, 1_100), metric, 50, excluded) for rows, excluded in pools(case))
    assert ranking_digest(*rankings) == EXPECTED[f"{kind} {metric} pools"]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["tied", "float16", "float32"])
def test_best_pair(kind: str, metric: Metric) -> None:
    case = make_case(kind)
    counts = np.random.Generator(np.random.PCG64(7)).integers(1, 7, 2_000)
    ends = np.cumsum(counts)
    papers = int(np.searchsorted(ends, len(case.vectors)))
    rows, length = np.repeat(np.arange(papers, dtype=np.uint32) * 3 + 7, counts[:papers]), int(ends[papers - 1])
    queries = Groups(np.arange(0, 41, 4), case.queries)
    excluded, third = exclusions([[7 + 3 * n, 70] for n in range(10)]), np.isin(rows, np.unique(rows)[::3])
    blocks = [(rows, case.vectors[:length]), (rows[third], case.vectors[:length][third])]
    for depth in DEPTHS:
        rankings = (
            search(queries, [block], metric, depth, removed)
            for block, removed in zip(blocks, (excluded, exclusions([[]] * 10)), strict=True)
        )
        assert ranking_digest(*rankings) == EXPECTED[f"{kind} {metric} best pair {depth}"]


def test_fusion() -> None:
    case = make_case("tied")
    rankings = [case.search(metric, 60 + 10 * n) for n, metric in enumerate(METRICS)]
    fused = (fuse(rankings, len(case.queries), depth) for depth in (100, 20))
    assert ranking_digest(*fused) == EXPECTED["fusion"]


def generated_texts(count: int = 2_000) -> list[Text]:
    """Words by Zipf's law, blanks, stop words alone, copies, words hundreds of times, other scripts."""
    rng = np.random.default_rng(20)
    zipf = np.arange(1, 3_001) ** -1.25  # versions of NumPy differ in rng.zipf
    texts: list[Text] = []
    for number in range(count):
        length = int(rng.choice([0, 1, 6, 40, 130, 400, 1_500], p=[0.03, 0.05, 0.2, 0.4, 0.22, 0.09, 0.01]))
        words = [f"w{n}x" for n in rng.choice(3_000, length, p=zipf / zipf.sum())]
        words += [f"w{rng.integers(30)}x"] * int(rng.choice([0, 0, 0, 0, 0, 3, 7, 60, 300]))
        title = ["", "the of and", f"Runner's {number} été", "U.S.A. α-helix 中文 3.14"][int(rng.integers(4))]
        texts.append(Text(title, " ".join(words)))
        if number and rng.random() < 0.2:
            texts[-1] = texts[int(rng.integers(number))]
    texts[5], texts[6] = Text("", ""), Text("the of and", "is")
    return texts


@pytest.mark.java
def test_bm25_rankings_and_grid(tmp_path: Path) -> None:
    texts = generated_texts()
    queries = [5, 6, *range(7, len(texts), 25)]
    everyone = Asked.of(queries, range(len(texts)), exclusions([sorted({q, (q * 7) % 2_000}) for q in queries]))
    some = Asked.of(queries[::3], range(0, 2_000, 3))
    index = analysed(tmp_path, publish(tmp_path, texts), everyone, some)
    digests: dict[str, Any] = {}
    for (pool, asked), (k1, b), depth in itertools.product({"all": everyone, "some": some}.items(), POINTS, (10, 500)):
        digests[f"{pool} {k1} {b} {depth}"] = ranking_digest(by_index(index, asked, k1=k1, b=b, depth=depth))
    rng = np.random.default_rng(21)
    relevant = exclusions([np.unique(rng.integers(0, 2_000, 15 * (q % 5 > 0))).tolist() for q in queries])
    ranks = grid_ranks(index, everyone, relevant, list(itertools.product(GRID_K1, GRID_B)), depth=100)
    values = average_precision(ranks, relevant[0])
    digests["grid ranks"], digests["grid map"] = digest(ranks), np.nanmean(values, axis=0).round(12).tolist()
    assert digests == EXPECTED["bm25"]
