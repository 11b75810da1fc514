"""``mdcr tune``: k1 and b of BM25, chosen on validation queries."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from pipeline.cli import options as read
from pipeline.cli.making import make, repair_stores
from pipeline.cli.output import print_json
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.progress import say
from pipeline.core.workspace import REPORTS, find_corpus
from pipeline.corpus.reader import Corpus
from pipeline.report.heatmap import Heatmap, render_heatmap, save_heatmap
from pipeline.stages.tune import Grid, Tuning, tune_task


def tune(options: argparse.Namespace) -> None:
    """Tune BM25 for the selected pools, print the grid of each and draw it.

    Raises:
        InputError: the corpus brings its own queries, which are test queries; or the test set takes all queries.
    """
    runner = read.runner(options)
    corpus = find_corpus(runner.root, options.corpus)
    selected = dataclasses.replace(read.selection(options), split="validation", samples=1)
    if Corpus(corpus).has_query_texts() and selected.is_default:
        raise InputError(
            f"{corpus.name} brings its own queries, and none of them are for validation",
            "Give --year to tune on citations, or fix the parameters: --model bm25:k1=1.2,b=0.75",
        )
    if selected.queries == "all":
        raise InputError(
            "the test set takes all queries, and none are left for validation",
            "Give a number to both: --queries 200 here and in mdcr eval",
        )
    tasks = [tune_task(corpus, pool) for pool in selected.pools(corpus)]
    repair_stores(runner, options)
    made = make(runner, tasks, options)
    if options.json and not options.dry_run:
        print_json({"tunings": [_described(artifact) for artifact in made]})
        return
    for artifact in made:
        shown = _heatmap(artifact)
        print(render_heatmap(shown))
        _draw(shown, runner.root / REPORTS / artifact.name)


def _heatmap(artifact: Artifact) -> Heatmap:
    counts, grid = artifact.manifest.counts, Grid.of(artifact)
    tuning = Tuning.of(artifact)
    gain = counts["map"] - counts["map_untuned"]
    note = (
        f"best: k1={tuning.k1:g}, b={tuning.b:g}: {100 * counts['map']:.2f} ({100 * gain:+.2f} over k1=0.9, b=0.4); "
        f"{counts['queries']:,} queries, {counts['candidates']:,} candidates. MODEL=bm25 now uses it for pools of this "
        "corpus, field, year and seed."
    )
    if tuning.k1 in (grid.k1[0], grid.k1[-1]) or tuning.b in (grid.b[0], grid.b[-1]):
        note += " It lies at the edge of the grid."
    return Heatmap(
        f"MAP (%) of BM25 on {artifact.name}", "k1", "b", grid.k1.tolist(), grid.b.tolist(), grid.values, note
    )


def _draw(shown: Heatmap, folder: Path) -> None:
    try:
        for path in save_heatmap(shown, folder):
            say(f"wrote {path}")
    except InputError as error:
        say(f"no figure: {error}")


def _described(artifact: Artifact) -> dict[str, Any]:
    grid = Grid.of(artifact)
    return {
        "name": artifact.name,
        "id": artifact.id,
        "path": str(artifact.path),
        "pool": artifact.manifest.config["pool"],
        "counts": artifact.manifest.counts,
        "grid": {"k1": grid.k1.tolist(), "b": grid.b.tolist(), "map": grid.values.tolist()},
    }
