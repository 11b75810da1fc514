"""Making what a subcommand asked for, or printing the plan of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pipeline.cli import options as read
from pipeline.cli.output import print_json
from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.task import Task
from pipeline.core.workspace import JOBS, find_corpus_folder
from pipeline.runner import Runner, Step, with_inputs


def make(runner: Runner, tasks: Sequence[Task], options: argparse.Namespace) -> list[Artifact]:
    """Make the tasks; with ``--dry-run`` print what would be made.

    Pools come first, so that an impossible size or year is refused before hours of work.
    """
    if options.dry_run:
        _print_steps(runner.plan(tasks), options)
        return []
    refuse_submitted(runner.root, tasks)
    _make_pools(runner, tasks)
    return runner.make_all(tasks)


def _make_pools(runner: Runner, tasks: Sequence[Task]) -> None:
    for task in with_inputs(tasks):
        if task.stage == "pool":
            runner.make(task)


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


def repair_stores(runner: Runner, tasks: Sequence[Task], options: argparse.Namespace) -> None:
    """Repair the pools of some tasks and what is stored once for all pools, if ``--repair`` was given."""
    if options.repair and not options.dry_run:
        _make_pools(runner, tasks)
        for task in read.stored(options, runner.root):
            runner.make(task)


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
