"""Agreement and citations by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.sources.csfcube import Csfcube
from pipeline.stages.corpus import corpus_task
from pipeline.stages.search import read_ranking
from pipeline.studies.facets.agreement import agreement, by_citation, citations, rank_correlation
from pipeline.studies.facets.pools import FACET, WHOLE, facet_pool_task
from pipeline.studies.facets.rankings import file_task
from tests.studies.facets.collection import annotations, edit, write


def judged(**grades: list[int]) -> dict[str, Any]:
    return {"cands": list(map(str, range(len(next(iter(grades.values())))))), **grades}


def test_two_annotators_who_agree() -> None:
    same = judged(relevance_ann1=[0, 1, 2, 3], relevance_ann2=[0, 1, 2, 3], relevance_adju=[0, 0, 0, 0])
    for row in agreement({"method": {"1": same, "2": same}}).to_dicts():
        assert (row["spearman"], row["krippendorff"], row["kappa"], row["kappa_quadratic"]) == pytest.approx((1,) * 4)
        assert (row["queries"], row["judged_twice"], row["judged_once"], row["annotators"]) == (2, 8, 0, 2)


def test_two_annotators_who_do_not() -> None:
    """Kappa: observed agreement 1/4, expected 1/4 of two uniform annotators; reversed order gives rho -1."""
    reverse = judged(relevance_ann1=[0, 1, 2, 3, 3], relevance_ann3=[3, 2, 1, 0, -1])
    halves = judged(relevance_ann1=[0, 0, 1, 1], relevance_ann2=[0, 1, 0, 1])
    background, method, whole = agreement({"background": {"1": reverse}, "method": {"1": halves}}).to_dicts()
    assert background["spearman"] == pytest.approx(-1)
    assert background["kappa_quadratic"] == pytest.approx(-1)
    assert (background["judged_twice"], background["judged_once"]) == (4, 1)
    assert (method["spearman"], method["kappa"]) == pytest.approx((0, 0))
    assert (whole["facet"], whole["spearman"], whole["annotators"]) == ("all", pytest.approx(-0.5), 3)


@pytest.mark.parametrize("grades", [[1, 1], [-1, -1]])
def test_grades_that_say_nothing_have_no_agreement(grades: list[int]) -> None:
    (row, _) = agreement({"method": {"1": judged(relevance_ann1=grades, relevance_ann2=grades)}}).to_dicts()
    assert (row["spearman"], row["krippendorff"], row["kappa"]) == (None, None, None)


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


@pytest.mark.parametrize(("second", "tau"), [([1, 2, 3], 1), ([3, 2, 1], -1), ([1, 1, 1], None)])
def test_rank_correlation(second: list[float], tau: float | None) -> None:
    assert rank_correlation([1, 2, 3], second) == tau
