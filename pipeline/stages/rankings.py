"""Rankings that search nothing: orders of the candidates that read no text, and runs of other tools (``import``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core import files
from pipeline.core.artifact import Artifact
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
from pipeline.measure.inputs import column
from pipeline.retrieve.base import Ranking, check_depth
from pipeline.stages.search import open_pool, slug_of, write_ranking
from pipeline.stages.systems import Baseline, ImportedRun


@dataclass(frozen=True)
class BaselineConfig:
    """What decides a ranking without text.

    Attributes:
        order: of the candidates.
        seed: of random orders; 0 of others.
        depth: entries ranked a query.
    """

    order: str
    seed: int
    depth: int


def baseline_task(corpus: Artifact, pool: Task | Artifact, system: Baseline, *, depth: int) -> Task:
    """Return the task that ranks a pool's candidates without reading them.

    ``most-cited`` counts the citations by papers of the corpus that are of an earlier year than the queries, all where
    the queries have no year. ``newest`` has the latest year first. ``random`` is another order for each query.
    """
    check_depth(depth)
    config = BaselineConfig(system.order, system.seed if system.order == "random" else 0, depth)

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened = open_pool(inputs)
        ranked = _random(opened, config) if config.order == "random" else _by_attribute(opened, config)
        counts = np.array([len(rows) for rows, _ in ranked], np.int64)
        row, score = (np.concatenate(columns) for columns in zip(*ranked, strict=True))
        return write_ranking(Ranking.from_counts(counts, row, score), opened, depth, out)

    return Task("search", 3, RANKINGS, f"{config.order}-{slug_of(pool)}", config, {"corpus": corpus, "pool": pool}, run)


def _by_attribute(pool: Pool, config: BaselineConfig) -> list[tuple[Rows, Scores]]:
    """Return rows and scores of each query's ranking: one order of the candidates, less what each query excludes."""
    years, candidates = pool.corpus.attributes["year"], pool.candidates
    if config.order == "newest":
        scores = years[candidates].astype(np.float32)
    else:
        cited, citing = pool.corpus.incoming.of_many(candidates)
        before = pool.artifact.manifest.config.get("year")
        counted = cited if before is None else cited[(years[citing] < before) & (years[citing] != NO_YEAR)]
        scores = np.bincount(counted, minlength=len(candidates)).astype(np.float32)
    most = int(np.diff(pool.exclusions[0]).max(initial=0))
    first = best(scores, candidates, config.depth + most)
    row, score = candidates[first], scores[first]
    kept = (~np.isin(row, pool.excluded(query)) for query in range(len(pool.query_rows)))
    return [(row[mask][: config.depth], score[mask][: config.depth]) for mask in kept]


def _random(pool: Pool, config: BaselineConfig) -> list[tuple[Rows, Scores]]:
    """Return rows and scores of each query's ranking: candidates drawn without replacement."""
    queries, candidates = pool.query_rows, pool.candidates
    keys = pool.corpus.attributes["key"][queries] if pool.queries_are_papers else queries
    ranked = []
    for query, key in enumerate(keys.tolist()):
        excluded = pool.excluded(query)
        wanted = min(config.depth + len(excluded), len(candidates))
        drawn = generator(config.seed, "random ranking", key).choice(len(candidates), wanted, replace=False)
        row = candidates[drawn]
        row = row[~np.isin(row, excluded)][: config.depth]
        ranked.append((row, -np.arange(len(row), dtype=np.float32)))
    return ranked


@dataclass(frozen=True)
class ImportConfig:
    """What decides an imported ranking.

    Attributes:
        name: of the system in every table.
        sha256: of the file.
        depth: entries kept a query.
        allow_unknown: whether queries and documents that the pool does not have are left out.
    """

    name: str
    sha256: str
    depth: int
    allow_unknown: bool


def import_task(
    corpus: Artifact, pool: Task | Artifact, system: ImportedRun, *, depth: int, allow_unknown: bool = False
) -> Task:
    """Return the task that makes a ranking of a run file.

    Its counts are those of a ranking and of :func:`pipeline.exchange.runs.read_run`.

    Raises:
        InputError: the file cannot be read; once run: it changed since, or an entry is refused.
    """
    check_depth(depth)
    path = system.path
    config = ImportConfig(system.name, _checksum(path), depth, allow_unknown)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        opened = open_pool(inputs)
        table, read = read_run(path, opened, depth, allow_unknown=allow_unknown, memory=resources.memory)
        if _checksum(path) != config.sha256:
            raise InputError(f"{path} changed while it was read", "Run the command again")
        ranking = Ranking(*(column(table, name) for name in table.column_names))
        counts = {**write_ranking(ranking, opened, depth, out), **read}
        out.note(file=path.name)
        say(f"run {system.name}: {_described(counts)}")
        return counts

    return Task("import", 1, RANKINGS, f"import-{slug_of(pool)}", config, {"corpus": corpus, "pool": pool}, run)


def _described(counts: Counts) -> str:
    """Return what an import left out, scored 0 or ordered, on one line."""
    notable = {
        "queries_without_results": "queries without results score 0",
        "unknown_queries": "entries of unknown queries left out",
        "unknown_documents": "entries of unknown documents left out",
        "excluded": "entries that the pool excludes left out",
        "beyond_depth": "entries beyond --depth left out",
        "tied": "tied entries ordered by document id",
    }
    said = [f"{counts[name]:,} {what}" for name, what in notable.items() if counts[name]]
    return "; ".join([f"{counts['entries']:,} entries of {counts['queries']:,} queries", *said])


def _checksum(path: Path) -> str:
    remedy = "Give the path of a run file"
    if path.exists() and not path.is_file():  # a device or a pipe may have no end
        raise InputError(f"the run {path} cannot be read (it must be a file)", remedy)
    try:
        return files.sha256(path)
    except OSError as error:
        raise InputError(f"the run {path} cannot be read ({error.strerror})", remedy) from error
