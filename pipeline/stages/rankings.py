"""Rankings without a search: baselines that read no text, imported runs, fused systems and their weights."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical, counted
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.order import Rows, Scores, best
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.rng import generator
from pipeline.core.schema import NO_YEAR, WEIGHTS
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.core.workspace import WEIGHTS as FOLDER
from pipeline.corpus.pool import Pool
from pipeline.exchange.runs import read_run
from pipeline.measure.engines import evaluate_all
from pipeline.measure.inputs import Qrels, RankedRun
from pipeline.measure.measures import parse_measures
from pipeline.retrieve.base import Ranking, check_depth
from pipeline.retrieve.fusion import Fusion, Method
from pipeline.stages.ranking_file import open_pool, ranking_of, read_ranking, settings_of, write_ranking
from pipeline.stages.systems import Baseline


@dataclass(frozen=True)
class BaselineConfig:
    """Settings that determine a ranking that reads no text.

    Attributes:
        order: ``most-cited``, ``newest`` or ``random``.
        seed: seed of a random order; 0 otherwise.
        depth: entries ranked per query.
    """

    order: str
    seed: int
    depth: int


def baseline_task(corpus: Artifact, pool: Task | Artifact, baseline: Baseline, *, depth: int) -> Task:
    """Return the task that ranks a pool's candidates without reading them.

    ``most-cited`` counts citations by papers of the corpus from years before the queries' year, or by all papers if the
    queries have no year. ``newest`` ranks the latest year first. ``random`` draws a new order for each query.
    """
    check_depth(depth)
    config = BaselineConfig(baseline.order, baseline.seed if baseline.order == "random" else 0, depth)

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened_pool = open_pool(inputs)
        ranked = _random(opened_pool, config) if config.order == "random" else _by_attribute(opened_pool, config)
        counts = np.array([len(rows) for rows, _ in ranked], np.int64)
        row, score = (np.concatenate(columns) for columns in zip(*ranked, strict=True))
        return write_ranking(Ranking.from_counts(counts, row, score), opened_pool, depth, out)

    return Task("search", 3, RANKINGS, f"{config.order}-{pool.slug}", config, {"corpus": corpus, "pool": pool}, run)


def _by_attribute(pool: Pool, config: BaselineConfig) -> list[tuple[Rows, Scores]]:
    """Return rows and scores of each query's ranking: one order of the candidates, without each query's exclusions."""
    years, candidates = pool.corpus.attributes["year"], pool.candidates
    if config.order == "newest":
        scores = years[candidates].astype(np.float32)
    else:
        cited, citing = pool.corpus.incoming.of_many(candidates)
        before = pool.artifact.manifest.config.get("year")
        counted_positions = cited if before is None else cited[(years[citing] < before) & (years[citing] != NO_YEAR)]
        scores = np.bincount(counted_positions, minlength=len(candidates)).astype(np.float32)
    max_excluded = int(np.diff(pool.exclusions[0]).max(initial=0))
    top = best(scores, candidates, config.depth + max_excluded)
    row, score = candidates[top], scores[top]
    included = (~np.isin(row, pool.excluded(query)) for query in range(len(pool.query_rows)))
    return [(row[mask][: config.depth], score[mask][: config.depth]) for mask in included]


def _random(pool: Pool, config: BaselineConfig) -> list[tuple[Rows, Scores]]:
    """Return rows and scores of each query's ranking: candidates drawn without replacement."""
    queries, candidates = pool.query_rows, pool.candidates
    keys = pool.corpus.attributes["key"][queries] if pool.queries_are_papers else queries
    ranked = []
    for query, key in enumerate(keys.tolist()):
        excluded = pool.excluded(query)
        draw_count = min(config.depth + len(excluded), len(candidates))
        positions = generator(config.seed, "random ranking", key).choice(len(candidates), draw_count, replace=False)
        row = candidates[positions]
        row = row[~np.isin(row, excluded)][: config.depth]
        ranked.append((row, -np.arange(len(row), dtype=np.float32)))
    return ranked


@dataclass(frozen=True)
class ImportConfig:
    """Settings that determine an imported ranking.

    Attributes:
        name: name of the system in tables.
        sha256: checksum of the file.
        depth: entries kept per query.
        allow_unknown: whether queries and documents that the pool does not have are left out.
    """

    name: str
    sha256: str
    depth: int
    allow_unknown: bool


def import_task(
    corpus: Artifact, pool: Task | Artifact, path: Path, name: str, *, depth: int, allow_unknown: bool = False
) -> Task:
    """Return the task that makes a ranking of a run file; ``name`` is that of its system.

    Its counts are those of a ranking and of :func:`pipeline.exchange.runs.read_run`.

    Raises:
        InputError: the file cannot be read; when run: the file has changed, or an entry is invalid.
    """
    check_depth(depth)
    config = ImportConfig(name, _checksum(path), depth, allow_unknown)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        opened_pool = open_pool(inputs)
        table, import_counts = read_run(path, opened_pool, depth, allow_unknown=allow_unknown, memory=resources.memory)
        if _checksum(path) != config.sha256:
            raise InputError(f"{path} changed while it was read", "Run the command again")
        counts = {**write_ranking(ranking_of(table), opened_pool, depth, out), **import_counts}
        out.note(file=path.name)
        say(f"run {name}: {_summary(counts)}")
        return counts

    return Task("import", 2, RANKINGS, f"import-{pool.slug}", config, {"corpus": corpus, "pool": pool}, run)


def _summary(counts: Counts) -> str:
    """Return the number of entries imported, left out, scored 0 or tied, as one line of text."""
    notable = {
        "queries_without_results": ("query", "without results scored 0"),
        "unknown_queries": ("entry", "of unknown queries left out"),
        "unknown_documents": ("entry", "of unknown documents left out"),
        "excluded": ("entry", "excluded by the pool left out"),
        "beyond_depth": ("entry", "beyond --depth left out"),
        "tied": ("tied entry", "ordered by document id"),
    }
    notes = [f"{counted(counts[name], noun)} {fate}" for name, (noun, fate) in notable.items() if counts[name]]
    return "; ".join([f"{counted(counts['entries'], 'entry')} of {counted(counts['queries'], 'query')}", *notes])


def _checksum(path: Path) -> str:
    remedy = "Give the path of a run file"
    if path.exists() and not path.is_file():  # a device or a pipe may have no end
        raise InputError(f"the run {path} cannot be read (it must be a file)", remedy)
    try:
        return files.sha256(path)
    except OSError as error:
        raise InputError(f"the run {path} cannot be read ({error.strerror})", remedy) from error


STEP = 10
"""Weights are multiples of 1/STEP."""

MOST_PARTS = 4
"""Maximum number of systems in a weighted sum; four systems have 286 grid points."""


@dataclass(frozen=True)
class FusionConfig:
    """Settings that determine a fused ranking, besides the rankings; ``parts`` are the systems in order of addition."""

    method: Method
    depth: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class WeighConfig:
    """Settings that determine weights, besides the rankings; weights are multiples of 1/``step`` and add up to 1."""

    parts: tuple[str, ...]
    depth: int
    step: int


def weigh_task(corpus: Artifact, pool: Task, rankings: Sequence[Task], *, parts: tuple[str, ...], depth: int) -> Task:
    """Return the task that chooses the weights of a sum by mean average precision on a validation pool.

    Of equal points the first one wins, which gives more weight to later systems. The artifact is ``grid.arrow``.
    """
    if canonical(pool.config)["split"] != "validation":
        raise InputError(f"{pool.name} holds test queries", "Choose weights on validation queries")
    if len(parts) > MOST_PARTS:
        raise InputError(f"a weighted sum of {len(parts)} systems is more than can be tuned", f"Name {MOST_PARTS}")

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened_pool = open_pool(inputs)
        queries = len(opened_pool.query_rows)
        qrels = Qrels.from_table(opened_pool.qrels, opened_pool)
        scored = np.flatnonzero(qrels.positives())
        fusion = Fusion(_read(inputs, parts), queries, "wsum")
        grid = itertools.product(range(STEP + 1), repeat=len(parts))
        points = [tuple(numerator / STEP for numerator in point) for point in grid if sum(point) == STEP]
        runs = (RankedRun.from_table(fusion.ranking(depth, point).table(), queries) for point in points)
        values = [float(evaluate_all(qrels, run, parse_measures("map"))[0, scored].mean()) for run in runs]
        best = int(np.argmax(values))
        out.arrow("grid.arrow", pa.table([points, values], schema=WEIGHTS), WEIGHTS)
        weights = dict(zip(parts, points[best], strict=True))
        return {"queries": len(scored), "points": len(points), "weights": weights, "map": values[best]}

    inputs = _inputs(corpus, pool, rankings)
    return Task("weigh", 1, FOLDER, f"wsum-{pool.slug}", WeighConfig(parts, depth, STEP), inputs, run)


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

    ``parts`` are the names of the systems; ``weights`` is the task that chooses those of ``wsum``.
    """
    check_depth(depth)

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened_pool = open_pool(inputs)
        weight_of = inputs["weights"].manifest.counts["weights"] if "weights" in inputs else {}
        part_weights = [float(weight_of[part]) for part in parts] if weight_of else None
        ranking = Fusion(_read(inputs, parts), len(opened_pool.query_rows), method).ranking(depth, part_weights)
        manifests = (inputs[f"ranking{position}"].manifest for position in range(len(parts)))
        settings = dict(zip(parts, map(settings_of, manifests), strict=True))
        out.note(parts=settings, **({"weights": weight_of} if weight_of else {}))
        return write_ranking(ranking, opened_pool, depth, out)

    inputs = _inputs(corpus, pool, rankings) | ({} if weights is None else {"weights": weights})
    return Task("search", 1, RANKINGS, f"{method}-{pool.slug}", FusionConfig(method, depth, parts), inputs, run)


def _inputs(corpus: Artifact, pool: Task | Artifact, rankings: Sequence[Task]) -> dict[str, Task | Artifact]:
    return {"corpus": corpus, "pool": pool, **{f"ranking{position}": task for position, task in enumerate(rankings)}}


def _read(inputs: Inputs, parts: Sequence[str]) -> list[Ranking]:
    return [read_ranking(inputs[f"ranking{position}"]) for position in range(len(parts))]
