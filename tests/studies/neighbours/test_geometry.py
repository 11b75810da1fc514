"""Standardised vectors, similarities and overlaps, against their definitions in NumPy."""

import itertools
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.encode.registry import resolve
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.embed import embed_tasks, store_of
from pipeline.studies.neighbours.corpus import Members, NeighbourPoolConfig, pool_task
from pipeline.studies.neighbours.geometry import BINS, overlap, similarity_task, standardised_task, unit_vectors
from tests.studies.neighbours.test_corpus import made

LSA = resolve("lsa")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(tmp_path_factory.mktemp("geometry"), Resources(workers=1))


@pytest.fixture(scope="module")
def corpus(runner: Runner) -> Artifact:
    return made(runner.root)


def test_standardised_vectors_have_mean_0_and_deviation_1_over_the_candidates(runner: Runner, corpus: Artifact) -> None:
    pool = pool_task(corpus, NeighbourPoolConfig())
    vectors = embed_tasks(corpus, pool, LSA)["paper"]
    moved = store_of(runner.make(standardised_task(corpus, pool, vectors, LSA)))
    opened = Pool(runner.make(pool), Corpus(corpus))
    (block,) = moved.blocks(opened.candidates, 100)
    np.testing.assert_allclose(block.vectors.mean(axis=0), 0, atol=1e-6)
    deviation = block.vectors.std(axis=0)
    assert np.all(np.isclose(deviation, 1, atol=1e-5) | (deviation < 1e-6))
    rows = np.union1d(opened.candidates, opened.query_rows)
    (before,) = store_of(runner.make(vectors)).blocks(rows, 100)
    held = before.vectors[np.isin(rows, opened.candidates)].astype(np.float64)
    scale = np.where(held.std(axis=0) > 0, held.std(axis=0), 1)
    (after,) = moved.blocks(rows, 100)
    np.testing.assert_allclose(after.vectors, (before.vectors - held.mean(axis=0)) / scale, atol=1e-5)


@pytest.mark.parametrize("queries", ["all", 2])
def test_similarities_are_of_a_pools_queries(runner: Runner, corpus: Artifact, queries: Any) -> None:
    runner.make(embed_tasks(corpus, pool_task(corpus, NeighbourPoolConfig(kind="neighbours")), LSA)["paper"])
    pool = pool_task(corpus, NeighbourPoolConfig(kind="neighbours", queries=queries))
    vectors = embed_tasks(corpus, pool, LSA)["paper"]
    found = runner.make(similarity_task(corpus, pool, vectors, LSA)).arrow("similarities.arrow").to_pylist()
    members, store = Members.read(corpus), store_of(runner.make(vectors))
    drawn = np.isin(members.rows, Pool(runner.make(pool), Corpus(corpus)).query_rows)
    names, counts = np.unique(members.names[drawn], return_counts=True)
    assert counts.max() == (3 if queries == "all" else queries)
    assert [row["name"] for row in found] == [n for n, c in zip(names, counts, strict=True) if c > 1]
    for row in found:
        places = np.flatnonzero((members.names == row["name"]) & drawn)
        unit = {int(at): unit_vectors(store, np.array([at]))[0] for at in [*members.rows[places], *members.of[places]]}
        pairs = np.array([unit[a] @ unit[b] for a, b in itertools.combinations(members.rows[places].tolist(), 2)])
        own = np.array([unit[int(members.rows[at])] @ unit[int(members.of[at])] for at in places])
        assert (row["papers"], sum(row["pairs"]), sum(row["own"])) == (len(places), len(pairs), len(places))
        assert len(row["pairs"]) == len(BINS) - 1
        expected = [pairs.mean(), pairs.std(), pairs.min(), pairs.max(), np.mean(pairs > pairs.mean()), own.mean()]
        columns = ("mean", "deviation", "lowest", "highest", "above mean", "mean with the original")
        np.testing.assert_allclose([row[column] for column in columns], expected, atol=1e-5)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_overlap_is_what_two_lists_have_in_common(runner: Runner, corpus: Artifact, depth: int) -> None:
    task = pool_task(corpus, NeighbourPoolConfig(kind="overlap", name="T_ADelRand"))
    ranking = runner.make(dense_ranking_task(corpus, task, embed_tasks(corpus, task, LSA), LSA, depth=4))
    pool, members = Pool(runner.make(task), Corpus(corpus)), Members.read(corpus)
    place = {int(row): query for query, row in enumerate(pool.query_rows)}
    entries = ranking.arrow("ranking.arrow").to_pylist()

    def nearest(row: int) -> set[int]:
        return {each["row"] for each in entries if each["query"] == place[row] and each["rank"] <= depth}

    chosen = np.flatnonzero(members.names == "T_ADelRand")
    by_original = sorted(zip(members.of[chosen].tolist(), members.rows[chosen].tolist(), strict=True))
    expected = [len(nearest(original) & nearest(neighbour)) / depth for original, neighbour in by_original]
    rows, shares = overlap(ranking, pool, depth)
    assert rows.tolist() == [original for original, _ in by_original]
    assert shares.tolist() == expected
