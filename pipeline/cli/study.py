"""``mdcr study``: run one of the experiments."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.api import Workspace
from pipeline.cli import options as read
from pipeline.cli.making import downloads
from pipeline.cli.output import print_json, print_rows
from pipeline.core.config import canonical
from pipeline.core.errors import InputError
from pipeline.core.progress import say
from pipeline.scores.render import render_table
from pipeline.studies.base import STUDIES, Study, find
from pipeline.studies.recipe import find_recipe, read_recipe, refuse_kept, replaced_systems, with_settings
from pipeline.studies.run import check_input


def study(options: argparse.Namespace) -> None:
    """Run a study and print its tables; without a name, list the studies."""
    workspace = Workspace(read.runner(options))
    if options.study is None:
        studies = map(find, STUDIES)
        print_rows("studies", [{"study": study.name, "about": study.summary} for study in studies], options)
        return
    chosen = find(options.study)
    path = find_recipe(options.recipe) if options.recipe else chosen.default_recipe
    settings = with_settings(options.set)
    recipe = read_recipe(path, chosen.recipe, _changes(options, chosen, settings))
    if options.model:
        refuse_kept(recipe, settings)
    if options.list:
        if chosen.listing is None:
            raise InputError(f"--list must be of a study with an input, got {chosen.name}", "Leave out --list")
        print_rows("tasks", chosen.listing(recipe), options)
        return
    check_input(workspace, chosen, recipe)
    if options.dry_run:
        print_plan(workspace, chosen, recipe, options)
        return
    present(workspace, chosen, path.stem, recipe, options, options.output)


def present(
    workspace: Workspace, chosen: Study, name: str, recipe: Any, options: argparse.Namespace, output: Path | None
) -> None:
    """Run a study, write its files and print its tables."""
    from pipeline.studies.run import run, write

    results = run(workspace, chosen, recipe)
    folder = write(workspace, chosen, name, recipe, results, output)
    if options.json:
        tables = {table.name: table.frame.to_dicts() for table in results.tables}
        print_json({"study": chosen.name, "folder": str(folder), "recipe": canonical(recipe), "tables": tables})
        return
    width = max(shutil.get_terminal_size((100, 24)).columns, 80)
    for table in results.tables:
        print(render_table(table.table, width=width, ansi=sys.stdout.isatty()))
    print(folder)


def _changes(options: argparse.Namespace, chosen: Study, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the recipe that the command line replaces; ``settings`` are those of ``--set``."""
    typed = {"corpus": options.corpus, "year": options.year, "input": options.input and str(options.input)}
    systems = replaced_systems(chosen.recipe, settings, options.model) if options.model else {}
    return {**settings, **{name: value for name, value in typed.items() if value}, **systems}


def print_plan(workspace: Workspace, chosen: Study, recipe: Any, options: argparse.Namespace) -> None:
    """Print what a study would make, with time and disk."""
    from pipeline.studies.run import estimate, plan

    steps, rest = plan(workspace, chosen, recipe)
    estimates = estimate(workspace, steps)
    rows = [
        {
            "stage": stage.stage,
            "make": stage.missing,
            "seconds": round(stage.seconds, 1),
            "kB": max(1, round(stage.bytes / 1e3)),
            "rates": stage.basis,
        }
        for stage in estimates
    ]
    print_rows("plan", rows, options)
    missing = sum(stage.missing for stage in estimates)
    minutes, disk = sum(stage.seconds for stage in estimates) / 60, sum(stage.bytes for stage in estimates) / 1e6
    say(f"{missing} of {len(steps)} artifacts would be made, in about {minutes:,.1f} minutes and {disk:,.0f} MB")
    for name in sorted({name for step in steps for name in downloads(step.task)}):
        say(f"{name} would be downloaded")
    if rest:
        say(rest)
