"""The study ``neighbours``: what it found, as tables, parts of its page and drawings."""

from __future__ import annotations

import polars as pl

from pipeline.api import Workspace
from pipeline.scores.page.parts import Part, TextEntry
from pipeline.studies.base import Study, StudyFigure, StudyResult
from pipeline.studies.neighbours import browse, figures, tables
from pipeline.studies.neighbours.plan import Recipe, batches, neighbours_of, rankings, similarities
from pipeline.studies.neighbours.values import cosines_of, means_of, values_of


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Read the artifacts of the study and make its tables and figures."""
    corpora, means, cosines = {}, [], []
    readings: list[TextEntry] = []
    plots: list[StudyFigure] = []
    for name in recipe.corpora:
        corpora[name] = corpus = neighbours_of(workspace, recipe, name)
        ranked, seen = rankings(workspace, recipe, corpus), []
        shown = browse.drawn_papers(corpus, recipe.queries, recipe.seed)
        for each in ranked:
            values = values_of(workspace, corpus, each)
            means.append(means_of(values, name, each))
            if not each.kind.startswith("titles"):
                seen.append(values.filter(pl.col("original").is_in(shown)).with_columns(system=pl.lit(each.system)))
        readings += browse.readings_of(name, corpus, shown, pl.concat(seen))
        for system, task in similarities(corpus, ranked):
            found = cosines_of(workspace.make([task])[0], name, system)
            cosines += [found] if len(found) else []
        plots = plots or figures.titles(workspace, name, corpus, ranked, recipe.seed)
    every = pl.concat(means)
    titles = every.filter(pl.col("category") == "")
    classes = every.filter(pl.col("category") != "", pl.col("measure") != "MRR")
    written = [
        tables.titles(titles, recipe),
        tables.categories(classes, recipe),
        tables.optimality(classes, recipe),
        tables.by_class(classes, recipe),
        tables.counts(corpora),
    ]
    if recipe.quality:
        written.append(tables.predictions(classes, recipe.read_quality(), recipe.seed, recipe.limitations))
    heat = figures.heat("Classes by systems", classes, ("AOP-10", "AOP-20", "NN1_Ret", "NN10_Ret"))
    parts: list[Part] = [heat]
    if cosines:
        together = pl.concat(cosines)
        written.append(tables.similarities(together))
        measures = ("mean", "above mean", "mean with the original")
        long = together.unpivot(measures, index=["corpus", "system", "name"], variable_name="measure")
        parts += [
            figures.distributions(together),
            figures.heat("Similarities by class (percent)", long.with_columns(pl.col("value") * 100), measures),
        ]
    parts.append(browse.browser(readings))
    sources = [corpus.name for corpus in corpora.values()]
    return StudyResult(written, [*figures.drawings(heat), *plots], sources, parts=parts)


STUDY = Study(
    "neighbours",
    "title queries and 32 classes of textual neighbours",
    Recipe,
    batches,
    results,
    needs="Its recipe names seven sets like the paper's: give a folder of NAME.jsonl.gz (id, title, abstract) with "
    "--input, or a corpus of English abstracts with --corpus",
)
