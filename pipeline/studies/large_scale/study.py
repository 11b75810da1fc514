"""The study ``large_scale``: dataset-level and field-level pools (Medić & Šnajder 2022, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from pipeline.studies import kit
from pipeline.studies.large_scale import curves, published
from pipeline.studies.large_scale.published import DATASET, MEASURES


@dataclass(frozen=True, kw_only=True)
class Recipe(kit.PoolsRecipe):
    """Settings of the study; ``exclude`` names training queries (section 3.1)."""

    fields: str = kit.required("of the 19 fields, with commas, or all; dataset: pools of all fields")
    sizes: tuple[str, ...] = kit.required("numbers of candidates, such as 200k, or all")
    year: int
    samples: int
    nested: bool
    positives: Literal["corpus", "prefiltered"]
    baseline: str = kit.required("the system that the others are tested against")
    own: Mapping[str, Mapping[str, Any]] = kit.required("by field: other sizes, year, queries or settings of pools")

    @property
    def selections(self) -> list[kit.Selection]:
        """The pools: of the dataset level, then field by field."""
        names = [name.strip() for name in self.fields.split(",") if name.strip()]
        fields = ",".join(name for name in names if name != DATASET)
        groups = [DATASET] * (DATASET in names) + list(kit.selection(field=fields).given["field"] if fields else ())
        for name in self.own:
            kit.require_known(name, groups, f"{name!r} has settings, but is not studied", "Correct the recipe")
        selections = []
        for group in groups:
            own = {name.replace("sizes", "size"): value for name, value in self.own.get(group, {}).items()}
            field = None if group == DATASET else group
            selections.append(kit.selection(**kit.pools_of(self) | own | {"field": field}))
        return selections


@kit.study("large_scale", "retrieval from large pools, by pool size and by field", Recipe)
def large_scale(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return the tables of the paper, tests, variances and curves over size, and the training papers by field."""
    found = yield from kit.scored(workspace, recipe, recipe.selections, together=True)
    seed, runs = recipe.seed, found.runs
    scores = found.values.filter(pl.col("measure").is_in(list(MEASURES)))
    largest = pl.col("size") == pl.col("size").max().over("field")
    summaries = [
        kit.summarise(frame, runs, baseline=recipe.baseline, draws=kit.Draws(seed=seed))
        for frame in _by_size_and_field(scores, largest)
    ]
    pools = runs.filter(largest, sample=1).unique("pool", maintain_order=True)
    compared = kit.corpus_of(workspace, recipe).artifact.manifest.config.get("source") != "synthetic"
    tuned = set(runs.filter(pl.col("aliases").list.contains(kit.TUNED))["label"])
    found_curves = [*curves.curves_of(scores)]
    tables = [
        *(table for summary in summaries for table in published.tables(summary, pools, tuned, compared=compared)),
        *curves.tests(summaries, scores, seed),
        *curves.variances(scores, seed),
        *([curves.curve_table(found_curves, seed)] if found_curves else []),
    ]
    if files := dict(recipe.rules).get("exclude"):
        tables.append(published.training(found, pools, kit.in_lists(files, kit.corpus_of(workspace, recipe))))
    report = found.report(*MEASURES, summaries=summaries)
    charts = {"curves": curves.curve_chart(found_curves, seed)} if found_curves else {}
    figures = {name: draw for name, draw in report.figures.items() if name.endswith("-map")}
    return replace(report, tables=tables, charts=charts, figures=figures)


def _by_size_and_field(scores: pl.DataFrame, largest: pl.Expr) -> Iterator[pl.DataFrame]:
    """Yield the scores to show by pool size, and those of each field's largest pool to show by field.

    A field with pools of one size is shown by size only if there is no other field.
    """
    fields = scores["field"].drop_nulls().n_unique()
    several_sizes = pl.col("size").n_unique().over("field") > 1
    by_size = scores.filter(pl.col("field").is_null() | several_sizes | (fields == 1))
    if len(by_size):
        yield by_size
    if fields > 1:
        yield scores.filter(pl.col("field").is_not_null() & largest)
