"""The study ``overlap``: how much of an encoder's advantage over BM25 is overlap with its training data?

An encoder could have seen papers published up to the last year of its training data. The study compares its advantage
over an untrained baseline between queries that it could have seen and later ones (difference in differences). The
baseline removes what makes a stratum of queries harder for every system, but not what makes it harder for encoders
alone. Therefore an untrained system with a cutoff serves as a placebo: it shows the difference without overlap.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace, selection
from pipeline.core.errors import InputError
from pipeline.core.schema import NO_YEAR
from pipeline.core.settings import required
from pipeline.core.task import Task
from pipeline.measure.design import Design, Draws, estimate
from pipeline.measure.estimates import Contrast, contrasts
from pipeline.measure.inputs import Mask
from pipeline.measure.statistics import Floats, simultaneous
from pipeline.scores.charts import figures
from pipeline.scores.choose import label_of_row
from pipeline.scores.page.parts import Chart
from pipeline.scores.sources import trainings_of
from pipeline.scores.store import values
from pipeline.scores.summary import summarise
from pipeline.scores.tables import Table, frame_table
from pipeline.stages.selection import Selection
from pipeline.studies.base import Study, StudyResult
from pipeline.studies.common import drawn, formatted, in_points, pool_result, scored_runs, scoring_batches, series
from pipeline.studies.large_scale.analyses import training_papers
from pipeline.studies.large_scale.rankings import PoolRankings, loss, rankings_of
from pipeline.studies.recipe import PoolsRecipe, pools_of

Group = tuple[str, int]
"""Field (or ``dataset``) and year of some queries."""


@dataclass(frozen=True, kw_only=True)
class Recipe(PoolsRecipe):
    """Settings of the study."""

    field: str
    years: tuple[int, ...] = required("publication years of the queries, a pool for each")
    size: str
    baseline: str = required("the system without training data")
    cutoffs: Mapping[str, int] = required("last year of training data, where models.toml has none, by system")
    training: Mapping[str, str] = required("by system, a file with the ids of papers it was trained on")

    @property
    def selections(self) -> list[Selection]:
        """The pools, year by year."""
        return [selection(**pools_of(self) | {"samples": 1, "year": year}) for year in self.years]


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tasks that score every system on the pool of every year, tunings of BM25 first."""
    if len(set(recipe.years)) < 2:
        raise InputError(f"years must be two or more, got {list(recipe.years)}", "Write --set=years=2019,2023")
    yield from scoring_batches(workspace, recipe)


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the differences between strata, the advantage year by year, and the scores of each pool."""
    runs = scored_runs(workspace, recipe)
    scores = values(runs).filter(measure="map")
    pools: dict[Group, PoolRankings] = {}
    for pool_runs in runs.partition_by("pool", maintain_order=True):
        rankings = rankings_of(pool_runs)
        pools[rankings.group, int(pool_runs["year"][0])] = rankings
    labels, seed = runs["label"].unique(maintain_order=True), recipe.seed
    baseline = label_of_row(runs, recipe.baseline)
    if unknown := (set(recipe.cutoffs) | set(recipe.training)) - set(labels):
        problem = f"cutoffs and training must be of systems, got {', '.join(sorted(unknown))}"
        raise InputError(problem, f"Name some of {', '.join(labels)}")
    rows = runs.filter(pl.col("label") != baseline).unique("label", maintain_order=True).rows(named=True)
    known_cutoffs = {run["label"]: cutoff_of(run, recipe.cutoffs) for run in rows}
    cutoffs = {label: cutoff for label, cutoff in known_cutoffs.items() if cutoff is not None}
    corpus = next(iter(pools.values())).pool.corpus
    training_lists = {label: training_papers([file], corpus) for label, file in recipe.training.items()}
    gain_of = {label: gains(scores, label, baseline) for label in cutoffs | training_lists}
    strata = [
        *(_queries(label, "by year", gain_of[label], pl.col("year") <= cutoff) for label, cutoff in cutoffs.items()),
        *(
            _queries(label, "in the list", _listed(gain_of[label], pools, trained), pl.col("listed"), "year")
            for label, trained in training_lists.items()
        ),
        *(_by_positives(label, baseline, pools, cutoff) for label, cutoff in cutoffs.items()),
    ]
    summary = summarise(scores, runs, baseline=baseline)
    result = pool_result(runs, scores, [summary], ["map"])
    doses = dose(gain_of, cutoffs, seed)
    title = f"Advantage over {baseline} in MAP"
    views_of_dose = {"MAP": list(series(doses.cast({"years": pl.Float64}), "system", "years"))} if len(doses) else {}
    source = ", ".join(result.sources)
    chart = Chart(title, "years after the training data", "points of MAP", views_of_dose, provenance=source)
    tables = [
        strata_table([*itertools.chain(*strata)], cutoffs, baseline, seed),
        dose_table(doses, baseline),
        *result.tables,
    ]
    views = [*figures(summary, runs), *((f"dose-{view}", chart, view) for view in chart.views)]
    return replace(result, tables=tables, figures=drawn(views), parts=[chart, *result.parts], findings=())


def cutoff_of(run: Mapping[str, Any], cutoffs: Mapping[str, int]) -> int | None:
    """Return the last year of the training data of a ranking; None if it is unknown or the system is untrained."""
    if run["label"] in cutoffs:
        return cutoffs[run["label"]]
    years = [training.until for training in trainings_of(run).values()]
    return max(filter(None, years)) if years and all(years) else None


def gains(scores: pl.DataFrame, system: str, baseline: str) -> pl.DataFrame:
    """Return the gain over the baseline of each query: ``field``, ``year``, ``query``, ``value``, in this order."""
    keys = ["field", "year", "query"]
    wide = scores.filter(pl.col("label").is_in([system, baseline])).pivot("label", index=keys, values="value")
    field = pl.col("field").cast(pl.String).fill_null("dataset")
    return wide.sort(keys).select(field, "year", "query", value=pl.col(system) - pl.col(baseline))


Comparison = tuple[str, str, float, float, int, int, Contrast]
"""System, strata, mean advantage in each stratum and its number of queries, and the contrast of the strata."""


def _compared(
    system: str, strata: str, seen: Sequence[Floats], unseen: Sequence[Floats], contrast: Contrast | None = None
) -> Iterator[Comparison]:
    """Yield the comparison of the groups of two strata; nothing if a stratum is empty.

    The default contrast is the difference of the means of the groups' means.
    """
    if seen and unseen:
        weights = [1 / len(seen)] * len(seen) + [-1 / len(unseen)] * len(unseen)
        first, second = (float(np.mean([group.mean() for group in side])) for side in (seen, unseen))
        counts = sum(map(len, seen)), sum(map(len, unseen))
        yield system, strata, first, second, *counts, contrast or ([*seen, *unseen], weights)


def _queries(system: str, strata: str, advantage: pl.DataFrame, is_seen: pl.Expr, *within: str) -> Iterator[Comparison]:
    """Compare queries that could have been seen with others, in fields (``within`` years) that have both."""
    both = advantage.filter(is_seen.any().over("field", *within), (~is_seen).any().over("field", *within))
    sides = (both.filter(side).partition_by("field", "year", maintain_order=True) for side in (is_seen, ~is_seen))
    seen, unseen = ([group["value"].to_numpy() for group in groups] for groups in sides)
    return _compared(system, f"queries {strata}", seen, unseen)


def _listed(advantage: pl.DataFrame, pools: Mapping[Group, PoolRankings], trained: Mask) -> pl.DataFrame:
    """Return advantages with the column ``listed``: whether the query is in the training list."""
    groups = advantage.select("field", "year").unique(maintain_order=True).iter_rows()
    return advantage.with_columns(listed=np.concatenate([trained[pools[group].pool.query_rows] for group in groups]))


def _by_positives(system: str, baseline: str, pools: Mapping[Group, PoolRankings], cutoff: int) -> Iterator[Comparison]:
    """Compare, within queries after the cutoff, positives published up to it with later ones.

    A positive's advantage is the difference of the precision at its rank. Only queries with positives of both kinds
    count.
    """
    parts = [np.empty((0, 2))]
    for pool in (pool for (_, year), pool in pools.items() if year > cutoff):
        years, counts = pool.attribute("year"), pool.qrels.positives()
        precision, reference = (
            1 - loss(pool.ranks[label], pool.qrels) * np.repeat(counts, counts) for label in (system, baseline)
        )
        strata = (years <= cutoff) & (years != NO_YEAR), years > cutoff
        parts.append(np.stack([pool.means(np.where(mask, precision - reference, np.nan)) for mask in strata], axis=1))
    query_means = np.concatenate(parts)
    early, late = query_means[~np.isnan(query_means).any(axis=1)].T
    if len(early):
        yield from _compared(system, "positives by year, later queries", [early], [late], ([early - late], [1.0]))


_COMPARED = dict.fromkeys(("system", "strata"), pl.String) | dict.fromkeys(("seen", "unseen"), pl.Float64)
_COMPARED |= dict.fromkeys(("n_seen", "n_unseen"), pl.Int64)


def strata_table(strata: Sequence[Comparison], cutoffs: Mapping[str, int], baseline: str, seed: int) -> Table:
    """Return the comparisons of strata, with Holm's correction over all of them.

    The frame has the mean advantage in each stratum, their difference with its interval, and the p-values.
    """
    frame = pl.DataFrame([row[:-1] for row in strata], _COMPARED, orient="row")
    frame = frame.hstack(contrasts([row[-1] for row in strata], seed).rename({"value": "difference"})).select(
        "system", "strata", "seen", "unseen", "difference", "low", "high", "p", "n_seen", "n_unseen", "p_adjusted"
    )
    shown_sides = (
        pl.format("{} ({})", formatted(side, "+.1f"), formatted(f"n_{side}", ",")).alias(side)
        for side in ("seen", "unseen")
    )
    shown = frame.with_columns(pl.col("seen", "unseen") * 100).select(
        pl.col("system").replace({system: f"{system} ({cutoff})" for system, cutoff in cutoffs.items()}),
        "strata", *shown_sides, in_points(), formatted("p", ".4f"), formatted("p_adjusted", ".4f").alias("p, Holm"),
    )  # fmt: skip
    notes = (
        f"Points of MAP over {baseline} (queries), and their difference between strata [95% interval]; Welch's "
        "t-test, Holm's correction over all rows. The year in brackets is the last of the training data.",
        "Queries by year: published up to that year, or later; years and fields weigh alike. Queries in the list: of "
        "the training list, or others of the same year. Positives by year: within queries that are later, positives up "
        "to that year or later ones, by the precision at their rank.",
        "A difference of years also holds what makes years differ for encoders alone: compare it with a system that "
        "was not trained (a placebo).",
    )
    return frame_table("strata", "Advantage on what could have been seen", frame, notes, shown=shown)


def dose(gain_of: Mapping[str, pl.DataFrame], cutoffs: Mapping[str, int], seed: int) -> pl.DataFrame:
    """Return the advantage of each system by years after its cutoff, as a mean over fields.

    Columns: ``system``, ``years``, ``queries``, ``value`` and the simultaneous interval ``low`` and ``high``.
    """
    frames = [
        gain_of[label].sort("year", maintain_order=True).with_columns(
            system=pl.lit(label), years=pl.col("year").cast(pl.Int64) - cutoff,
            group=pl.format("{} {}", "field", "year"),
        )
        for label, cutoff in cutoffs.items()
    ]  # fmt: skip
    none = pl.DataFrame(schema=dict.fromkeys(("system", "years", "year", "group", "query", "value"), pl.Int64))
    gains = pl.concat(frames) if frames else none
    draws = Draws(level=simultaneous(gains.select("system", "year").n_unique()))
    doses = estimate(gains, Design(row=("system", "years"), of=("system", "year"), group="group"), seed, draws=draws)
    return doses.select("system", "years", "value", "low", "high", queries="items")


def dose_table(doses: pl.DataFrame, baseline: str) -> Table:
    """Return the advantage by years after the cutoff as a table."""
    cells = doses.with_columns(in_points("value"))
    wide = cells.sort("years").pivot("years", index="system", values="value", maintain_order=True)
    notes = (
        f"Points of MAP over {baseline} by the queries' years after the last year of the training data (0: that year).",
        f"Brackets: intervals that hold together with 95% (Bonferroni over {len(doses)}).",
    )
    return frame_table("dose", "Advantage by years after the cutoff", doses, notes, shown=wide)


STUDY = Study(
    "overlap", "how much of an encoder's advantage is overlap with its training data", Recipe, batches, results
)
