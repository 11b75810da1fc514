"""From parsed arguments to tasks; make the tasks, or print the plan."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline import api
from pipeline.cli.output import print_json
from pipeline.cluster.jobs import wait_for_workers
from pipeline.cluster.settings import REQUESTED, SlurmSettings
from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner, Step
from pipeline.core.task import Executor, Task
from pipeline.core.workspace import find_corpus, find_corpus_folder
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.encode import hub
from pipeline.encode.model import Role
from pipeline.encode.names import parse
from pipeline.stages.bm25 import stored_terms_tasks
from pipeline.stages.chain import Evaluation
from pipeline.stages.embed import stored_tasks
from pipeline.stages.pool import skip_infeasible
from pipeline.stages.selection import Selection
from pipeline.stages.settings import RANKED
from pipeline.stages.systems import DEFAULT_B, DEFAULT_K1, encoders, parse_systems
from pipeline.stages.tune import stored_tuning_tasks


def runner(options: argparse.Namespace) -> Runner:
    """Return the runner of a command's workspace."""
    limits = {name: getattr(options, name) for name in ("memory", "workers", "device") if hasattr(options, name)}
    resources, repair = Resources.of(**limits), getattr(options, "repair", False)
    executor: Executor | None = None
    ray = getattr(options, "engine", None) == "ray"
    if getattr(options, "on", None):
        from pipeline.cluster.slurm import OnSlurm

        if ray:
            raise InputError("--on=slurm cannot be combined with --engine=ray", "Give one of them")
        typed = {name: value for name, value in limits.items() if value is not None}
        executor = OnSlurm(options.root.resolve(), slurm_settings(options), typed)
    elif ray:
        from pipeline.cluster.ray_engine import ray_executor

        executor = ray_executor(options.ray_address or "auto")
    root = options.root.resolve() if executor else options.root
    return Runner(root, resources, repair=repair, executor=executor, wait=wait_for_workers)


def slurm_settings(options: argparse.Namespace) -> SlurmSettings:
    """Return what the jobs of a command ask of Slurm."""
    return SlurmSettings.read(options.slurm, **{name: getattr(options, name) for name in REQUESTED})


def selection(options: argparse.Namespace) -> Selection:
    """Return the selection of pools of a command."""
    return api.selection(**given_pools(options))


def given_pools(options: argparse.Namespace) -> dict[str, Any]:
    """Return the pool settings given on the command line."""
    return {name: value for name in SETTINGS if (value := getattr(options, name, None)) is not None}


def evaluations(options: argparse.Namespace, runner: Runner) -> list[Evaluation]:
    """Return the evaluations of every selected system on every selected pool."""

    def pools() -> Iterator[Task]:
        yield from selection(options).pools(find_corpus(runner.root, options.corpus))

    ranked, runs = {name: getattr(options, name, None) for name in RANKED}, getattr(options, "run", ())
    selected = api.Workspace(runner).evaluations(
        pools(),
        options.model or ("bm25" if options.command == "eval" and not runs else ""),
        precision=options.precision,
        runs=runs,
        untuned=options.command in ("eval", "score"),
        **{name: value for name, value in ranked.items() if value is not None and value != "ray"},
    )
    tunings = {evaluation.tuning.artifact.id: evaluation.tuning for evaluation in selected if evaluation.tuning}
    for tuning in tunings.values():
        say(f"bm25: k1={tuning.k1:g}, b={tuning.b:g}, tuned on {tuning.artifact.name}")
    typed = any(str(part) == "bm25" for name in parse(options.model or "") for part in name.walk())
    if typed and not tunings:
        say(f"bm25: k1={DEFAULT_K1:g}, b={DEFAULT_B:g}, not tuned: mdcr tune was not run with these settings")
    return selected


def stored(options: argparse.Namespace, root: Path) -> list[Task]:
    """Return the tasks of all stored terms of the corpus, and of the stored vectors of the systems.

    A paper is analysed and embedded once for all pools, so a repair includes the segments of earlier pools.
    """
    corpus = find_corpus(root, options.corpus)
    names = getattr(options, "model", None)
    models = encoders(parse_systems(names, options.precision)) if names else []
    roles: tuple[Role, ...] = ("paper", "query")
    vectors = [task for model in models for role in roles for task in stored_tasks(root, corpus, model, role)]
    return [*stored_terms_tasks(root, corpus), *vectors]


def make(runner: Runner, tasks: Sequence[Task], options: argparse.Namespace, *, stores: bool = False) -> list[Artifact]:
    """Make the tasks and return their artifacts; with ``--dry-run`` print the plan and return none.

    With ``--repair`` and ``stores``, terms and vectors, which all pools share, are repaired too.
    """
    tasks = feasible(runner, tasks, options)
    if options.dry_run:
        record = planned(runner.plan(tasks), options)
        if options.json:
            print_json(record)
        return []
    if options.repair and stores:
        for task in stored(options, runner.root):
            runner.make(task)
    return runner.make_all(tasks)


def feasible(runner: Runner, tasks: Sequence[Task], options: argparse.Namespace) -> Sequence[Task]:
    """Return the tasks for which the corpus has enough papers (:func:`skip_infeasible`)."""
    strict, dry = getattr(options, "strict", False), getattr(options, "dry_run", False)
    return skip_infeasible(runner, tasks, strict=strict, dry=dry)


def repaired(options: argparse.Namespace) -> Runner:
    """Return the runner of a command; with ``--repair``, first repair its corpus and the tunings of that corpus."""
    made_by = runner(options)
    if options.repair and not options.dry_run:
        folder = find_corpus_folder(made_by.root, options.corpus)
        try:
            damaged = Artifact.open(folder).damaged()
        except CorruptError:
            damaged = [MANIFEST]
        if damaged:
            from pipeline.stages.corpus import recorded_task

            made_by.make(recorded_task(folder))
        for task in stored_tuning_tasks(made_by.root, Artifact.open(folder)):
            made_by.make(task)
    return made_by


def downloads(task: Task) -> list[str]:
    """Return the models that a planned task would download from the hub."""
    if task.stage not in ("embed", "rerank") or not hub.absent():
        return []
    config = json.dumps(canonical(task.config))
    return [name for name in sorted(hub.absent()) if json.dumps(name) in config]


def planned(steps: Sequence[Step], options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Print the steps of a plan; return them as records, which ``--json`` prints in place of lines."""
    if not options.json:
        for step in steps:
            absent = downloads(step.task)
            remark = f"  (nearest differs in {'; '.join(step.changed)})" if step.changed else ""
            remark = f"  (downloads {', '.join(absent)} first)" if absent else remark
            print(f"{'have' if step.present else 'make'} {step.task.stage:8} {step.task.name}{remark}")
        say(f"{sum(not step.present for step in steps)} of {len(steps)} artifacts would be made")
    return {
        "plan": [
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
    }
