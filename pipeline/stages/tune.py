"""Stage ``tune``: choose k1 and b of BM25 by mean average precision on a validation pool (protocol 4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.artifact import Artifact, opened, published
from pipeline.core.config import canonical
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress, warn
from pipeline.core.resources import Resources
from pipeline.core.schema import TUNING
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS, TUNINGS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.encode.names import Name
from pipeline.measure.engines import average_precision
from pipeline.measure.inputs import Qrels
from pipeline.stages.bm25 import AnalyzerConfig, installed_analyzer, read_terms, terms_tasks
from pipeline.stages.ranking_file import open_pool
from pipeline.stages.selection import Selection
from pipeline.stages.systems import DEFAULT_B, DEFAULT_K1, Bm25, System, display_name, is_tuned

GRID_K1 = (0.5, 0.7, 0.9, 1.1, 1.3, 1.5, 1.7, 1.9, 2.1)
GRID_B = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

_BEYOND_K1, _BEYOND_B = (0.1, 0.3, 2.5, 3.0, 3.5, 4.0), (0.0,)
"""Further values, tried if the best point of the usual grid has its lowest or highest value."""

_VERSION = 3

_DEPTH = 500

_MAY_DIFFER = ("size", "queries", "validation_queries", "sample", "split", "nested")
"""Settings that may differ between a pool and the validation pool of its tuning."""


@dataclass(frozen=True)
class TuneConfig(AnalyzerConfig):
    """Settings that determine a tuning: its grid, the rank cutoff of average precision, the validation pool."""

    k1: tuple[float, ...]
    b: tuple[float, ...]
    depth: int
    pool: Mapping[str, Any]


class Tuning(NamedTuple):
    """Result of a tuning: the published artifact and its best point; of equally good ones the smallest."""

    artifact: Artifact
    k1: float
    b: float

    @classmethod
    def of(cls, artifact: Artifact) -> Tuning:
        """Read a published tuning."""
        return cls(artifact, artifact.manifest.counts["k1"], artifact.manifest.counts["b"])


class Grid(NamedTuple):
    """Mean average precision, fractions ``[rows, columns]``, at every point of the grid: k1 of rows, b of columns."""

    k1: npt.NDArray[np.float64]
    b: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]

    @classmethod
    def of(cls, artifact: Artifact) -> Grid:
        """Read the grid of a published tuning."""
        return cls.read(artifact.arrow("grid.arrow"))

    @classmethod
    def read(cls, table: pa.Table) -> Grid:
        """Return the grid of a table of schema :data:`pipeline.core.schema.TUNING`."""
        k1, b = (np.unique(table.column(name).to_numpy()) for name in ("k1", "b"))
        return cls(k1, b, table.column("map").to_numpy().reshape(len(k1), len(b)))

    def is_at_edge(self, k1: float, b: float) -> bool:
        """Return whether larger or smaller values than those of a point were not tried; ``b`` ends at 0 and 1."""
        return k1 in (self.k1[0], self.k1[-1]) or (b in (self.b[0], self.b[-1]) and 0 < b < 1)


def tune_task(
    corpus: Artifact,
    pool: Task | Artifact,
    *,
    k1: tuple[float, ...] = GRID_K1,
    b: tuple[float, ...] = GRID_B,
) -> Task:
    """Return the task that tries every k1 with every b on a validation pool.

    The usual grid is widened if its best point is at the edge: k1 from 0.1 to 4, b from 0. Counts have the best point,
    its MAP, and that of Anserini's default point.
    """
    settings = canonical(pool.config)
    if settings["split"] != "validation":
        raise InputError(f"{pool.name} holds test queries", "Tune on validation queries: --split=validation")

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        opened_pool = open_pool(inputs)
        qrels = Qrels.from_table(opened_pool.qrels, opened_pool)
        scored = np.flatnonzero(qrels.positives())
        beyond = (_BEYOND_K1, _BEYOND_B) if (k1, b) == (GRID_K1, GRID_B) else ((), ())
        map_of: dict[tuple[float, float], float] = {}
        axes, widened = None, (k1, b)
        while axes != widened:
            axes = widened
            points = list(itertools.product(*axes))
            missing = [point for point in dict.fromkeys([*points, (DEFAULT_K1, DEFAULT_B)]) if point not in map_of]
            values = _average_precision(inputs, opened_pool, qrels, missing, resources)[scored].mean(axis=0)
            map_of |= zip(missing, values.tolist(), strict=True)
            best = max(points, key=map_of.__getitem__)
            widened = (_widened(axes[0], beyond[0], best[0]), _widened(axes[1], beyond[1], best[1]))
        columns = [pa.array(column) for column in (*zip(*points, strict=True), [map_of[point] for point in points])]
        grid = pa.table(columns, schema=TUNING)
        out.arrow("grid.arrow", grid, TUNING)
        if Grid.read(grid).is_at_edge(*best):
            point = f"k1={best[0]:g}, b={best[1]:g}"
            warn(f"bm25: best at the edge of the grid ({point}); values outside it may be better")
        return {
            "queries": len(scored),
            "queries_without_positive": len(opened_pool.query_rows) - len(scored),
            "candidates": len(opened_pool.candidates),
            "points": len(points),
            "k1": best[0],
            "b": best[1],
            "map": map_of[best],
            "map_untuned": map_of[DEFAULT_K1, DEFAULT_B],
        }

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    config = TuneConfig(*installed_analyzer(), k1, b, _DEPTH, settings)
    return Task("tune", _VERSION, TUNINGS, f"bm25-{pool.slug}", config, inputs, run, derived=terms_tasks(corpus, pool))


def tune_tasks(corpus: Artifact, selected: Selection) -> list[Task]:
    """Return the tasks that tune BM25 for the selected pools: on validation queries, one sample of each.

    Raises:
        InputError: there are no validation queries.
    """
    selected = selected.but(split="validation", samples=1)
    if Corpus(corpus).has_query_texts() and not Corpus(corpus).has_contexts() and selected.is_default:
        raise InputError(
            f"{corpus.name} brings its queries, and none of them are for validation",
            "Give --year to tune on citations, or fix the parameters: --model=bm25:k1=1.2,b=0.75",
        )
    if selected.given.get("queries") == "all":
        raise InputError(
            "the test set takes all queries, and none are left for validation",
            "Give a number to both: --queries=200 here and in mdcr eval",
        )
    return [tune_task(corpus, pool) for pool in selected.pools(corpus)]


def summary_of(artifact: Artifact) -> dict[str, Any]:
    """Return what a tuning chose and what it gains, as :meth:`pipeline.api.Workspace.tune` describes it."""
    counts = artifact.manifest.counts
    figures = {name: counts[name] for name in ("queries", "candidates", "k1", "b", "map", "map_untuned")}
    at_edge = Grid.of(artifact).is_at_edge(counts["k1"], counts["b"])
    return {"tuning": artifact.name, "field": artifact.manifest.config["pool"]["field"], **figures, "at_edge": at_edge}


def stored_tuning_tasks(root: Path, corpus: Artifact) -> list[Task]:
    """Return the task of every published tuning of a corpus, to repair damaged ones before tunings are looked up.

    A tuning whose validation pool is gone, or that used another grid, is left out.
    """
    pools = (pool for pool in published(root / POOLS) if pool.manifest.inputs["corpus"] == corpus.id)
    tasks = [tune_task(corpus, pool) for pool in pools if canonical(pool.config)["split"] == "validation"]
    return [task for task in tasks if task.path(root).exists()]


def tunings_for(root: Path, systems: Iterable[System]) -> list[Artifact]:
    """Return the tunings of a workspace if some of the systems may use one, else none.

    Raises:
        CorruptError: a tuning's manifest is damaged: without it, a system would rank by other parameters.
    """
    rankers = (leaf.ranker for system in systems for leaf in system.leaves)
    tuned = any(isinstance(ranker, Bm25) and ranker.tuning != "none" for ranker in rankers)
    return opened(root / TUNINGS) if tuned else []


def find_tuning(tunings: Iterable[Artifact], corpus: str, pool: Mapping[str, Any]) -> Tuning | None:
    """Return the tuning that applies to a pool, or None; ``corpus`` is the identity of its corpus.

    It has the same corpus, field, year, seed and rules, and at least as many queries, so its validation queries are
    none of the pool's test queries. Of several, one of the pool's own size applies, else the one with the largest
    validation pool.
    """
    applicable = [
        artifact
        for artifact in tunings
        for config in [artifact.manifest.config.get("pool", {"queries": 0})]
        if pool.get("split") == "test"
        and artifact.manifest.stage_version == _VERSION
        and artifact.manifest.inputs["corpus"] == corpus
        and all(pool.get(setting) == config.get(setting) for setting in {*pool, *config} - {*_MAY_DIFFER})
        and pool["queries"] != "all"
        and pool["queries"] <= config["queries"]
    ]

    def size(tuning: Artifact) -> tuple[Any, ...]:
        counts = (tuning.manifest.counts[name] for name in ("candidates", "queries", "points"))
        return tuning.manifest.config["pool"]["size"] == pool.get("size"), *counts, tuning.id

    return Tuning.of(max(applicable, key=size)) if applicable else None


def shown_on(pool: Artifact, system: Name, tunings: Iterable[Artifact]) -> str:
    """Return the name of a stored system in tables of a pool: ``bm25`` is the tuned one where the pool has a tuning."""
    tuning = find_tuning(tunings, pool.manifest.inputs["corpus"], pool.manifest.config)
    return display_name(system, tuned=is_tuned(system) or tuning is not None)[0]


def _widened(values: tuple[float, ...], beyond: tuple[float, ...], best: float) -> tuple[float, ...]:
    """Return the values of a grid axis, with those of ``beyond`` past the end at which the best value lies."""
    smaller = [value for value in beyond if best == values[0] > value]
    return (*smaller, *values, *(value for value in beyond if best == values[-1] < value))


def _average_precision(
    inputs: Inputs, pool: Pool, qrels: Qrels, points: list[tuple[float, float]], resources: Resources
) -> npt.NDArray[np.float64]:
    """Return the average precision of every query at every point, float64 ``[queries, points]``."""
    from pipeline.retrieve.bm25.grid import ranks

    collection, queries = read_terms(inputs, pool, resources.workers)
    positives = np.concatenate([np.sort(qrels.rows[start:end]) for start, end in itertools.pairwise(qrels.offsets)])
    with Progress(len(pool.candidates), f"tune bm25 at {len(points)} points", "docs") as progress:
        ranked = ranks(
            collection,
            queries,
            (qrels.offsets, positives),
            pool.exclusions,
            points=points,
            depth=_DEPTH,
            threads=resources.workers,
            done=progress.add,
        )
    return average_precision(ranked, qrels.offsets)
