"""``mdcr eval`` and ``mdcr score`` with ``--benchmark``: systems or score files on a benchmark in the MDCR layout."""

from __future__ import annotations

import argparse
import dataclasses
import sys

import polars as pl

from pipeline.api import Workspace
from pipeline.cli import options as read
from pipeline.cli.output import print_json
from pipeline.cli.study import present, print_plan
from pipeline.core.errors import InputError
from pipeline.core.files import disk_errors
from pipeline.core.progress import say
from pipeline.scores.render import render_table
from pipeline.scores.tables import frame_table
from pipeline.stages.systems import parse_systems
from pipeline.studies.base import find
from pipeline.studies.recipe import read_recipe

_OF_BENCHMARKS = ("scores", "export-scores", "bm25-index")
_RUNNING = {"root", "memory", "workers", "device", "repair", "dry-run", "verbose", "json", "quiet"}


def asked(options: argparse.Namespace) -> bool:
    """Whether a command is about a benchmark.

    Raises:
        InputError: a benchmark is missing where an option needs one, or systems are.
    """
    typed = [name for name in _OF_BENCHMARKS if getattr(options, name.replace("-", "_")) is not None]
    if options.benchmark is None and typed:
        raise InputError(f"--{typed[0]} must go with --benchmark", "Give the folder of the benchmark")
    if options.benchmark is not None and options.model is None and options.scores is None:
        raise InputError("a benchmark must be scored with --model or --scores, got neither", "Name the systems")
    return options.benchmark is not None


def score(options: argparse.Namespace) -> None:
    """Score systems, or a score file, on a benchmark and print the tables.

    Raises:
        InputError: an option has no use here, or the benchmark or the score file is wrong.
    """
    words = {word.partition("=")[0].removeprefix("--") for word in options.words if word.startswith("--")}
    if unused := sorted(words - {*_OF_BENCHMARKS} - _RUNNING - {"from-make", "benchmark", "model", "split"}):
        raise InputError(f"a benchmark has its own queries and candidates, got --{unused[0]}", "Leave it out")
    split = read.benchmark_split(options)
    if options.scores is not None:
        _score_file(options, split)
        return
    chosen = find("mdcr_eval")
    changes = {"input": str(options.benchmark), "systems": options.model, "split": split}
    if options.bm25_index:
        changes["bm25_index"] = options.bm25_index
    recipe = read_recipe(chosen.default_recipe, chosen.recipe, changes)
    if recipe.baseline not in [system.name for system in parse_systems(recipe.systems)]:
        recipe = dataclasses.replace(recipe, baseline="")
    workspace = Workspace(read.runner(options))
    if options.dry_run:
        print_plan(workspace, chosen, recipe, options)
        return
    if options.export_scores is not None:
        from pipeline.studies.mdcr.exchange import export_scores

        with disk_errors(options.export_scores):
            export_scores(workspace, recipe, options.export_scores)
        say(f"scores: {options.export_scores}")
    present(workspace, chosen, f"{options.benchmark.resolve().name}-{split}", recipe, options, None)


def _score_file(options: argparse.Namespace, split: str) -> None:
    from pipeline.studies.mdcr import exchange
    from pipeline.studies.mdcr.lists import MEASURES, read_lists

    if options.model is not None or options.export_scores is not None:
        raise InputError(
            "--scores cannot be combined with --model or --export-scores", "Score files or systems, not both"
        )
    lists = read_lists(options.benchmark, split)
    frame = exchange.score(lists, exchange.read_scores(options.scores, lists))
    if options.json:
        print_json({"scores": frame.to_dicts()})
        return
    percent = frame.with_columns(pl.col(MEASURES) * 100)
    notes = ["Percent: trec_eval's map, ndcg and recall_5, mean over queries; AVG: mean over fields."]
    print(render_table(frame_table(options.scores.name, percent, notes, 4), ansi=sys.stdout.isatty()))
