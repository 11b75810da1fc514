"""From parsed arguments to the objects the stages take."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from pipeline.core.artifact import published
from pipeline.core.errors import InputError
from pipeline.core.progress import say, set_quiet
from pipeline.core.resources import Resources, parse_memory
from pipeline.core.task import Task
from pipeline.core.workspace import TUNINGS, find_corpus
from pipeline.corpus.prefilter import PrefilterConfig
from pipeline.encode.spec import Role
from pipeline.measure.measures import parse_measures
from pipeline.runner import Runner
from pipeline.sources.registry import all_options
from pipeline.stages.bm25 import stored_terms_tasks
from pipeline.stages.chain import Evaluation
from pipeline.stages.chain import evaluations as make_evaluations
from pipeline.stages.embed import stored_tasks
from pipeline.stages.selection import Selection, parse_count_or_all, parse_fields, parse_sizes
from pipeline.stages.systems import Fused, Reranked, encoders, parse_systems


def runner(options: argparse.Namespace) -> Runner:
    """Return the runner of a command's workspace."""
    set_quiet(options.quiet)
    resources = Resources(device=options.device)
    if options.memory:
        resources = dataclasses.replace(resources, memory=parse_memory(options.memory))
    if options.workers is not None:
        if options.workers < 1:
            raise InputError(f"--workers {options.workers} is out of range", "Ask for one or more")
        resources = dataclasses.replace(resources, workers=options.workers)
    if getattr(options, "engine", None) == "ray":
        from pipeline.cluster.ray_engine import ray_executor

        return Runner(
            options.root.resolve(), resources, repair=options.repair, executor=ray_executor(options.ray_address)
        )
    return Runner(options.root, resources, repair=options.repair)


def source_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the options say of the source of a corpus."""
    return {name: getattr(options, name) for name in all_options()}


def selection(options: argparse.Namespace) -> Selection:
    """Return the pools a command selects."""
    return Selection(
        fields=parse_fields(options.field),
        year=options.year,
        sizes=parse_sizes(options.size),
        queries=None if options.queries is None else parse_count_or_all(options.queries, "--queries"),
        samples=options.samples,
        seed=options.seed,
        split=options.split,
        nested=options.nested,
        positives=options.positives,
        drop_same_title=not options.keep_same_title,
        prefilter=PrefilterConfig(options.min_abstract_chars, options.min_citations, options.citation_direction),
        exclude=tuple(options.exclude),
    )


def evaluations(options: argparse.Namespace, root: Path) -> list[Evaluation]:
    """Return every selected pool with every selected system.

    Raises:
        InputError: a corpus, field, size, system or measure is unknown.
    """
    systems = parse_systems(options.model, options.precision)
    measures = getattr(options, "measures", None)
    names = tuple(map(str, parse_measures(measures))) if measures else ()
    corpus = find_corpus(root, options.corpus)
    chosen = selection(options)
    validation: list[Task] = []
    ranking = (system.first if isinstance(system, Reranked) else system for system in systems)
    if any(isinstance(system, Fused) and system.method == "wsum" for system in ranking):
        validation = dataclasses.replace(chosen, split="validation", samples=1).pools(corpus)
    made = make_evaluations(
        corpus,
        chosen.pools(corpus),
        systems,
        names,
        validation=validation,
        depth=options.depth,
        engine="auto" if options.engine == "ray" else options.engine,
        bm25_engine=options.bm25_engine,
        measure_engine=getattr(options, "measure_engine", "numpy"),
        tunings=list(published(root / TUNINGS)),
    )
    for tuning in {
        evaluation.tuning.artifact.id: evaluation.tuning for evaluation in made if evaluation.tuning is not None
    }.values():
        say(f"bm25: k1={tuning.k1:g}, b={tuning.b:g}, tuned on {tuning.artifact.name}")
    return made


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
