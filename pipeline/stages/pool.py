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
from pipeline.core.manifest import Counts
from pipeline.core.progress import warn
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner, with_inputs
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.contexts import build_context_pool
from pipeline.corpus.fit import largest
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import SETTINGS, PoolConfig
from pipeline.corpus.pools import build_given_pool, build_pool
from pipeline.corpus.queries import check_queries
from pipeline.corpus.reader import Corpus
from pipeline.stages.search import slug_of


@dataclass(frozen=True)
class PoolBuilder:
    """The work of a pool.

    Attributes:
        config: its settings.
        exclude: files with one paper id a line that may not be queries.
        ids: what they hold.
    """

    config: PoolConfig
    exclude: tuple[Path, ...]
    ids: tuple[str, ...]

    def __call__(self, inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        """Draw the pool, or write the one that a release brings."""
        opened = Corpus(inputs["corpus"])
        if self.config.given:
            return build_given_pool(opened, self.config, out)
        excluded = opened.rows_of(self.ids)
        excluded = excluded[excluded >= 0]
        if self.config.queries_are == "texts":
            taken = Pool(inputs["test"], opened).query_rows if "test" in inputs else np.empty(0, np.uint32)
            return build_context_pool(opened, self.config, out, excluded, taken)
        if "test" in inputs:
            excluded = np.concatenate([excluded, Pool(inputs["test"], opened).query_rows])
        return build_pool(opened, self.config, out, excluded)


def pool_task(corpus: Task | Artifact, config: PoolConfig, exclude: Sequence[Path] = ()) -> Task:
    """Return the task that builds one pool; a validation pool leaves out the queries of the test pool.

    ``exclude`` are files with one paper id a line that may not be queries, such as training queries of an encoder.
    """
    config = dataclasses.replace(config, exclude=exclusions(exclude))
    inputs: dict[str, Task | Artifact] = {"corpus": corpus}
    if config.split == "validation":
        inputs["test"] = pool_task(corpus, dataclasses.replace(config, split="test", sample=1), exclude)
    builder = PoolBuilder(config, tuple(exclude), read_ids(exclude))
    version = 3 if config.queries_are == "texts" else 1
    return Task("pool", version, POOLS, f"{slug_of(corpus)}-{config.slug}", config, inputs, builder)


def validation_task(pool: Task) -> Task | None:
    """Return the task of the validation pool that belongs to a test pool; None where no queries are left for one."""
    builder = pool.run
    if not isinstance(builder, PoolBuilder) or builder.config.given or builder.config.queries == "all":
        return None
    config = dataclasses.replace(builder.config, split="validation", sample=1)
    return pool_task(pool.inputs["corpus"], config, builder.exclude)


def exclusions(paths: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    """Return name and SHA-256 of lists of paper ids, as pools record them."""
    return tuple((path.name, hashlib.sha256("\n".join(_read_list(path)).encode()).hexdigest()) for path in paths)


def skip_infeasible(
    runner: Runner, tasks: Sequence[Task], *, strict: bool = False, dry: bool = False
) -> Sequence[Task]:
    """Make the pools of some tasks; return the tasks whose pools could be made.

    Pools come first, so that an impossible size or year is refused before hours of work. Left out, with a line that
    says why, are pools with too few papers where all fields are asked for, and weighted sums whose validation pool
    cannot be drawn.

    With ``strict`` nothing is left out: a lack is an error. With ``dry`` no pool is made, and only fields with fewer
    papers of the year than queries are found.

    Raises:
        InsufficientDataError: a corpus has too few papers for what was asked by name, or for everything.
    """
    asked = _asked_pools(tasks)
    every_field = {getattr(pool.config, "field", None) for pool in asked.values()} == set(MAG_FIELDS)
    lacking: dict[str, InsufficientDataError] = {}
    checked: dict[PoolConfig, InsufficientDataError | None] = {}
    warned: set[str] = set()
    kept = tasks
    runner.expect(kept)
    for pool in (task for task in with_inputs(tasks) if task.stage == "pool"):
        first_sample = dataclasses.replace(pool.config, sample=1)
        error = checked.get(first_sample)
        error = error or next((lacking[source.id] for source in pool.inputs.values() if source.id in lacking), None)
        if error is None:
            error = _shortage(runner, pool, dry=dry, check=every_field and first_sample not in checked)
            if error is not None:
                if strict or (pool.id in asked and not every_field):
                    raise explained(error, list(asked.values()))
                what = pool.config.field if pool.id in asked else f"wsum tuned on {pool.slug}"
                if (line := f"left out: {what}: {error}") not in warned:
                    warn(line)
                    warned.add(line)
            checked[first_sample] = error
        if error is not None:
            lacking[pool.id] = error
            kept = [task for task in kept if all(needed.id != pool.id for needed in with_inputs([task]))]
            runner.expect(kept)
    if lacking and not kept:
        none = InsufficientDataError(
            "no field has enough papers", "Ask for fewer --queries, a smaller --size or another --year"
        )
        raise explained(none if every_field else next(iter(lacking.values())), list(asked.values()))
    return kept


def _asked_pools(tasks: Sequence[Task]) -> dict[str, Task]:
    """Return the pools of some tasks by identity, without those on which weights are chosen."""
    reached: dict[str, Task] = {}
    left = list(tasks)
    while left:
        task = left.pop()
        if task.id not in reached and task.stage != "weigh":
            reached[task.id] = task
            left += [source for source in task.reads.values() if isinstance(source, Task)]
    return {task.id: task for task in reached.values() if task.stage == "pool"}


def _shortage(runner: Runner, pool: Task, *, dry: bool, check: bool) -> InsufficientDataError | None:
    """Make a pool, or with ``dry`` only count the papers that may be its queries; return what the corpus lacks."""
    corpus, config = pool.inputs["corpus"], pool.config
    try:
        if not dry:
            runner.make(pool)
        elif check and not runner.published(pool) and isinstance(corpus, Artifact) and config.queries_are != "texts":
            check_queries(Corpus(corpus), config)
    except InsufficientDataError as error:
        return error
    return None


def explained(error: InsufficientDataError, pools: Sequence[Task]) -> InsufficientDataError:
    """Return an error about some pools of one corpus with the settings nearest to theirs that it has papers for."""
    pools = [pool for pool in pools if pool.config.split == "validation"] or pools
    first = pools[0]
    corpus, builder = first.inputs["corpus"], first.run
    if not isinstance(corpus, Artifact) or not isinstance(builder, PoolBuilder) or first.config.queries_are == "texts":
        return error
    opened, config = Corpus(corpus), first.config
    fields, sizes = (tuple(dict.fromkeys(getattr(pool.config, name) for pool in pools)) for name in ("field", "size"))
    for free in ({"queries", "size"}, {"year", "queries", "size"}):
        held_out = config.split == "validation"
        if fitting := largest(opened, config, fields, sizes, free, builder.ids, held_out=held_out):
            year = {} if config.year == SETTINGS["year"].default else {"year": config.year}
            values = {**year, **fitting}
            error.instead = {SETTINGS[name].option: SETTINGS[name].typed(value) for name, value in values.items()}
            break
    return error


def read_ids(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the ids in lists of papers that may not be queries.

    Raises:
        InputError: a list cannot be read.
    """
    return tuple(paper_id for path in paths for paper_id in _read_list(path))


def _read_list(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the exclusion list {path} cannot be read ({error})", "Give one paper id a line") from error
    return sorted({line.strip() for line in lines} - {""})
