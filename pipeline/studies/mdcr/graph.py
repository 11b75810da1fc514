"""Graph candidates: papers near a query in the citation graph (Medić & Šnajder 2022, section 4)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pipeline.corpus.reader import Graph
from pipeline.measure.inputs import places

Rows = npt.NDArray[np.int64]


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
    """Return up to ``count`` papers near a query in the citation graph.

    Cited papers are visited by descending overlap (:func:`by_overlap`); each gives the eligible papers that it cites or
    that cite it and that the query does not cite. The last visited one gives a random subset.

    Args:
        outgoing: the papers each paper cites.
        incoming: the papers that cite each paper.
        query: row of the query.
        eligible: which of some rows may be candidates, bool ``[rows]``.
        count: candidates wanted.
        chance: the generator of this query.

    Returns:
        int64 ``[at most count]``, in order of visits.
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
