"""Pools with the queries of another pool and negatives of one kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.rng import priorities, smallest
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.pools import drawable, write_pool
from pipeline.corpus.prefilter import prefilter
from pipeline.corpus.reader import Corpus, Rows
from pipeline.measure.inputs import Qrels, query_of
from pipeline.stages.ranking_file import read_ranking
from pipeline.studies.common import ExternalPoolConfig
from pipeline.studies.large_scale.analyses import STRATUM, with_strata

RANDOM, GRAPH, MATCHED, MODEL = "random", "graph", "matched", "model"
KINDS = (RANDOM, GRAPH, MATCHED, MODEL)
"""Kinds of negatives. ``random``: as in every pool. ``graph``: papers that cite, or are cited by, a paper cited by a
query. ``matched``: papers with the positives' distribution of years, lengths and abstracts. ``model``: papers that the
first dense system ranks for any query in the largest random pool."""


@dataclass(frozen=True)
class KindConfig(ExternalPoolConfig):
    """Settings of a pool whose negatives are of one kind."""

    negatives: str = ""


def kind_pool_task(corpus: Artifact, base: Task, kind: str, further_inputs: Mapping[str, Task | Artifact]) -> Task:
    """Return the task of a pool with the queries and positives of ``base``, and as many negatives of a kind.

    If there are fewer of the kind, the pool is smaller. Samples and sizes are drawn like those of random negatives.
    ``further_inputs`` are the ranking for ``model``.
    """
    settings = base.config
    config = KindConfig(**{**vars(settings), "negatives": kind})

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        pool = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        corpus, qrels = pool.corpus, Qrels.from_table(pool.qrels, pool)
        positives = np.unique(qrels.rows)
        source = drawable(corpus, settings, prefilter(corpus.attributes, settings.prefilter)[0])
        source[positives] = False
        draw_count = len(pool.candidates) - len(positives)
        if kind == MATCHED:
            negatives = _matched(corpus, np.flatnonzero(source).astype(np.uint32), positives, draw_count, settings)
        else:
            if kind == GRAPH:
                cited = np.unique(corpus.outgoing.of_many(pool.query_rows)[1])
                near = (corpus.outgoing.of_many(cited)[1], corpus.incoming.of_many(cited)[1])
                of_kind = np.unique(np.concatenate(near))
            else:
                of_kind = np.unique(read_ranking(inputs["ranking"]).row)
            rows = of_kind[source[of_kind]]
            item = f"{kind}|{settings.field}|{settings.sample}"
            negatives = rows[
                smallest(priorities(corpus.attributes["key"][rows], settings.seed, "candidates", item), draw_count)
            ]
        candidates = np.union1d(positives, negatives).astype(np.uint32)
        offsets, excluded = pool.exclusions
        queries = query_of(offsets)
        is_candidate = np.isin(excluded, candidates)
        fields = pool.artifact.arrow("queries.arrow").column("field")
        judgements = [pool.qrels.column(name) for name in ("query", "row", "grade")]
        write_pool(
            out, (pool.query_rows, fields), candidates, judgements, (queries[is_candidate], excluded[is_candidate])
        )
        return {
            **{name: pool.artifact.manifest.counts[name] for name in ("queries", "positives")},
            "candidates": len(candidates),
            "candidates_positive": len(positives),
            "candidates_drawn": len(negatives),
            "candidates_wanted": draw_count,
        }

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": base, **further_inputs}
    return Task("pool", 1, POOLS, f"{base.slug}-{kind}", config, inputs, run)


def _matched(corpus: Corpus, rows: Rows, positives: Rows, draw_count: int, settings: Any) -> Rows:
    """Return negatives that have an abstract, three years and a length in the positives' proportions.

    Within a stratum papers are drawn by priority. The n-th paper of a stratum with share s has turn n / s, and papers
    are taken by turn. So smaller samples are subsets of larger ones, and other strata fill up for an exhausted one.
    """

    def strata(papers: Rows) -> pl.DataFrame:
        return with_strata(corpus, papers, corpus.attributes["abstract_chars"][papers] > 0)

    shares = strata(positives).group_by(STRATUM).agg((pl.len() / len(positives)).alias("share"))
    item = f"{MATCHED}|{settings.field}|{settings.sample}"
    chance = priorities(corpus.attributes["key"][rows], settings.seed, "candidates", item)
    papers = strata(rows).with_columns(chance=chance).join(shares, on=STRATUM).sort("chance", "row")
    ordered = papers.with_columns(turn=(pl.int_range(pl.len()).over(STRATUM) + 1) / pl.col("share")).sort(
        "turn", "chance"
    )
    return np.asarray(ordered["row"].head(draw_count).to_numpy())
