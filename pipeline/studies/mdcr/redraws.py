"""Pools with several draws of one benchmark's lists, so that each system ranks all draws at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.config import digest
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.studies.mdcr.build import FieldRankings, sampler_of
from pipeline.studies.mdcr.candidates import GRAPH, MOST_CITED, RANDOM, SamplingConfig
from pipeline.studies.mdcr.layout import TRUE
from pipeline.studies.mdcr.lists import ListsConfig, write_lists_pool

MATCHED = "matched"
"""The draw with negatives of every system."""


class Draw(NamedTuple):
    """One draw of the negatives, with its number; its types are ``NAME/TYPE``, and ``systems`` give top negatives."""

    name: str
    redraw: int
    systems: tuple[str, ...]

    def types(self, without: str = "") -> frozenset[str]:
        """Return its types, without one."""
        return frozenset(
            f"{self.name}/{each}" for each in (*self.systems, GRAPH, MOST_CITED, RANDOM) if each != without
        )


def draws(chosen: Sequence[str], systems: Sequence[str], rebuilds: int) -> list[Draw]:
    """Return the benchmark's own draw, its rebuilds, and the draw with negatives of every system."""
    own = [Draw(str(number), number, tuple(chosen)) for number in range(rebuilds + 1)]
    return [*own, Draw(MATCHED, 0, tuple(systems))]


def draws_pool_task(corpus: Artifact, part: FieldRankings, drawing: SamplingConfig, wanted: Sequence[Draw]) -> Task:
    """Return the task of the pool with all draws of one field; positives are the same in all."""
    own = {field.name: getattr(part.pool.config, field.name) for field in dataclasses.fields(part.pool.config)}
    config = ListsConfig(
        **own,
        lists=digest([drawing, [list(each) for each in wanted], list(part.rankings)]),
        longest=drawing.positives + sum(len(each.types()) for each in wanted) * drawing.negatives,
    )
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": part.pool, **part.rankings}

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened = Corpus(inputs["corpus"])
        pool = Pool(inputs["pool"], opened)
        sampler = sampler_of(opened, [pool], drawing)
        tops = {name: sampler.top_negatives(inputs[name], pool) for name in part.rankings}
        popular = sampler.most_cited(part.field)
        query, row, types = [], [], []
        for each in wanted:
            found = sampler.redrawn(each.redraw).draw(pool, part.split, {n: tops[n] for n in each.systems}, popular)
            for number, by_type in enumerate(found):
                for name, rows in by_type.items():
                    if name != TRUE or each is wanted[0]:
                        query.append(np.full(len(rows), number))
                        row.append(rows)
                        types += [name if name == TRUE else f"{each.name}/{name}"] * len(rows)
        rows_of_queries = pool.query_rows.astype(np.int64)
        return write_lists_pool(out, part.field, rows_of_queries, np.concatenate(query), np.concatenate(row), types)

    return Task("pool", 1, POOLS, f"{part.pool.slug}-draws", config, inputs, run)
