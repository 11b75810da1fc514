"""Agreement and citations by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from scipy.stats import spearmanr

from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.sources.csfcube import Csfcube
from pipeline.stages.corpus import corpus_task
from pipeline.stages.ranking_file import read_ranking
from pipeline.studies.facets.analyses import agreement, by_citation, citations, tau
from pipeline.studies.facets.pools import FACET, WHOLE, facet_pool_task
from pipeline.studies.facets.rankings import file_task
from tests.studies.facets.collection import annotations, edit, write


def judged(**grades: list[int]) -> dict[str, Any]:
    return {"cands": list(map(str, range(len(next(iter(grades.values())))))), **grades}


def test_two_annotators_who_agree_and_are_overruled() -> None:
    """Each pair of grades differs in the last candidate: it is 0 after adjudication."""
    same = judged(relevance_ann1=[0, 1, 2, 3], relevance_ann2=[0, 1, 2, 3], relevance_adju=[0, 1, 2, 0])
    before, after, *of_all = agreement({"method": {"1": same, "2": same}}).to_dicts()
    assert [before["spearman"], before["krippendorff"], before["kappa"], before["equal"]] == pytest.approx([1] * 4)
    assert (before["stage"], before["queries"], before["candidates"], before["overruled"]) == ("annotators", 2, 8, None)
    assert (after["stage"], after["equal"], after["overruled"]) == ("adjudicated", 3 / 4, 1 / 4)
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


def test_citations_by_hand(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    cands = annotations(folder, "method")["100"]["cands"]
    lists = {query: {"cands": cands[:4], "relevance_adju": [3, 2, 1, 0]} for query in ("100", "101")}
    edit(folder / "test-pid2anns-mine-method.json", lists)
    (folder / "cited_pairs.tsv").write_text(f"100\t{cands[0]}\n100\t{cands[3]}\n102\t{cands[1]}\n")
    runner = Runner(tmp_path, Resources(2**30, 1))
    corpus = runner.make(corpus_task("mine", Csfcube(folder)))
    for form in (FACET, WHOLE):
        task = facet_pool_task(corpus, "method", form, 2)
        pool = Pool(runner.make(task), Corpus(corpus))
        method, whole = citations({"method": pool}, 2).to_dicts()
        assert {**method, "facet": ""} == {**whole, "facet": ""}
        assert (method["judged"], method["relevant"], method["cited"]) == (8, 4, 2)
        assert (method["cited_relevant"], method["relevant_cited"]) == (1 / 2, 1 / 4)
        assert (method["grade_cited"], method["grade_not_cited"]) == (3 / 2, 9 / 6)
        edit(tmp_path / "ranked.json", {query: [[each, 0] for each in cands[:4]] for query in lists})
        ranking = runner.make(file_task(corpus, task, "own", tmp_path / "ranked.json"))
        assert by_citation(pool, read_ranking(ranking), "map").tolist() == [(1 + 2 / 4) / 2]  # 101 cites nothing


def test_correlation_of_systems() -> None:
    first = pl.Series([1.0, 2.0, 3.0])
    assert [tau(first, pl.Series(second)) for second in ([1, 3, 2], [1, 1, 1])] == ["0.333", "not defined"]
