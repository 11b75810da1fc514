"""Means over the samples of a pool for each query, and their bootstrap (protocols 2 to 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.errors import InputError, require_known
from pipeline.core.fields import MAG_FIELDS
from pipeline.measure.measures import parse_measures
from pipeline.measure.permutation import PERMUTATIONS
from pipeline.measure.resampling import sample_weights
from pipeline.measure.statistics import (
    LEVEL,
    RESAMPLES,
    TAIL_RESAMPLES,
    bootstrap_means,
    confidence_interval,
    holm,
    interval_kind,
)

RESAMPLE = Literal["queries", "papers", "both"]
RESAMPLED = {
    "queries": "queries",
    "papers": "samples of candidates",
    "both": "queries and samples of candidates (where several)",
}
"""Names of the units that :attr:`Draws.resample` resamples, for notes."""

AVERAGE = "AVG"
"""In place of a field's name: the macro average over fields."""

Floats = npt.NDArray[np.float64]
Setup = tuple[str | None, int]
"""Field (None: dataset level) and number of candidates, which all samples of a pool share."""
Key = tuple[Setup, str, str]
"""Setup, label, measure."""


@dataclass(frozen=True)
class Draws:
    """Settings of intervals and significance tests.

    Attributes:
        seed: seed of the bootstrap and the permutation test; None: that of the pools.
        resamples: bootstrap resamples; 0: 1,000, or 10,000 if samples are resampled, since few have long tails.
        level: confidence level of intervals.
        permutations: sign flips of the paired test.
        alpha: significance level; adjusted p-values below it are marked.
        margin: largest negligible difference, a fraction, to be set before the figures are seen; None: no tests of
            equivalence.
        resample: units that the bootstrap resamples: ``queries``; ``papers``, the samples of a pool (random draws of
            its candidates); or ``both``. Tests are over queries.
    """

    seed: int | None = None
    resamples: int = 0
    level: float = LEVEL
    permutations: int = PERMUTATIONS
    alpha: float = 0.05
    margin: float | None = None
    resample: RESAMPLE = "queries"

    def __post_init__(self) -> None:
        require_known(self.resample, get_args(RESAMPLE), f"--resample={self.resample!r} is unknown")
        if self.resamples == 0:
            object.__setattr__(self, "resamples", RESAMPLES if self.resample == "queries" else TAIL_RESAMPLES)
        if self.margin is not None and not 0 < self.margin < 1:
            raise InputError(
                f"--margin must be above 0 and below 100 points, got {100 * self.margin:g}",
                "Write --margin=1.0; in Python, Draws(margin=0.01)",
            )

    def seed_of(self, runs: pl.DataFrame) -> int:
        """Return the seed of the draws for some rankings; 13 where their pools have none."""
        if self.seed is not None:
            return self.seed
        seed = runs["seed"].first()
        return 13 if seed is None else int(seed)

    def kind(self, queries: int, groups: int = 1) -> str:
        """Return the kind of interval of a mean over so many queries of some groups."""
        return "percentile" if self.resample == "papers" else interval_kind(queries, groups)

    def interval(self, means: Floats, *values: Floats) -> tuple[Floats, Floats]:
        """Return the interval of resampled means (:func:`pipeline.measure.statistics.confidence_interval`)."""
        if self.resample == "papers":
            low, high = np.quantile(means, [(1 - self.level) / 2, (1 + self.level) / 2], axis=1)
            return low, high
        return confidence_interval(means, *values, level=self.level)


@dataclass(frozen=True, eq=False)
class Average:
    """One measure of one system on all samples of a setup.

    Attributes:
        values: float64 ``[queries]``, mean over samples.
        figures: float64 ``[samples]``, mean over queries.
        samples: numbers of the samples.
        draws: float64 ``[resamples]``, bootstrap means of ``values``.
        positives: number of relevant papers of one sample.
        pools: folder names of the samples.
    """

    values: Floats
    figures: Floats
    samples: tuple[int, ...]
    draws: Floats
    positives: int
    pools: tuple[str, ...]


PROTOCOL = Draws()
"""The draws of the protocol, seeded as the pools."""


def average(scores: pl.DataFrame, draws: Draws = PROTOCOL) -> dict[Key, Average]:
    """Return each measure of each system on each setup of one kind, averaged over its samples.

    All samples of a setup have the same queries. Fields are resampled independently; systems and measures share the
    queries and samples drawn.

    Raises:
        InputError: samples of one pool have other queries, or samples are resampled and a pool has one alone.
    """
    averages: dict[Key, Average] = {}
    seed = draws.seed_of(scores)
    for of_setup in scores.partition_by("field", "size", maintain_order=True):
        setup: Setup = (of_setup["field"][0], int(of_setup["size"][0]))
        samples_of = _values_of_samples(of_setup)
        values = [np.stack([sample_values for _, sample_values in samples.values()]) for samples in samples_of.values()]
        means = np.stack([samples_values.mean(axis=0) for samples_values in values])
        if draws.resample == "queries":
            resampled_means = bootstrap_means(means, seed=seed, item=setup[0] or "", resamples=draws.resamples)
        else:
            resampled_means = _means_over_samples(values, draws, seed, setup)
        for (key, samples), mean, resampled in zip(samples_of.items(), means, resampled_means, strict=True):
            averages[setup, *key] = Average(
                values=mean,
                figures=np.array([values.mean() for _, values in samples.values()]),
                samples=tuple(samples),
                draws=resampled,
                positives=int(of_setup["positives"][0]),
                pools=tuple(pool for pool, _ in samples.values()),
            )
    return averages


def _means_over_samples(values: Sequence[Floats], draws: Draws, seed: int, setup: Setup) -> Floats:
    """Return means over resampled samples, of all queries or of resampled ones, float64 ``[rows, resamples]``.

    ``values`` are float64 ``[samples, queries]`` of each row.
    """
    counts, item, all_values = [len(row_values) for row_values in values], setup[0] or "", np.concatenate(values)
    if draws.resample == "papers" and min(counts) == 1:
        raise InputError(
            f"--resample=papers needs 2 samples or more of each pool, got 1 of {item or 'the dataset'} {setup[1]:,}",
            "Score more with --samples=3, or write --resample=both",
        )
    means = np.broadcast_to(all_values.mean(axis=1, keepdims=True), (len(all_values), draws.resamples))
    if draws.resample == "both":
        means = bootstrap_means(all_values, seed=seed, item=item, resamples=draws.resamples)
    weights = {count: sample_weights(count, seed=seed, item=item, resamples=draws.resamples) for count in set(counts)}
    rows = np.split(means, np.cumsum(counts)[:-1])
    return np.stack([(row_values * weights[len(row_values)]).sum(axis=0) for row_values in rows])


def _values_of_samples(setup: pl.DataFrame) -> dict[tuple[str, str], dict[int, tuple[str, Floats]]]:
    """Return pool and values (by rising query) of each sample, by label and measure, both in canonical order."""
    values: dict[tuple[str, str], dict[int, tuple[str, Floats]]] = {}
    runs = setup.sort("sample", maintain_order=True).partition_by("label", "sample", maintain_order=True)
    labels = list(setup["label"].unique(maintain_order=True))
    for run in sorted(runs, key=lambda run: labels.index(run["label"][0])):
        _require_same_queries(runs[0], run)
        wide = run.pivot(on="measure", index="query", values="value").sort("query")
        label, sample, pool = (run[name][0] for name in ("label", "sample", "pool"))
        for measure in in_order(wide.columns[1:]):
            values.setdefault((label, measure), {})[int(sample)] = (pool, wide[measure].to_numpy())
    return values


def in_order(measures: Sequence[str]) -> list[str]:
    """Return names of measures in canonical order."""
    return sorted(measures, key=lambda name: parse_measures(name)[0].order)


def _require_same_queries(first: pl.DataFrame, second: pl.DataFrame) -> None:
    queries = [set(run["query"].unique()) for run in (first, second)]
    if queries[0] != queries[1] or first["positives"][0] != second["positives"][0]:
        descriptions = [
            f"{run['pool'][0]} ({len(run_queries):,} queries, {run['positives'][0]:,} positives)"
            for run, run_queries in zip((first, second), queries, strict=True)
        ]
        raise InputError(
            f"{descriptions[0]} and {descriptions[1]} are samples of one pool, but have other queries",
            "Build them with one seed and one version",
        )


def corrected(tested: pl.DataFrame, family: Sequence[str]) -> pl.DataFrame:
    """Add ``p_adjusted``, the ``p_value`` after Holm's correction, and the number of ``tests`` of the family.

    Rows with equal ``family`` columns form a family; means over fields form a separate one. Rows that were not tested
    have no ``p_value``.
    """
    has_test = pl.col("p_value").is_not_null()
    family_columns = [*family, pl.col("field").eq_missing(AVERAGE), has_test]
    adjusted = pl.col("p_value").map_batches(lambda p_values: pl.Series(holm(p_values.to_numpy())), pl.Float64)
    return tested.with_columns(
        p_adjusted=pl.when(has_test).then(adjusted.over(family_columns)),
        tests=pl.when(has_test).then(pl.len().over(family_columns)).cast(pl.Int64),
    )


def families(setups: Sequence[Setup]) -> list[tuple[str, list[Setup]]]:
    """Return the tables of some setups: each with ``sizes`` or ``fields``, and its setups in order.

    Fields with one setup each form one table, whatever their sizes: a field with few papers has a smaller pool. Fields
    at several sizes form a table for each size that all of them have. The rest, and the dataset-level pools, form
    tables of rising sizes.
    """
    by_field: dict[str | None, list[Setup]] = {}
    for setup in sorted(set(setups), key=lambda setup: (_field_order(setup[0]), setup[1])):
        by_field.setdefault(setup[0], []).append(setup)
    dataset = by_field.pop(None, [])
    tables = [("sizes", dataset)] if dataset else []
    if len(by_field) > 1:
        if all(len(of_field) == 1 for of_field in by_field.values()):
            return [*tables, ("fields", [of_field[0] for of_field in by_field.values()])]
        for size in sorted({size for _, size in setups}):
            at_size = [setup for of_field in by_field.values() for setup in of_field if setup[1] == size]
            if len(at_size) == len(by_field):
                tables.append(("fields", at_size))
                by_field = {name: [s for s in of_field if s[1] != size] for name, of_field in by_field.items()}
    return [*tables, *(("sizes", of_field) for of_field in by_field.values() if of_field)]


def _field_order(name: str | None) -> tuple[int, str]:
    """Sort key: the dataset, the 19 fields, other names."""
    if name is None:
        return -1, ""
    return (MAG_FIELDS.index(name), name) if name in MAG_FIELDS else (len(MAG_FIELDS), name)
