"""Stage ``rerank``: a reranker reorders the first entries of a ranking; the others follow in their order.

A reranked entry has the reranker's score. The entry ``j`` places below the reranked ones has their lowest score minus
``j``, so that scores descend and the order below is kept. Ties are broken by the total order
(:mod:`pipeline.core.order`).

The work is divided into units of queries, whose number depends on the ranking alone. So which pairs share a batch, and
with it the last bits of their scores, does not depend on the machines.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, StageError
from pipeline.core.manifest import Counts
from pipeline.core.order import Rows, Scores
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Sharded, Task, UnitProvenance
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.encode.base import NotFiniteError, Pair, in_order
from pipeline.encode.known import recorded
from pipeline.encode.model import Model
from pipeline.encode.shards import CorpusTexts
from pipeline.retrieve.base import Ranking
from pipeline.stages.ranking_file import open_pool, read_ranking, write_ranking

UNIT_PAIRS = 4_096
"""Maximum number of pairs per unit, unless one query has more; a killed run resumes after the last finished unit."""

_LARGEST = 1_000_000
"""Maximum absolute score: float32 still distinguishes whole numbers there, with room for every rank."""

_SCHEMA = pa.schema([pa.field("score", pa.float32(), nullable=False)])


@dataclass(frozen=True)
class RerankConfig:
    """Settings that determine a reranked ranking, besides the ranking: the reranker and its entries per query."""

    encoder: Mapping[str, Any]
    head: int


@dataclass(frozen=True)
class Reranking(Sharded):
    """Reranking of the first ``head`` entries per query of one ranking by a model."""

    model: Model
    head: int
    accelerated = True

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:  # noqa: ARG002
        """Return units of neighbouring queries."""
        queries = len(open_pool(inputs).query_rows)
        size = max(1, UNIT_PAIRS // self.head)
        pairs = np.bincount(_heads(inputs, self.head)[0], minlength=queries)
        starts = range(0, queries, size)
        return {f"scratch/heads-{start:07d}-{size}.arrow": int(pairs[start : start + size].sum()) for start in starts}

    def devices(self, resources: Resources) -> list[str]:
        """Return the devices the model can be loaded on."""
        return self.model.devices(resources)

    def work(self, inputs: Inputs, out: Workdir, units: Collection[str], resources: Resources) -> UnitProvenance:
        """Score the pairs of some units, on one device."""
        device = self.devices(resources)[0]
        encoder: Any = self.model.load(None, dataclasses.replace(resources, device=device))
        pool, (query, row) = open_pool(inputs), _heads(inputs, self.head)
        bounds = {name: list(map(int, re.findall(r"\d+", name))) for name in sorted(units)}
        parts = {name: slice(*np.searchsorted(query, [a, a + n])) for name, (a, n) in bounds.items()}
        total = sum(part.stop - part.start for part in parts.values())
        with Progress(total, f"rerank by {self.model.name}", "pairs") as progress:
            for name, part in parts.items():
                scores = _scores(encoder, pool, query[part], row[part], progress)
                with files.disk_errors(out.path), files.replacing(out.path / name) as temporary:
                    files.write_arrow(temporary, pa.table([scores], schema=_SCHEMA).to_batches(), _SCHEMA)
        return cast("UnitProvenance", encoder.describe())

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[UnitProvenance]) -> Counts:  # noqa: ARG002
        """Concatenate the units' scores and append the other entries below."""
        pool, ranking = open_pool(inputs), read_ranking(inputs["ranking"])
        units = sorted(self.plan(inputs, out, spread=False))
        tables = (files.read_arrow(out.path / unit) for unit in units)
        scores: Scores = np.concatenate(
            [np.empty(0, np.float32), *(part.column("score").to_numpy() for part in tables)]
        )
        description = dict(next((fact for fact in facts if fact), {}))
        description.pop("process", None)
        out.note(model=self.model.name, checkpoint=self.model.files and self.model.files.hub, **description)
        out.note(**recorded(self.model))
        depth = int(inputs["ranking"].manifest.counts["depth"])
        return {**write_ranking(reranked(ranking, self.head, scores), pool, depth, out), "pairs": len(scores)}


def rerank_task(corpus: Artifact, pool: Task | Artifact, ranking: Task, model: Model, *, head: int) -> Task:
    """Return the task that reranks the first ``head`` entries of a ranking of a pool by a reranker."""
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, "ranking": ranking}
    config = RerankConfig(model.identity, head)
    return Task("rerank", 3, RANKINGS, f"rerank-{pool.slug}", config, inputs, units=Reranking(model, head))


def reranked(ranking: Ranking, head: int, scores: Scores) -> Ranking:
    """Return a ranking with new scores for the first ``head`` entries of each query, and the others below.

    ``scores``, float32, are the new ones in the ranking's order; a shorter ranking has fewer.
    """
    in_head = ranking.rank <= head
    queries = int(ranking.query[-1]) + 1 if len(ranking) else 0
    lowest = np.full(queries, np.inf, np.float32)
    np.minimum.at(lowest, ranking.query[in_head], scores)
    new_scores = lowest[ranking.query] - (ranking.rank.astype(np.float32) - head)
    if len(scores) and float(np.abs(scores).max()) > _LARGEST:
        raise InputError(f"scores must be at most {_LARGEST:,}, got {np.abs(scores).max():g}", "Use another model")
    new_scores[in_head] = scores
    order = np.lexsort((~ranking.row, -new_scores, ranking.query))
    counts = np.bincount(ranking.query, minlength=queries)
    return Ranking.from_counts(counts, ranking.row[order], new_scores[order])


def _scores(encoder: Any, pool: Pool, query: Rows, row: Rows, progress: Progress) -> Scores:
    """Return the scores of entries of a pool's ranking, float32, in their order."""
    try:
        batches = progress.over(encoder.scores(_pairs(pool, query, row)), lambda batch: batch.texts)
        scores = in_order(batches, 1)[1].ravel()
    except NotFiniteError as error:
        paper = pool.corpus.ids(row[[error.position]])[0]
        raise StageError(f"the reranker gave NaN or infinity for paper {paper}", "Compute in float32") from error
    if len(scores) != len(row):
        raise StageError(f"the reranker gave {len(scores)} scores for {len(row)} pairs")
    return scores


def _pairs(pool: Pool, query: Rows, row: Rows) -> list[Pair]:
    """Return the texts of query and paper of each entry, title and abstract as one string (protocol section 4)."""
    rows, paper = np.unique(row, return_inverse=True)
    distinct_queries, asking = np.unique(query, return_inverse=True)
    texts = (
        CorpusTexts(pool.corpus, "paper")(rows),
        CorpusTexts(pool.corpus, "paper" if pool.queries_are_papers else "query")(pool.query_rows[distinct_queries]),
    )
    papers, queries = ([" ".join(field for field in text if field) for text in of] for of in texts)
    return [Pair(queries[i], papers[j]) for i, j in zip(asking, paper, strict=True)]


def _heads(inputs: Inputs, head: int) -> tuple[Rows, Rows]:
    """Return query and row of the entries that are reranked, in the order of the ranking."""
    ranking = read_ranking(inputs["ranking"])
    in_head = ranking.rank <= head
    return ranking.query[in_head], ranking.row[in_head]
