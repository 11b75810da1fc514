"""Charts of the study: recall by depth, and score against pool size with fitted curves."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from pipeline.core.config import format_count
from pipeline.measure.statistics import interval
from pipeline.scores.page.parts import Chart, Series
from pipeline.studies.large_scale import curve
from pipeline.studies.large_scale.by_query import Curve

_STEPS = 40


def recall(frame: pl.DataFrame, source: str) -> Chart:
    """Return recall against depth, a view for the dataset level and for fields."""
    views: dict[str, list[Series]] = {}
    for (label,), own in frame.group_by("system", maintain_order=True):
        scope, _, system = str(label).partition(" ")
        depths, values, low, high = ([float(x) for x in own[name]] for name in ("column", "value", "low", "high"))
        views.setdefault(scope, []).append(Series(system, depths, values, low, high))
    ticks = {float(depth): str(depth) for depth in (1, 10, 30, 100, 500)}
    return Chart("Recall against depth", "rank", "recall in %", views, log=True, ticks=ticks, provenance=source)


def curves(found: Sequence[Curve], seed: int, source: str) -> Chart:
    """Return MAP against pool size with the fitted curve up to the largest size, a view for each group."""
    views: dict[str, list[Series]] = {}
    for each in found:
        first, last = each.sizes[0], curve.SIZES[-1]
        grid = [round(first * (last / first) ** (step / _STEPS)) for step in range(_STEPS + 1)]
        fitted = curve.predict(each.sizes, each.values.mean(axis=1), grid, "logit")
        values, low, high = zip(*(interval(row, seed, "curve") for row in each.values), strict=True)
        line = list(zip(map(float, grid), fitted.tolist(), strict=True))
        views.setdefault(each.group, []).append(Series(each.system, each.sizes, values, low, high, line))
    ticks = {float(size): format_count(size) for size in (1_000, 10_000, 100_000, 1_000_000, *curve.SIZES)}
    return Chart("MAP extrapolated", "candidates", "MAP in %", views, log=True, ticks=ticks, provenance=source)
