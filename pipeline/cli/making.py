"""Making what a subcommand asked for, or printing the plan of it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from pipeline.cli import options as read
from pipeline.cli.output import print_json
from pipeline.cluster.batch import check_not_running
from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical
from pipeline.core.errors import CorruptError
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.runner import Runner, Step
from pipeline.core.task import Task
from pipeline.core.workspace import find_corpus_folder
from pipeline.encode import hub
from pipeline.stages.pool import skip_infeasible
from pipeline.stages.tune import stored_tuning_tasks


def make(runner: Runner, tasks: Sequence[Task], options: argparse.Namespace, *, stores: bool = False) -> list[Artifact]:
    """Make the tasks and return their artifacts; with ``--dry-run`` print what would be made.

    With ``--repair`` and ``stores``, what is stored once for all pools is repaired too.
    """
    if options.dry_run:
        _print_steps(runner.plan(feasible(runner, tasks, options)), options)
        return []
    check_not_running(runner.root, tasks)
    kept = feasible(runner, tasks, options)
    if options.repair and stores:
        for task in read.stored(options, runner.root):
            runner.make(task)
    return runner.make_all(kept)


def feasible(runner: Runner, tasks: Sequence[Task], options: argparse.Namespace) -> Sequence[Task]:
    """Return the tasks that a corpus has enough papers for, as the options ask (:func:`skip_infeasible`)."""
    strict, dry = getattr(options, "strict", False), getattr(options, "dry_run", False)
    return skip_infeasible(runner, tasks, strict=strict, dry=dry)


def repaired(options: argparse.Namespace) -> Runner:
    """Return the runner of a command after repairing its corpus and the tunings of that, if ``--repair`` was given."""
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
        for task in stored_tuning_tasks(runner.root, Artifact.open(folder)):
            runner.make(task)
    return runner


def downloads(task: Task) -> list[str]:
    """Return the models of the hub that a planned task would download, because they are absent."""
    if task.stage not in ("embed", "rerank") or not hub.absent():
        return []
    config = json.dumps(canonical(task.config))
    return [name for name in sorted(hub.absent()) if json.dumps(name) in config]


def plan_line(step: Step) -> str:
    """Return a step as a line of a plan."""
    return f"{'have' if step.present else 'make':5}{step.task.stage:8}{step.task.name}"


def downloads_first(step: Step) -> str:
    """Return what a line of a plan says of models that are absent; empty: none are."""
    absent = downloads(step.task)
    return f"  (downloads {', '.join(absent)} first)" if absent else ""


def _print_steps(steps: Sequence[Step], options: argparse.Namespace) -> None:
    if options.json:
        plan = [
            {
                "stage": step.task.stage,
                "name": step.task.name,
                "path": str(step.path),
                "present": step.present,
                "changed": list(step.changed),
                "downloads": downloads(step.task),
            }
            for step in steps
        ]
        print_json({"plan": plan})
        return
    for step in steps:
        nearest = f"  (nearest differs in {'; '.join(step.changed)})" if step.changed else ""
        print(plan_line(step) + (downloads_first(step) or nearest))
    missing = sum(not step.present for step in steps)
    say(f"{missing} of {len(steps)} artifacts would be made")
