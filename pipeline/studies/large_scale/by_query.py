"""MAP query by query: differences to the baseline, variance between samples, curves over pool size, fusion."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.studies import kit
from pipeline.studies.large_scale.published import DATASET, published

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float, float]
Figure = tuple[str, str, float, float, float]
"""Labels of row and column, value and ends of the interval."""

FORMS = ("logit", "power")
"""``logit``: the log odds of the score are linear in the log of the size. ``power``: the log of the score is."""

_APART = 1.25  # minimum ratio of two fitted sizes; nearly equal pools are one point

PAPER = "paper"
"""Group of the published curves."""

_PUBLISHED = (kit.TUNED, "scibert", "specter", "scincl", "aspire-bm")
_PUBLISHED_SIZES = (200_000, 500_000, 1_000_000, 2_000_000)
"""Rows and columns of the paper's table 1."""


_SETUP = ("field", "size")


def tests(summaries: Sequence[pl.DataFrame], scores: pl.DataFrame, seed: int) -> Iterator[kit.Table]:
    """Yield the differences of MAP to the baseline with intervals, effects, p-values, wins and losses."""
    tested = pl.concat(summaries).filter(
        pl.col("p_value").is_not_null(), pl.col("field").ne_missing(kit.AVERAGE), measure="map"
    )
    tested = tested.group_by(*_SETUP, "label", maintain_order=True).last()
    if len(tested):
        design = kit.Design(row=("label",), of=_SETUP, group="field", over="sample")
        base_of = {(label,): (base,) for label, base in tested.select("label", "baseline").iter_rows()}
        differences = kit.estimate(scores.filter(measure="map"), design, seed, base_of)
        tested = tested.select(*_SETUP, "label", "baseline", "p_value", corrected="p_adjusted", shown="detectable")
        both = tested.join(differences, on=[*_SETUP, "label"], how="left", nulls_equal=True, maintain_order="left")
        names = pl.Series([_name(*setup) for setup in both.select(_SETUP).iter_rows()])
        facts = {"system": "label", "baseline": "baseline", "difference": "difference", "low": "difference_low",
                 "high": "difference_high", "effect": "effect", "p": "p_value", "p_adjusted": "corrected",
                 "error": "error", "detectable": "shown", "wins": "wins", "losses": "losses"}  # fmt: skip
        frame = both.select(pool=names, **facts)
        shown: kit.Columns = {
            "MAP difference": kit.points(), "effect": "{effect:+.2f}", "p": "{p:.4f}", "p, Holm": "{p_adjusted:.4f}",
            "wins : losses": "{wins} : {losses}", "detectable": kit.figure("detectable", None, None),
        }  # fmt: skip
        notes = (
            "Paired permutation tests. Holm's correction is over fields, or sizes of one field, system by system.",
            "Effect: mean difference over the standard deviation of the differences. Intervals hold one by one. "
            f"detectable: smallest true difference they reveal with power {kit.POWER:g} at the corrected level.",
        )
        yield kit.table("tests", "Difference to the baseline", frame, "{pool} {system}", shown, notes)


def variances(scores: pl.DataFrame, seed: int) -> Iterator[kit.Table]:
    """Yield the variance of MAP between samples and between queries, if there are several samples."""
    rows = []
    sampled_scores = scores.filter(pl.col("sample").n_unique().over("field", "size", "label") > 1, measure="map")
    for pool in sampled_scores.partition_by("field", "size", "label", maintain_order=True):
        field, size, system = pool.select("field", "size", "label").row(0)
        wide = pool.pivot("query", index="sample", values="value").sort("sample").drop("sample")
        values = np.ascontiguousarray(wide.to_numpy())
        samples, queries = values.shape
        variance, (share, low, high) = kit.components(values), kit.share_of_samples(values, seed, field or "")
        rows.append({
            "pool, system": f"{_name(field, size)} {system}",
            "sd between queries": 100 * variance.queries**0.5,
            "sd between samples": 100 * values.mean(axis=1).std(ddof=1),
            "share, one sample": 100 * variance.share(1, queries),
            "samples": samples, "share": 100 * share, "low": 100 * low, "high": 100 * high,
            "samples needed": variance.needed(queries),
        })  # fmt: skip
    if rows:
        notes = (
            "Standard deviations in points of MAP: of queries, and of the means of the samples, as in table 1.",
            "Shares in percent: of the draw of candidates in the variance of a mean, with one sample and with all. A "
            "component of the variance that is estimated below 0 counts as 0.",
            "low and high bound the share with all samples: 95% interval over queries, given these samples.",
            f"Samples needed: from which on that share is at most {kit.ENOUGH:.0%}.",
        )
        frame = pl.DataFrame(rows, infer_schema_length=None)
        shown = {name: f"{{{name}:.2f}}" for name in frame.columns[1:]}
        shown |= {"samples": "{samples:,}", "samples needed": "{samples needed:,}"}
        title = "Variance between samples and between queries"
        yield kit.table("variance", title, frame, "{pool, system}", shown, notes)


Curve = tuple[str, str, Sequence[int], Floats, Sequence[float]]
"""MAP of one system by pool size: group (field, ``dataset`` or ``paper``), label, rising numbers of candidates, average
precision of the same queries at each size, float64 ``[sizes, queries]`` (published means are one column), and the mean
number of positives a query at each size (empty if unknown)."""


def by_query(scores: pl.DataFrame) -> dict[tuple[str | None, int, str], tuple[Floats, int]]:
    """Return average precision of each query, mean over samples, and the positives, by field, size and system."""
    means = scores.filter(measure="map").group_by(*_SETUP, "label", "query", maintain_order=True)
    frame = means.agg(pl.col("value").mean(), pl.col("positives").first()).sort("query", maintain_order=True)
    parts = frame.partition_by(*_SETUP, "label", maintain_order=True, as_dict=True)
    order = scores.select(*_SETUP, "label").unique(maintain_order=True).rows()
    return {key: (parts[key]["value"].to_numpy(), parts[key]["positives"][0]) for key in order if key in parts}


def curves_of(
    queries: Mapping[tuple[str | None, int, str], tuple[Floats, int]], *, compared: bool = True
) -> list[Curve]:
    """Return the curves of systems with at least three sizes (:func:`by_query`); then, if compared, published ones."""
    by_system: dict[tuple[str, str], dict[int, tuple[Floats, int]]] = {}
    for (field, size, system), of_size in queries.items():
        by_system.setdefault((field or DATASET, system), {})[size] = of_size
    curves = list[Curve]()
    for (group, system), by_size in by_system.items():
        sizes: list[int] = []
        for size in sorted(by_size):
            if not sizes or size >= _APART * sizes[-1]:
                sizes.append(size)
        values = [by_size[size][0] for size in sizes]
        if len(sizes) > 2 and len(set(map(len, values))) == 1:
            positives = [by_size[size][1] / len(values[0]) for size in sizes]
            curves.append((group, system, sizes, np.stack(values), positives))
    for system in _PUBLISHED if curves and compared else ():
        figures = [published(system, None, size, "map") for size in _PUBLISHED_SIZES]
        if None not in figures:
            name = "bm25" if system == kit.TUNED else system
            curves.append((PAPER, name, _PUBLISHED_SIZES, np.array(figures, np.float64)[:, None], ()))
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
    means = kit.bootstrap_means(values[:-1], seed=seed, item="curve")
    low, high = np.quantile(predict(sizes[:-1], means.T, sizes[-1:], form)[:, 0], [0.025, 0.975])
    return predict(sizes[:-1], values[:-1].mean(axis=1), sizes[-1:], form).item(), float(low), float(high)


_CURVE_NOTES = (
    "Predicted: by a line through the smaller sizes. logit: log odds of MAP against the log of the size; "
    "power: log of MAP. Pools of nearly one size are one point. Nothing is predicted beyond the largest size.",
    "Intervals are over queries; they do not hold the error of the form.",
    "random: MAP of random rankings of the smallest and the largest pool. Nested pools keep their positives, "
    "so chance falls with the size: a part of the curve is the density of positives.",
    "Brackets: 95% interval.",
)


def curve_tables(curves: Sequence[Curve], seed: int) -> Iterator[kit.Table]:
    """Yield the largest size's MAP beside its predictions from the smaller ones; published figures in their own."""
    for name, suffix, of_paper in (("curves", "", False), ("curves-published", ": published figures", True)):
        rows = list[Figure]()
        chosen = [curve for curve in curves if (curve[0] == PAPER) == of_paper]
        for (group, system, sizes, values, positives), form in itertools.product(chosen, FORMS):
            label = f"{group} {system} {kit.format_count(sizes[-1])}, {form}"
            for index in (0, -1) if positives else ():
                column = f"random, {('smallest', 'largest')[index]}"
                rows.append((label, column, random_precision(sizes[index], positives[index]), np.nan, np.nan))
            figures = kit.interval(values[-1], seed, "curve"), predict_largest(sizes, values, form, seed)
            for column, (value, *bounds) in zip(("measured", "predicted"), figures, strict=True):
                low, high = bounds if values.shape[1] > 1 else (np.nan, np.nan)
                rows.append((label, column, value, low, high))
        if rows:
            yield cells(name, f"MAP against pool size{suffix}", "system, largest size, form", rows, _CURVE_NOTES)


def cells(name: str, title: str, corner: str, rows: Sequence[Figure], notes: Sequence[str]) -> kit.Table:
    """Return figures as a table; ``corner`` says what labels the rows."""
    frame = pl.DataFrame(rows, [corner, "column", "value", "low", "high"], orient="row").fill_nan(None)
    return kit.table(name, title, frame, f"{{{corner}}}", kit.figure(), notes, across="{column}")


def curve_chart(curves: Sequence[Curve], seed: int) -> kit.Chart:
    """Return MAP against pool size with the fitted curve, a view for each group."""
    views: dict[str, list[kit.Series]] = {}
    for group, system, sizes, values, _ in curves:
        grid = np.geomspace(sizes[0], sizes[-1], 20)
        fitted = predict(sizes, values.mean(axis=1), grid, "logit")
        mean, *ends = zip(*(kit.interval(of_size, seed, "curve") for of_size in values), strict=True)
        low, high = ([None if np.isnan(end) else end for end in each] for each in ends)  # one query has no interval
        line = list(zip(grid.tolist(), fitted.tolist(), strict=True))
        views.setdefault(group, []).append(kit.Series(system, sizes, mean, low, high, line))
    ticks = {float(size): kit.format_count(size) for size in (1_000, 10_000, 100_000, 1_000_000)}
    return kit.Chart("MAP against pool size", "candidates", "MAP in %", views, log=True, ticks=ticks)


def fusions(queries: Mapping[tuple[str | None, int, str], tuple[Floats, int]], seed: int) -> Iterator[kit.Table]:
    """Yield the gain of each fused system over its parts in MAP."""
    rows = list[Figure]()
    for (field, size, system), (of_system, _) in queries.items():
        names = kit.fused_names(system)
        parts = [queries[key][0] for name in names if (key := (field, size, name)) in queries]
        if len(parts) < 2 or len(parts) < len(names):
            continue
        best = np.max(parts, axis=0)
        columns = {
            "MAP": [of_system],
            "gain over the best part": [of_system - values for values in parts],
            "best part of each query": [best - values for values in parts],
        }
        for column, gains in columns.items():
            figures = least([kit.interval(gain, seed, field or "") for gain in gains])
            rows.append((f"{_name(field, size)} {system}", column, *figures))
    if rows:
        notes = (
            "Gain over the best part: the least gain over a part, and the least lower and upper end.",
            "The best part of each query: the gain of a choice that knows the relevant papers.",
            "Brackets: 95% interval.",
        )
        yield cells("fusion", "What fusion gains", "pool, system", rows, notes)


def least(intervals: Sequence[Interval]) -> Interval:
    """Return the minimum of the values, of the lower ends and of the upper ends of intervals."""
    value, low, high = np.min(intervals, axis=0).tolist()
    return value, low, high


def _name(field: str | None, size: int) -> str:
    return f"{field or DATASET} {kit.format_count(size)}"
