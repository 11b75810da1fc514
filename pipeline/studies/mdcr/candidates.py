"""The candidates of each query: positives and negatives of each type (Medić & Šnajder 2022, section 4)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pipeline.core.artifact import Artifact
from pipeline.core.fields import FIELD_BIT
from pipeline.core.rng import generator
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.pool import Pool
from pipeline.corpus.prefilter import PrefilterConfig, has_text, prefilter
from pipeline.corpus.reader import Graph
from pipeline.measure.inputs import Mask, Qrels, pairs, places, query_of
from pipeline.stages.search import read_ranking
from pipeline.studies.mdcr.layout import TRUE

Rows = npt.NDArray[np.int64]
Candidates = Mapping[str, Rows]
"""Rows of the candidates of a query, by type."""

GRAPH, MOST_CITED, RANDOM = "graph", "most_cited", "random"


@dataclass(frozen=True)
class SamplingConfig:
    """How candidates are drawn.

    Attributes:
        seed: the user's seed.
        positives: ``true`` candidates of a query at most.
        negatives: candidates of each other type.
        top: top negatives of a system, and most cited papers of a field, that are drawn from.
        redraw: which draw of the negatives this is; the positives are the same in all.
    """

    seed: int = 13
    positives: int = 5
    negatives: int = 10
    top: int = 200
    redraw: int = 0


class CandidateSampler:
    """Draws the candidates of queries of one corpus; negatives are of the year of the queries or earlier.

    Args:
        pool: one of the pools: all have its corpus, prefilter and year of queries.
        sampling: how many of what.
    """

    def __init__(self, pool: Pool, sampling: SamplingConfig) -> None:
        config, attributes = pool.artifact.manifest.config, pool.corpus.attributes
        rules = PrefilterConfig(**config["prefilter"])
        in_time = (attributes["year"] <= config["year"]) & (attributes["year"] != NO_YEAR)
        self._corpus, self._sampling = pool.corpus, sampling
        self._eligible: Mask = has_text(attributes, rules) & in_time
        self._prefiltered = np.flatnonzero(prefilter(attributes, rules)[0] & in_time)

    def most_cited(self, field: str) -> Rows:
        """Return the most cited eligible papers of a field; equal counts are in order of row."""
        of_field = (self._corpus.attributes["fields"] >> np.uint32(FIELD_BIT[field])) & np.uint32(1) == 1
        rows = np.flatnonzero(of_field & self._eligible)
        order = np.lexsort((rows, -self._citations[rows]))
        return rows[order[: self._sampling.top]]

    @cached_property
    def _citations(self) -> Rows:
        """Citations of each paper as the release lists them; within the corpus, where the release lists none."""
        listed: Rows = self._corpus.attributes["n_inbound"].astype(np.int64)
        return listed if listed.any() else np.diff(self._corpus.incoming.indptr)

    def top_negatives(self, ranking: Artifact, pool: Pool) -> list[Rows]:
        """Return the highest-ranked eligible candidates of each query that it does not cite, in order of rank."""
        queries = len(pool.query_rows)
        ranked, qrels = read_ranking(ranking), Qrels.from_table(pool.qrels, queries)
        cited = pairs(*self._corpus.outgoing.of_many(pool.query_rows))
        positive = pairs(query_of(qrels.offsets), qrels.rows)
        negative = self._eligible[ranked.row]
        negative &= ~np.isin(pairs(ranked.query, ranked.row), np.concatenate([cited, positive]))
        rows = ranked.row[negative].astype(np.int64)
        starts = np.searchsorted(ranked.query[negative], np.arange(queries + 1))
        return [rows[start : min(end, start + self._sampling.top)] for start, end in itertools.pairwise(starts)]

    def draw(
        self, pool: Pool, split: str, tops: Mapping[str, Sequence[Rows]], popular: Rows, redraw: int
    ) -> Iterator[Candidates]:
        """Yield the candidates of each query of a pool by type, in order: true, the systems, graph, most cited, random.

        No paper stands twice for a query, and no negative is cited by it, is the query, or has its title.

        Args:
            pool: whose queries; its field is part of the seed.
            split: part of the seed.
            tops: of :meth:`top_negatives`, by system.
            popular: of :meth:`most_cited`.
            redraw: which draw of the negatives this is.
        """
        qrels = Qrels.from_table(pool.qrels, len(pool.query_rows))
        field, seed = pool.artifact.manifest.config["field"], self._sampling.seed
        for number, (row, query_id) in enumerate(zip(pool.query_rows.tolist(), pool.query_ids(), strict=True)):
            item = f"{split}|{field}|{query_id}"
            positives = qrels.rows[qrels.offsets[number] : qrels.offsets[number + 1]].astype(np.int64)
            drawn = generator(seed, "mdcr-true", item).permutation(positives)[: self._sampling.positives]
            chance = generator(seed, "mdcr", f"{item}|{redraw}")
            negatives = self._negatives(
                row, positives, {name: top[number] for name, top in tops.items()}, popular, chance
            )
            yield {TRUE: np.sort(drawn), **negatives}

    def _negatives(
        self, query: int, positives: Rows, tops: Candidates, popular: Rows, chance: np.random.Generator
    ) -> dict[str, Rows]:
        corpus, count = self._corpus, self._sampling.negatives
        titles = corpus.attributes["title_key"]
        taken = np.unique(np.concatenate([[query], corpus.outgoing.of(query), positives])).astype(np.int64)

        def free(rows: Rows) -> Mask:
            other_title = (titles[rows] != titles[query]) | (titles[query] == 0)
            return np.asarray(other_title & (places(rows, taken) < 0))

        def eligible(rows: Rows) -> Mask:
            return np.asarray(self._eligible[rows] & free(rows))

        sources, drawn = {**tops, MOST_CITED: popular, RANDOM: self._prefiltered}, {}
        for name in (*tops, GRAPH, MOST_CITED, RANDOM):
            if name == GRAPH:
                drawn[name] = graph_candidates(corpus.outgoing, corpus.incoming, query, eligible, count, chance)
            elif name == RANDOM and len(self._prefiltered) >= 100 * (count + len(taken)):  # most are free: try a few
                tried = self._prefiltered[chance.choice(len(self._prefiltered), 2 * count + len(taken), replace=False)]
                drawn[name] = np.sort(tried[free(tried)][:count])
            else:
                rows = sources[name][free(sources[name])]
                drawn[name] = np.sort(chance.choice(rows, min(count, len(rows)), replace=False))
            taken = np.union1d(taken, drawn[name])
        return drawn


def by_overlap(outgoing: Graph, query: int) -> tuple[Rows, Rows]:
    """Return what a query cites by descending overlap, and the overlaps, int64 ``[cited]``.

    The overlap of a cited paper c is ``|OC(q) n (OC(c) u IC(c))|``, where OC are the papers that a paper cites and IC
    those that cite it; equal overlaps are in order of row. The paper divides by ``|OC(q)|``, which keeps the order.
    Only outgoing citations are read: x cites c where c is in OC(x).
    """
    cited = outgoing.of(query).astype(np.int64)
    owner, target = outgoing.of_many(cited)
    place = places(target, cited)
    links = np.stack([owner, place], axis=1)[place >= 0]
    both = np.unique(np.concatenate([links, links[:, ::-1]]), axis=0)  # a pair may cite each other
    counts = np.bincount(both[:, 0], minlength=len(cited))
    order = np.lexsort((cited, -counts))
    return cited[order], counts[order]


def graph_candidates(
    outgoing: Graph,
    incoming: Graph,
    query: int,
    eligible: Callable[[Rows], Mask],
    count: int,
    chance: np.random.Generator,
) -> Rows:
    """Return up to ``count`` papers near a query in the citation graph, in order of visits.

    Cited papers are visited by descending overlap (:func:`by_overlap`); each gives the eligible papers that it cites or
    that cite it and that the query does not cite. The last visited one gives a random subset.
    """
    visited, _ = by_overlap(outgoing, query)
    taken = np.union1d(visited, query)
    candidates = np.empty(0, np.int64)
    for paper in visited:
        cites, cited_by = outgoing.of(paper), incoming.of(paper)
        near = np.concatenate([cites, cited_by[places(cited_by, cites) < 0]]).astype(np.int64)
        near = near[places(near, taken) < 0]
        near = np.sort(near[eligible(near)], kind="stable")  # two rising runs: time grows with their length alone
        wanted = count - len(candidates)
        if len(near) >= wanted:
            return np.concatenate([candidates, np.sort(chance.choice(near, wanted, replace=False))])
        candidates, taken = np.concatenate([candidates, near]), np.union1d(taken, near)
    return candidates
