"""The study ``neighbours``: its tables, the parts of its page and its drawings."""

from __future__ import annotations

import polars as pl

from pipeline.api import Workspace
from pipeline.scores.page.parts import Part, TextEntry
from pipeline.studies.base import Study, StudyFigure, StudyResult
from pipeline.studies.neighbours import figures, tables
from pipeline.studies.neighbours.plan import Recipe, batches, neighbours_of, ranked_pools, similarities


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Read the artifacts of the study and make its tables and figures."""
    corpora, means, cosines = {}, [], []
    entries: list[TextEntry] = []
    plots: list[StudyFigure] = []
    for name in recipe.corpora:
        corpora[name] = corpus = neighbours_of(workspace, recipe, name)
        rankings = ranked_pools(workspace, recipe, corpus)
        shown, values_of_shown = figures.drawn_papers(corpus, recipe.queries, recipe.seed), dict[str, pl.DataFrame]()
        for ranked in rankings:
            values = tables.values_of(workspace, corpus, ranked)
            means.append(tables.means_of(values, name, ranked))
            if not ranked.kind.startswith("titles"):
                values = values.filter(pl.col("original").is_in(shown))
                others = values_of_shown.get(ranked.system, values.clear())
                values_of_shown[ranked.system] = pl.concat([others, values])
        entries += figures.text_entries(name, corpus, shown, values_of_shown)
        for system, task in similarities(corpus, rankings):
            cosines.append(tables.cosines_of(workspace.make([task])[0], name, system))
        plots = plots or figures.titles(workspace, name, corpus, rankings, recipe.seed)
    every = pl.concat(means)
    titles = every.filter(pl.col("category") == "")
    classes = every.filter(pl.col("category") != "", pl.col("measure") != "MRR")
    shown_tables = [
        tables.titles(titles, recipe),
        tables.categories(classes, recipe),
        tables.optimality(classes, recipe),
        tables.by_class(classes, recipe),
        tables.counts(corpora),
    ]
    if recipe.quality:
        shown_tables.append(tables.correlation(classes, recipe.read_quality(), recipe.seed, recipe.limitations))
    heat = figures.heat("Classes by systems", classes, ("AOP-10", "AOP-20", "NN1_Ret", "NN10_Ret"))
    parts: list[Part] = [heat]
    if any(map(len, cosines)):
        together = pl.concat(cosines)
        shown_tables.append(tables.similarities(together))
        measures = ("mean", "above mean", "mean with the original")
        long = together.unpivot(measures, index=["corpus", "system", "name"], variable_name="measure")
        parts.append(figures.distributions(together))
        percent = long.with_columns(pl.col("value") * 100)
        parts.append(figures.heat("Similarities by class (percent)", percent, measures))
    parts.append(figures.browser(entries))
    sources = [corpus.name for corpus in corpora.values()]
    drawings = [*figures.drawings(heat), *plots]
    return StudyResult(shown_tables, drawings, sources, parts=parts, best=tables.best_of_titles(titles))


STUDY = Study(
    "neighbours",
    "title queries and 32 classes of textual neighbours",
    Recipe,
    batches,
    results,
    needs="Its recipe is for the corpus of mdcr demo; give another of English abstracts with --corpus, or for the "
    "paper's sets --recipe=neighbours_paper and a folder of NAME.jsonl.gz (id, title, abstract) with --input",
)
