"""Standardised vectors, similarities and overlaps, against their definitions in NumPy."""

import itertools
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.runner import Runner
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.encode.registry import resolve
from pipeline.retrieve.base import Ranking
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.embed import embed_tasks, store_of
from pipeline.studies.neighbours.corpus import Members, pool_task
from pipeline.studies.neighbours.geometry import (
    DESCRIBED,
    overlap,
    ranks_of_ties,
    similarity_task,
    standardised_task,
    unit_vectors,
)

LSA = resolve("lsa")


def test_standardised_vectors_have_mean_0_and_deviation_1_over_the_candidates(runner: Runner, corpus: Artifact) -> None:
    task = pool_task(corpus, "titles", "all", 13)
    vectors = embed_tasks(corpus, task, LSA)["paper"]
    standardised = store_of(runner.make(standardised_task(corpus, task, vectors, LSA)))
    pool = Pool(runner.make(task), Corpus(corpus))
    rows = np.union1d(pool.candidates, pool.query_rows)
    (before,) = store_of(runner.make(vectors)).blocks(rows, 100)
    (after,) = standardised.blocks(rows, 100)
    candidates = before.vectors[np.isin(rows, pool.candidates)].astype(np.float64)
    scale = np.where(candidates.std(axis=0) > 0, candidates.std(axis=0), 1)
    np.testing.assert_allclose(after.vectors, (before.vectors - candidates.mean(axis=0)) / scale, atol=1e-5)


@pytest.mark.parametrize("queries", ["all", 2])
def test_similarities_are_of_a_pools_queries(runner: Runner, corpus: Artifact, queries: Any) -> None:
    runner.make(embed_tasks(corpus, pool_task(corpus, "neighbours", "all", 13), LSA)["paper"])
    pool = pool_task(corpus, "neighbours", queries, 13)
    vectors = embed_tasks(corpus, pool, LSA)["paper"]
    described = runner.make(similarity_task(corpus, pool, vectors, LSA)).arrow("similarities.arrow").to_pylist()
    members, store = Members.read(corpus), store_of(runner.make(vectors))
    drawn = np.isin(members.rows, Pool(runner.make(pool), Corpus(corpus)).query_rows)
    names, counts = np.unique(members.names[drawn], return_counts=True)
    assert counts.max() == (3 if queries == "all" else queries)
    assert [row["name"] for row in described] == [n for n, c in zip(names, counts, strict=True) if c > 1]
    for row in described:
        places = np.flatnonzero((members.names == row["name"]) & drawn)
        neighbours, originals = (
            np.concatenate([unit_vectors(store, rows[[place]]) for place in places])
            for rows in (members.rows, members.original_of)
        )
        pairs = np.array([first @ second for first, second in itertools.combinations(neighbours, 2)])
        own = (neighbours * originals).sum(axis=1)
        assert row["papers"] == len(places)
        expected = [pairs.mean(), pairs.std(), pairs.min(), pairs.max(), np.mean(pairs > pairs.mean()), own.mean()]
        np.testing.assert_allclose([row[column] for column in DESCRIBED], expected, atol=1e-5)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_overlap_is_what_two_lists_have_in_common(runner: Runner, corpus: Artifact, depth: int) -> None:
    task = pool_task(corpus, "overlap", "all", 13, "T_ADelRand")
    ranking = runner.make(dense_ranking_task(corpus, task, embed_tasks(corpus, task, LSA), LSA, depth=4))
    pool, members = Pool(runner.make(task), Corpus(corpus)), Members.read(corpus)
    query_of = {int(row): query for query, row in enumerate(pool.query_rows)}
    entries = ranking.arrow("ranking.arrow").to_pylist()

    def nearest(row: int) -> set[int]:
        return {entry["row"] for entry in entries if entry["query"] == query_of[row] and entry["rank"] <= depth}

    chosen = np.flatnonzero(members.names == "T_ADelRand")
    by_original = sorted(zip(members.original_of[chosen].tolist(), members.rows[chosen].tolist(), strict=True))
    rows, shares = overlap(ranking, pool, depth)
    assert rows.tolist() == [original for original, _ in by_original]
    assert shares.tolist() == [len(nearest(original) & nearest(row)) / depth for original, row in by_original]


def test_scores_that_differ_by_rounding_have_the_same_order_in_every_list() -> None:
    """Papers 4 and 9 have one vector, and so have both queries."""
    scores, rows = [0.9, 0.5, 0.5 - 1e-7, 0.2, 0.9, 0.5 + 1e-7, 0.5, 0.2], [7, 4, 9, 1, 7, 9, 4, 1]
    query, rank = np.repeat([0, 3], 4), np.tile(np.arange(1, 5), 2)
    entries = Ranking(*map(np.array, (query, rows, np.float32(scores), rank)))
    assert ranks_of_ties(entries).tolist() == [1, 3, 2, 4, 1, 2, 3, 4]
    assert ranks_of_ties(Ranking(*(array[:0] for array in vars(entries).values()))).tolist() == []
