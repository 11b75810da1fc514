"""``mdcr triplets``: draw training triplets from a corpus. ``mdcr train``: train a network by a recipe."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipeline.api import Workspace
from pipeline.cli import options as read
from pipeline.cli.output import as_record, print_json, print_made
from pipeline.core.config import canonical
from pipeline.core.progress import say
from pipeline.core.workspace import find_corpus
from pipeline.studies.recipe import details_of, find_recipe, read_recipe, with_settings
from pipeline.train.recipe import DRAW, Recipe, formats_entry, systems
from pipeline.train.stage import draw_task, model_folder, train_task


def triplets(options: argparse.Namespace) -> None:
    """Draw training triplets."""
    runner = read.repaired(options)
    settings = {name: getattr(options, name) for name in DRAW}
    corpus = find_corpus(runner.root, options.corpus)
    task = draw_task(Workspace(runner), corpus, options.triplets, settings)
    for artifact in read.make(runner, [task], options):
        print_made("triplets", artifact, options, str(artifact.path))


def train(options: argparse.Namespace) -> None:
    """Train a network by a recipe, and print its folder."""
    runner = read.runner(options)
    changes = with_settings(options.set) | ({"corpus": options.corpus} if options.corpus else {})
    recipe = read_recipe(find_recipe(Path(options.recipe)), Recipe, changes)
    task = train_task(Workspace(runner), recipe, dry=options.dry_run)
    for artifact in read.make(runner, [task], options):
        folder = model_folder(artifact)
        if options.json:
            print_json({"model": str(folder), "recipe": canonical(recipe), **as_record(artifact)})
            continue
        print(folder)
        say(f"Use it: MODEL={recipe.name}={folder}")
        say("As an entry of SciRepEval's formats:")
        entry = formats_entry(folder.name, systems(recipe.architecture, folder.resolve()))
        for line in entry.splitlines():
            say(line)


def details(recipe: str) -> tuple[str, dict[str, str]]:
    """Return what the help of a recipe adds: what each of its settings means."""
    return "settings of the recipe, for --set NAME=VALUE", details_of(Recipe, find_recipe(Path(recipe)))
