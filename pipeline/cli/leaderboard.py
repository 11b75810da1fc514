"""``mdcr leaderboard``, ``mdcr card`` and ``mdcr submission``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pipeline.api import Workspace
from pipeline.cli import options as read
from pipeline.cli.study import present
from pipeline.core.config import file_name
from pipeline.core.progress import say
from pipeline.core.workspace import EXPORTS, REPORTS
from pipeline.studies.base import Study, find
from pipeline.studies.leaderboard import card as cards
from pipeline.studies.leaderboard import submissions
from pipeline.studies.recipe import read_recipe


def leaderboard(options: argparse.Namespace) -> None:
    """Verify submissions and score their runs, then write the leaderboard and print its tables."""
    workspace = Workspace(read.runner(options))
    for path in options.add:
        for file in sorted(path.glob("*.zip")) if path.is_dir() else [path]:
            made = submissions.add(workspace, file)
            say(f"{file}: verified, {len(made)} scores")
    study, recipe = _recipe("leaderboard")
    present(workspace, study, study.name, recipe, options, options.output)


def card(options: argparse.Namespace) -> None:
    """Write the card of an encoder and print its tables; with ``--push`` put its results into a model card."""
    workspace = Workspace(read.runner(options))
    study, recipe = _recipe("card", model=options.model)
    name = file_name(options.model, kept="._-")
    folder = options.output or workspace.root / REPORTS / f"card-{name}"
    present(workspace, study, name, recipe, options, folder)
    if options.push:
        say(f"pushed: {cards.push(folder / cards.CARD, options.push)}")


def submission(options: argparse.Namespace) -> None:
    """Pack the runs and scores of a system into one file and print its path."""
    workspace = Workspace(read.runner(options))
    path: Path = options.output or workspace.root / EXPORTS / f"{file_name(options.model, kept='._-')}-submission.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = submissions.pack(workspace, _recipe("leaderboard")[1], options.model, path)
    say(f"{packed.system}: {len(packed.runs)} runs")
    print(path)


def _recipe(name: str, **changes: Any) -> tuple[Study, Any]:
    study = find(name)
    return study, read_recipe(study.default_recipe, study.recipe, changes)
