"""The study as users run it: against the authors' measures written plainly, and their figures."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from tests.cli.run import mdcr_json
from tests.studies.facets.collection import QUERIES, TEXTLESS, annotations, write

SYSTEMS = "bm25,tfidf,lsa:dimension=8,word2vec:dimension=9"
METHOD = 'facets=["method"]'


def study(folder: Path, systems: str, whole: str = "", *more: str) -> list[str]:
    settings = [f'systems="{systems}"', f'whole="{whole}"', 'corpus="mine"', *more]
    return ["study", "facets", "--input", str(folder), *(word for setting in settings for word in ("--set", setting))]


def plain(ranks: list[int]) -> dict[str, float]:
    """Return the measures of one query from the grades in ranked order, as their definitions read."""
    relevant = [grade >= 2 for grade in ranks]

    def dcg(grades: list[int], discounts: Callable[[int], float]) -> float:
        return sum(grade / discounts(rank) for rank, grade in enumerate(grades, 1))

    def ndcg(cut: int, discounts: Callable[[int], float]) -> float:
        return dcg(ranks[:cut], discounts) / dcg(sorted(ranks, reverse=True)[:cut], discounts)

    def textbook(rank: int) -> float:
        return float(np.log2(rank + 1))

    def authors(rank: int) -> float:
        return 1.0 if rank < 3 else float(np.log2(rank))

    last, count, fifth = max(np.flatnonzero(relevant)) + 1, sum(relevant), int(0.2 * len(ranks))
    return {
        "csfcube-r-precision(rel=2)": count / last,
        "r-precision(rel=2)": sum(relevant[:count]) / count,
        "precision(rel=2)@20": sum(relevant[:20]) / 20,
        "recall(rel=2)@20": sum(relevant[:20]) / count,
        "csfcube-ndcg": ndcg(len(ranks), authors),
        "csfcube-ndcg%20": ndcg(fifth, authors),
        "ndcg": ndcg(len(ranks), textbook),
        "ndcg%20": ndcg(fifth, textbook),
    }


class Study(NamedTuple):
    """The study of all forms of systems on the made-up collection, as written."""

    root: Path
    folder: Path
    tables: Any
    out: Path
    values: dict[tuple[str, str, str, str], float]
    """By system, form, query and measure."""


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Study:
    root = tmp_path_factory.mktemp("workspace")
    folder = write(tmp_path_factory.mktemp("input") / "in")
    found = mdcr_json(root, *study(folder, SYSTEMS, "lsa:dimension=8"))
    out = Path(found["folder"])
    rows = pl.read_csv(out / "queries.csv").select("system", "form", "query", "measure", "value").rows()
    return Study(root, folder, found["tables"], out, {row[:4]: row[4] for row in rows})


@pytest.mark.parametrize("form", ["facet", "whole"])
def test_every_form_of_system_is_scored_within_judged_pools(scored: Study, form: str) -> None:
    index = ["system", "form", "facet", "average", "measure"]
    means = {tuple(map(row.get, index)): row["mean"] for row in scored.tables["scores"]}
    for name in SYSTEMS.split(",") if form == "facet" else ["lsa:dimension=8"]:
        slug = name.replace(":", "_").replace("=", "_") + ("_whole" if form == "whole" else "")
        folds: dict[str, list[list[float]]] = defaultdict(lambda: [[], []])
        for facet, queries in QUERIES.items():
            ranked = json.loads((scored.out / f"test-pid2pool-mine-{slug}-{facet}-ranked.json").read_text())
            assert list(ranked) == queries
            for query in queries:
                judged = annotations(scored.folder, facet)[query]
                ids, distances = zip(*ranked[query], strict=True)
                assert sorted(ids) == sorted(judged["cands"])
                assert ids[-1] == TEXTLESS or distances[-1] == distances[ids.index(TEXTLESS)]
                assert list(distances) == sorted(distances)
                grade = dict(zip(judged["cands"], judged["relevance_adju"], strict=True))
                for measure, value in plain([grade[paper] for paper in ids]).items():
                    assert scored.values[name, form, f"{query}_{facet}", measure] == pytest.approx(value)
                for group in (facet, "all"):
                    fold = folds[group][query != queries[0]]
                    fold.append(scored.values[name, form, f"{query}_{facet}", "ndcg%20"])
        for group, (first, second) in folds.items():
            by_fold, by_query = (means[name, form, group, average, "ndcg%20"] for average in ("folds", "queries"))
            assert by_fold == pytest.approx((np.mean(first) + np.mean(second)) / 2)
            assert by_query == pytest.approx(np.mean(first + second))


def test_it_writes_every_table_and_makes_nothing_twice(scored: Study) -> None:
    assert {row["facet"] for row in scored.tables["agreement"]} == {*QUERIES, "all"}
    assert not mdcr_json(scored.root, *study(scored.folder, SYSTEMS, "lsa:dimension=8"), "--dry-run")["plan"]


def test_ranked_pools_are_read_back_with_the_same_figures(scored: Study, tmp_path: Path) -> None:
    for path in scored.out.glob("*-tfidf-*-ranked.json"):
        shutil.copy(path, tmp_path)
    again = study(scored.folder, "tfidf", "", f'ranked="{tmp_path}"', METHOD)
    tables = mdcr_json(scored.root, *again, "--output", str(tmp_path / "report"))["tables"]
    ours, theirs = (
        {row["measure"]: row["mean"] for row in tables["scores"]
         if (row["facet"], row["average"], row["form"]) == ("all", "folds", form)}
        for form in ("facet", "whole")
    )  # fmt: skip
    assert ours == theirs


def test_differences_are_tested_paper_by_paper(scored: Study) -> None:
    rows, whole = scored.tables["differences"], ("lsa:dimension=8", "whole")
    first, *others = [(name, "facet") for name in SYSTEMS.split(",")]
    pairs = {(other, first) for other in (*others, whole)}
    assert {((row["system"], row["form"]), (row["than"], row["than_form"])) for row in rows} == pairs
    assert len(rows) == 4 * len(pairs)
    for row in rows:
        asked = [f"{query}_{facet}" for facet in QUERIES if row["facet"] in (facet, "all") for query in QUERIES[facet]]
        one, other = (
            np.array([scored.values[row[name], row[form], query, "csfcube-ndcg%20"] for query in asked])
            for name, form in (("system", "form"), ("than", "than_form"))
        )
        differs = one - other
        assert row["difference"] == pytest.approx(differs.mean())
        papers, of_paper = np.unique([query.partition("_")[0] for query in asked], return_inverse=True)
        signs = np.array(list(itertools.product([1, -1], repeat=len(papers))))[:, of_paper]
        assert row["p"] == pytest.approx((np.abs(signs @ differs) >= abs(differs.sum()) - 1e-12).mean())
        sums, sizes = np.bincount(of_paper, differs), np.bincount(of_paper)
        of_papers = (sums - differs.mean() * sizes) * len(papers) / len(differs)
        if np.ptp(of_papers) > 1e-12:
            assert row["effect"] * of_papers.std(ddof=1) == pytest.approx(differs.mean())
        assert (row["wins"], row["losses"]) == ((differs > 0).sum(), (differs < 0).sum())
        assert (row["low"] is None) == (len(papers) < 3)
        assert row["low"] is None or row["low"] <= row["difference"] <= row["high"]
    compared = sorted((row["p"], row["p_adjusted"]) for row in rows if row["facet"] == "all")
    steps = [min(1, (len(compared) - number) * p) for number, (p, _) in enumerate(compared)]
    assert [adjusted for _, adjusted in compared] == pytest.approx(np.maximum.accumulate(steps))


def test_a_random_ranking_is_a_row(scored: Study) -> None:
    """Precision at the last relevant of 20 has no closed form; recall at 20 of 20 candidates is 1 by chance."""
    scores = [row for row in scored.tables["scores"] if row["average"] == "queries"]
    rows = {(row["system"], row["facet"], row["measure"]): row for row in scores}
    assert rows["random ranking", "all", "recall(rel=2)@20"]["mean"] == 1
    relevant = [np.mean([grade >= 2 for grade in annotations(scored.folder, facet)[query]["relevance_adju"]])
                for facet, queries in QUERIES.items() for query in queries]  # fmt: skip
    assert rows["random ranking", "all", "precision(rel=2)@20"]["mean"] == pytest.approx(np.mean(relevant))
    assert rows["bm25", "all", "precision(rel=2)@20"]["drawn"] == 4


def test_candidates_of_two_facets_are_counted_by_their_grades(scored: Study) -> None:
    """Papers 100, 101 and 102 have two facets each; candidates are drawn for each facet."""
    counted = [row for row in scored.tables["facet_grades"] if (row["first"], row["second"]) == ("method", "result")]
    grades = [
        {paper: dict(zip(lists["cands"], lists["relevance_adju"], strict=True)) for paper, lists in judged.items()}
        for judged in (annotations(scored.folder, facet) for facet in ("method", "result"))
    ]
    both = [(grades[0][paper][cand], grade) for paper in ("101", "102") for cand, grade in grades[1][paper].items()
            if cand in grades[0][paper]]  # fmt: skip
    assert {(row["first_grade"], row["second_grade"]): row["count"] for row in counted} == Counter(both)
