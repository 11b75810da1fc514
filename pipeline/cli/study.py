"""Experiments: ``mdcr study``, ``leaderboard``, ``card``, ``audit`` and ``submission``."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline.api import Workspace
from pipeline.cli import options as read
from pipeline.cli.output import print_json, print_rows, terminal
from pipeline.core.config import canonical, counted, file_name
from pipeline.core.errors import InputError
from pipeline.core.progress import say
from pipeline.core.workspace import EXPORTS, REPORTS
from pipeline.scores.render import render_table
from pipeline.studies.base import STUDIES, Study, find
from pipeline.studies.recipe import (
    details_of,
    find_recipe,
    read_recipe,
    replaced_systems,
    with_settings,
)
from pipeline.studies.run import check_input


def study(options: argparse.Namespace) -> None:
    """Run a study and print its tables; without a name, list the studies."""
    workspace = Workspace(read.runner(options))
    if options.study is None:
        studies = map(find, STUDIES)
        print_rows("studies", [{"study": study.name, "about": study.summary} for study in studies], options)
        return
    chosen = find(options.study)
    chosen, path, recipe = read_chosen(options)
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


def details(name: str) -> tuple[str, dict[str, str]]:
    """Return what the help of a study adds: what each setting of its recipe means."""
    chosen = find(name)
    return "settings of its recipe, for --set NAME=VALUE", details_of(chosen.recipe, chosen.default_recipe)


def read_chosen(options: argparse.Namespace) -> tuple[Study, Path, Any]:
    """Return the study of a command, the path of its recipe, and the recipe with the changes of the command line."""
    chosen = find(options.study)
    path = find_recipe(options.recipe) if options.recipe else chosen.default_recipe
    settings = with_settings(options.set)
    typed = {"corpus": options.corpus, "year": options.year, "input": options.input and str(options.input)}
    systems = replaced_systems(chosen.recipe, settings, options.model) if options.model else {}
    changes = {**settings, **{name: value for name, value in typed.items() if value}, **systems}
    return chosen, path, read_recipe(path, chosen.recipe, changes)


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
    for table in results.tables:
        print(render_table(table, **terminal()))
    print(folder)


def print_plan(workspace: Workspace, chosen: Study, recipe: Any, options: argparse.Namespace) -> None:
    """Print how many artifacts of each stage a study would make."""
    from pipeline.studies.run import plan

    steps, remark = plan(workspace, chosen, recipe)
    missing = Counter(step.task.stage for step in steps if not step.present)
    print_rows("plan", [{"stage": stage, "make": count} for stage, count in missing.items()], options)
    say(f"{missing.total()} of {len(steps)} artifacts would be made")
    for name in sorted({name for step in steps for name in read.downloads(step.task)}):
        say(f"{name} would be downloaded")
    if remark:
        say(remark)


def leaderboard(options: argparse.Namespace) -> None:
    """Verify submissions and score their runs, then write the leaderboard and print its tables."""
    from pipeline.studies import submissions

    workspace = Workspace(read.runner(options))
    for path in options.add:
        submitted = sorted(path.glob("*.zip")) if path.is_dir() else [path]
        if not submitted:
            raise InputError(f"{path} must hold submissions (.zip), got none", "Name a submission, or their folder")
        for file in submitted:
            say(f"{file}: verified, {len(submissions.add(workspace, file))} scores")
    chosen, recipe = _default_recipe("leaderboard", **_choices(options), training=options.training)
    present(workspace, chosen, chosen.name, recipe, options, options.output)


def audit(options: argparse.Namespace) -> None:
    """Audit results of any tool, and print the tables."""
    chosen = find("audit")
    given = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(chosen.recipe)
        if field.name in options.given
    }
    recipe = read_recipe(chosen.default_recipe, chosen.recipe, given | {"results": [*options.paths, *options.results]})
    present(Workspace(read.runner(options)), chosen, chosen.name, recipe, options, options.output)


def card(options: argparse.Namespace) -> None:
    """Write the card of an encoder and print its tables."""
    workspace = Workspace(read.runner(options))
    chosen, recipe = _default_recipe("card", model=options.model, **_choices(options))
    name = file_name(options.model, kept="._-")
    folder = options.output or workspace.root / REPORTS / f"card-{name}"
    present(workspace, chosen, name, recipe, options, folder)


def submission(options: argparse.Namespace) -> None:
    """Pack the runs and scores of a system into one file and print its path."""
    from pipeline.studies import submissions

    workspace = Workspace(read.runner(options))
    path: Path = options.output or workspace.root / EXPORTS / f"{file_name(options.model, kept='._-')}-submission.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = submissions.pack(workspace, _default_recipe("leaderboard", **_choices(options))[1], options.model, path)
    say(f"{packed.system}: {counted(len(packed.runs), 'run')}")
    print(path)


def _choices(options: argparse.Namespace) -> dict[str, Any]:
    return {"benchmarks": options.benchmarks} | ({"measure": options.measure} if options.measure else {})


def _default_recipe(name: str, **changes: Any) -> tuple[Study, Any]:
    """Return a study and its default recipe with some changes."""
    chosen = find(name)
    return chosen, read_recipe(chosen.default_recipe, chosen.recipe, changes)
