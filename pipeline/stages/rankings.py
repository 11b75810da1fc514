"""Rankings without a search: baselines that read no text, imported runs, fused systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.config import counted
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.order import Rows, Scores, best
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.rng import generator
from pipeline.core.schema import NO_YEAR
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.exchange.runs import read_run
from pipeline.retrieve.base import Ranking, check_depth
from pipeline.retrieve.fusion import fuse
from pipeline.stages.ranking_file import open_pool, ranking_of, read_ranking, settings_of, write_ranking
from pipeline.stages.systems import Baseline


@dataclass(frozen=True)
class BaselineConfig:
    """Settings that determine a ranking that reads no text; the seed is 0 unless the order is ``random``."""

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
    """Settings of an imported ranking; ``allow_unknown``: what the pool does not have is left out."""

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
    try:
        return files.sha256(files.given(path))
    except OSError as error:
        raise InputError(f"the run {path} cannot be read ({error.strerror})", "Give the path of a run file") from error


@dataclass(frozen=True)
class FusionConfig:
    """Settings that determine a fused ranking, besides the rankings; ``parts`` are the systems in order of addition."""

    method: str
    depth: int
    parts: tuple[str, ...]


def fusion_task(
    corpus: Artifact, pool: Task | Artifact, rankings: Sequence[Task], *, parts: tuple[str, ...], depth: int
) -> Task:
    """Return the task that fuses rankings of one pool by reciprocal ranks; ``parts`` are the names of the systems."""
    check_depth(depth)
    names = [f"ranking{position}" for position in range(len(parts))]

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened_pool, ranked = open_pool(inputs), [inputs[name] for name in names]
        out.note(parts={part: settings_of(one.manifest) for part, one in zip(parts, ranked, strict=True)})
        fused = fuse(list(map(read_ranking, ranked)), len(opened_pool.query_rows), depth)
        return write_ranking(fused, opened_pool, depth, out)

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, **dict(zip(names, rankings, strict=True))}
    return Task("search", 1, RANKINGS, f"rrf-{pool.slug}", FusionConfig("rrf", depth, parts), inputs, run)
