"""Pools of a study's own: whatever queries, candidates and judgements it makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.rng import priorities, smallest
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.pools import drawable, write_pool
from pipeline.corpus.prefilter import prefilter
from pipeline.corpus.reader import Corpus, Rows
from pipeline.measure.inputs import Mask, Qrels, query_of


@dataclass(frozen=True)
class OwnPool(PoolConfig):
    """Settings of a pool that a study builds. Inherited settings of drawing queries and candidates have no effect."""

    year: int | None = None
    size: int | Literal["all"] = "all"
    queries: int | Literal["all"] = "all"

    def __post_init__(self) -> None:
        """Accept any setting."""


def own_pool(
    slug: str,
    build: Callable[[Inputs, Workdir], Counts],
    inputs: Mapping[str, Task | Artifact],
    *,
    version: int = 1,
    own: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Task:
    """Return the task of a pool of one's own, to rank and score like any other.

    Args:
        slug: the readable part of its folder name.
        build: ``build(inputs, out)`` writes the pool by :func:`write_pool` and returns its counts, ``queries``,
            ``positives`` and ``candidates`` among them. It reads nothing but its inputs.
        inputs: artifacts, or tasks that make them, by name; ``corpus`` is one of them.
        version: raised when changed code writes another pool.
        own: further settings that decide what is built, by name.
        **settings: settings of drawn pools that describe it, such as ``field``, ``year`` and ``size``.
    """
    further = [(name, type(value), dataclasses.field(default=value)) for name, value in (own or {}).items()]
    config = dataclasses.make_dataclass("OwnPool", further, bases=(OwnPool,), frozen=True)(**settings)

    def run(made: Inputs, out: Workdir, _resources: Resources) -> Counts:
        return build(made, out)

    return Task("pool", version, POOLS, slug, config, inputs, run)


@dataclass(frozen=True, eq=False)
class Draw:
    """What the negatives of a pool are drawn from: ``count`` papers of those that ``may_be`` drawn.

    ``kind`` is their name, ``pool`` the pool whose queries and ``positives`` (rising rows) are kept, ``inputs`` has
    further artifacts by name.
    """

    kind: str
    pool: Pool
    may_be: Mask
    positives: Rows
    count: int
    inputs: Inputs

    def priorities(self, rows: Rows) -> npt.NDArray[np.uint64]:
        """Return the priority of each of some papers, uint64 ``[rows]``, by the pool's seed, field and sample."""
        config = self.pool.artifact.manifest.config
        item = f"{self.kind}|{config['field']}|{config['sample']}"
        return priorities(self.pool.corpus.attributes["key"][rows], config["seed"], "candidates", item)

    def first(self, rows: Rows) -> Rows:
        """Return as many of some papers as are wanted, by priority: smaller draws are parts of larger ones."""
        drawn = np.unique(rows)
        drawn = drawn[self.may_be[drawn]]
        return np.asarray(drawn[smallest(self.priorities(drawn), self.count)])


def with_negatives(base: Task, kind: str, choose: Callable[[Draw], Rows], **inputs: Task | Artifact) -> Task:
    """Return the task of a pool with the queries and positives of another and negatives of one's own.

    Args:
        base: the other pool.
        kind: name of the kind of negatives, part of the pool's name and settings (``negatives``).
        choose: returns the rows of the negatives; if there are fewer than wanted, the pool is smaller.
        **inputs: further artifacts that it reads, or tasks that make them.
    """

    def build(made: Inputs, out: Workdir) -> Counts:
        pool = Pool(made["pool"], Corpus(made["corpus"]))
        positives = np.unique(Qrels.from_table(pool.qrels, pool).rows)
        may_be = drawable(pool.corpus, base.config, prefilter(pool.corpus.attributes, base.config.prefilter)[0])
        may_be[positives] = False
        draw = Draw(kind, pool, may_be, positives, len(pool.candidates) - len(positives), made)
        negatives = choose(draw)
        candidates = np.union1d(positives, negatives).astype(np.uint32)
        offsets, excluded = pool.exclusions
        kept = np.isin(excluded, candidates)
        judged = [pool.qrels.column(name) for name in ("query", "row", "grade")]
        queries = pool.query_rows, pool.artifact.arrow("queries.arrow").column("field")
        write_pool(out, queries, candidates, judged, (query_of(offsets)[kept], excluded[kept]))
        return {
            **{name: pool.artifact.manifest.counts[name] for name in ("queries", "positives")},
            "candidates": len(candidates),
            "candidates_positive": len(positives),
            "candidates_drawn": len(negatives),
            "candidates_wanted": draw.count,
        }

    slug, read = f"{base.slug}-{kind}", {"corpus": base.inputs["corpus"], "pool": base, **inputs}
    return own_pool(slug, build, read, own={"negatives": kind}, **vars(base.config))
