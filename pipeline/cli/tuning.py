"""``mdcr tune``: k1 and b of BM25, chosen on validation queries."""

from __future__ import annotations

import argparse
from typing import Any

from pipeline.cli import options as read
from pipeline.cli.making import make, repaired
from pipeline.cli.output import described, print_json
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.progress import say
from pipeline.core.workspace import REPORTS, find_corpus
from pipeline.corpus.reader import Corpus
from pipeline.scores.plot import ParameterGrid, render_heatmap, save_heatmap
from pipeline.stages.tune import Grid, Tuning, tune_task


def tune(options: argparse.Namespace) -> None:
    """Tune BM25 for the selected pools; print and draw the grid of each."""
    runner = repaired(options)
    corpus = find_corpus(runner.root, options.corpus)
    selected = read.selection(options).but(split="validation", samples=1)
    if Corpus(corpus).has_query_texts() and selected.is_default:
        raise InputError(
            f"{corpus.name} has its own queries, and none of them are for validation",
            "Give --year to tune on citations, or fix the parameters: --model=bm25:k1=1.2,b=0.75",
        )
    if selected.given.get("queries") == "all":
        raise InputError(
            "the test set takes all queries, and none are left for validation",
            "Give a number to both: --queries=200 here and in mdcr eval",
        )
    tasks = [tune_task(corpus, pool) for pool in selected.pools(corpus)]
    made = make(runner, tasks, options, stores=True)
    if options.json and not options.dry_run:
        print_json({"tunings": [_described(artifact) for artifact in made]})
        return
    for artifact in made:
        heatmap = _heatmap(artifact)
        print(render_heatmap(heatmap))
        try:
            for path in save_heatmap(heatmap, runner.root / REPORTS / artifact.name):
                say(f"wrote {path}")
        except InputError as error:
            say(f"no figure: {error}")


def _heatmap(artifact: Artifact) -> ParameterGrid:
    counts, grid, tuning = artifact.manifest.counts, Grid.of(artifact), Tuning.of(artifact)
    gain = counts["map"] - counts["map_untuned"]
    note = (
        f"best: k1={tuning.k1:g}, b={tuning.b:g}: {100 * counts['map']:.2f} ({100 * gain:+.2f} over k1=0.9, b=0.4); "
        f"{counts['queries']:,} queries, {counts['candidates']:,} candidates. MODEL=bm25 now uses it for pools of this "
        "corpus, field, year and seed."
    )
    if grid.is_at_edge(tuning.k1, tuning.b):
        note += " It is at the edge of the grid: a better point may lie outside."
    title = f"MAP (%) of BM25 on {artifact.name}"
    return ParameterGrid(title, "k1", "b", grid.k1.tolist(), grid.b.tolist(), grid.values, note)


def _described(artifact: Artifact) -> dict[str, Any]:
    grid = Grid.of(artifact)
    return {
        **described(artifact),
        "pool": artifact.manifest.config["pool"],
        "grid": {"k1": grid.k1.tolist(), "b": grid.b.tolist(), "map": grid.values.tolist()},
    }
