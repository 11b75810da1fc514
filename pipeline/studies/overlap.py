"""The study ``overlap``: how much of an encoder's advantage over BM25 is overlap with its training data?

An encoder could have seen what was published up to the last year of its training data. Its advantage over a system that
was not trained is compared between queries that it could have seen and later ones (difference in differences): the
baseline takes away what makes queries of a stratum hard for everyone. What makes them harder for encoders alone stays,
so a system without training data, given a cutoff as a placebo, shows how large a difference arises without overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from pipeline.api import Workspace, selection
from pipeline.core.errors import InputError
from pipeline.core.schema import NO_YEAR
from pipeline.core.task import Task
from pipeline.corpus.reader import Corpus
from pipeline.measure.estimates import contrast
from pipeline.measure.statistics import Floats, holm, mean_of_means, simultaneous
from pipeline.scores.charts import figures
from pipeline.scores.labels import trainings_of
from pipeline.scores.page.parts import Chart, Series
from pipeline.scores.store import values
from pipeline.scores.summary import summarise
from pipeline.scores.tables import frame_table
from pipeline.stages.selection import Selection
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.common import check_baseline, drawn, pool_result, scored_runs, scoring_batches
from pipeline.studies.large_scale.analyses import training_papers
from pipeline.studies.large_scale.rankings import PoolRankings, loss, rankings_of
from pipeline.studies.recipe import NO_RULES, Rules, pools_of
from pipeline.studies.tables import points

Group = tuple[str, int]
"""Field (or ``dataset``) and year of some queries."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        corpus: name of the corpus; empty: the only one.
        field: of the 19 fields, with commas; empty: dataset-level pools.
        years: publication years of the queries, a pool for each.
        size: number of candidates, or ``all``.
        queries: number of queries of each year, or ``all``.
        seed: of every draw.
        systems: what ranks, with commas.
        baseline: the system without training data.
        depth: ranks kept of each query.
        cutoffs: last year of the training data by system, in place of that of ``models.toml``; of a system without
            training data it is a placebo.
        training: by system, a file with the ids of papers whose citations it was trained on.
        rules: further settings of pools that the recipe gives.
    """

    corpus: str
    field: str
    years: tuple[int, ...]
    size: str
    queries: str
    seed: int
    systems: str
    baseline: str
    depth: int
    cutoffs: Mapping[str, int]
    training: Mapping[str, str]
    rules: Rules = NO_RULES

    @property
    def selections(self) -> list[Selection]:
        """The pools, year by year."""
        return [selection(**pools_of(self) | {"samples": 1, "year": year}) for year in self.years]


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tasks that score every system on the pool of every year, tunings of BM25 first."""
    check_baseline(recipe.baseline, recipe.systems)
    if len(set(recipe.years)) < 2:
        raise InputError(f"years must be two or more, got {list(recipe.years)}", "Write --set=years=2019,2023")
    yield from scoring_batches(workspace, recipe)


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the differences between strata, the advantage year by year, and the scores of each pool."""
    runs = scored_runs(workspace, recipe)
    scores = values(runs).filter(measure="map")
    pools = {(pool.group, year): pool for year, pool in _pools(runs)}
    unknown = (set(recipe.cutoffs) | set(recipe.training)) - set(runs["label"])
    if unknown:
        raise InputError(f"cutoffs and training must be of systems, got {', '.join(sorted(unknown))}",
                         f"Name some of {', '.join(runs['label'].unique(maintain_order=True))}")  # fmt: skip
    cutoffs = {label: cutoff for label in runs["label"].unique(maintain_order=True)
               if label != recipe.baseline and (cutoff := cutoff_of(label, recipe.cutoffs)) is not None}  # fmt: skip
    lists = {label: training_papers([file], _corpus(pools)) for label, file in recipe.training.items()}
    strata = pl.concat([
        *(_strata(label, gains(scores, label, recipe.baseline), cutoff, recipe.seed)
          for label, cutoff in cutoffs.items()),
        *(_listed(label, gains(scores, label, recipe.baseline), pools, trained, recipe.seed)
          for label, trained in lists.items()),
        *(_positives(label, recipe.baseline, pools, cutoff, recipe.seed) for label, cutoff in cutoffs.items()),
    ]) if cutoffs or lists else pl.DataFrame(schema=STRATA)  # fmt: skip
    summaries = [summarise(scores, baseline=recipe.baseline)]
    result = pool_result(runs, scores, summaries, ["map"])
    doses = dose(scores, recipe.baseline, cutoffs, recipe.seed)
    chart = dose_chart(doses, recipe.baseline, ", ".join(result.sources))
    tables = [strata_table(strata, cutoffs, recipe), dose_table(doses, recipe.baseline), *result.tables]
    views = [*figures(summaries[0], runs), *((f"dose-{view}", chart, view) for view in chart.views)]
    return replace(result, tables=tables, figures=drawn(views), parts=[chart, *result.parts])


def _pools(runs: pl.DataFrame) -> Iterator[tuple[int, PoolRankings]]:
    for of_pool in runs.partition_by("pool", maintain_order=True):
        yield int(of_pool["year"][0]), rankings_of(of_pool)


def _corpus(pools: Mapping[Group, PoolRankings]) -> Corpus:
    return next(iter(pools.values())).pool.corpus


def cutoff_of(system: str, given: Mapping[str, int]) -> int | None:
    """Return the last year of what a system was trained on; None where it is not known, or nothing was."""
    if system in given:
        return given[system]
    years = [training.until for training in trainings_of(system).values()]
    return max(filter(None, years)) if years and all(years) else None


def gains(scores: pl.DataFrame, system: str, baseline: str) -> dict[Group, Floats]:
    """Return what a system gains over the baseline, by field and year of the queries, float64 ``[queries]`` each."""
    wide = scores.filter(pl.col("label").is_in([system, baseline])).pivot(
        "label", index=["field", "year", "query"], values="value", maintain_order=True
    )
    return {
        (str(part["field"][0] or "dataset"), int(part["year"][0])): (part[system] - part[baseline]).to_numpy()
        for part in wide.sort("field", "year", "query").partition_by("field", "year", maintain_order=True)
    }


STRATA = {
    "system": pl.String, "strata": pl.String, "seen": pl.Float64, "unseen": pl.Float64, "difference": pl.Float64,
    "low": pl.Float64, "high": pl.Float64, "p": pl.Float64, "n_seen": pl.Int64, "n_unseen": pl.Int64,
}  # fmt: skip
"""Columns of the comparison of two strata: mean advantage in each, fractions; their difference, its interval, p."""


def _compared(system: str, strata: str, seen: Sequence[Floats], unseen: Sequence[Floats], seed: int) -> pl.DataFrame:
    """Return one row: the mean over groups of the advantage of each stratum, and their difference."""
    if not seen or not unseen:
        return pl.DataFrame(schema=STRATA)
    weights = [1 / len(seen)] * len(seen) + [-1 / len(unseen)] * len(unseen)
    (value, low, high), p_value = contrast([*seen, *unseen], weights, seed)
    means = (float(np.mean([group.mean() for group in side])) for side in (seen, unseen))
    counts = (sum(map(len, side)) for side in (seen, unseen))
    return pl.DataFrame([(system, strata, *means, value, low, high, p_value, *counts)], STRATA, orient="row")


def _strata(system: str, advantage: Mapping[Group, Floats], cutoff: int, seed: int) -> pl.DataFrame:
    """Compare queries up to the cutoff with later ones, in fields that have both."""
    fields = [{field for field, year in advantage if (year <= cutoff) == early} for early in (True, False)]
    kept = {group: values for group, values in advantage.items() if group[0] in fields[0] & fields[1]}
    seen, unseen = ([of for (_, year), of in kept.items() if (year <= cutoff) == early] for early in (True, False))
    return _compared(system, "queries by year", seen, unseen, seed)


def _listed(
    system: str, advantage: Mapping[Group, Floats], pools: Mapping[Group, PoolRankings], trained: Any, seed: int
) -> pl.DataFrame:
    """Compare queries in the training list with others of the same field and year."""
    sides: tuple[list[Floats], list[Floats]] = [], []
    for group, values_of_group in advantage.items():
        inside = trained[pools[group].pool.query_rows]
        if 0 < inside.sum() < len(inside):
            sides[0].append(values_of_group[inside])
            sides[1].append(values_of_group[~inside])
    return _compared(system, "queries in the list", *sides, seed)


def _positives(system: str, baseline: str, pools: Mapping[Group, PoolRankings], cutoff: int, seed: int) -> pl.DataFrame:
    """Compare, within queries after the cutoff, positives published up to it with later ones.

    A positive's advantage is that of the precision at its rank. Queries count that have positives of both kinds.
    """
    columns: list[pl.DataFrame] = []
    for pool in (pool for (_, year), pool in pools.items() if year > cutoff):
        precision = {
            label: 1 - loss(pool.ranks[label], pool.qrels) * _positives_of(pool) for label in (system, baseline)
        }
        years, change = pool.attribute("year"), precision[system] - precision[baseline]
        early, late = (pool.means(np.where(kept & (years != NO_YEAR), change, np.nan))
                       for kept in (years <= cutoff, years > cutoff))  # fmt: skip
        columns.append(pl.DataFrame({"early": early, "late": late}).fill_nan(None).drop_nulls())
    both = pl.concat(columns) if columns else pl.DataFrame()
    if both.is_empty():
        return pl.DataFrame(schema=STRATA)
    early, late = (both[name].to_numpy() for name in ("early", "late"))
    (value, low, high), p_value = contrast([early - late], [1.0], seed)
    row = (
        system,
        "positives by year, later queries",
        float(early.mean()),
        float(late.mean()),
        value,
        low,
        high,
        p_value,
    )
    return pl.DataFrame([(*row, len(both), len(both))], STRATA, orient="row")


def _positives_of(pool: PoolRankings) -> Floats:
    """Return how many positives the query of each positive has, float64 ``[positives]``."""
    counts = pool.qrels.positives()
    return np.repeat(counts, counts).astype(np.float64)


def strata_table(strata: pl.DataFrame, cutoffs: Mapping[str, int], recipe: Recipe) -> StudyTable:
    """Return the comparisons of strata, with Holm's correction over all of them."""
    frame = strata.with_columns(p_adjusted=pl.Series(holm(strata["p"].to_numpy()), dtype=pl.Float64))
    shown = pl.DataFrame(
        [
            {
                "system": f"{row['system']} ({cutoffs[row['system']]})" if row["system"] in cutoffs else row["system"],
                "strata": row["strata"],
                "seen": f"{100 * row['seen']:+.1f} ({row['n_seen']:,})",
                "unseen": f"{100 * row['unseen']:+.1f} ({row['n_unseen']:,})",
                "difference": points(row), "p": f"{row['p']:.4f}", "p, Holm": f"{row['p_adjusted']:.4f}",
            }
            for row in frame.iter_rows(named=True)
        ],
        dict.fromkeys(("system", "strata", "seen", "unseen", "difference", "p", "p, Holm"), pl.String),
    )  # fmt: skip
    notes = (
        f"Points of MAP over {recipe.baseline} (queries), and their difference between strata [95% interval]; Welch's "
        "t-test, Holm's correction over all rows. The year in brackets is the last of the training data.",
        "Queries by year: published up to that year, or later; years and fields weigh alike. Queries in the list: of "
        "the training list, or others of the same year. Positives by year: within queries that are later, positives up "
        "to that year or later ones, by the precision at their rank.",
        "A difference of years also holds what makes years differ for encoders alone: compare it with a system that "
        "was not trained (a placebo).",
    )
    return StudyTable("strata", frame_table("Advantage on what could have been seen", shown, notes), frame)


DOSE = {"system": pl.String, "years": pl.Int64, "queries": pl.Int64, "value": pl.Float64, "low": pl.Float64,
        "high": pl.Float64}  # fmt: skip
"""Advantage by years after the cutoff; intervals hold together."""


def dose(scores: pl.DataFrame, baseline: str, cutoffs: Mapping[str, int], seed: int) -> pl.DataFrame:
    """Return the advantage of each system by years after its cutoff (fields weigh alike), columns :data:`DOSE`."""
    of_system = {label: gains(scores, label, baseline) for label in cutoffs}
    level = simultaneous(sum(len({year for _, year in advantage}) for advantage in of_system.values()))
    rows = []
    for label, advantage in of_system.items():
        for year in sorted({year for _, year in advantage}):
            groups = {f"{field} {year}": of[None] for (field, of_year), of in advantage.items() if of_year == year}
            interval = mean_of_means(groups, seed, level=level).at(0)
            rows.append((label, year - cutoffs[label], sum(of.shape[1] for of in groups.values()), *interval))
    return pl.DataFrame(rows, DOSE, orient="row")


def dose_table(doses: pl.DataFrame, baseline: str) -> StudyTable:
    """Return the advantage by years after the cutoff as a table."""
    cells = doses.with_columns(
        text=pl.struct(pl.all()).map_elements(
            lambda row: points({"difference": row["value"], **row}), return_dtype=pl.String
        )
    )
    wide = cells.sort("years").pivot("years", index="system", values="text", maintain_order=True)
    notes = (
        f"Points of MAP over {baseline} by the queries' years after the last year of the training data (0: that year).",
        f"Brackets: intervals that hold together with 95% (Bonferroni over {len(doses)}).",
    )
    return StudyTable("dose", frame_table("Advantage by years after the cutoff", wide, notes), doses)


def dose_chart(doses: pl.DataFrame, baseline: str, source: str) -> Chart:
    """Return the advantage by years after the cutoff as a chart."""
    lines = [
        Series(
            rows["system"][0], *(rows[name].cast(pl.Float64).to_list() for name in ("years", "value", "low", "high"))
        )
        for rows in doses.partition_by("system", maintain_order=True)
    ]
    title = f"Advantage over {baseline} in MAP"
    return Chart(
        title, "years after the training data", "points of MAP", {"MAP": lines} if lines else {}, provenance=source
    )


STUDY = Study(
    "overlap", "how much of an encoder's advantage is overlap with its training data", Recipe, batches, results
)
