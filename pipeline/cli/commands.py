"""Subcommands that build corpora, pools, tunings, rankings and scores."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

from pipeline.cli import options as read
from pipeline.cli.output import as_record, print_artifacts, print_counts, print_json
from pipeline.core.artifact import Artifact, published
from pipeline.core.config import counted
from pipeline.core.progress import say
from pipeline.core.task import Task
from pipeline.core.workspace import POOLS, find_corpus, name_corpus
from pipeline.scores.notes import gap_in_abstracts
from pipeline.scores.render import render_table
from pipeline.scores.tables import grid
from pipeline.stages.tune import Grid, Tuning, tune_tasks


def corpus(options: argparse.Namespace) -> None:
    """Build a corpus, or one for each task, and give it its name."""
    from pipeline.sources.registry import all_options
    from pipeline.stages.corpus import corpus_tasks

    runner = read.runner(options)
    of_source = {name: getattr(options, name) for name in all_options()}
    named = {"name": options.corpus, "duplicates": options.duplicates}
    tasks = corpus_tasks(options.source, options.input, of_source, **named)
    for name, task in tasks.items():
        for artifact in read.make(runner, [task], options):
            name_corpus(runner.root, name, artifact)
            if options.json:
                print_json({"corpus": name, **as_record(artifact)})
            else:
                print_counts(f"corpus {name}", artifact)


def pool(options: argparse.Namespace) -> None:
    """Draw the pools of a selection, and print the counts of each."""
    runner = read.repaired(options)
    pools = read.selection(options).pools(find_corpus(runner.root, options.corpus))
    print_artifacts("pools", read.make(runner, pools, options), options)


def chain(options: argparse.Namespace) -> None:
    """Run the chain up to embed, index or search."""
    runner = read.repaired(options)
    tasks = list[Task]()
    for evaluation in read.evaluations(options, runner):
        upto = {"embed": evaluation.embed, "index": evaluation.index or evaluation.embed}
        tasks += upto.get(options.command, (evaluation.ranking,))
    print_artifacts("artifacts", read.make(runner, tasks, options, stores=True), options)


def score(options: argparse.Namespace) -> None:
    """Score rankings (eval: after making whatever is missing) and print the table."""
    from pipeline.cli.results import check_display, print_reports, recalls, reports_of
    from pipeline.scores.labels import labelled
    from pipeline.scores.store import runs_of

    check_display(options)
    runner = read.repaired(options)
    evaluations = read.evaluations(options, runner)
    tasks = [task for evaluation in evaluations for task in evaluation.scores]
    made_ids = {artifact.id for artifact in read.make(runner, tasks, options, stores=True)}
    scored = [evaluation for evaluation in evaluations if evaluation.scores[0].id in made_ids]
    if scored:
        print_reports(reports_of(labelled(runs_of(runner, scored)), options), options, recalls(runner, scored))


def tune(options: argparse.Namespace) -> None:
    """Tune BM25 for the selected pools, and print the grid of each."""
    if "samples" in options.given:
        say("--samples: a tuning is chosen on one draw of validation queries and candidates, and serves all samples")
    runner = read.repaired(options)
    corpus = find_corpus(runner.root, options.corpus)
    artifacts = read.make(runner, tune_tasks(corpus, read.selection(options)), options, stores=True)
    if options.json and not options.dry_run:
        print_json({"tunings": [_tuning_record(artifact) for artifact in artifacts]})
        return
    for artifact in artifacts:
        _show_grid(runner.root, artifact)


def _show_grid(root: Path, artifact: Artifact) -> None:
    counts, tuned, tuning = artifact.manifest.counts, Grid.of(artifact), Tuning.of(artifact)
    gain = f"{100 * (counts['map'] - counts['map_untuned']):+.2f} over k1=0.9, b=0.4, on the queries that chose it"
    note = (
        f"best: k1={tuning.k1:g}, b={tuning.b:g}: {100 * counts['map']:.2f} ({gain}); "
        f"{counted(counts['queries'], 'query')}, {counted(counts['candidates'], 'candidate')}."
    )
    if tuned.is_at_edge(tuning.k1, tuning.b):
        note += " It is at the edge of the grid: values outside it may be better."
    pools = (pool for pool in published(root / POOLS) if pool.id == artifact.manifest.inputs["pool"])
    if gap := gap_in_abstracts([pool.manifest.counts.get("marks", {}) for pool in pools]):
        note += f" {gap}: much of the gain may be that short texts rank higher. mdcr compare shows it with abstracts."
    title, points = f"MAP (%) of BM25 on {artifact.name}", itertools.product(tuned.k1.tolist(), tuned.b.tolist())
    cells = {
        (f"{k1:g}", f"{b:g}"): f"{100 * value:.2f}{'*' if (k1, b) == (tuning.k1, tuning.b) else ' '}"
        for (k1, b), value in zip(points, tuned.values.flat, strict=True)
    }
    print(render_table(grid("grid", title, "k1 \\ b", cells, [note])))


def _tuning_record(artifact: Artifact) -> dict[str, Any]:
    tried, pool = Grid.of(artifact), artifact.manifest.config["pool"]
    points = {"k1": tried.k1.tolist(), "b": tried.b.tolist(), "map": tried.values.tolist()}
    return {**as_record(artifact), "pool": pool, "grid": points}
