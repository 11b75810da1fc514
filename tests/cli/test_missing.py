"""Positives that a release judges but does not hold, from its files to the notes of the tables."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from pipeline.core.artifact import published
from pipeline.core.workspace import find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

EVALUATE = flags("eval --corpus b --model bm25,lsa:dimension=4")
GRADES = {f"q{q}": {f"d{q}": 1, f"d{q + 7}": 2, **({f"gone{q}": 1} if q % 2 else {})} for q in range(6)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BEIR release of random words; query 2 has no known word and query 4 no text."""
    root, words = tmp_path_factory.mktemp("missing"), np.random.default_rng(1)
    folder = root / "release"
    (folder / "qrels").mkdir(parents=True)

    def text(count: int) -> str:
        return " ".join(f"word{number}" for number in words.integers(0, 30, count))

    papers = [{"_id": f"d{n}", "title": text(4), "text": text(12)} for n in range(60)]
    asked = {2: "zzzz qqqq", 4: ""}
    queries = [{"_id": query, "text": asked.get(n, text(6))} for n, query in enumerate(GRADES)]
    for name, records in (("corpus", papers), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)))
    judged = [f"{query}\t{paper}\t{grade}" for query, each in GRADES.items() for paper, grade in each.items()]
    (folder / "qrels/test.tsv").write_text("\n".join(judged))
    mdcr_json(root, "corpus", "--source", "beir", "--input", str(folder), "--corpus", "b")
    return root


@pytest.mark.parametrize(("way", "told"), [("ignore", "left out of"), ("count", "counted in")])
def test_each_way_is_trec_evals_on_those_judgements_and_is_named(root: Path, way: str, told: str) -> None:
    command = [*EVALUATE, "--missing-positives", way]
    rows = {(row["system"], row["measure"]): row for row in mdcr_json(root, *command)["rows"]}
    exported: dict[str, dict[str, float]] = defaultdict(dict)
    for query, paper, score in _run(root):
        exported[query][paper] = score
    kept = {q: {p: g for p, g in each.items() if way == "count" or p[0] == "d"} for q, each in GRADES.items()}
    theirs = pytrec_eval.RelevanceEvaluator(kept, {"map", "ndcg"}).evaluate(exported)
    for measure in ("map", "ndcg"):
        mean = sum(each[measure] for each in theirs.values()) / len(GRADES)
        assert rows["bm25", measure]["value"] == pytest.approx(mean, abs=1e-9)
    printed = " ".join(mdcr(root, *command).stdout.split())
    assert f"Positives that are not in the collection: 3, {told} denominators." in printed
    assert "Queries without results, scored 0: bm25 2, lsa:dimension=4 2." in printed


def _run(root: Path) -> list[tuple[str, str, float]]:
    """Return query, paper and score of the entries of BM25's ranking."""
    corpus = Corpus(find_corpus(root, "b"))
    (pool,) = (Pool(artifact, corpus) for artifact in published(root / "corpora/pools"))
    (ranking,) = (each for each in published(root / "runs/rankings") if each.name.startswith("bm25"))
    table = ranking.arrow("ranking.arrow").to_pydict()
    ids = corpus.ids(np.array(table["row"]))
    return [(pool.query_ids()[q], p, s) for q, p, s in zip(table["query"], ids, table["score"], strict=True)]


def test_papers_as_queries_lack_nothing(root: Path) -> None:
    error = one_line_error(mdcr(root, *EVALUATE, "--missing-positives", "cuont"))
    assert "--missing-positives must be ignore or count, got 'cuont'" in error
    papers = flags("eval --corpus b --model bm25 --size all --queries all --missing-positives count")
    assert "are papers, whose positives are all in the collection" in one_line_error(mdcr(root, *papers))
