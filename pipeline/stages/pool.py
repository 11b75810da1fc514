"""Stage ``pool``: queries, candidates, qrels and exclusions from a corpus."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, InsufficientDataError
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.files import given
from pipeline.core.manifest import Counts
from pipeline.core.progress import warn
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner, with_inputs
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import SETTINGS, PoolConfig
from pipeline.corpus.pools import build_given_pool, build_pool, nearest, shortage, sizes_within
from pipeline.corpus.reader import Corpus
from pipeline.stages.corpus import authors_task


@dataclass(frozen=True)
class PoolBuilder:
    """Construction of one pool; ``ids``, in files ``exclude``, are of papers that may not be queries."""

    config: PoolConfig
    exclude: tuple[Path, ...]
    ids: tuple[str, ...]

    @property
    def needs_corpus_alone(self) -> bool:
        """Whether it draws, and from nothing but the corpus."""
        return not self.config.given and self.config.positives != "strangers"

    def __call__(self, inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        """Draw the pool, or write the pool given by the release; return its counts."""
        corpus = Corpus(inputs["corpus"], inputs.get("authors"))
        if self.config.given:
            return build_given_pool(corpus, self.config, out)
        excluded = corpus.rows_of(self.ids)
        used = Pool(inputs["test"], corpus).query_rows if "test" in inputs else np.empty(0, np.uint32)
        return build_pool(corpus, self.config, out, excluded[excluded >= 0], used)


def pool_task(corpus: Task | Artifact, config: PoolConfig, exclude: Sequence[Path] = ()) -> Task:
    """Return the task that builds one pool; a validation pool leaves out the queries of the test pool.

    ``exclude`` are files of ids, one per line, of papers that may not be queries, such as training queries.
    """
    config = dataclasses.replace(config, exclude=exclusions(exclude))
    inputs: dict[str, Task | Artifact] = {"corpus": corpus}
    identity = config
    if config.positives == "strangers":
        inputs["authors"] = authors_task(corpus)
    if config.split == "validation":
        inputs["test"] = pool_task(corpus, dataclasses.replace(config, split="test", sample=1), exclude)
    else:
        identity = dataclasses.replace(config, validation_queries=None)
    builder = PoolBuilder(config, tuple(exclude), read_ids(exclude))
    version = 3 if config.queries_are == "texts" else 1
    return Task("pool", version, POOLS, f"{corpus.slug}-{config.slug}", identity, inputs, builder)


def exclusions(paths: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    """Return name and SHA-256 of lists of paper ids, as pools record them."""
    return tuple((path.name, hashlib.sha256("\n".join(_read_list(path)).encode()).hexdigest()) for path in paths)


def skip_infeasible(
    runner: Runner, tasks: Sequence[Task], *, strict: bool = False, dry: bool = False
) -> Sequence[Task]:
    """Make the pools of some tasks; return the tasks whose pools could be made; with ``dry``, pools are only drawn.

    Pools are made first, so that an impossible size or year fails before hours of work. If all fields are requested,
    those with too few papers are left out with a warning, unless ``strict``.

    Raises:
        InsufficientDataError: a corpus has too few papers for a pool that was requested by name, or for all pools.
    """
    pools = [task for task in with_inputs(tasks) if task.stage == "pool"]
    every_field = {getattr(pool.config, "field", None) for pool in pools} == set(MAG_FIELDS)
    shortages: dict[str, InsufficientDataError] = {}
    shortage_of: dict[PoolConfig, InsufficientDataError | None] = {}
    feasible = tasks
    runner.expect(feasible)
    for pool in pools:
        first_sample = dataclasses.replace(pool.config, sample=1)
        error = shortage_of.get(first_sample)
        error = error or next((shortages[source.id] for source in pool.inputs.values() if source.id in shortages), None)
        if error is None and not (dry and first_sample in shortage_of):
            error = _shortage(runner, pool, dry=dry)
            if error is not None:
                if strict or not every_field:
                    raise explained(error, pools)
                warn(f"left out: {pool.config.field}: {error}")
            shortage_of[first_sample] = error
        if error is not None:
            shortages[pool.id] = error
            feasible = [task for task in feasible if all(needed.id != pool.id for needed in with_inputs([task]))]
            runner.expect(feasible)
    if shortages and not feasible:
        no_field = InsufficientDataError(
            "no field has enough papers", "Ask for fewer --queries, a smaller --size or another --year"
        )
        raise explained(no_field, pools)
    return feasible


def _shortage(runner: Runner, pool: Task, *, dry: bool) -> InsufficientDataError | None:
    """Make a pool, or with ``dry`` only draw it; return the error if papers are too few."""
    corpus, builder = pool.inputs["corpus"], pool.run
    try:
        if not dry:
            runner.make(pool)
        elif isinstance(corpus, Artifact) and isinstance(builder, PoolBuilder) and not runner.published(pool):
            return shortage(Corpus(corpus), builder.config, builder.ids) if builder.needs_corpus_alone else None
    except InsufficientDataError as error:
        return error
    return None


def explained(error: InsufficientDataError, pools: Sequence[Task]) -> InsufficientDataError:
    """Return an error about pools of one corpus, with the nearest settings that the corpus has enough papers for."""
    pools = [pool for pool in pools if pool.config.split == "validation"] or pools
    corpus, builder = pools[0].inputs["corpus"], pools[0].run
    if not isinstance(corpus, Artifact) or not isinstance(builder, PoolBuilder) or not builder.needs_corpus_alone:
        return error
    configs = [dataclasses.replace(pool.config, sample=1) for pool in pools]
    every_field = {config.field for config in configs} == set(MAG_FIELDS)
    together = [[config] for config in configs] if every_field else [configs]
    rules = {"queries", "size", "min_citations", "min_abstract_chars"}
    for free in (rules, rules | {"year"}):
        found = [nearest(Corpus(corpus), alike, free, builder.ids) for alike in together]
        if changed := max(filter(None, found), key=lambda settings: settings.get("queries", np.inf), default=None):
            year, default = builder.config.year, SETTINGS["year"].default
            values = ({} if year == default else {"year": year}) | changed
            if "size" in values:
                values["size"] = sizes_within(dict.fromkeys(config.size for config in configs), values["size"])
            error.instead = {SETTINGS[name].option: SETTINGS[name].typed(value) for name, value in values.items()}
            break
    return error


def read_ids(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the ids in files of papers that may not be queries.

    Raises:
        InputError: a list cannot be read.
    """
    return tuple(paper_id for path in paths for paper_id in _read_list(path))


def _read_list(path: Path) -> list[str]:
    try:
        lines = given(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the exclusion list {path} cannot be read ({error})", "Give one paper id a line") from error
    return sorted({line.strip() for line in lines} - {""})
