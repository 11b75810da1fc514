"""Figures of the study: classes by system, distributions of similarities, titles among their papers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.rng import generator
from pipeline.report.figures import COLOURS
from pipeline.stages.embed import store_of
from pipeline.studies.base import StudyFigure
from pipeline.studies.neighbours.artifacts import TITLE
from pipeline.studies.neighbours.geometry import BINS, unit_vectors
from pipeline.studies.neighbours.operators import CATEGORIES, CLASSES
from pipeline.studies.neighbours.plan import Recipe, embedded, neighbours_of
from pipeline.studies.neighbours.pools import Members

_SHOWN = 500
"""Papers of a t-SNE plot."""


def of_classes(classes: pl.DataFrame) -> list[StudyFigure]:
    """Return a heat map of classes by systems for each measure: means over the corpora, in percent."""
    systems = classes["system"].unique(maintain_order=True).to_list()
    names = [name for category in CATEGORIES for name, each in CLASSES.items() if each.category == category]
    names = [name for name in names if name in set(classes["name"])]

    def figure(measure: str) -> StudyFigure:
        means = classes.filter(pl.col("measure") == measure).group_by("name", "system").agg(pl.col("value").mean())
        found = {(name, system): value for name, system, value in means.iter_rows()}
        values = np.array([[found.get((name, system), np.nan) for system in systems] for name in names])

        def draw(figure_class: Any) -> Any:
            drawn = figure_class(figsize=(1.6 + 0.55 * len(systems), 0.9 + 0.16 * len(names)), layout="constrained")
            axes = drawn.subplots()
            axes.imshow(values, cmap="viridis", vmin=0, vmax=100, aspect="auto")
            for (row, column), value in np.ndenumerate(values):
                colour = "white" if value < 60 else "black"
                axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=6, color=colour)
            axes.set_xticks(range(len(systems)), systems, rotation=30, ha="right")
            labels = [f"{CLASSES[name].category}  {name}" for name in names]
            axes.set_yticks(range(len(names)), labels, fontsize=6)
            axes.set_title(f"{measure} (%)", fontsize=8)
            return drawn

        return StudyFigure(f"classes-{measure.lower().replace('_', '-')}", draw)

    return [figure(measure) for measure in ("NN1_Ret", "NN10_Ret", "AOP-10")]


def of_similarities(cosines: pl.DataFrame) -> list[StudyFigure]:
    """Return the distributions of cosines by category, a figure an encoder; all corpora count."""
    return [
        StudyFigure(f"similarities-{system}".replace(":", "-"), partial(_distributions, cosines=each))
        for (system,), each in cosines.group_by("system", maintain_order=True)
    ]


def _distributions(figure_class: Any, cosines: pl.DataFrame) -> Any:
    drawn = figure_class(figsize=(6.8, 2.6), layout="constrained")
    for axes, column, title in zip(
        drawn.subplots(1, 2), ("pairs", "own"), ("pairs of one class", "neighbour and original"), strict=True
    ):
        for category, colour in zip(CATEGORIES, COLOURS, strict=False):
            counts = np.array(cosines.filter(pl.col("category") == category)[column].to_list())
            if len(counts):
                axes.stairs(counts.sum(axis=0) / counts.sum(), BINS, color=colour, label=category)
        axes.set_title(title, fontsize=8)
        axes.set_xlabel("cosine")
        axes.set_yticks([])
    axes.legend(fontsize=6)
    return drawn


def of_titles(workspace: Workspace, recipe: Recipe) -> list[StudyFigure]:
    """Return a t-SNE plot of titles and papers for each encoder, on the first corpus (figure 2)."""
    corpus = neighbours_of(workspace, recipe, recipe.corpora[0])
    members = Members.read(corpus)
    titles = members.names == TITLE
    chosen = generator(recipe.seed, "t-sne").permutation(np.flatnonzero(titles))[:_SHOWN]
    rows = np.union1d(members.rows[chosen], members.of[chosen])
    is_title = np.isin(rows, members.rows[chosen])
    found = []
    for model, task in embedded(workspace, recipe, corpus, "titles-among-titles"):
        vectors = unit_vectors(store_of(*workspace.make([task])), rows)

        def draw(figure_class: Any, vectors: Any = vectors, name: str = model.name) -> Any:
            from sklearn.manifold import TSNE

            places = TSNE(init="pca", metric="cosine", random_state=recipe.seed).fit_transform(vectors)
            drawn = figure_class(figsize=(3.4, 3.2), layout="constrained")
            axes = drawn.subplots()
            for label, part, colour in (("T+A", ~is_title, COLOURS[0]), ("T", is_title, COLOURS[1])):
                axes.scatter(*places[part].T, s=2, lw=0, color=colour, label=label)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(f"{name}, {recipe.corpora[0]}", fontsize=8)
            axes.legend(fontsize=6, markerscale=3)
            return drawn

        found.append(StudyFigure(f"titles-{model.slug}", draw))
    return found
