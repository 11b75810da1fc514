"""MAP query by query: differences to the baseline, variance between samples, curves over pool size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.studies import kit
from pipeline.studies.large_scale.published import DATASET

Floats = npt.NDArray[np.float64]

FORMS = ("logit", "power")
"""``logit``: the log odds of the score are linear in the log of the size. ``power``: the log of the score is."""

_APART = 1.25  # minimum ratio of two fitted sizes; nearly equal pools are one point
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


Curve = tuple[str, str, Sequence[int], Floats]
"""MAP of one system by pool size: group (field or ``dataset``), label, rising numbers of candidates, average precision
of the same queries at each size, float64 ``[sizes, queries]``."""


def curves_of(scores: pl.DataFrame) -> Iterator[Curve]:
    """Yield the curves of systems with at least three sizes; a query has the mean over samples."""
    means = scores.filter(measure="map").group_by(*_SETUP, "label", "query", maintain_order=True)
    frame = means.agg(pl.col("value").mean()).sort("size", "query", maintain_order=True)
    of_systems = frame.partition_by("field", "label", maintain_order=True, as_dict=True)
    for field, label in scores.select("field", "label").unique(maintain_order=True).rows():
        sizes, values = list[int](), list[Floats]()
        for of_size in of_systems.get((field, label), frame.clear()).partition_by("size", maintain_order=True):
            if not sizes or of_size["size"][0] >= _APART * sizes[-1]:
                sizes.append(of_size["size"][0])
                values.append(of_size["value"].to_numpy())
        if len(sizes) > 2 and len(set(map(len, values))) == 1:
            yield field or DATASET, label, sizes, np.stack(values)


def predict(sizes: Sequence[int], scores: Floats, at: Sequence[float] | Floats, form: str) -> Floats:
    """Fit a line to transformed scores ``[..., sizes]`` by least squares; return its scores at sizes ``at``."""
    x, new_x = np.log(np.asarray(sizes, np.float64)), np.log(np.asarray(at, np.float64))
    bounded = np.clip(scores, 1e-6, 1 - 1e-6)
    y = np.log(bounded) - (np.log1p(-bounded) if form == "logit" else 0.0)
    slope = ((y - y.mean(axis=-1, keepdims=True)) * (x - x.mean())).sum(axis=-1) / ((x - x.mean()) ** 2).sum()
    line = y.mean(axis=-1)[..., None] + slope[..., None] * (new_x - x.mean())
    return np.asarray(1 / (1 + np.exp(-line)) if form == "logit" else np.exp(line))


def predict_largest(sizes: Sequence[int], values: Floats, form: str, seed: int) -> tuple[float, ...]:
    """Return the last size's mean as the others predict it, with its 95% bootstrap interval over queries.

    ``values`` are ``[sizes, queries]``; those of the last size are not used.
    """
    means = kit.bootstrap_means(values[:-1], seed=seed, item="curve")
    low, high = np.quantile(predict(sizes[:-1], means.T, sizes[-1:], form)[:, 0], [0.025, 0.975])
    return predict(sizes[:-1], values[:-1].mean(axis=1), sizes[-1:], form).item(), float(low), float(high)


def curve_table(curves: Sequence[Curve], seed: int) -> kit.Table:
    """Return the largest size's MAP beside its predictions from the smaller ones."""
    rows = list[tuple[Any, ...]]()
    for (group, system, sizes, values), form in itertools.product(curves, FORMS):
        label = f"{group} {system} {kit.format_count(sizes[-1])}, {form}"
        rows.append((label, "measured", *kit.interval(values[-1], seed, "curve")))
        rows.append((label, "predicted", *predict_largest(sizes, values, form, seed)))
    notes = [
        "Predicted: by a line through the smaller sizes. logit: log odds of MAP against the log of the size; "
        "power: log of MAP. Pools of nearly one size are one point. Nothing is predicted beyond the largest size.",
        "Brackets: 95% interval over queries, without the error of the form. Nested pools keep their positives: a part "
        "of the curve is the density of positives.",
    ]
    corner = "system, largest size, form"
    frame = pl.DataFrame(rows, [corner, "column", "value", "low", "high"], orient="row").fill_nan(None)
    title = "MAP against pool size"
    return kit.table("curves", title, frame, f"{{{corner}}}", kit.figure(), notes, across="{column}")


def curve_chart(curves: Sequence[Curve], seed: int) -> kit.Chart:
    """Return MAP against pool size with the fitted curve, a view for each group."""
    views: dict[str, list[kit.Series]] = {}
    for group, system, sizes, values in curves:
        grid = np.geomspace(sizes[0], sizes[-1], 20)
        fitted = predict(sizes, values.mean(axis=1), grid, "logit")
        mean, *ends = zip(*(kit.interval(of_size, seed, "curve") for of_size in values), strict=True)
        low, high = ([None if np.isnan(end) else end for end in each] for each in ends)  # one query has no interval
        line = list(zip(grid.tolist(), fitted.tolist(), strict=True))
        views.setdefault(group, []).append(kit.Series(system, sizes, mean, low, high, line))
    ticks = {float(size): kit.format_count(size) for size in (1_000, 10_000, 100_000, 1_000_000)}
    return kit.Chart("MAP against pool size", "candidates", "MAP in %", views, log=True, ticks=ticks)


def _name(field: str | None, size: int) -> str:
    return f"{field or DATASET} {kit.format_count(size)}"
