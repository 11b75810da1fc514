"""Making what a subcommand asked for, or printing the plan of it."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from pipeline.cli import options as read
from pipeline.cli.output import print_json
from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, LackError
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say, warn
from pipeline.core.task import Task
from pipeline.core.workspace import JOBS, find_corpus_folder
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.runner import Runner, Step, with_inputs
from pipeline.stages.pool import check_pool
from pipeline.stages.selection import parse_fields


def make(runner: Runner, tasks: Sequence[Task], options: argparse.Namespace, *, stores: bool = False) -> list[Artifact]:
    """Make the tasks and return their artifacts; with ``--dry-run`` print what would be made.

    With ``--repair`` and ``stores``, what is stored once for all pools is repaired too.

    Raises:
        LackError: a corpus has too few papers for what was asked by name, or for everything.
    """
    if options.dry_run:
        _print_steps(runner.plan(possible(runner, tasks, options)), options)
        return []
    refuse_submitted(runner.root, tasks)
    kept = possible(runner, tasks, options)
    if options.repair and stores:
        for task in read.stored(options, runner.root):
            runner.make(task)
    return runner.make_all(kept)


def possible(runner: Runner, tasks: Sequence[Task], options: argparse.Namespace) -> Sequence[Task]:
    """Make the pools of some tasks; return the tasks whose pools could be made.

    Pools come first, so that an impossible size or year is refused before hours of work. Left out, with a line that
    says why, are pools of ``--field all`` for which there are too few papers, and weighted sums whose validation pool
    cannot be drawn; with ``--strict`` they are errors. With ``--dry-run`` no pool is made: only fields with fewer
    papers of the year than queries are found.
    """
    every_field = parse_fields(getattr(options, "field", None)) == MAG_FIELDS
    asked, own = with_inputs(tasks), _own_pools(tasks)
    strict, dry = getattr(options, "strict", False), getattr(options, "dry_run", False)
    lacking: dict[str, LackError] = {}
    known: dict[PoolConfig, LackError | None] = {}
    said: set[str] = set()
    kept = tasks
    runner.expect(kept)
    for pool in (task for task in asked if task.stage == "pool"):
        alike = dataclasses.replace(pool.config, sample=1)
        error = known.get(alike) or next((lacking[i.id] for i in pool.inputs.values() if i.id in lacking), None)
        if error is None:
            error = _lack(runner, pool, dry=dry, checked=every_field and alike not in known)
            if error is not None:
                if strict or (pool.id in own and not every_field):
                    raise error
                line = f"left out: {pool.config.field if pool.id in own else f'wsum tuned on {pool.slug}'}: {error}"
                if line not in said:
                    warn(line)
                said.add(line)
            known[alike] = error
        if error is not None:
            lacking[pool.id] = error
            kept = [task for task in kept if not any(each.id == pool.id for each in with_inputs([task]))]
            runner.expect(kept)
    if not lacking:
        return tasks
    if not kept and every_field:
        raise LackError("no field has enough papers", "Ask for fewer --queries, a smaller --size or another --year")
    if not kept:
        raise next(iter(lacking.values()))
    return kept


def _own_pools(tasks: Sequence[Task]) -> set[str]:
    """Return the identities of the pools of some tasks, without those on which weights are chosen."""
    found: dict[str, Task] = {}
    left = list(tasks)
    while left:
        task = left.pop()
        if task.id not in found and task.stage != "weigh":
            found[task.id] = task
            left += [each for each in task.reads.values() if isinstance(each, Task)]
    return {task.id for task in found.values() if task.stage == "pool"}


def _lack(runner: Runner, pool: Task, *, dry: bool, checked: bool) -> LackError | None:
    """Make a pool, or with ``dry`` only check it; return what the corpus lacks for it."""
    try:
        if not dry:
            runner.make(pool)
        elif checked and not runner.published(pool):
            check_pool(pool)
    except LackError as error:
        return error
    return None


def refuse_submitted(root: Path, tasks: Sequence[Task]) -> None:
    """Refuse to make what jobs of a batch system are making: nothing locks a folder that slices work in."""
    if (root / JOBS).is_dir():
        from pipeline.cluster.guard import refuse

        refuse(root, tasks)


def repaired(options: argparse.Namespace) -> Runner:
    """Return the runner of a command after repairing its corpus, if ``--repair`` was given.

    Raises:
        CorruptError: the corpus is damaged, and its release is no longer where it was.
    """
    runner = read.runner(options)
    if options.repair and not options.dry_run:
        folder = find_corpus_folder(runner.root, options.corpus)
        try:
            damaged = Artifact.open(folder).damaged()
        except CorruptError:
            damaged = [MANIFEST]
        if damaged:
            from pipeline.stages.corpus import recorded_task

            runner.make(recorded_task(folder))
    return runner


def _print_steps(steps: Sequence[Step], options: argparse.Namespace) -> None:
    if options.json:
        plan = [
            {
                "stage": step.task.stage,
                "name": step.task.name,
                "path": str(step.path),
                "present": step.present,
                "changed": list(step.changed),
            }
            for step in steps
        ]
        print_json({"plan": plan})
        return
    for step in steps:
        line = f"{'have' if step.present else 'make':5}{step.task.stage:8}{step.task.name}"
        print(line + (f"  (nearest differs in {'; '.join(step.changed)})" if step.changed else ""))
    missing = sum(not step.present for step in steps)
    say(f"{missing} of {len(steps)} artifacts would be made")
