"""The candidates of each query: positives and negatives of each type (Medić & Šnajder 2022, section 4)."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.artifact import Artifact
from pipeline.core.fields import FIELD_BIT
from pipeline.core.rng import generator
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.pool import Pool
from pipeline.corpus.prefilter import PrefilterConfig, has_text, prefilter
from pipeline.corpus.reader import Corpus, Graph
from pipeline.measure.inputs import places
from pipeline.studies.mdcr.layout import TRUE

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_Test = Callable[[Rows], Mask]

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


def mean_jaccard(tops: Mapping[str, Sequence[Rows]]) -> dict[tuple[str, str], float]:
    """Return the Jaccard index of each two systems' top negatives of each query, mean over queries."""
    found = {}
    for first, second in itertools.combinations(tops, 2):
        values = []
        for one, other in zip(tops[first], tops[second], strict=True):
            shared = len(np.intersect1d(one, other))
            union = len(one) + len(other) - shared
            values.append(shared / union if union else 1.0)
        found[first, second] = float(np.mean(values))
    return found


def least_alike(jaccard: Mapping[tuple[str, str], float], systems: Sequence[str], count: int = 3) -> tuple[str, ...]:
    """Return the systems whose mean Jaccard index with the others is lowest, in the order of ``systems``."""
    means = {system: float(np.mean([value for pair, value in jaccard.items() if system in pair])) for system in systems}
    chosen = sorted(systems, key=lambda system: (means[system], systems.index(system)))[:count]
    return tuple(system for system in systems if system in chosen)


class CandidateSampler:
    """Draws the candidates of queries of one corpus.

    Args:
        corpus: where candidates come from.
        rules: which papers have text, and which are prefiltered.
        year: publication year of the queries; negatives are of that year or earlier.
        drawing: how many of what.
    """

    def __init__(self, corpus: Corpus, rules: PrefilterConfig, year: int, drawing: SamplingConfig) -> None:
        self._corpus, self._drawing = corpus, drawing
        attributes = corpus.attributes
        in_time = (attributes["year"] <= year) & (attributes["year"] != NO_YEAR)
        self._eligible: Mask = has_text(attributes, rules) & in_time
        self._prefiltered = np.flatnonzero(prefilter(attributes, rules)[0] & in_time)

    def redrawn(self, redraw: int) -> CandidateSampler:
        """Return the sampler of another draw of the negatives."""
        other = copy.copy(self)
        other._drawing = replace(self._drawing, redraw=redraw)
        return other

    def most_cited(self, field: str) -> Rows:
        """Return the most cited eligible papers of a field; equal counts are in order of row."""
        of_field = (self._corpus.attributes["fields"] >> np.uint32(FIELD_BIT[field])) & np.uint32(1) == 1
        rows = np.flatnonzero(of_field & self._eligible)
        order = np.lexsort((rows, -self._citations[rows]))
        return rows[order[: self._drawing.top]]

    @cached_property
    def _citations(self) -> Rows:
        """Citations of each paper as the release lists them; within the corpus, where the release lists none."""
        listed: Rows = self._corpus.attributes["n_inbound"].astype(np.int64)
        return listed if listed.any() else np.diff(self._corpus.incoming.indptr)

    def top_negatives(self, ranking: Artifact, pool: Pool) -> list[Rows]:
        """Return the highest-ranked eligible candidates of each query that it does not cite, in order of rank."""
        table = ranking.arrow("ranking.arrow")
        query, row = (table.column(name).to_numpy().astype(np.int64) for name in ("query", "row"))
        outgoing = self._corpus.outgoing.of_many(pool.query_rows)
        negative = self._eligible[row] & ~_in_pairs(query, row, *outgoing) & ~_in_pairs(query, row, *_judged(pool))
        query, row = query[negative], row[negative]
        starts = np.searchsorted(query, np.arange(len(pool.query_rows) + 1))
        top = self._drawing.top
        return [row[start : min(end, start + top)] for start, end in itertools.pairwise(starts)]

    def draw(
        self, pool: Pool, split: str, tops: Mapping[str, Sequence[Rows]], popular: Rows
    ) -> Iterator[dict[str, Rows]]:
        """Yield the candidates of each query of a pool by type, in order: true, the systems, graph, most cited, random.

        No paper stands twice for a query, and no negative is cited by it, is the query, or has its title. The split is
        part of the seed. ``tops`` are of :meth:`top_negatives`, by system; ``popular`` of :meth:`most_cited`.
        """
        drawing, corpus = self._drawing, self._corpus
        judged_query, judged_row = _judged(pool)
        titles = corpus.attributes["title_key"]
        field = pool.artifact.manifest.config["field"]
        for number, (row, query_id) in enumerate(zip(pool.query_rows.tolist(), pool.query_ids(), strict=True)):
            item = f"{split}|{field}|{query_id}"
            chance = generator(drawing.seed, "mdcr", f"{item}|{drawing.redraw}")
            positives = judged_row[judged_query == number]
            chosen = generator(drawing.seed, "mdcr-true", item).permutation(positives)[: drawing.positives]
            found = {TRUE: np.sort(chosen)}
            taken = np.unique(np.concatenate([[row], corpus.outgoing.of(row), positives])).astype(np.int64)

            def other(rows: Rows, own: Any = titles[row]) -> Mask:
                mask: Mask = (titles[rows] != own) | (own == 0)
                return mask

            for system, top in tops.items():
                found[system] = _draw(top[number], other, taken, drawing.negatives, chance)
                taken = np.union1d(taken, found[system])

            def eligible(rows: Rows, taken: Rows = taken, other: _Test = other) -> Mask:
                mask: Mask = self._eligible[rows] & other(rows) & (places(rows, taken) < 0)
                return mask

            found[GRAPH] = graph_candidates(corpus.outgoing, corpus.incoming, row, eligible, drawing.negatives, chance)
            taken = np.union1d(taken, found[GRAPH])
            found[MOST_CITED] = _draw(popular, other, taken, drawing.negatives, chance)
            taken = np.union1d(taken, found[MOST_CITED])
            found[RANDOM] = _draw_random(self._prefiltered, other, taken, drawing.negatives, chance)
            yield found


def _draw(rows: Rows, fit: _Test, taken: Rows, count: int, chance: np.random.Generator) -> Rows:
    """Return up to ``count`` of some rows at random, rising: fit ones, none of them taken."""
    free = rows[fit(rows) & (places(rows, taken) < 0)]
    return np.sort(chance.choice(free, min(count, len(free)), replace=False))


def _draw_random(rows: Rows, fit: _Test, taken: Rows, count: int, chance: np.random.Generator) -> Rows:
    """Return :func:`_draw` of many rows without a look at each."""
    if len(rows) < 100 * (count + len(taken)):
        return _draw(rows, fit, taken, count, chance)
    tried = rows[chance.choice(len(rows), 2 * count + len(taken), replace=False)]
    return np.sort(tried[fit(tried) & (places(tried, taken) < 0)][:count])


def _judged(pool: Pool) -> tuple[Rows, Rows]:
    """Return query and row of each positive of a pool."""
    table = pool.qrels
    positive = table.column("grade").to_numpy() > 0
    query, row = (table.column(name).to_numpy()[positive].astype(np.int64) for name in ("query", "row"))
    return query, row


def _in_pairs(query: Rows, row: Rows, known_query: Rows, known_row: npt.NDArray[np.integer]) -> Mask:
    """Return whether each (query, row) is among the known pairs."""
    return np.isin(query << 32 | row, known_query << 32 | known_row.astype(np.int64))


def by_overlap(outgoing: Graph, query: int) -> tuple[Rows, Rows]:
    """Return what a query cites by descending overlap, and the overlaps, int64 ``[cited]``.

    The overlap of a cited paper c is ``|OC(q) n (OC(c) u IC(c))|``, where OC are the papers that a paper cites and IC
    those that cite it; equal overlaps are in order of row. The paper divides by ``|OC(q)|``, which keeps the order.
    Only outgoing citations are read: x cites c where c is in OC(x).
    """
    cited = outgoing.of(query).astype(np.int64)
    owner, target = outgoing.of_many(cited)
    place = np.searchsorted(cited, target)
    place[place == len(cited)] = 0
    inside = cited[place] == target if len(cited) else np.empty(0, bool)
    pairs = np.stack([owner[inside], place[inside]], axis=1)
    both = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)  # a pair may cite each other
    counts = np.bincount(both[:, 0], minlength=len(cited))
    order = np.lexsort((cited, -counts))
    return cited[order], counts[order]


def graph_candidates(
    outgoing: Graph,
    incoming: Graph,
    query: int,
    eligible: Callable[[Rows], npt.NDArray[np.bool_]],
    count: int,
    chance: np.random.Generator,
) -> Rows:
    """Return up to ``count`` papers near a query in the citation graph, in order of visits.

    Cited papers are visited by descending overlap (:func:`by_overlap`); each gives the eligible papers that it cites or
    that cite it and that the query does not cite. The last visited one gives a random subset.
    """
    visited, _ = by_overlap(outgoing, query)
    taken = np.union1d(visited, query)
    found = np.empty(0, np.int64)
    for paper in visited:
        cites, cited_by = outgoing.of(paper), incoming.of(paper)
        near = np.concatenate([cites, cited_by[places(cited_by, cites) < 0]]).astype(np.int64)
        near = near[places(near, taken) < 0]
        near = np.sort(near[eligible(near)], kind="stable")  # two rising runs: time grows with their length alone
        wanted = count - len(found)
        if len(near) >= wanted:
            return np.concatenate([found, np.sort(chance.choice(near, wanted, replace=False))])
        found, taken = np.concatenate([found, near]), np.union1d(taken, near)
    return found
