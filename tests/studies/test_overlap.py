"""The study ``overlap``: its estimator where the truth is known, and its figures as users run it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.measure.estimates import contrast, contrasts
from pipeline.studies import overlap
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

YEARS = (2017, 2018, 2019)


def simulated(seed: int, effect: float, drift: float = 0.0) -> pl.DataFrame:
    """Return the gains of a system: later years are harder for both, and overlap adds ``effect`` up to 2018."""
    random = np.random.default_rng(seed)
    rows = []
    for year in range(2017, 2021):
        gain = random.normal(0.02 + effect * (year <= 2018) + drift * (year - 2017), 0.1, 120)
        rows += [("dataset", year, query, value) for query, value in enumerate(gain)]
    return pl.DataFrame(rows, ["field", "year", "query", "value"], orient="row")


def by_year(advantage: Any, seed: int) -> dict[str, Any]:
    """Return the comparison of queries up to 2018 with later ones."""
    (compared,) = overlap.compared("encoder", advantage.with_columns(seen=pl.col("year") <= 2018))
    return contrasts([compared[-1]], seed).row(0, named=True)


@pytest.mark.parametrize("effect", [0.0, 0.05])
def test_the_estimator_recovers_a_known_effect_of_overlap(effect: float) -> None:
    held, rejected, runs = 0, 0, 300
    for seed in range(runs):
        row = by_year(simulated(seed, effect), seed)
        held += row["low"] <= effect <= row["high"]
        rejected += row["p"] < 0.05
    assert 0.92 <= held / runs <= 0.98
    assert rejected / runs > 0.98 if effect else rejected / runs < 0.1


def test_a_trend_that_is_no_overlap_is_taken_for_one_and_a_placebo_shows_it() -> None:
    advantage = simulated(1, 0.0, drift=-0.03)
    row = by_year(advantage, 1)
    assert row["low"] > 0


def test_a_contrast_is_the_difference_of_means_with_welchs_test() -> None:
    from scipy.stats import ttest_ind

    random = np.random.default_rng(3)
    first, second = random.normal(0, 1, 40), random.normal(0.5, 2, 150)
    (value, low, high), p_value = contrast([first, second], [1, -1], 13)
    assert value == pytest.approx(first.mean() - second.mean())
    assert low < value < high
    assert p_value == pytest.approx(ttest_ind(first, second, equal_var=False).pvalue)


def test_the_study_compares_strata_year_by_year(root: Path) -> None:
    command = flags("study overlap --corpus tiny --model bm25,lsa --set baseline=bm25 --set size=400 --set queries=12")
    command += ["--set", f"years={list(YEARS)}", "--set", "cutoffs={lsa = 2018}"]
    found = mdcr_json(root, *command)
    strata = found["tables"]["strata"]
    by_year = next(row for row in strata if row["strata"] == "queries by year")
    assert (by_year["n_seen"], by_year["n_unseen"]) == (24, 12)
    assert by_year["difference"] == pytest.approx(by_year["seen"] - by_year["unseen"])
    gains = list[float]()
    for name in ("scores", "scores-2", "scores-3"):  # year by year
        value = {row["system"]: row["value"] for row in found["tables"][name] if row["measure"] == "map"}
        gains.append(value["lsa"] - value["bm25"])
    assert [by_year["seen"], by_year["unseen"]] == pytest.approx([sum(gains[:2]) / 2, gains[2]])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["years=[2019]"], "years must be two or more, got [2019]"),
        (["cutoffs={minilm = 2021}"], "cutoffs must be of systems, got minilm"),
    ],
)
def test_bad_settings_are_one_line(root: Path, settings: list[str], message: str) -> None:
    command = flags("study overlap --corpus tiny --model bm25,lsa --set baseline=bm25 --set size=400 --set queries=5")
    command += ["--set", "years=[2018,2019]", "--set", "cutoffs={}"]
    command += [word for setting in settings for word in ("--set", setting)]
    assert message in one_line_error(mdcr(root, *command))
