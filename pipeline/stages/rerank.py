"""Stage ``rerank``: a reranker orders the first entries of a ranking anew; the others follow in their order.

A reranked entry has the reranker's score. The entry ``j`` places below the reranked ones has the lowest of their
scores minus ``j``, so that scores descend and the order below is kept. Equal scores are ties, which the one total order
breaks (:mod:`pipeline.core.order`).

The work divides into units of queries, whose number depends on the ranking alone: which pairs share a batch, and so the
last bits of their scores, do not depend on who makes the units.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, StageError
from pipeline.core.manifest import Counts
from pipeline.core.order import Rows, Scores
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.task import Facts, Inputs, Job, Sharded, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.encode import kinds
from pipeline.encode.base import Encoded, NotFiniteError, in_order
from pipeline.encode.spec import EncoderSpec, Model, Pair, Role
from pipeline.retrieve.base import Ranking
from pipeline.stages.embed import CorpusTexts
from pipeline.stages.search import open_pool, read_ranking, slug_of, write_ranking

UNIT_PAIRS = 4_096
"""Pairs of one unit, at most, unless one query has more: a killed run continues after the last finished unit."""

_LARGEST = 1_000_000
"""Scores below which float32 tells whole numbers apart, with room for every rank."""

_SCHEMA = pa.schema([pa.field("score", pa.float32(), nullable=False)])


@dataclass(frozen=True)
class RerankConfig:
    """What decides a reranked ranking beside the ranking: the reranker, and how many entries a query it reads."""

    encoder: EncoderSpec
    head: int


class _Heads(NamedTuple):
    """The entries of a ranking that are reranked, in its order."""

    query: Rows
    row: Rows


class _Unit(NamedTuple):
    """The entries of some neighbouring queries, and the file of their scores."""

    pool: Pool
    heads: _Heads
    path: Path

    def pairs(self) -> list[Pair]:
        """Return the texts of each entry's query and paper."""
        corpus = self.pool.corpus
        rows, paper = np.unique(self.heads.row, return_inverse=True)
        asked, query = np.unique(self.heads.query, return_inverse=True)
        papers = _texts(CorpusTexts(corpus, "paper"), rows)
        role: Role = "paper" if self.pool.queries_are_papers else "query"
        queries = _texts(CorpusTexts(corpus, role), self.pool.query_rows[asked])
        return [Pair(queries[q], papers[p]) for q, p in zip(query, paper, strict=True)]

    def write(self, scores: Scores) -> None:
        """Write the scores, in the order of the entries."""
        with files.disk_errors(self.path.parent), files.replacing(self.path) as temporary:
            files.write_arrow(temporary, pa.table([scores], schema=_SCHEMA).to_batches(), _SCHEMA)


@dataclass(frozen=True)
class Reranking(Sharded):
    """The work of one ranking.

    Attributes:
        model: the reranker.
        head: entries of a query it reads.
    """

    model: Model
    head: int
    accelerated = True

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:  # noqa: ARG002
        """Return units of neighbouring queries."""
        queries = len(open_pool(inputs).query_rows)
        size = max(1, UNIT_PAIRS // self.head)
        pairs = np.bincount(_heads(read_ranking(inputs["ranking"]), self.head).query, minlength=queries)
        starts = range(0, queries, size)
        return {f"scratch/heads-{start:07d}-{size}.arrow": int(pairs[start : start + size].sum()) for start in starts}

    def devices(self, resources: Resources) -> list[str]:
        """Return the devices the model can be loaded on."""
        return kinds.devices(self.model, resources)

    def work(self, jobs: Sequence[Job], resources: Resources) -> Facts:
        """Score the pairs of some units, on one device."""
        device = self.devices(resources)[0]
        load = kinds.find(self.model.spec.kind).load
        encoder: Any = load(self.model, None, dataclasses.replace(resources, device=device))
        total = sum(sum(job.units.values()) for job in jobs)
        with Progress(total, f"rerank by {self.model.name}", "pairs") as progress:
            for unit in _units(jobs, self.head):
                unit.write(_scores(encoder.scores(unit.pairs()), unit, progress))
        return cast("Facts", encoder.describe())

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[Facts]) -> Counts:  # noqa: ARG002
        """Join the units, and put the other entries below."""
        pool, ranking = open_pool(inputs), read_ranking(inputs["ranking"])
        units = sorted(self.plan(inputs, out, spread=False))
        tables = (files.read_arrow(out.path / unit) for unit in units)
        scores: Scores = np.concatenate([np.empty(0, np.float32), *(t.column("score").to_numpy() for t in tables)])
        described = dict(next((fact for fact in facts if fact), {}))
        described.pop("process", None)
        out.note(model=self.model.name, checkpoint=self.model.checkpoint and self.model.checkpoint.hub, **described)
        depth = int(inputs["ranking"].manifest.counts["depth"])
        return {**write_ranking(reranked(ranking, self.head, scores), pool, depth, out), "pairs": len(scores)}


def rerank_task(corpus: Artifact, pool: Task | Artifact, ranking: Task, model: Model, *, head: int) -> Task:
    """Return the task that reranks the first ``head`` entries of a ranking of a pool by a reranker."""
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, "ranking": ranking}
    config = RerankConfig(model.spec, head)
    return Task("rerank", 2, RANKINGS, f"rerank-{slug_of(pool)}", config, inputs, units=Reranking(model, head))


def reranked(ranking: Ranking, head: int, scores: Scores) -> Ranking:
    """Return a ranking with new scores for the first entries of each query, and the others below.

    Args:
        ranking: entries in final order.
        head: entries of a query that have a new score, fewer where it has fewer.
        scores: float32, the new scores in the ranking's order.
    """
    heads = ranking.rank <= head
    queries = int(ranking.query[-1]) + 1 if len(ranking) else 0
    lowest = np.full(queries, np.inf, np.float32)
    np.minimum.at(lowest, ranking.query[heads], scores)
    below = lowest[ranking.query] - (ranking.rank.astype(np.float32) - head)
    if len(scores) and float(np.abs(scores).max()) > _LARGEST:
        raise InputError(f"scores must be at most {_LARGEST:,}, got {np.abs(scores).max():g}", "Use another model")
    below[heads] = scores
    order = np.lexsort((~ranking.row, -below, ranking.query))
    counts = np.bincount(ranking.query, minlength=queries)
    return Ranking.from_counts(counts, ranking.row[order], below[order])


def _units(jobs: Sequence[Job], head: int) -> Iterator[_Unit]:
    for job in jobs:
        pool, heads = open_pool(job.inputs), _heads(read_ranking(job.inputs["ranking"]), head)
        for name in sorted(job.units):
            start, size = map(int, re.findall(r"\d+", name))
            first, last = np.searchsorted(heads.query, [start, start + size])
            yield _Unit(pool, _Heads(heads.query[first:last], heads.row[first:last]), job.out.path / name)


def _scores(batches: Iterable[Encoded], unit: _Unit, progress: Progress) -> Scores:
    """Return the scores of a unit's entries, float32, in their order."""
    try:
        scores = in_order(progress.over(batches, lambda batch: batch.texts), 1)[1].ravel()
    except NotFiniteError as error:
        paper = unit.pool.corpus.ids(unit.heads.row[[error.position]])[0]
        raise StageError(f"the reranker gave NaN or infinity for paper {paper}", "Compute in float32") from error
    if len(scores) != len(unit.heads.row):
        raise StageError(f"the reranker gave {len(scores)} scores for {len(unit.heads.row)} pairs")
    return scores


def _heads(ranking: Ranking, head: int) -> _Heads:
    first = ranking.rank <= head
    return _Heads(ranking.query[first], ranking.row[first])


def _texts(texts: CorpusTexts, rows: Rows) -> list[str]:
    """Return title and abstract of rising rows as one string each (protocol section 4)."""
    return [" ".join(part for part in text if part) for text in texts(rows)]
