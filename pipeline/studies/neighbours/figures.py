"""Parts of the page of the study (heat maps, charts, texts), and drawings: heat maps, t-SNE plots of titles."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.config import file_name
from pipeline.core.rng import generator
from pipeline.core.settings import Count
from pipeline.corpus.reader import Corpus
from pipeline.encode.aspire import split_sentences
from pipeline.scores.page.parts import Chart, HeatMap, Mark, Series, TextBrowser, TextEntry
from pipeline.scores.plot import COLOURS, draw_heat
from pipeline.scores.tables import grid
from pipeline.stages.embed import store_of
from pipeline.studies.base import StudyFigure
from pipeline.studies.neighbours.corpus import TITLE, Members, Rows
from pipeline.studies.neighbours.geometry import BINS, unit_vectors
from pipeline.studies.neighbours.operators import CATEGORIES, CLASSES, ORDERED
from pipeline.studies.neighbours.plan import DEPTHS, RankedPool
from pipeline.studies.neighbours.tagging import draw_papers

SHOWN = 5
"""Number of papers of each set whose neighbours are on the page."""

_PLOTTED = 500
"""Number of papers of a t-SNE plot."""

_CENTRES = (BINS[:-1] + BINS[1:]) / 2
_MARKS: dict[Mark, str] = {"strike": "deleted", "underline": "inserted", "bold": "moved"}


def heat(title: str, values: pl.DataFrame, measures: Sequence[str]) -> HeatMap:
    """Return the heat map of classes and categories by systems: means over corpora, then a view for each corpus.

    ``values`` has ``corpus``, ``system``, ``category``, ``name``, ``measure`` and ``value`` in percent.
    """
    systems = values["system"].unique(maintain_order=True).to_list()
    keys = ["corpus", "system", "category", "measure"]
    category_means = values.group_by(keys, maintain_order=True).agg(pl.col("value").mean(), name=pl.first("category"))
    values = pl.concat([values.select(*keys, "name", "value"), category_means.select(*keys, "name", "value")])
    present = set(values["name"])
    names = [name for name in (*ORDERED, *CATEGORIES) if name in present]
    corpora = values["corpus"].unique(maintain_order=True).to_list()

    def view(measure: str, chosen_corpora: Sequence[str]) -> list[list[float | None]]:
        chosen_values = values.filter(pl.col("measure") == measure, pl.col("corpus").is_in(chosen_corpora))
        means = chosen_values.group_by("name", "system").agg(pl.col("value").mean() / 100)
        value_of = {(name, system): value for name, system, value in means.iter_rows()}
        return [[value_of.get((name, system)) for system in systems] for name in names]

    views = {measure: view(measure, corpora) for measure in measures}
    if len(corpora) > 1:
        views |= {f"{measure}, {corpus}": view(measure, [corpus]) for measure in measures for corpus in corpora}
    labels = [f"{CLASSES[name].category} {name}" if name in CLASSES else f"{name}, mean" for name in names]
    return HeatMap(title, "class", labels, systems, views)


def distributions(cosines: pl.DataFrame) -> Chart:
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
    return Chart("Distributions of similarities", "cosine", "%", views)


def _shares(cosines: pl.DataFrame, column: str) -> Iterator[Series]:
    for category in CATEGORIES:
        counts = np.array(cosines.filter(pl.col("category") == category)[column].to_list())
        if len(counts):
            shares = counts.sum(axis=0) / counts.sum()
            filled = slice(np.flatnonzero(shares)[0], np.flatnonzero(shares)[-1] + 1)
            yield Series(category, _CENTRES[filled].round(2).tolist(), shares[filled].tolist())


def drawings(shown: HeatMap) -> list[StudyFigure]:
    """Return the heat map of each measure as a drawing (figures 6 and 7)."""
    draw = partial(draw_heat, heat=shown, ends=(0.0, 1.0), digits=0)
    return [
        StudyFigure(f"classes-{name.lower().replace('_', '-')}", partial(draw, view=name))
        for name in ("NN1_Ret", "NN10_Ret", "AOP-10")
    ]


def titles(
    workspace: Workspace, name: str, corpus: Artifact, rankings: Sequence[RankedPool], seed: int
) -> list[StudyFigure]:
    """Return a t-SNE plot of titles and papers for each encoder on one corpus (figures 2 and 8)."""
    members = Members.read(corpus)
    plotted = generator(seed, "t-sne").permutation(np.flatnonzero(members.names == TITLE))[:_PLOTTED]
    rows = np.union1d(members.rows[plotted], members.original_of[plotted])
    is_title = np.isin(rows, members.rows[plotted])
    plots = []
    for ranked_pool in rankings:
        if ranked_pool.kind == "titles-among-titles" and ranked_pool.vectors and ranked_pool.model:
            vectors = unit_vectors(store_of(*workspace.make([ranked_pool.vectors])), rows)
            title = f"{ranked_pool.system}, {name}"
            draw = partial(_draw_titles, vectors=vectors, is_title=is_title, title=title, seed=seed)
            plots.append(StudyFigure(f"titles-{file_name(name)}-{ranked_pool.model.slug}", draw))
    return plots


def _draw_titles(figure_class: Any, vectors: Any, is_title: Any, title: str, seed: int) -> Any:
    from sklearn.manifold import TSNE

    embedding = TSNE(perplexity=min(30, len(vectors) / 3), init="pca", metric="cosine", random_state=seed)
    points = embedding.fit_transform(vectors)
    figure = figure_class(figsize=(3.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for label, is_shown, colour in (("T+A", ~is_title, COLOURS[0]), ("T", is_title, COLOURS[1])):
        axes.scatter(*points[is_shown].T, s=2, lw=0, color=colour, label=label)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=8)
    axes.legend(fontsize=6, markerscale=3)
    return figure


def browser(entries: Sequence[TextEntry]) -> TextBrowser:
    """Return the changes of each class (:func:`text_entries`) as a part of the page."""
    note = (
        f"{SHOWN} papers drawn from each set, title ¶ abstract. The rank is that of the paper among the originals, "
        "with its neighbour as the query."
    )
    return TextBrowser("What each class changes", ("Set", "Class"), _MARKS, entries, note)


def drawn_papers(artifact: Artifact, papers: Count, seed: int) -> Rows:
    """Return rising rows of some originals whose neighbours are queries."""
    members = Members.read(artifact)
    rows = np.unique(members.original_of[members.names != TITLE])
    keys = Corpus(artifact).attributes["key"][rows]
    return np.sort(rows[draw_papers(keys, SHOWN if papers == "all" else min(SHOWN, papers), seed)])


def text_entries(name: str, artifact: Artifact, originals: Rows, values: pl.DataFrame) -> Iterator[TextEntry]:
    """Yield each neighbour of some papers of a set, with deleted, inserted and moved text marked.

    ``originals`` are rows of the papers; ``values`` have ``system``, ``original``, ``name``, ``measure``, ``value``.
    """
    corpus, members, systems = Corpus(artifact), Members.read(artifact), values["system"].unique(maintain_order=True)
    keys = values.select("system", "original", "name", "measure").iter_rows()
    value_of = dict(zip(keys, values["value"], strict=True))
    for text_class in CLASSES.values():
        for original in originals.tolist():
            for row in members.rows[(members.original_of == original) & (members.names == text_class.name)].tolist():
                cells = dict[tuple[str, str], str]()
                for system in systems:
                    key = (system, original, text_class.name)
                    rank, overlap = (value_of[*key, measure] for measure in ("MRR", "AOP-10"))
                    rank_text = f"{1 / rank:.0f}" if rank else f"over {DEPTHS['neighbours']}"
                    cells[system, "rank of the paper"] = rank_text
                    cells[system, "10 nearest in common"] = f"{10 * overlap:.0f}"
                before, after = (text for block in corpus.texts(np.array([original, row])) for text in block)
                spans = [*marked(before.title, after.title), (" ¶ ", ""), *marked(before.abstract, after.abstract)]
                table = grid("ranks", "", "system", cells)
                facts = {"category": text_class.category, "change": text_class.definition}
                yield TextEntry((name, text_class.name), before.title, spans, [table], facts)


def marked(before: str, after: str) -> list[tuple[str, Mark]]:
    """Return a text and its neighbour as one text, with deleted and inserted pieces and moved sentences marked.

    Inserted white space becomes non-breaking, so a page shows every space.
    """
    old, new = split_sentences(before), split_sentences(after)
    if sorted(old) == sorted(new):
        spans: list[tuple[str, Mark]] = []
        for kind, _, _, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            spans += [(f"{sentence} ", "" if kind == "equal" else "bold") for sentence in new[new_start:new_end]]
        return spans
    old, new = (re.findall(r"\s|\w+|[^\w\s]", text) for text in (before, after))
    spans = []
    for kind, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        deleted, inserted = "".join(old[start:end]), "".join(new[new_start:new_end])
        if kind == "equal":
            spans.append((inserted, ""))
        else:
            inserted = inserted.replace(" ", "\u00a0") if inserted.isspace() else inserted
            spans += [(deleted, "strike"), (inserted, "underline")]
    return [(text, mark) for text, mark in spans if text]
