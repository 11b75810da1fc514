"""Charts of the study: recall by depth, and score against pool size with fitted curves."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from pipeline.core.config import format_count
from pipeline.report.page.parts import Chart, Series
from pipeline.studies.large_scale import curve

_STEPS = 40


def recall(frame: pl.DataFrame, source: str) -> Chart:
    """Return recall against depth, a view for the dataset level and for fields."""
    views: dict[str, list[Series]] = {}
    for (label,), own in frame.group_by("system", maintain_order=True):
        scope, _, system = str(label).partition(" ")
        depths = [int(each) for each in own["column"]]
        views.setdefault(scope, []).append(Series(system, depths, *_bounded(own)))
    ticks = {1: "1", 10: "10", 30: "30", 100: "100", 500: "500"}
    return Chart("Recall against depth", "rank", "recall in %", views, log=True, ticks=ticks, provenance=source)


def curves(frame: pl.DataFrame, source: str) -> Chart:
    """Return measured MAP against pool size with the fitted curve up to the largest size, a view for each group."""
    views: dict[str, list[Series]] = {}
    measured = frame.filter(pl.col("kind") == "measured")
    for (group, system), own in measured.group_by("group", "system", maintain_order=True):
        sizes = own["size"].to_list()
        grid = [round(sizes[0] * (curve.SIZES[-1] / sizes[0]) ** (step / _STEPS)) for step in range(_STEPS + 1)]
        fitted = curve.predict(sizes, own["value"].to_numpy(), grid, "logit")
        line = list(zip(map(float, grid), fitted.tolist(), strict=True))
        views.setdefault(str(group), []).append(Series(str(system), sizes, *_bounded(own), curve=line))
    ticks = {size: format_count(size) for size in (1_000, 10_000, 100_000, 1_000_000, *curve.SIZES)}
    return Chart("MAP extrapolated", "candidates", "MAP in %", views, log=True, ticks=ticks, provenance=source)


def _bounded(frame: pl.DataFrame) -> Iterator[list[float]]:
    return (frame[name].to_list() for name in ("value", "low", "high"))
