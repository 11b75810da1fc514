"""Which of some tasks a corpus has enough papers for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from pipeline.core.errors import InsufficientDataError
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.progress import warn
from pipeline.core.runner import Runner, with_inputs
from pipeline.core.task import Task
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.stages.pool import check_pool, explained


def skip_infeasible(
    runner: Runner, tasks: Sequence[Task], *, strict: bool = False, dry: bool = False
) -> Sequence[Task]:
    """Make the pools of some tasks; return the tasks whose pools could be made.

    Pools come first, so that an impossible size or year is refused before hours of work. Left out, with a line that
    says why, are pools with too few papers where all fields are asked for, and weighted sums whose validation pool
    cannot be drawn.

    Args:
        runner: makes the pools.
        tasks: what is to be made.
        strict: nothing is left out: a lack is an error.
        dry: no pool is made: only fields with fewer papers of the year than queries are found.

    Raises:
        InsufficientDataError: a corpus has too few papers for what was asked by name, or for everything.
    """
    own = _own_pools(tasks)
    every_field = {getattr(pool.config, "field", None) for pool in own.values()} == set(MAG_FIELDS)
    lacking: dict[str, InsufficientDataError] = {}
    known: dict[PoolConfig, InsufficientDataError | None] = {}
    said: set[str] = set()
    kept = tasks
    runner.expect(kept)
    for pool in (task for task in with_inputs(tasks) if task.stage == "pool"):
        alike = dataclasses.replace(pool.config, sample=1)
        error = known.get(alike) or next((lacking[i.id] for i in pool.inputs.values() if i.id in lacking), None)
        if error is None:
            error = _shortage(runner, pool, dry=dry, checked=every_field and alike not in known)
            if error is not None:
                if strict or (pool.id in own and not every_field):
                    raise explained(error, list(own.values()))
                line = f"left out: {pool.config.field if pool.id in own else f'wsum tuned on {pool.slug}'}: {error}"
                if line not in said:
                    warn(line)
                said.add(line)
            known[alike] = error
        if error is not None:
            lacking[pool.id] = error
            kept = [task for task in kept if not any(each.id == pool.id for each in with_inputs([task]))]
            runner.expect(kept)
    if lacking and not kept and every_field:
        none = InsufficientDataError(
            "no field has enough papers", "Ask for fewer --queries, a smaller --size or another --year"
        )
        raise explained(none, list(own.values()))
    if lacking and not kept:
        raise explained(next(iter(lacking.values())), list(own.values()))
    return kept


def _own_pools(tasks: Sequence[Task]) -> dict[str, Task]:
    """Return the pools of some tasks by identity, without those on which weights are chosen."""
    found: dict[str, Task] = {}
    left = list(tasks)
    while left:
        task = left.pop()
        if task.id not in found and task.stage != "weigh":
            found[task.id] = task
            left += [each for each in task.reads.values() if isinstance(each, Task)]
    return {task.id: task for task in found.values() if task.stage == "pool"}


def _shortage(runner: Runner, pool: Task, *, dry: bool, checked: bool) -> InsufficientDataError | None:
    """Make a pool, or with ``dry`` only check it; return what the corpus lacks for it."""
    try:
        if not dry:
            runner.make(pool)
        elif checked and not runner.published(pool):
            check_pool(pool)
    except InsufficientDataError as error:
        return error
    return None
