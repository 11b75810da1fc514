"""Rankings that read no text, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.reader import Corpus
from pipeline.retrieve.base import Ranking
from pipeline.stages.chain import Chain
from pipeline.stages.pool import pool_task
from pipeline.stages.ranking_file import read_ranking
from pipeline.stages.systems import parse_systems
from tests.builders import make_corpus
from tests.stages.making import make

DEPTH = 30


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    random = np.random.default_rng(3)
    papers = [
        {
            "paper_id": f"{n:04d}",
            "title": f"Paper {n % 190}",
            "abstract": "thirty characters of text " * 2,
            "year": 2014 + n % 6 if n % 9 else None,
        }
        for n in range(200)
    ]
    citations = {(f"{a:04d}", f"{b:04d}") for a, b in random.integers(0, 200, (1500, 2)) if a != b}
    return make_corpus(tmp_path_factory.mktemp("baseline"), papers, citations)


def ranked(corpus: Artifact, system: str) -> tuple[Pool, Ranking]:
    root = corpus.path.parent.parent
    pool: Task = pool_task(corpus, PoolConfig(size=150, queries=20))
    (evaluation,) = Chain(corpus, depth=DEPTH).evaluations([pool], parse_systems(system))
    return Pool(make(root, pool), Corpus(corpus)), read_ranking(make(root, evaluation.ranking))


@pytest.mark.parametrize("system", ["most-cited", "newest"])
def test_candidates_are_in_the_order_of_their_attribute(corpus: Artifact, system: str) -> None:
    pool, ranking = ranked(corpus, system)
    year = pool.corpus.attributes["year"]
    for query in range(len(pool.query_rows)):
        allowed = np.setdiff1d(pool.candidates, pool.excluded(query)).tolist()
        value = {
            row: int(year[row])
            if system == "newest"
            else sum(2014 <= year[citing] < 2019 for citing in pool.corpus.incoming.of(row))
            for row in allowed
        }
        expected = sorted(allowed, key=lambda row: (-value[row], -row))[:DEPTH]
        mine = ranking.query == query
        assert ranking.row[mine].tolist() == expected
        assert ranking.score[mine].tolist() == [value[row] for row in expected]
    assert len(pool.exclusions[1]) > len(pool.query_rows) / 2


def test_random_orders_differ_between_queries_and_seeds_and_not_between_runs(corpus: Artifact) -> None:
    pool, ranking = ranked(corpus, "random")
    rows = ranking.row.reshape(len(pool.query_rows), DEPTH)
    for query, of_query in enumerate(rows):
        assert len(set(of_query.tolist())) == DEPTH
        assert set(of_query.tolist()) <= set(pool.candidates.tolist()) - set(pool.excluded(query).tolist())
    assert len({tuple(of_query.tolist()) for of_query in rows}) == len(rows)
    assert not np.array_equal(ranked(corpus, "random:seed=7")[1].row, ranking.row)
    assert np.array_equal(ranked(corpus, "random:seed=13")[1].row, ranking.row)
    middle = np.median(np.searchsorted(pool.candidates, rows))
    assert 60 < middle < 90


def test_they_can_be_fused(corpus: Artifact) -> None:
    assert len(ranked(corpus, "rrf(most-cited,newest)")[1]) == 20 * DEPTH
