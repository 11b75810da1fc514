"""Graph candidates against the definition computed with sets."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.rng import generator
from pipeline.corpus.reader import Graph
from pipeline.studies.mdcr.build import by_overlap, graph_candidates


def random_graph(papers: int, links: int, seed: int) -> tuple[Graph, Graph]:
    """Return both directions of a random citation graph with some papers cited by many."""
    chance = np.random.default_rng(seed)
    source = chance.integers(0, papers, links)
    target = (papers * chance.random(links) ** 3).astype(np.int64)
    pairs = np.unique(np.stack([source, target], axis=1)[source != target], axis=0)
    return _csr(pairs, papers), _csr(np.unique(pairs[:, ::-1], axis=0), papers)


def _csr(pairs: np.ndarray, papers: int) -> Graph:
    return Graph(np.searchsorted(pairs[:, 0], np.arange(papers + 1)), pairs[:, 1].astype(np.uint32))


def sets(graph: Graph, papers: int) -> list[set[int]]:
    return [set(graph.of(row).tolist()) for row in range(papers)]


@pytest.mark.parametrize("seed", range(3))
def test_overlaps_are_those_of_the_definition(seed: int) -> None:
    papers = 60
    outgoing, incoming = random_graph(papers, 400, seed)
    cites, cited_by = sets(outgoing, papers), sets(incoming, papers)
    for query in range(papers):
        expected = {c: len(cites[query] & (cites[c] | cited_by[c])) for c in cites[query]}
        rows, overlaps = by_overlap(outgoing, query)
        assert dict(zip(rows.tolist(), overlaps.tolist(), strict=True)) == expected
        assert [(-n, c) for c, n in zip(rows, overlaps, strict=True)] == sorted((-n, c) for c, n in expected.items())


@pytest.mark.parametrize("seed", range(3))
def test_candidates_are_those_of_the_definition(seed: int) -> None:
    papers, count = 60, 10
    outgoing, incoming = random_graph(papers, 150, seed)
    cites, cited_by = sets(outgoing, papers), sets(incoming, papers)
    fit = np.random.default_rng(seed).random(papers) < 0.7
    whole = partial = 0
    for query in range(papers):
        chance = generator(seed, "test", query)
        drawn = graph_candidates(outgoing, incoming, query, lambda rows: fit[rows], count, chance).tolist()
        assert len(set(drawn)) == len(drawn) <= count
        taken, left = {query, *cites[query]}, drawn
        for paper in by_overlap(outgoing, query)[0].tolist():
            near = {other for other in cites[paper] | cited_by[paper] if fit[other]} - taken
            if len(near) >= len(left) and len(drawn) == count:  # the last one gives some of its own
                assert set(left) <= near
                left = []
                partial += 1
                break
            assert set(left[: len(near)]) == near
            taken, left = taken | near, left[len(near) :]
        assert not left
        whole += len(drawn) < count
    assert whole
    assert partial


def test_a_paper_that_cites_nothing_has_no_graph_candidates() -> None:
    empty = Graph(np.zeros(4, np.int64), np.empty(0, np.uint32))
    assert not len(graph_candidates(empty, empty, 1, lambda rows: rows >= 0, 10, generator(1, "test")))
