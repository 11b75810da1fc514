"""Agreement by hand."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import spearmanr

from pipeline.studies.facets.scoring import agreement


def judged(**grades: list[int]) -> dict[str, Any]:
    return {"cands": list(map(str, range(len(next(iter(grades.values())))))), **grades}


def test_two_annotators_who_agree_and_are_overruled() -> None:
    """Each pair of grades differs in the last candidate: it is 0 after adjudication."""
    same = judged(relevance_ann1=[0, 1, 2, 3], relevance_ann2=[0, 1, 2, 3], relevance_adju=[0, 1, 2, 0])
    before, after, *of_all = agreement({"method": {"1": same, "2": same}}).to_dicts()
    assert [before["spearman"], before["krippendorff"], before["kappa"], before["equal"]] == pytest.approx([1] * 4)
    assert (before["stage"], before["queries"], before["candidates"]) == ("annotators", 2, 8)
    assert (after["stage"], after["equal"]) == ("adjudicated", 3 / 4)
    assert after["kappa"] == pytest.approx((3 / 4 - 1 / 4) / (1 - 1 / 4))
    assert [{**row, "facet": "method"} for row in of_all] == [before, after]


def test_two_annotators_who_do_not() -> None:
    """Kappa: observed agreement 1/2, expected 1/2 of two uniform annotators; reversed order gives rho -1."""
    reverse = judged(relevance_ann1=[0, 1, 2, 3, 3], relevance_ann3=[3, 2, 1, 0, -1])
    halves = judged(relevance_ann1=[0, 0, 1, 1], relevance_ann2=[0, 1, 0, 1])
    background, method, whole = agreement({"background": {"1": reverse}, "method": {"1": halves}}).to_dicts()
    assert (background["spearman"], background["equal"]) == (pytest.approx(-1), 0)
    assert background["candidates"] == 4
    assert (method["spearman"], method["kappa"], method["equal"]) == pytest.approx((0, 0, 1 / 2))
    assert (whole["facet"], whole["spearman"], whole["equal"]) == ("all", pytest.approx(-0.5), 1 / 4)


def test_the_figure_of_a_facet_is_the_median_of_its_queries() -> None:
    lists = [
        judged(relevance_ann1=[0, 1, 2, 3], relevance_ann2=other) for other in ([0, 1, 2, 3], [0, 1, 2, 0], [1] * 4)
    ]
    row, _ = agreement({"method": dict(zip("123", lists, strict=True))}).to_dicts()
    assert row["equal"] == 3 / 4
    assert row["spearman"] == pytest.approx((1 + spearmanr([0, 1, 2, 3], [0, 1, 2, 0]).statistic) / 2)


@pytest.mark.parametrize(("grades", "equal"), [([1, 1], 1), ([-1, -1], None)])
def test_grades_that_say_nothing_have_no_agreement(grades: list[int], equal: float | None) -> None:
    (row, _) = agreement({"method": {"1": judged(relevance_ann1=grades, relevance_ann2=grades)}}).to_dicts()
    assert (row["spearman"], row["krippendorff"], row["kappa"], row["equal"]) == (None, None, None, equal)


def test_no_annotators() -> None:
    assert agreement({"method": {"1": judged(relevance_adju=[1])}}).is_empty()
