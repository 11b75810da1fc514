"""Fused systems: stage ``weigh`` chooses the weights of a sum on validation queries, ``search`` makes the ranking."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.schema import RANKING, WEIGHTS
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.core.workspace import WEIGHTS as ROOM
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.measure import inputs as measured
from pipeline.measure import ranx_engine
from pipeline.measure.names import parse_measures
from pipeline.retrieve.base import Ranking, check_depth
from pipeline.retrieve.fusion import Fusion, Method
from pipeline.retrieve.topk import Positions
from pipeline.stages.search import slug_of, write_ranking

STEP = 10
"""Weights are multiples of one tenth."""

MOST_PARTS = 4
"""Systems of a weighted sum, at most: 286 points are tried for four."""


@dataclass(frozen=True)
class FusionConfig:
    """What decides a fused ranking beside the rankings.

    Attributes:
        method: ``rrf`` or ``wsum``.
        depth: entries a query.
        parts: the names of the systems, in the order in which they are added.
    """

    method: Method
    depth: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class WeighConfig:
    """What decides weights beside the rankings.

    Attributes:
        parts: the names of the systems.
        depth: entries a query that count.
        step: weights are multiples of one part in so many, and add up to 1.
    """

    parts: tuple[str, ...]
    depth: int
    step: int


def weigh_task(corpus: Artifact, pool: Task, rankings: Sequence[Task], *, parts: tuple[str, ...], depth: int) -> Task:
    """Return the task that chooses the weights of a sum by mean average precision on a validation pool.

    Of equal points the first counts, which gives the last systems more. Its artifact is ``grid.arrow``.

    Args:
        corpus: the corpus of the pool.
        pool: a pool of validation queries.
        rankings: what the systems give for that pool.
        parts: the names of the systems.
        depth: entries a query.

    Raises:
        InputError: the queries are those of a test set, or there are too many systems.
    """
    if canonical(pool.config)["split"] != "validation":
        raise InputError(f"{pool.name} holds test queries", "Choose weights on validation queries")
    if len(parts) > MOST_PARTS:
        raise InputError(f"a weighted sum of {len(parts)} systems is more than can be tuned", f"Name {MOST_PARTS}")
    config = WeighConfig(parts, depth, STEP)

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        queries = len(opened.query_rows)
        qrels = measured.Qrels.from_table(opened.qrels, queries)
        scored = np.flatnonzero(qrels.positives())
        fusion = Fusion(_read(inputs, len(parts)), queries, "wsum")
        points = _points(len(parts))
        values = [_precision(fusion.ranking(depth, point), qrels, queries, scored) for point in points]
        best = int(np.argmax(values))
        out.arrow("grid.arrow", pa.table([points, values], schema=WEIGHTS), WEIGHTS)
        return {
            "queries": len(scored),
            "points": len(points),
            "weights": dict(zip(parts, points[best], strict=True)),
            "map": values[best],
        }

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, **_numbered(rankings)}
    return Task("weigh", 1, ROOM, f"wsum-{slug_of(pool)}", config, inputs, run)


def fusion_task(
    corpus: Artifact,
    pool: Task | Artifact,
    rankings: Sequence[Task],
    *,
    method: Method,
    parts: tuple[str, ...],
    depth: int,
    weights: Task | None = None,
) -> Task:
    """Return the task that fuses rankings of one pool.

    Args:
        corpus: the corpus of the pool.
        pool: the pool.
        rankings: what is fused.
        method: ``rrf`` or ``wsum``.
        parts: the names of the systems.
        depth: entries a query.
        weights: of ``wsum`` (:func:`weigh_task`).
    """
    check_depth(depth)

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        chosen = None
        if "weights" in inputs:
            found = inputs["weights"].manifest.counts["weights"]
            chosen = [float(found[part]) for part in parts]
        ranking = Fusion(_read(inputs, len(parts)), len(opened.query_rows), method).ranking(depth, chosen)
        return write_ranking(ranking, opened, depth, out)

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, **_numbered(rankings)}
    if weights is not None:
        inputs["weights"] = weights
    return Task("search", 1, RANKINGS, f"{method}-{slug_of(pool)}", FusionConfig(method, depth, parts), inputs, run)


def _numbered(rankings: Sequence[Task]) -> dict[str, Task]:
    return {f"ranking{number}": ranking for number, ranking in enumerate(rankings)}


def _read(inputs: Inputs, count: int) -> list[Ranking]:
    tables = [inputs[f"ranking{number}"].arrow("ranking.arrow") for number in range(count)]
    return [Ranking(*(measured.column(table, name) for name in RANKING.names)) for table in tables]


def _points(parts: int) -> list[tuple[float, ...]]:
    """Return every division of 1 into as many tenths-multiples as there are parts."""
    points = itertools.product(range(STEP + 1), repeat=parts)
    return [tuple(share / STEP for share in point) for point in points if sum(point) == STEP]


def _precision(ranking: Ranking, qrels: measured.Qrels, queries: int, scored: Positions) -> float:
    ranked, judged = measured.select(measured.Ranking.from_table(ranking.table(), queries), qrels, scored)
    values = ranx_engine.evaluate(judged, ranked, parse_measures(["map"]))
    return float(values[0].mean())
