"""The recipe of the study ``audit``, whose settings are the options of ``mdcr audit``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pipeline.core.settings import Several, setting

_Names = Annotated[tuple[str, ...], Several()]


@dataclass(frozen=True)
class Recipe:
    """Settings of the study ``audit``."""

    results: _Names = setting((), "files and folders of results, the same as an option, with commas")
    qrels: str = setting("", "judgements for runs: a file or a folder (default: those next to the runs)")
    metric: str = setting("", "the metric, such as ndcg@10 (default: the tool's main one)")
    lower_is_better: bool = setting(False, "lower values are better, as of a word error rate")
    systems: _Names = setting((), "systems that count, with commas and * for any text (default: all)")
    items: _Names = setting((), "queries or tasks that count (default: all)")
    scale: Literal["auto", "fraction", "percent", "points"] = setting(
        "auto", "of the values: auto, fraction, percent or points (neither), for tables that leave it open"
    )
    family: Literal["auto", "none"] = setting("auto", "tasks that are resampled together: auto or none")
    coverage: float = setting(0.0, "least share of the items that a system must have")
    plan: float = setting(0.0, "difference in points that a planned evaluation must show (default: no plan)")
    seed: int = setting(13, "random seed")
