"""The pools of the study: titles as queries (section 5), neighbours as queries (6.2), overlap of neighbours (6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.rng import priorities, smallest
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.reader import Corpus
from pipeline.studies.neighbours.corpus import TITLE, Members, Rows, drawn
from pipeline.studies.pools import ExternalPoolConfig, write_pool

Kind = Literal["titles", "titles-among-titles", "neighbours", "overlap"]


@dataclass(frozen=True)
class NeighbourPoolConfig(ExternalPoolConfig):
    """Settings of a pool of a corpus of neighbours.

    Attributes:
        kind: ``titles``: titles as queries, originals as candidates (task I). ``titles-among-titles``: the titles of
            all other papers are candidates too (task II). ``neighbours``: neighbours of all classes as queries,
            originals as candidates; a query's field is its class. ``overlap``: neighbours of one class and their
            originals as queries; all neighbours of that class and all originals as candidates.
        name: the class, of ``overlap``.
        queries: titles that are queries; neighbours of each class that are, all where a class has fewer.
    """

    kind: Kind = "titles"
    name: str = ""

    @property
    def slug(self) -> str:
        """Readable name: ``overlap-t-arot``."""
        return f"{self.kind}-{self.name}".lower().replace("_", "-").strip("-")


def pool_task(corpus: Artifact, config: NeighbourPoolConfig) -> Task:
    """Return the task that makes a pool. The positive of a query is its original, or the original's neighbour.

    A query that is a candidate is removed from its own ranking.

    Raises:
        InputError: once run: no paper has a neighbour of the class.
    """

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        members = Members.read(inputs["corpus"])
        chosen = _chosen(members, Corpus(inputs["corpus"]), config)
        if not len(chosen):
            raise InputError(f"no paper has a neighbour of {config.name or 'any class'}", "Leave the class out")
        rows, of, fields = members.rows[chosen], members.of[chosen], members.names[chosen].astype(object)
        candidates = members.originals
        if config.kind == "overlap":
            candidates = np.union1d(candidates, members.rows[members.names == config.name])
            fields = np.concatenate([fields, [None] * len(rows)])
            rows, of = np.concatenate([rows, of]), np.concatenate([of, rows])
        elif config.kind == "titles-among-titles":
            candidates = np.union1d(candidates, members.rows[members.names == TITLE])
        order = np.argsort(rows)
        rows, of, fields, places = rows[order], of[order], fields[order], np.arange(len(rows))
        own = np.flatnonzero(np.isin(rows, candidates))
        write_pool(out, (rows, fields), candidates, (places, of, np.ones(len(rows))), (own, rows[own]))
        return {
            "queries": len(rows),
            "queries_without_positive": 0,
            "positives": len(rows),
            "candidates": len(candidates),
            "excluded_self": len(own),
            "excluded_same_title": 0,
        }

    return Task("pool", 1, POOLS, f"{corpus.manifest.slug}-{config.slug}", config, {"corpus": corpus}, run)


def _chosen(members: Members, corpus: Corpus, config: NeighbourPoolConfig) -> Rows:
    """Return the places, among titles and neighbours, of the queries."""
    keys = corpus.attributes["key"][members.of]
    if config.kind.startswith("titles"):
        titles = np.flatnonzero(members.names == TITLE)
        count = len(titles) if config.queries == "all" else config.queries
        return titles[smallest(priorities(keys[titles], config.seed, "title queries"), count)]
    names = [config.name] if config.kind == "overlap" else np.unique(members.names[members.names != TITLE])
    chosen = np.zeros(len(keys), bool)
    for name in names:
        places = np.flatnonzero(members.names == name)
        chosen[places[drawn(keys[places], config.queries, config.seed)]] = True
    return np.flatnonzero(chosen)
