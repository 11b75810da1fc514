"""The study ``large_scale``: dataset-level and field-level pools (Medić & Šnajder 2022, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from pipeline.studies import kit
from pipeline.studies.large_scale import by_query, leakage, published
from pipeline.studies.large_scale.by_query import Figure
from pipeline.studies.large_scale.published import DATASET, MEASURES

_DEPTHS = (1, 5, 10, 20, 30, 50, 100, 200, 500)


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
    training: tuple[str, ...] = kit.required("files of ids of training papers, for the audit; empty: those of exclude")
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
    """Return the tables of the paper, tests, variances, curves over size, recall by depth and the leakage audit."""
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
    queries = by_query.by_query(scores)
    curves = by_query.curves_of(queries, compared=compared)
    recall = recall_by_depth(found, pools, recipe)
    tables = [
        *(table for summary in summaries for table in published.tables(summary, pools, tuned, compared=compared)),
        *by_query.tests(summaries, scores, seed),
        *by_query.variances(scores, seed),
        *by_query.curve_tables(curves, seed),
        *by_query.fusions(queries, seed),
        recall,
        *leakage.tables(workspace, recipe, found, pools),
    ]
    report = found.report(*MEASURES, summaries=summaries)
    charts = {"curves": by_query.curve_chart(curves, seed)} if curves else {}
    charts["recall-by-depth"] = recall_chart(recall.frame)
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


def recall_by_depth(found: kit.Scored, pools: pl.DataFrame, recipe: Recipe) -> kit.Table:
    """Return recall by depth on the largest pool of the dataset level, and on those of fields together."""
    depths, rows = [str(depth) for depth in _DEPTHS if depth <= recipe.depth], list[Figure]()
    retrieved = [(pl.col("rank") <= int(depth)).fill_null(False).mean().alias(depth) for depth in depths]
    of_pool = {
        pool: found.positives_of(pool).group_by("label", "query", maintain_order=True).agg(retrieved)
        for pool in pools["pool"]
    }
    for scope, is_in in (("dataset", pl.col("field").is_null()), ("fields", pl.col("field").is_not_null())):
        frames = [of_pool[pool] for pool in pools.filter(is_in)["pool"]]
        for label in frames[0]["label"].unique(maintain_order=True) if frames else ():
            if all(label in frame["label"] for frame in frames):
                of_label = pl.concat(frame.filter(label=label) for frame in frames)
                figures = (kit.interval(of_label[depth].to_numpy(), recipe.seed, scope) for depth in depths)
                rows += [(f"{scope} {label}", depth, *figure) for depth, figure in zip(depths, figures, strict=True)]
    notes = ["Largest pool of each field, first sample; every query counts once.", "Brackets: 95% interval."]
    return by_query.cells("recall-by-depth", "Recall by depth", "system", rows, notes)


def recall_chart(frame: pl.DataFrame) -> kit.Chart:
    """Return recall against depth, a view for the dataset level and for fields."""
    scope, system = pl.col("system").str.extract(r"^(\S+)"), pl.col("system").str.replace(r"^\S+ ", "")
    by_scope = frame.with_columns(system, pl.col("column").cast(pl.Float64), scope=scope)
    views = {
        rows["scope"][0]: list(kit.lines(rows, "system", "column"))
        for rows in by_scope.partition_by("scope", maintain_order=True)
    }
    ticks = {float(depth): str(depth) for depth in (1, 10, 30, 100, 500)}
    return kit.Chart("Recall against depth", "rank", "recall in %", views, log=True, ticks=ticks)
