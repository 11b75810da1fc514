"""The study ``large_scale``: dataset-level and field-level pools (Medić & Šnajder 2022, sections 3.1 and 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from pipeline.api import Workspace, selection
from pipeline.core.errors import require_known
from pipeline.core.settings import required
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.encode.known import trainings
from pipeline.measure.design import Draws
from pipeline.scores.charts import figures
from pipeline.scores.choose import label_of_row
from pipeline.scores.layout import select_measures
from pipeline.scores.store import values
from pipeline.scores.summary import summarise
from pipeline.stages.selection import Selection
from pipeline.stages.systems import TUNED
from pipeline.studies.base import StudyResult, old_study
from pipeline.studies.common import drawn, pool_result, scored_runs, scoring_batches, views_of
from pipeline.studies.large_scale import analyses, by_query, published, rankings
from pipeline.studies.large_scale.published import MEASURES
from pipeline.studies.large_scale.rankings import DATASET, rankings_of
from pipeline.studies.recipe import PoolsRecipe, pools_of
from pipeline.studies.scored import in_lists

_OVERRIDABLE = ("sizes", *(name for name in SETTINGS if name not in ("field", "size")))
"""Settings that the recipe may override for a field."""


@dataclass(frozen=True, kw_only=True)
class Recipe(PoolsRecipe):
    """Settings of the study; ``exclude`` names training queries (section 3.1)."""

    fields: str = required("of the 19 fields, with commas, or all; dataset: pools of all fields")
    sizes: tuple[str, ...] = required("numbers of candidates, such as 200k, or all")
    year: int
    samples: int
    nested: bool
    positives: Literal["corpus", "prefiltered"]
    baseline: str = required("the system that the others are tested against")
    training: tuple[str, ...] = required("files of ids of training papers, for the audit; empty: those of exclude")
    own: Mapping[str, Mapping[str, Any]] = required("by field, its own sizes, year, queries or other settings of pools")

    @property
    def selections(self) -> list[Selection]:
        """The pools: of the dataset level, then field by field."""
        names = [name.strip() for name in self.fields.split(",") if name.strip()]
        fields = SETTINGS["field"].read(",".join(name for name in names if name != DATASET))
        groups = [DATASET, *fields] if DATASET in names else list(fields)
        for name, settings in self.own.items():
            require_known(name, groups, f"{name!r} has settings of its own, but is not studied", "Correct the recipe")
            for key in settings:
                require_known(key, _OVERRIDABLE, f"{name} cannot have a setting {key!r} of its own")
        selections = []
        for group in groups:
            settings = {name.replace("sizes", "size"): value for name, value in self.own.get(group, {}).items()}
            selections.append(selection(**pools_of(self) | settings | {"field": None if group == DATASET else group}))
        return selections


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the tables of the paper and further analyses."""
    seed, draws = recipe.seed, Draws(seed=recipe.seed)
    runs = scored_runs(workspace, recipe, together=True)
    scores = values(runs).filter(pl.col("measure").is_in(list(MEASURES)))
    largest = pl.col("size") == pl.col("size").max().over("field")
    summaries = [
        summarise(frame, runs, baseline=recipe.baseline, draws=draws) for frame in _by_size_and_field(scores, largest)
    ]
    baseline = label_of_row(runs, recipe.baseline)
    pools = [rankings_of(frame) for frame in runs.filter(largest, sample=1).partition_by("field", maintain_order=True)]
    queries = by_query.by_query(scores)
    precisions = analyses.precisions(pools, seed)
    corpus, gaps = pools[0].pool.corpus, {pool.group: pool.gaps for pool in pools}
    compared = corpus.artifact.manifest.config.get("source") != "synthetic"
    curves = by_query.curves_of(queries, compared=compared)
    tuned = set(runs.filter(pl.col("also").list.contains(TUNED))["label"])
    recall = rankings.recall(pools, seed, recipe.depth)
    training_lists = recipe.training or tuple(dict(recipe.rules).get("exclude", ()))
    trained = in_lists(training_lists, corpus) if training_lists else None
    last_years = [training.until for training in trainings(recipe.systems).values()]
    last_years.append(dict(recipe.rules).get("trained_until"))
    tables = [
        *(table for summary in summaries for table in published.tables(summary, gaps, tuned, compared=compared)),
        *by_query.tests(summaries, scores, seed),
        *by_query.variances(scores, seed),
        *by_query.curve_tables(curves, seed),
        *by_query.fusions(queries, seed),
        recall,
        analyses.shares(pools),
        *analyses.without_giveaways(pools, precisions, baseline, seed),
        rankings.popularity(pools, seed),
        rankings.losses(pools, seed, recipe.depth),
        *(analyses.winners(pools, precisions, baseline) if pools[0].pool.queries_are_papers else ()),
        analyses.leakage(pools, trained, max(filter(None, last_years), default=None)),
        *([] if trained is None else [rankings.training(pools, trained)]),
    ]
    result = pool_result(runs, scores, summaries, list(MEASURES), draws)
    source = ", ".join(result.sources)
    charts = {"curves": by_query.curve_chart(curves, seed, source)} if curves else {}
    charts["recall-by-depth"] = rankings.recall_chart(recall, source)
    views = [plot for summary in summaries for plot in figures(select_measures(summary, ["map"]), runs)]
    views += [plot for name, chart in charts.items() for plot in views_of(name, chart)]
    return replace(result, tables=tables, figures=drawn(views), parts=[*result.parts, *charts.values()])


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


STUDY = old_study(
    "large_scale", "retrieval from large pools, by pool size and by field", Recipe, scoring_batches, results
)
