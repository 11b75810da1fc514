"""Tables of the study, beside the paper's where a corpus is comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.encode import registry
from pipeline.measure.statistics import rank_correlation
from pipeline.scores.tables import Table, frame_table
from pipeline.studies.base import StudyTable
from pipeline.studies.neighbours.geometry import DESCRIBED
from pipeline.studies.neighbours.operators import CATEGORIES
from pipeline.studies.neighbours.plan import Recipe
from pipeline.studies.neighbours.quality import brittleness, chance
from pipeline.studies.neighbours.values import TASKS, by_category, in_order

OPTIMAL = {"LL-HS": (75, 100), "LO-HS": (70, 100), "LL-PS": (50, 70), "LO-PS": (50, 70), "LO-DS": (0, 20)}
"""AOP-20, in percent, that the paper calls optimal for a category (section 6.3, table 5), both bounds left out."""

_PUBLISHED = ("scibert", "specter")
"""Entries of models.toml whose figures the paper gives."""


def titles(values: pl.DataFrame, recipe: Recipe) -> StudyTable:
    """Return table 3: a row for each corpus and system, the paper's below."""
    keys = {f"{task} {m}": f"title-queries-{task}.{{}}.{m.lower()}" for task in TASKS.values() for m in ("MRR", "T100")}
    cells = values.with_columns(column=pl.format("{} {}", "task", "measure"))
    note = "MRR and T100 in percent. The paper's sets are others of the same kind."
    return StudyTable("titles", _wide("Titles as queries", cells, list(keys), [note], _published(recipe, keys)), values)


def categories(classes: pl.DataFrame, recipe: Recipe) -> StudyTable:
    """Return table 4: AOP-10 by category, the paper's rows below."""
    cells = by_category(classes, "AOP-10")
    published = _published(recipe, {category: f"aop10.{{}}.{category}" for category in CATEGORIES})
    note = "A vector is not its own neighbour, so AOP-10 is at most 90% where a neighbour and its original are closest."
    table = _wide(
        "AOP-10 by category", cells.with_columns(column="category"), CATEGORIES, [note, *recipe.limitations], published
    )
    return StudyTable("categories", table, cells)


def _published(recipe: Recipe, keys: Mapping[str, str]) -> pl.DataFrame:
    """Return the paper's figures for the corpora that are comparable; ``{}`` in a key stands for the data set."""
    rows = [
        (corpus, f"{system} (paper, {dataset})", column, registry.published(system).get(key.format(dataset)))
        for corpus, dataset in recipe.reference.items()
        for system in (_PUBLISHED if corpus in recipe.corpora else ())
        for column, key in keys.items()
    ]
    schema = {"corpus": pl.String, "system": pl.String, "column": pl.String, "value": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


def optimality(classes: pl.DataFrame, recipe: Recipe) -> StudyTable:
    """Return table 5: AOP-20 by category, with a mark where the paper calls it optimal."""
    low, high = (pl.col("category").replace_strict({name: each[at] for name, each in OPTIMAL.items()}) for at in (0, 1))
    found = by_category(classes, "AOP-20")
    found = found.with_columns(optimal=pl.col("value").is_between(low, high, closed="none"))
    cells = found.with_columns(
        column="category",
        value=pl.format("{}{}", pl.col("value").round(1), pl.when("optimal").then(pl.lit("*")).otherwise(pl.lit(""))),
    )
    note = f"* optimal: {', '.join(f'{category} {low} to {high}' for category, (low, high) in OPTIMAL.items())}."
    return StudyTable("optimality", _wide("AOP-20 by category", cells, CATEGORIES, [note, *recipe.limitations]), found)


def by_class(classes: pl.DataFrame, recipe: Recipe) -> StudyTable:
    """Return the mean over the corpora of each class, system and measure."""
    cells = classes.with_columns(column=pl.format("{} {}", "system", "measure"))
    means = cells.pivot(on="column", index=["category", "name"], values="value", aggregate_function="mean")
    order = pl.DataFrame({"name": in_order(means["name"])})
    shown = order.join(means, on="name", maintain_order="left").select(
        pl.format("{} {}", "category", "name").alias("class"), pl.exclude("category", "name")
    )
    title, note = "Neighbours as queries, and overlap, by class", "Means over the corpora, in percent."
    return StudyTable("classes", frame_table(title, shown, [note, *recipe.limitations]), classes)


def counts(corpora: Mapping[str, Artifact]) -> StudyTable:
    """Return how many neighbours each class has."""
    outcomes = ("neighbours", "unchanged", "without_words")
    rows = [
        {"corpus": corpus, "class": name, **{each: artifact.manifest.counts[each][name] for each in outcomes}}
        for corpus, artifact in corpora.items()
        for name in artifact.manifest.counts["neighbours"]
    ]
    frame = pl.DataFrame(rows)
    total = frame.group_by("class", maintain_order=True).agg(pl.col(outcomes).sum())
    note = (
        "Papers that a class leaves unchanged, or without a word, have no neighbour of it. Papers whose abstract is "
        "not English have no neighbours."
    )
    shown = frame_table("Neighbours by class", total.rename({"without_words": "without words"}), [note])
    return StudyTable("counts", shown, frame)


def similarities(cosines: pl.DataFrame) -> StudyTable:
    """Return the similarities by category: means over classes and corpora, extremes over all."""
    extremes = {"lowest": pl.col("lowest").min(), "highest": pl.col("highest").max()}
    means = cosines.group_by("system", "category", maintain_order=True).agg(
        **{name: extremes.get(name, pl.col(name).mean()) for name in DESCRIBED}
    )
    shown = means.select(pl.format("{} {}", "system", "category").alias("system"), *DESCRIBED)
    note = "Cosines of all pairs of neighbours of a class, and of neighbours with their originals."
    table = frame_table("Similarities by category", shown, [note], decimals=3)
    return StudyTable("similarities", table, cosines.drop("pairs", "own"))


def predictions(
    classes: pl.DataFrame, quality: Mapping[str, float], seed: int, limitations: Sequence[str] = ()
) -> StudyTable:
    """Return brittleness beside the quality of each system, and their rank correlation."""
    mean_ap, notes = [100 * value for value in quality.values()], []
    columns: dict[str, list[str] | list[float]] = {"system": list(quality), "MAP": mean_ap}
    for measure in ("NN1_Ret", "AOP-10"):
        figures = brittleness(classes, measure)
        columns[f"brittleness, {measure}"] = own = [figures[system] for system in quality]
        value, low, high = rank_correlation(np.array(own), np.array(mean_ap), seed, measure)
        shown = "not defined: all are equal"
        if not np.isnan(value):
            shown = f"{value:.2f} [{low:.2f}, {high:.2f}], p = {chance(own, mean_ap, seed):.2f}"
        notes.append(f"Rank correlation of brittleness by {measure} with MAP: {shown}.")
    notes.append(
        "Brittleness: what highly and partially similar neighbours lack to 100%. Spearman's rho with a 95% bootstrap "
        f"interval over {len(quality)} systems, and a permutation test; few systems tell little."
    )
    notes += limitations
    frame = pl.DataFrame(columns)
    return StudyTable("correlation", frame_table("Brittleness and citation recommendation", frame, notes), frame)


def _wide(
    title: str, cells: pl.DataFrame, columns: Sequence[str], notes: Sequence[str], below: pl.DataFrame | None = None
) -> Table:
    """Return cells (``corpus``, ``system``, ``column``, ``value``) as a table, corpus by corpus, with further rows."""
    every = pl.concat(
        [each.select("corpus", "system", "column", "value") for each in (cells, below) if each is not None]
    )
    wide = every.pivot(on="column", index=["corpus", "system"], values="value")
    order = every.select("corpus").unique(maintain_order=True)
    shown = order.join(wide, on="corpus", maintain_order="left_right").select(
        pl.format("{} {}", "corpus", "system").alias(""), *(name for name in columns if name in wide.columns)
    )
    return frame_table(title, shown, notes)
