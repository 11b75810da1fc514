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
from pipeline.core.schema import WEIGHTS
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.core.workspace import WEIGHTS as FOLDER
from pipeline.measure.engines import evaluate_all
from pipeline.measure.inputs import Qrels, Run
from pipeline.measure.measures import parse_measures
from pipeline.retrieve.base import Ranking, check_depth
from pipeline.retrieve.fusion import Fusion, Method
from pipeline.stages.search import open_pool, read_ranking, settings_of, slug_of, write_ranking

STEP = 10
"""Weights are multiples of one tenth."""

MOST_PARTS = 4
"""Systems of a weighted sum, at most: 286 points are tried for four."""


@dataclass(frozen=True)
class FusionConfig:
    """What decides a fused ranking beside the rankings: ``parts`` are the systems' names in the order of addition."""

    method: Method
    depth: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class WeighConfig:
    """What decides weights beside the rankings; they are multiples of 1/``step`` and add up to 1."""

    parts: tuple[str, ...]
    depth: int
    step: int


def weigh_task(corpus: Artifact, pool: Task, rankings: Sequence[Task], *, parts: tuple[str, ...], depth: int) -> Task:
    """Return the task that chooses the weights of a sum by mean average precision on a validation pool.

    Of equal points the first counts, which gives the last systems more. Its artifact is ``grid.arrow``.
    """
    if canonical(pool.config)["split"] != "validation":
        raise InputError(f"{pool.name} holds test queries", "Choose weights on validation queries")
    if len(parts) > MOST_PARTS:
        raise InputError(f"a weighted sum of {len(parts)} systems is more than can be tuned", f"Name {MOST_PARTS}")

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened = open_pool(inputs)
        queries = len(opened.query_rows)
        qrels = Qrels.from_table(opened.qrels, queries)
        scored = np.flatnonzero(qrels.positives())
        fusion = Fusion(_read(inputs, parts), queries, "wsum")
        tenths = itertools.product(range(STEP + 1), repeat=len(parts))
        points = [tuple(n / STEP for n in point) for point in tenths if sum(point) == STEP]
        runs = (Run.from_table(fusion.ranking(depth, point).table(), queries) for point in points)
        values = [float(evaluate_all(qrels, run, parse_measures("map"))[0, scored].mean()) for run in runs]
        best = int(np.argmax(values))
        out.arrow("grid.arrow", pa.table([points, values], schema=WEIGHTS), WEIGHTS)
        weights = dict(zip(parts, points[best], strict=True))
        return {"queries": len(scored), "points": len(points), "weights": weights, "map": values[best]}

    inputs = _inputs(corpus, pool, rankings)
    return Task("weigh", 1, FOLDER, f"wsum-{slug_of(pool)}", WeighConfig(parts, depth, STEP), inputs, run)


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

    ``parts`` are the names of the systems, ``weights`` those of ``wsum`` (:func:`weigh_task`).
    """
    check_depth(depth)

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened = open_pool(inputs)
        by_part = inputs["weights"].manifest.counts["weights"] if "weights" in inputs else {}
        chosen = [float(by_part[part]) for part in parts] if by_part else None
        ranking = Fusion(_read(inputs, parts), len(opened.query_rows), method).ranking(depth, chosen)
        fused = (inputs[f"ranking{number}"].manifest for number in range(len(parts)))
        settings = dict(zip(parts, map(settings_of, fused), strict=True))
        out.note(parts=settings, **({"weights": by_part} if by_part else {}))
        return write_ranking(ranking, opened, depth, out)

    inputs = _inputs(corpus, pool, rankings) | ({} if weights is None else {"weights": weights})
    return Task("search", 1, RANKINGS, f"{method}-{slug_of(pool)}", FusionConfig(method, depth, parts), inputs, run)


def _inputs(corpus: Artifact, pool: Task | Artifact, rankings: Sequence[Task]) -> dict[str, Task | Artifact]:
    return {"corpus": corpus, "pool": pool, **{f"ranking{number}": task for number, task in enumerate(rankings)}}


def _read(inputs: Inputs, parts: Sequence[str]) -> list[Ranking]:
    return [read_ranking(inputs[f"ranking{number}"]) for number in range(len(parts))]
