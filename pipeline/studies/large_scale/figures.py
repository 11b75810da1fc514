"""Figures of the study: recall by depth, and score against pool size with fitted curves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from pipeline.core.config import format_count
from pipeline.report.figures import COLOURS, MARKERS, WIDTH
from pipeline.studies.large_scale import curve


def draw_recall(figure_class: Any, frame: pl.DataFrame) -> Any:
    """Recall against depth, a line and a band for each system."""
    figure = figure_class(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    labels = [label.partition(" ") for label in frame["system"].unique(maintain_order=True)]
    looks = _looks([(scope, system) for scope, _, system in labels])
    for (label,), own in frame.group_by("system", maintain_order=True):
        scope, _, system = str(label).partition(" ")
        look = looks[scope, system]
        depths = [int(each) for each in own["column"]]
        axes.fill_between(depths, 100 * own["low"], 100 * own["high"], color=look["color"], alpha=0.15, lw=0)
        axes.plot(depths, 100 * own["value"], label=label, lw=1, ms=2.5, **look)
    axes.set_xscale("log")
    axes.set_xticks([1, 10, 100], ["1", "10", "100"])
    axes.set_xlabel("rank")
    axes.set_ylabel("recall (%)")
    figure.legend(loc="outside upper center", ncols=2, fontsize=6, handlelength=1.5)
    return figure


def draw_curves(figure_class: Any, frame: pl.DataFrame) -> Any:
    """MAP against pool size: measured points, and the fitted curve up to the largest size."""
    figure = figure_class(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    looks = _looks(frame.select("group", "system").unique(maintain_order=True).rows())
    for (group, system), own in frame.group_by("group", "system", maintain_order=True):
        look, points = looks[str(group), str(system)], own.filter(pl.col("kind") == "measured")
        sizes = points["size"].to_list()
        grid = [round(sizes[0] * (curve.SIZES[-1] / sizes[0]) ** (step / 40)) for step in range(41)]
        fitted = curve.predict(sizes, points["value"].to_numpy(), grid, "logit")
        axes.plot(grid, 100 * fitted, color=look["color"], lw=0.8)
        axes.plot(sizes, 100 * points["value"], ls="", ms=3, label=f"{group} {system}", **look)
    axes.set_xscale("log")
    ticks = [10**power for power in range(3, 9)]
    axes.set_xticks(ticks, [format_count(tick) for tick in ticks])
    axes.set_xlabel("candidates")
    axes.set_ylabel("MAP (%)")
    figure.legend(loc="outside upper center", ncols=2, fontsize=5, handlelength=1)
    return figure


def _looks(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    """Return the look of each (group, system): a colour for each system, a marker for each group."""
    known = list(pairs)
    groups, systems = (list(dict.fromkeys(each)) for each in zip(*known, strict=True))
    return {
        (group, system): {"color": COLOURS[systems.index(system) % 8], "marker": MARKERS[groups.index(group) % 8]}
        for group, system in known
    }
