"""Tables of the study, beside the paper's where a corpus is comparable."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.encode import registry
from pipeline.report.tables import Table
from pipeline.studies.base import Findings, StudyTable
from pipeline.studies.common import table_of
from pipeline.studies.neighbours import changes, figures
from pipeline.studies.neighbours.brittleness import brittleness, correlation
from pipeline.studies.neighbours.geometry import overlap
from pipeline.studies.neighbours.operators import CATEGORIES, CLASSES
from pipeline.studies.neighbours.plan import Ranked, Recipe, neighbours_of, rankings, similarities

OPTIMAL = {"LL-HS": (75, 100), "LO-HS": (70, 100), "LL-PS": (50, 70), "LO-PS": (50, 70), "LO-DS": (0, 20)}
"""AOP-20, in percent, that the paper calls optimal for a category (section 6.3, table 5), both bounds left out."""

_TASKS = {"titles": "I", "titles-among-titles": "II"}
_MEASURES = {"mrr": "MRR", "recall@100": "T100", "precision@1": "NN1_Ret", "recall@10": "NN10_Ret"}
_PUBLISHED = ("scibert", "specter")
"""Entries of models.toml whose figures the paper gives."""
_SHOWN = 20
"""Papers of a corpus on the page of changes."""


def findings(workspace: Workspace, recipe: Recipe) -> Findings:
    """Read the artifacts of the study and make its tables and figures."""
    frames, counts, cosines, made = [], [], [], []
    for name in recipe.corpora:
        corpus = neighbours_of(workspace, recipe, name)
        frames += [_measured(workspace, name, corpus, each) for each in rankings(workspace, recipe, corpus)]
        counts.append(_counts(name, corpus))
        tasks = similarities(workspace, recipe, corpus)
        cosines += [_cosines(name, system, workspace.make([task])[0]) for system, task in tasks]
        made.append(corpus)
    values = pl.concat(frames)
    titles, classes = values.filter(pl.col("category") == ""), values.filter(pl.col("category") != "")
    counted = pl.concat(counts)
    tables = [
        StudyTable("titles", _titles_table(titles, recipe), titles),
        StudyTable("categories", _categories_table(classes, recipe), by_category(classes)),
        StudyTable("optimality", _optimality_table(classes), by_category(classes)),
        StudyTable("classes", _classes_table(classes), classes),
        StudyTable("counts", table_of("Neighbours by class", counted.drop("category"), _COUNTED), counted),
    ]
    if recipe.quality:
        tables.append(_correlation_table(classes, recipe))
    drawn = figures.of_classes(classes)
    if cosines:
        found = pl.concat(cosines)
        tables.append(StudyTable("similarities", _similarities_table(found), found.drop("pairs", "own")))
        drawn += [*figures.of_similarities(found), *figures.of_titles(workspace, recipe)]
    shown = {"changes.html": changes.page(made, _SHOWN, recipe.seed)}
    return Findings(tables, drawn, [corpus.name for corpus in made], shown)


_COUNTED = (
    "Papers that a class leaves unchanged, or without a word, have no neighbour of it. Papers whose abstract is not "
    "English have no neighbours.",
)


def by_category(classes: pl.DataFrame) -> pl.DataFrame:
    """Return the mean over the classes of each category: one row a corpus, system, category and measure."""
    keys = ["corpus", "system", "category", "measure"]
    return classes.group_by(keys, maintain_order=True).agg(pl.col("value").mean())


def _measured(workspace: Workspace, name: str, corpus: Artifact, ranked: Ranked) -> pl.DataFrame:
    """Return the means of one system on one pool, in percent: one row a class and measure."""
    config = ranked.pool.config
    pool = workspace.make([ranked.pool])[0]
    if config.kind == "overlap":
        ranking, opened = workspace.make([ranked.ranking])[0], Pool(pool, Corpus(corpus))
        shares = [(f"AOP-{depth}", overlap(ranking, opened, depth)) for depth in (10, 20)]
        found = pl.concat([pl.DataFrame({"measure": measure, "value": each}) for measure, each in shares])
        found = found.with_columns(name=pl.lit(config.name))
    else:
        wanted = {"mrr", "recall@100"} if config.kind in _TASKS else {"precision@1", "recall@10"}
        scores: Any = pl.from_arrow(workspace.make(ranked.scores[:1])[0].arrow("scores.arrow"))
        fields: Any = pl.from_arrow(pool.arrow("queries.arrow").column("field"))
        found = scores.filter(pl.col("measure").is_in(wanted))
        found = found.with_columns(name=fields.gather(found["query"]), measure=pl.col("measure").replace(_MEASURES))
    means = found.group_by("name", "measure", maintain_order=True).agg(
        value=100 * pl.col("value").mean(), queries=pl.len()
    )
    categories = {each.name: each.category for each in CLASSES.values()}
    return means.select(
        corpus=pl.lit(name),
        system=pl.lit(ranked.system),
        task=pl.lit(_TASKS.get(config.kind, config.kind)),
        category=pl.col("name").replace_strict(categories, default=""),
        name="name",
        measure="measure",
        value="value",
        queries="queries",
    )


def _titles_table(titles: pl.DataFrame, recipe: Recipe) -> Table:
    """Return table 3: a row for each corpus and system, the paper's below."""
    own = titles.select("corpus", "system", pl.format("{} {}", "task", "measure").alias("column"), "value")
    rows = list(own.iter_rows())
    for corpus, dataset in recipe.reference.items():
        for system in _PUBLISHED if corpus in recipe.corpora else ():
            figures = registry.published(system)
            for task in ("I", "II"):
                for measure in ("mrr", "t100"):
                    value = figures.get(f"title-queries-{task}.{dataset}.{measure}")
                    rows.append((corpus, f"{system} (paper, {dataset})", f"{task} {measure.upper()}", value))
    columns = [f"{task} {measure}" for task in ("I", "II") for measure in ("MRR", "T100")]
    return _wide("Titles as queries", rows, columns, ["MRR in percent. The paper's sets are others of the same kind."])


def _categories_table(classes: pl.DataFrame, recipe: Recipe) -> Table:
    """Return table 4: AOP-10 by category, the paper's rows below."""
    found = by_category(classes.filter(pl.col("measure") == "AOP-10"))
    rows = list(found.select("corpus", "system", "category", "value").iter_rows())
    for corpus, dataset in recipe.reference.items():
        for system in _PUBLISHED if corpus in recipe.corpora else ():
            figures = registry.published(system)
            label = f"{system} (paper, {dataset})"
            rows += [(corpus, label, each, figures.get(f"aop10.{dataset}.{each}")) for each in CATEGORIES]
    return _wide("AOP-10 by category", rows, CATEGORIES, [_AOP])


_AOP = "A vector is not its own neighbour, so AOP-10 is at most 90% where a neighbour and its original are closest."


def _optimality_table(classes: pl.DataFrame) -> Table:
    """Return table 5: AOP-20 by category, with a mark where the paper calls it optimal."""
    found = by_category(classes.filter(pl.col("measure") == "AOP-20"))
    rows = [
        (corpus, system, category, f"{value:.1f}{'*' * (OPTIMAL[category][0] < value < OPTIMAL[category][1])}")
        for corpus, system, category, _, value in found.iter_rows()
    ]
    bounds = ", ".join(f"{category} {low} to {high}" for category, (low, high) in OPTIMAL.items())
    return _wide("AOP-20 by category", rows, CATEGORIES, [f"* optimal: {bounds}."])


def _classes_table(classes: pl.DataFrame) -> Table:
    """Return the mean over the corpora of each class, system and measure."""
    means = classes.group_by("name", "category", "system", "measure", maintain_order=True).agg(pl.col("value").mean())
    order = {name: place for place, name in enumerate(CLASSES)}
    systems = dict.fromkeys(classes["system"])
    columns = [f"{system} {measure}" for system in systems for measure in ("NN1_Ret", "NN10_Ret", "AOP-10", "AOP-20")]
    rows = [
        (category, name, f"{system} {measure}", value)
        for name, category, system, measure, value in sorted(
            means.iter_rows(), key=lambda row: (CATEGORIES.index(row[1]), order[row[0]])
        )
    ]
    return _wide("Neighbours as queries, and overlap, by class", rows, columns, ["Means over the corpora, in percent."])


def _similarities_table(found: pl.DataFrame) -> Table:
    columns = ("mean", "deviation", "lowest", "highest", "above_mean", "own_mean")
    means = found.group_by("system", "category", maintain_order=True).agg(
        pl.col("mean", "deviation").mean(),
        pl.col("lowest").min(),
        pl.col("highest").max(),
        pl.col("above_mean", "own_mean").mean(),
    )
    rows = [
        (row["system"], row["category"], column.replace("_", " "), f"{row[column]:.3f}")
        for row in means.iter_rows(named=True)
        for column in columns
    ]
    note = "Cosines of all pairs of neighbours of a class, and of neighbours with their originals (own)."
    return _wide("Similarities by category", rows, [column.replace("_", " ") for column in columns], [note])


def _correlation_table(classes: pl.DataFrame, recipe: Recipe) -> StudyTable:
    """Return the rank correlation of brittleness with quality.

    Raises:
        InputError: the file cannot be read, or has too few of the systems.
    """
    try:
        quality = (
            pl.read_csv(Path(recipe.quality).expanduser()).group_by("system").agg(pl.mean("value").cast(pl.Float64))
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"the file {recipe.quality} cannot be read ({error})", "Give a CSV with the columns system and value"
        ) from error
    figures = brittleness(classes)
    found = correlation(figures, dict(quality.iter_rows()), recipe.seed)
    frame = pl.DataFrame([{"": "brittleness and quality", **found._asdict()}])
    note = (
        "Spearman's rank correlation over systems, with a 95% bootstrap interval. Brittleness is the share of highly "
        "and partially similar neighbours that do not find their paper first."
    )
    return StudyTable("correlation", table_of("Brittleness and quality", frame, [note], decimals=2), frame)


def _wide(title: str, rows: list[tuple[str, str, str, Any]], columns: Iterable[str], notes: list[str]) -> Table:
    """Return (group, label, column, value) rows as a table, group by group, columns in the order given."""
    found = {(group, label): {} for group, label, _, _ in rows}  # type: dict[tuple[str, str], dict[str, Any]]
    for group, label, column, value in rows:
        found[group, label][column] = value
    groups = list(dict.fromkeys(group for group, _ in found))
    there = [column for column in columns if any(column in values for values in found.values())]
    lines = [
        {"": f"{group} {label}", **{column: found[group, label].get(column) for column in there}}
        for group, label in sorted(found, key=lambda key: groups.index(key[0]))
    ]
    return table_of(title, pl.DataFrame(lines, infer_schema_length=None), notes)


def _counts(name: str, corpus: Artifact) -> pl.DataFrame:
    """Return how many neighbours each class has in one corpus."""
    counts = corpus.manifest.counts
    rows = [
        (f"{name} {each}", CLASSES[each].category, counts["neighbours"][each], unchanged, counts["without_words"][each])
        for each, unchanged in counts["unchanged"].items()
    ]
    return pl.DataFrame(rows, ["class", "category", "neighbours", "unchanged", "without words"], orient="row")


def _cosines(name: str, system: str, artifact: Artifact) -> pl.DataFrame:
    """Return the similarities of one encoder on one corpus."""
    table: Any = pl.from_arrow(artifact.arrow("similarities.arrow"))
    categories = {each.name: each.category for each in CLASSES.values()}
    found: pl.DataFrame = table.select(
        pl.lit(name).alias("corpus"),
        pl.lit(system).alias("system"),
        pl.col("name").replace_strict(categories).alias("category"),
        pl.all(),
    )
    return found
