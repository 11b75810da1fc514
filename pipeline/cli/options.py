"""From parsed arguments to the objects the stages take."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline import api
from pipeline.core.errors import InputError, InsufficientDataError
from pipeline.core.progress import say, warn
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Task
from pipeline.core.workspace import find_corpus
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.encode.spec import Role
from pipeline.stages.bm25 import stored_terms_tasks
from pipeline.stages.chain import Evaluation
from pipeline.stages.embed import stored_tasks
from pipeline.stages.selection import Selection
from pipeline.stages.systems import encoders, parse_systems


def runner(options: argparse.Namespace) -> Runner:
    """Return the runner of a command's workspace."""
    limits = {name: getattr(options, name) for name in ("memory", "workers", "device") if hasattr(options, name)}
    resources, repair = Resources.of(**limits), getattr(options, "repair", False)
    if getattr(options, "engine", None) == "ray":
        from pipeline.cluster.ray_engine import ray_executor

        cluster = ray_executor(options.ray_address or "auto")
        return Runner(options.root.resolve(), resources, repair=repair, executor=cluster)
    if getattr(options, "ray_address", None):
        raise InputError("--ray-address must go with --engine=ray", "Give both, or neither")
    return Runner(options.root, resources, repair=repair)


def selection(options: argparse.Namespace) -> Selection:
    """Return the pools a command selects."""
    return api.selection(**given_pools(options))


def given_pools(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of pools that a command was given."""
    return {name: value for name in SETTINGS if (value := getattr(options, name, None)) is not None}


def benchmark_split(options: argparse.Namespace) -> str:
    """Return the split of a benchmark in the MDCR layout: ``val`` or ``test``."""
    return "val" if options.split == "validation" else options.split or "test"


def evaluations(options: argparse.Namespace, runner: Runner) -> list[Evaluation]:
    """Return every selected pool with every selected system.

    A weighted sum without validation queries is left out with a line that says so; with ``--strict`` it is an error.
    """
    lacking: dict[str, InsufficientDataError] = {}

    def leave_out(error: InsufficientDataError) -> None:
        if lacking.setdefault(error.what, error) is error:
            warn(f"left out: {error}")

    def pools() -> Iterator[Task]:
        yield from selection(options).pools(find_corpus(runner.root, options.corpus))

    names = ("depth", "bm25_engine", "measures", "missing_positives", "measure_engine")
    selected = api.Workspace(runner).evaluations(
        pools(),
        options.model or "",
        engine="auto" if options.engine == "ray" else options.engine,
        precision=options.precision,
        runs=getattr(options, "run", ()),
        allow_unknown=options.allow_unknown,
        untuned=options.command in ("eval", "score"),
        left_out=None if options.strict else leave_out,
        **{name: value for name in names if (value := getattr(options, name, None)) is not None},
    )
    if not selected:
        raise next(iter(lacking.values()))
    tunings = {evaluation.tuning.artifact.id: evaluation.tuning for evaluation in selected if evaluation.tuning}
    for tuning in tunings.values():
        say(f"bm25: k1={tuning.k1:g}, b={tuning.b:g}, tuned on {tuning.artifact.name}")
    return selected


def stored(options: argparse.Namespace, root: Path) -> list[Task]:
    """Return the tasks of all terms of the corpus and of the vectors of the systems named.

    A paper is analysed and embedded once for all pools, so a repair covers what earlier pools stored.
    """
    corpus = find_corpus(root, options.corpus)
    names = getattr(options, "model", None)
    models = encoders(parse_systems(names, options.precision)) if names else []
    roles: tuple[Role, ...] = ("paper", "query")
    vectors = [task for model in models for role in roles for task in stored_tasks(root, corpus, model, role)]
    return [*stored_terms_tasks(root, corpus), *vectors]
