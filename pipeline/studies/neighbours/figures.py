"""The chart of similarities on the page of the study, and drawings: coloured tables, t-SNE plots of titles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from pipeline.studies import kit
from pipeline.studies.neighbours.corpus import TITLE, Members
from pipeline.studies.neighbours.geometry import BINS, unit_vectors
from pipeline.studies.neighbours.operators import CATEGORIES, CLASSES, ORDERED
from pipeline.studies.neighbours.plan import RankedPool

_PLOTTED = 500
"""Number of papers of a t-SNE plot."""

_CENTRES = (BINS[:-1] + BINS[1:]) / 2


def distributions(cosines: pl.DataFrame) -> kit.Chart:
    """Return the chart of cosines by category, with a view for each encoder (figure 4) and corpus (figure 9)."""
    frames = {(system, ""): frame for (system,), frame in cosines.group_by("system", maintain_order=True)}
    if cosines["corpus"].n_unique() > 1:
        by_corpus = cosines.group_by("system", "corpus", maintain_order=True)
        frames |= {(system, f", {corpus}"): frame for (system, corpus), frame in by_corpus}
    views = {
        f"{system}{corpus}: {title}": list(_shares(frame, column))
        for (system, corpus), frame in frames.items()
        for column, title in (("pairs", "pairs of one class"), ("own", "neighbour and original"))
    }
    return kit.Chart("Distributions of similarities", "cosine", "%", views)


def _shares(cosines: pl.DataFrame, column: str) -> Iterator[kit.Series]:
    for category in CATEGORIES:
        counts = np.array(cosines.filter(pl.col("category") == category)[column].to_list())
        if len(counts):
            shares = counts.sum(axis=0) / counts.sum()
            filled = slice(np.flatnonzero(shares)[0], np.flatnonzero(shares)[-1] + 1)
            yield kit.Series(category, _CENTRES[filled].round(2).tolist(), shares[filled].tolist())


def drawings(values: pl.DataFrame) -> dict[str, kit.Drawing]:
    """Return a drawing of each measure, classes and categories by systems: means over corpora (figures 6 and 7).

    ``values`` has ``corpus``, ``system``, ``category``, ``name``, ``measure`` and ``value`` in percent.
    """
    keys = ["corpus", "system", "category", "measure"]
    category_means = values.group_by(keys, maintain_order=True).agg(pl.col("value").mean(), name=pl.first("category"))
    values = pl.concat([values.select(*keys, "name", "value"), category_means.select(*keys, "name", "value")])
    systems, present = values["system"].unique(maintain_order=True).to_list(), set(values["name"])
    names = [name for name in (*ORDERED, *CATEGORIES) if name in present]
    labels = [f"{CLASSES[name].category} {name}" if name in CLASSES else f"{name}, mean" for name in names]
    means = values.group_by("measure", "name", "system").agg(pl.col("value").mean() / 100)
    value_of = {tuple(key): value for *key, value in means.iter_rows()}
    return {
        f"classes-{measure.lower().replace('_', '-')}": partial(
            kit.draw_heat,
            title=measure,
            rows=labels,
            columns=systems,
            values=[[value_of.get((measure, name, system), np.nan) for system in systems] for name in names],
        )
        for measure in ("NN1_Ret", "NN10_Ret", "AOP-10")
    }


def titles(
    workspace: kit.Workspace, name: str, corpus: kit.Artifact, rankings: Sequence[RankedPool], seed: int
) -> dict[str, kit.Drawing]:
    """Return a t-SNE plot of titles and papers for each encoder on one corpus (figures 2 and 8)."""
    members = Members.read(corpus)
    plotted = kit.generator(seed, "t-sne").permutation(np.flatnonzero(members.names == TITLE))[:_PLOTTED]
    rows = np.union1d(members.rows[plotted], members.original_of[plotted])
    is_title = np.isin(rows, members.rows[plotted])
    plots = dict[str, kit.Drawing]()
    for ranked_pool in rankings:
        if ranked_pool.kind == "titles-among-titles" and ranked_pool.encoder:
            task, model = ranked_pool.encoder
            vectors = unit_vectors(kit.store_of(*workspace.make([task])), rows)
            title = f"{ranked_pool.system}, {name}"
            draw = partial(_draw_titles, vectors=vectors, is_title=is_title, title=title, seed=seed)
            plots[f"titles-{kit.file_name(name)}-{model.slug}"] = draw
    return plots


def _draw_titles(figure_class: Any, vectors: Any, is_title: Any, title: str, seed: int) -> Any:
    from sklearn.manifold import TSNE

    embedding = TSNE(perplexity=min(30, len(vectors) / 3), init="pca", metric="cosine", random_state=seed)
    points = embedding.fit_transform(vectors)
    figure = figure_class(figsize=(3.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for label, is_shown, colour in (("T+A", ~is_title, kit.COLOURS[0]), ("T", is_title, kit.COLOURS[1])):
        axes.scatter(*points[is_shown].T, s=2, lw=0, color=colour, label=label)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=8)
    axes.legend(fontsize=6, markerscale=3)
    return figure
