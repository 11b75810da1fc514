"""MAP query by query: differences to the baseline, variance between samples, curves over pool size, fusion."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from pipeline.core.config import format_count
from pipeline.core.rng import generator
from pipeline.measure.estimates import ENOUGH, components
from pipeline.measure.statistics import RESAMPLES, Floats, Interval, bootstrap_means, interval, paired_differences
from pipeline.scores.average import AVERAGE, Average, Key, Setup
from pipeline.scores.page.parts import Chart, Series
from pipeline.stages.systems import TUNED, fused_names
from pipeline.studies.base import StudyTable
from pipeline.studies.common import Measurement, formatted, in_points, interval_table
from pipeline.studies.large_scale.published import published
from pipeline.studies.large_scale.rankings import DATASET

FORMS = ("logit", "power")
"""``logit``: the log odds of the score are linear in the log of the size. ``power``: the log of the score is."""

_APART = 1.25  # minimum ratio of two fitted sizes; nearly equal pools are one point

PAPER = "paper"
"""Group of the published curves."""

_PUBLISHED = (TUNED, "scibert", "specter", "scincl", "aspire-bm")
_PUBLISHED_SIZES = (200_000, 500_000, 1_000_000, 2_000_000)
"""Rows and columns of the paper's table 1."""


def tests(summaries: Sequence[pl.DataFrame], averages: Mapping[Key, Average], seed: int) -> Iterator[StudyTable]:
    """Yield the differences of MAP to the baseline with intervals, effects, p-values, wins and losses."""
    tested = pl.concat(summaries).filter(
        pl.col("p_value").is_not_null(), pl.col("field").ne_missing(AVERAGE), measure="map"
    )
    rows: dict[tuple[Setup, str], dict[str, Any]] = {}
    for row in tested.iter_rows(named=True):
        setup = (row["field"], row["size"])
        differences = averages[setup, row["label"], "map"].values - averages[setup, row["baseline"], "map"].values
        test = paired_differences({row["field"] or "": differences[None]}, seed)
        rows[setup, row["label"]] = {
            "pool": _name(setup), "system": row["label"], "baseline": row["baseline"],
            "difference": test.value.item(), "low": test.low.item(), "high": test.high.item(),
            "effect": test.effect.item(), "p": row["p_value"], "p_adjusted": row["p_adjusted"],
            "wins": test.wins.item(), "losses": test.losses.item(),
        }  # fmt: skip
    if rows:
        frame = pl.DataFrame(list(rows.values()), infer_schema_length=None)
        shown = frame.select(
            pl.format("{} {}", "pool", "system").alias("pool, system"), in_points().alias("MAP difference"),
            formatted("effect", "+.2f"), formatted("p", ".4f"), formatted("p_adjusted", ".4f").alias("p, Holm"),
            pl.format("{} : {}", "wins", "losses").alias("wins : losses"),
        )  # fmt: skip
        notes = (
            "Paired permutation tests. Holm's correction is over fields, or sizes of one field, system by system.",
            "Effect: mean difference over the standard deviation of the differences. Intervals hold one by one.",
        )
        yield StudyTable.of("tests", "Difference to the baseline", frame, notes, shown=shown)


def variances(scores: pl.DataFrame, seed: int) -> Iterator[StudyTable]:
    """Yield the variance of MAP between samples and between queries, if there are several samples."""
    rows = []
    sampled_scores = scores.filter(pl.col("sample").n_unique().over("field", "size", "label") > 1, measure="map")
    for pool in sampled_scores.partition_by("field", "size", "label", maintain_order=True):
        field, size, system = pool.select("field", "size", "label").row(0)
        wide = pool.pivot("query", index="sample", values="value").sort("sample").drop("sample")
        values = np.ascontiguousarray(wide.to_numpy())
        samples, queries = values.shape
        variance = components(values)
        draws = generator(seed, "variance", field or "").integers(0, queries, size=(RESAMPLES, queries))
        shares = [components(values[:, sampled_queries]).share(samples, queries) for sampled_queries in draws]
        low, high = np.quantile(shares, [0.025, 0.975])
        rows.append({
            "pool, system": f"{_name((field, size))} {system}",
            "sd between queries": 100 * variance.queries**0.5,
            "sd between samples": 100 * values.mean(axis=1).std(ddof=1),
            "share, one sample": 100 * variance.share(1, queries),
            "samples": samples, "share": 100 * variance.share(samples, queries), "low": 100 * low, "high": 100 * high,
            "samples needed": variance.needed(queries),
        })  # fmt: skip
    if rows:
        notes = (
            "Standard deviations in points of MAP: of queries, and of the means of the samples, as in table 1.",
            "Shares in percent: of the draw of candidates in the variance of a mean, with one sample and with all. A "
            "component of the variance that is estimated below 0 counts as 0.",
            "low and high bound the share with all samples: 95% interval over queries, given these samples.",
            f"Samples needed: from which on that share is at most {ENOUGH:.0%}.",
        )
        frame = pl.DataFrame(rows, infer_schema_length=None)
        yield StudyTable.of("variance", "Variance between samples and between queries", frame, notes, 2)


class Curve(NamedTuple):
    """MAP of one system by pool size.

    Attributes:
        group: field, ``dataset`` or ``paper``.
        system: label.
        sizes: numbers of candidates, rising.
        values: average precision of the same queries at each size, float64 ``[sizes, queries]``; published means are
            one column.
        positives: mean number per query at each size; empty if unknown.
    """

    group: str
    system: str
    sizes: Sequence[int]
    values: Floats
    positives: Sequence[float] = ()


def curves_of(averages: Mapping[Key, Average]) -> list[Curve]:
    """Return the curves of systems with at least three sizes; then the published curves."""
    by_system: dict[tuple[str, str], dict[int, Average]] = {}
    for ((field, size), system, measure), average in averages.items():
        if measure == "map":
            by_system.setdefault((field or DATASET, system), {})[size] = average
    curves = []
    for (group, system), by_size in by_system.items():
        sizes: list[int] = []
        for size in sorted(by_size):
            if not sizes or size >= _APART * sizes[-1]:
                sizes.append(size)
        values = [by_size[size].values for size in sizes]
        if len(sizes) > 2 and len(set(map(len, values))) == 1:
            positives = [by_size[size].positives / len(values[0]) for size in sizes]
            curves.append(Curve(group, system, sizes, np.stack(values), positives))
    for system in _PUBLISHED if curves else ():
        figures = [published(system, None, size, "map") for size in _PUBLISHED_SIZES]
        if None not in figures:
            name = "bm25" if system == TUNED else system
            curves.append(Curve(PAPER, name, _PUBLISHED_SIZES, np.array(figures, np.float64)[:, None]))
    return curves


def random_precision(size: int, positives: float) -> float:
    """Return the mean average precision of random rankings of a whole pool.

    It is linear in the number of positives, so their mean number over queries gives the mean.
    """
    harmonic = float((1 / np.arange(1, size + 1)).sum())
    return harmonic / size + (positives - 1) * (size - harmonic) / (size * max(size - 1, 1))


def predict(sizes: Sequence[int], scores: Floats, at: Sequence[float] | Floats, form: str) -> Floats:
    """Fit a line to transformed scores ``[..., sizes]`` by least squares; return its scores at sizes ``at``."""
    x, new_x = np.log(np.asarray(sizes, np.float64)), np.log(np.asarray(at, np.float64))
    bounded = np.clip(scores, 1e-6, 1 - 1e-6)
    y = np.log(bounded) - (np.log1p(-bounded) if form == "logit" else 0.0)
    slope = ((y - y.mean(axis=-1, keepdims=True)) * (x - x.mean())).sum(axis=-1) / ((x - x.mean()) ** 2).sum()
    line = y.mean(axis=-1)[..., None] + slope[..., None] * (new_x - x.mean())
    return np.asarray(1 / (1 + np.exp(-line)) if form == "logit" else np.exp(line))


def predict_largest(sizes: Sequence[int], values: Floats, form: str, seed: int) -> Interval:
    """Return the last size's mean as the others predict it, with its 95% bootstrap interval over queries.

    ``values`` are ``[sizes, queries]``; those of the last size are not used.
    """
    means = bootstrap_means(values[:-1], seed=seed, item="curve")
    low, high = np.quantile(predict(sizes[:-1], means.T, sizes[-1:], form)[:, 0], [0.025, 0.975])
    return predict(sizes[:-1], values[:-1].mean(axis=1), sizes[-1:], form).item(), float(low), float(high)


def curve_tables(curves: Sequence[Curve], seed: int) -> Iterator[StudyTable]:
    """Yield the largest size's MAP beside its predictions from the smaller ones; published figures in their own."""
    for name, suffix, chosen in (
        ("curves", "", [curve for curve in curves if curve.group != PAPER]),
        ("curves-published", ": published figures", [curve for curve in curves if curve.group == PAPER]),
    ):
        yield from _curve_table(name, f"MAP against pool size{suffix}", chosen, seed)


def _curve_table(name: str, title: str, curves: Sequence[Curve], seed: int) -> Iterator[StudyTable]:
    rows = []
    for (group, system, sizes, values, positives), form in itertools.product(curves, FORMS):
        label = f"{group} {system} {format_count(sizes[-1])}, {form}"
        for index in (0, -1) if positives else ():
            random_score = random_precision(sizes[index], positives[index])
            rows.append(Measurement(label, f"random, {('smallest', 'largest')[index]}", random_score, np.nan, np.nan))
        figures = interval(values[-1], seed, "curve"), predict_largest(sizes, values, form, seed)
        for column, (value, *bounds) in zip(("measured", "predicted"), figures, strict=True):
            low, high = bounds if values.shape[1] > 1 else (np.nan, np.nan)
            rows.append(Measurement(label, column, value, low, high))
    if rows:
        notes = (
            "Predicted: by a line through the smaller sizes. logit: log odds of MAP against the log of the size; "
            "power: log of MAP. Pools of nearly one size are one point. Nothing is predicted beyond the largest size.",
            "Intervals are over queries; they do not hold the error of the form.",
            "random: MAP of random rankings of the smallest and the largest pool. Nested pools keep their positives, "
            "so chance falls with the size: a part of the curve is the density of positives.",
        )
        yield interval_table(name, title, "system, largest size, form", rows, notes)


def curve_chart(curves: Sequence[Curve], seed: int, source: str) -> Chart:
    """Return MAP against pool size with the fitted curve, a view for each group."""
    views: dict[str, list[Series]] = {}
    for group, system, sizes, values, _ in curves:
        grid = np.geomspace(sizes[0], sizes[-1], 20)
        fitted = predict(sizes, values.mean(axis=1), grid, "logit")
        mean, low, high = zip(*(interval(size_values, seed, "curve") for size_values in values), strict=True)
        line = list(zip(grid.tolist(), fitted.tolist(), strict=True))
        views.setdefault(group, []).append(Series(system, sizes, mean, low, high, line))
    ticks = {float(size): format_count(size) for size in (1_000, 10_000, 100_000, 1_000_000)}
    return Chart("MAP against pool size", "candidates", "MAP in %", views, log=True, ticks=ticks, provenance=source)


def fusions(averages: Mapping[Key, Average], seed: int) -> Iterator[StudyTable]:
    """Yield the gain of each fused system over its parts in MAP."""
    rows = []
    for (setup, system, measure), average in averages.items():
        names = fused_names(system)
        parts = [averages[key].values for name in names if (key := (setup, name, measure)) in averages]
        if measure != "map" or len(parts) < 2 or len(parts) < len(names):
            continue
        item = setup[0] or ""
        best = np.max(parts, axis=0)
        columns = {
            "MAP": [average.values],
            "gain over the best part": [average.values - values for values in parts],
            "best part of each query": [best - values for values in parts],
        }
        for column, gains in columns.items():
            figures = least([interval(gain, seed, item) for gain in gains])
            rows.append(Measurement(f"{_name(setup)} {system}", column, *figures))
    if rows:
        notes = (
            "Gain over the best part: the least gain over a part, and the least lower and upper end.",
            "The best part of each query: the gain of a choice that knows the relevant papers.",
        )
        yield interval_table("fusion", "What fusion gains", "pool, system", rows, notes)


def least(intervals: Sequence[Interval]) -> Interval:
    """Return the minimum of the values, of the lower ends and of the upper ends of intervals."""
    value, low, high = np.min(intervals, axis=0).tolist()
    return value, low, high


def _name(setup: Setup) -> str:
    return f"{setup[0] or DATASET} {format_count(setup[1])}"
