"""Heat maps and charts of the study, for its page and as drawings, and t-SNE plots of titles among their papers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.rng import generator
from pipeline.scores.figures import COLOURS
from pipeline.scores.page.parts import Chart, HeatMap, Series
from pipeline.stages.embed import store_of
from pipeline.studies.base import StudyFigure
from pipeline.studies.neighbours.corpus import TITLE, Members
from pipeline.studies.neighbours.geometry import BINS, unit_vectors
from pipeline.studies.neighbours.operators import CATEGORIES, CLASSES
from pipeline.studies.neighbours.plan import RankedPool
from pipeline.studies.neighbours.values import in_order

_SHOWN = 500
"""Papers of a t-SNE plot."""
_CENTRES = (BINS[:-1] + BINS[1:]) / 2


def heat(title: str, values: pl.DataFrame, measures: Sequence[str]) -> HeatMap:
    """Return classes by systems, a view for each measure: means over the corpora, then each corpus.

    ``values`` has ``corpus``, ``system``, ``name``, ``measure`` and ``value`` in percent.
    """
    systems, names = values["system"].unique(maintain_order=True).to_list(), in_order(values["name"])
    corpora = values["corpus"].unique(maintain_order=True).to_list()

    def view(measure: str, chosen: Sequence[str]) -> list[list[float | None]]:
        of = values.filter(pl.col("measure") == measure, pl.col("corpus").is_in(chosen))
        means = of.group_by("name", "system").agg(pl.col("value").mean() / 100)
        found = {(name, system): value for name, system, value in means.iter_rows()}
        return [[found.get((name, system)) for system in systems] for name in names]

    views = {measure: view(measure, corpora) for measure in measures}
    if len(corpora) > 1:
        views |= {f"{measure}, {corpus}": view(measure, [corpus]) for measure in measures for corpus in corpora}
    return HeatMap(title, "class", [f"{CLASSES[name].category} {name}" for name in names], systems, views)


def distributions(cosines: pl.DataFrame) -> Chart:
    """Return how the cosines of each category are distributed (figure 4), two views an encoder; all corpora count."""
    views = {}
    for (system,), each in cosines.group_by("system", maintain_order=True):
        for column, title in (("pairs", "pairs of one class"), ("own", "neighbour and original")):
            views[f"{system}: {title}"] = list(_shares(each, column))
    return Chart("Distributions of similarities", "cosine", "%", views)


def _shares(cosines: pl.DataFrame, column: str) -> Iterator[Series]:
    for category in CATEGORIES:
        counts = np.array(cosines.filter(pl.col("category") == category)[column].to_list())
        if len(counts):
            shares = counts.sum(axis=0) / counts.sum()
            held = slice(np.flatnonzero(shares)[0], np.flatnonzero(shares)[-1] + 1)
            yield Series(category, _CENTRES[held].round(2).tolist(), shares[held].tolist())


def drawings(shown: HeatMap) -> list[StudyFigure]:
    """Return the heat map of each measure as a drawing (figures 6 and 7)."""
    return [
        StudyFigure(f"classes-{name.lower().replace('_', '-')}", partial(_draw_heat, shown=shown, measure=name))
        for name in ("NN1_Ret", "NN10_Ret", "AOP-10")
    ]


def _draw_heat(figure_class: Any, shown: HeatMap, measure: str) -> Any:
    values = 100 * np.array(shown.views[measure], np.float64)
    drawn = figure_class(figsize=(1.6 + 0.55 * values.shape[1], 0.9 + 0.16 * values.shape[0]), layout="constrained")
    axes = drawn.subplots()
    axes.imshow(values, cmap="viridis", vmin=0, vmax=100, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value < 60 else "black"
        axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=6, color=colour)
    axes.set_xticks(range(len(shown.columns)), shown.columns, rotation=30, ha="right")
    axes.set_yticks(range(len(shown.rows)), shown.rows, fontsize=6)
    axes.set_title(f"{measure} (%)", fontsize=8)
    return drawn


def titles(
    workspace: Workspace, name: str, corpus: Artifact, ranked: Sequence[RankedPool], seed: int
) -> list[StudyFigure]:
    """Return a t-SNE plot of titles and papers for each encoder on one corpus (figure 2)."""
    members = Members.read(corpus)
    chosen = generator(seed, "t-sne").permutation(np.flatnonzero(members.names == TITLE))[:_SHOWN]
    rows = np.union1d(members.rows[chosen], members.of[chosen])
    is_title = np.isin(rows, members.rows[chosen])
    found = []
    for each in ranked:
        if each.kind == "titles-among-titles" and each.vectors and each.model:
            vectors = unit_vectors(store_of(*workspace.make([each.vectors])), rows)
            draw = partial(_draw_titles, vectors=vectors, is_title=is_title, title=f"{each.system}, {name}", seed=seed)
            found.append(StudyFigure(f"titles-{each.model.slug}", draw))
    return found


def _draw_titles(figure_class: Any, vectors: Any, is_title: Any, title: str, seed: int) -> Any:
    from sklearn.manifold import TSNE

    embedding = TSNE(perplexity=min(30, len(vectors) / 3), init="pca", metric="cosine", random_state=seed)
    places = embedding.fit_transform(vectors)
    drawn = figure_class(figsize=(3.4, 3.2), layout="constrained")
    axes = drawn.subplots()
    for label, part, colour in (("T+A", ~is_title, COLOURS[0]), ("T", is_title, COLOURS[1])):
        axes.scatter(*places[part].T, s=2, lw=0, color=colour, label=label)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=8)
    axes.legend(fontsize=6, markerscale=3)
    return drawn
