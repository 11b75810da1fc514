"""Making what a subcommand asked for, and printing what was made, or would be."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.cli import options as read
from pipeline.core.artifact import Artifact
from pipeline.core.progress import say
from pipeline.core.task import Task
from pipeline.core.workspace import JOBS
from pipeline.runner import Runner, Step


def make(runner: Runner, tasks: Sequence[Task], options: argparse.Namespace) -> list[Artifact]:
    """Make the tasks, or print the plan, and make nothing, where that is all that was asked for.

    Pools come first: what cannot be (a size, a year) is refused before hours of work, not after.
    """
    if options.dry_run:
        _print_plan(runner.plan(tasks), options)
        return []
    refuse_submitted(runner.root, tasks)
    for task in tasks:
        pool = task.inputs.get("pool")
        if isinstance(pool, Task):
            runner.make(pool)
    return runner.make_all(tasks)


def refuse_submitted(root: Path, tasks: Sequence[Task]) -> None:
    """Refuse to make what jobs of a batch system are making: nothing locks a folder that slices work in."""
    if (root / JOBS).is_dir():
        from pipeline.cluster.guard import refuse

        refuse(root, tasks)


def repair_stores(runner: Runner, options: argparse.Namespace) -> None:
    """Repair what is stored once for all pools, where that was asked for."""
    if options.repair and not options.dry_run:
        for task in read.stored(options, runner.root):
            runner.make(task)


def print_made(kind: str, made: Sequence[Artifact], options: argparse.Namespace) -> None:
    """Print what was made, as JSON where that was asked for."""
    if options.json and not options.dry_run:
        print_json({kind: [described(artifact) for artifact in made]})
        return
    for artifact in made:
        print_counts(f"{artifact.manifest.stage} {artifact.name}", artifact)


def _print_plan(steps: Sequence[Step], options: argparse.Namespace) -> None:
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


def described(artifact: Artifact) -> dict[str, Any]:
    """Return what programs want to know of an artifact."""
    manifest = artifact.manifest
    return {
        "stage": manifest.stage,
        "name": artifact.name,
        "id": manifest.id,
        "path": str(artifact.path),
        "config": manifest.config,
        "counts": manifest.counts,
    }


def print_json(values: Mapping[str, Any]) -> None:
    """Print values as one line of JSON."""
    json.dump(values, sys.stdout, ensure_ascii=False)
    print()


def print_counts(title: str, artifact: Artifact) -> None:
    """Print what an artifact counts, line by line."""
    print(title)
    for line in _lines(artifact.manifest.counts):
        print(f"  {line}")


def _lines(counts: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in counts.items():
        label = name.replace("_", " ")
        if isinstance(value, Mapping):
            lines += [f"{label}:", *(f"  {line}" for line in _lines(value))] if value else []
        elif isinstance(value, int | float):
            lines.append(f"{label:32}{value:>14,}")
    return lines
