"""Runs of other tools against qrels alone: the figures are trec_eval's, and nothing bad passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import pytrec_eval
import ranx

from pipeline.cli import main
from pipeline.core.errors import InputError
from pipeline.scores.files import evaluate
from pipeline.scores.layout import tables
from pipeline.scores.summary import summarise

TREC_EVAL = {
    "map": "map",
    "ndcg": "ndcg",
    "ndcg@10": "ndcg_cut_10",
    "recall@30": "recall_30",
    "precision@1": "P_1",
    "mrr": "recip_rank",
    "r-precision": "Rprec",
    "recall@100": "recall_100",
}
"""Our measures, and what trec_eval calls them."""


def random_files(seed: int) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
    """Return a run with ties and lists of different lengths, and qrels; some queries are in one of them alone."""
    draw = np.random.default_rng(seed)
    documents = [f"d{number}" for number in range(80)]
    run = {
        f"q{query}": {
            str(document): float(draw.integers(0, 9))
            for document in draw.choice(documents, draw.integers(1, 60), False)
        }
        for query in range(12)
    }
    qrels = {
        f"q{query}": {str(document): int(draw.integers(0, 3)) for document in draw.choice(documents, 12, False)}
        | {"d0": 1}
        for query in range(3, 15)
    }
    return run, qrels


def write(folder: Path, run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]], name: str = "mine") -> Path:
    lines = [f"{query} Q0 {document} 1 {score} x" for query, of in run.items() for document, score in of.items()]
    (folder / f"{name}.run").write_text("\n".join(lines))
    judged = [f"{query} 0 {document} {grade}" for query, of in qrels.items() for document, grade in of.items()]
    (folder / "qrels.txt").write_text("\n".join(judged))
    return folder / f"{name}.run"


def test_runs_of_python_are_named_and_may_be_of_ranx(tmp_path: Path) -> None:
    run, qrels = random_files(0)
    frame = pl.DataFrame(
        [(q, d, score) for q, of in run.items() for d, score in of.items()], ["qid", "docno", "score"], orient="row"
    )
    path = write(tmp_path, run, qrels)
    given = {"a": run, "b": frame, "c": path, "d": ranx.Run.from_dict(run)}
    scores = evaluate(given, ranx.Qrels.from_dict(qrels)).pivot("system", index=["query_id", "measure"], values="value")
    assert scores.columns[2:] == [*given]
    keys = ["query_id", "measure"]
    usual = evaluate(path, qrels).select(*keys, "value").sort(keys)
    for name in given:
        assert scores.select(*keys, value=name).sort(keys).equals(usual)
    for other, message in (
        (frame["score"], "must be a table, got Series"),
        ({"q1": ["d1"]}, "query 'q1' must be an obj"),
    ):
        with pytest.raises(InputError, match=message):
            evaluate(other, qrels)


@pytest.mark.parametrize("seed", range(5))
def test_every_value_is_that_of_trec_eval(seed: int, tmp_path: Path) -> None:
    """A judged query that the run lacks scores 0, as with ``trec_eval -c``."""
    run, qrels = random_files(seed)
    scores = evaluate(write(tmp_path, run, qrels), tmp_path / "qrels.txt")
    theirs = pytrec_eval.RelevanceEvaluator(qrels, set(TREC_EVAL.values())).evaluate(run)
    for query, measure, value in scores.select("query_id", "measure", "value").iter_rows():
        if measure in TREC_EVAL:
            assert value == pytest.approx(theirs.get(query, {}).get(TREC_EVAL[measure], 0), abs=1e-12)
    assert set(scores["query_id"]) == set(qrels)


def test_the_command_prints_intervals_and_tests_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, qrels = random_files(4)
    write(tmp_path, run, qrels, "one")
    write(tmp_path, random_files(5)[0], qrels, "base")
    words = ["evaluate", f"--run={tmp_path}/base.run", f"--run={tmp_path}/one.run"]
    words += [f"--qrels={tmp_path}/qrels.txt", "--baseline=base"]
    assert main([*words, "--root", str(tmp_path)]) == 0
    printed_text = capsys.readouterr()
    rows = [line.split()[0] for line in printed_text.out.splitlines() if line.strip()]
    assert rows.index("base") < rows.index("one")
    assert "† differs from base: paired permutation test" in printed_text.out
    (page,) = (tmp_path / "runs/reports").glob("qrels-*/index.html")
    assert str(page) in printed_text.err
    assert main([*words, "--json", "--root", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)["rows"]
    mine = (
        evaluate([tmp_path / "base.run", tmp_path / "one.run"], qrels)
        .filter(measure="map")
        .group_by("system")
        .agg(pl.col("value").mean())
    )
    assert {row["system"]: row["value"] for row in printed if row["measure"] == "map"} == pytest.approx(
        dict(mine.iter_rows())
    )


@pytest.mark.parametrize(
    ("run", "qrels", "expected"),
    [
        ({"q": {"d": 1.0}}, {"other": {"d": 1}}, "no query in common"),
        ("nowhere.trec", {"q": {"d": 1}}, "there is no file nowhere.trec"),
        ({"q": {"d": 1.0}}, {"q": {"d": 0}}, "must have a relevant document"),
        ({"q": {"d": float("nan")}}, {"q": {"d": 1}}, "finite float32"),
        ({"q": {"d": "high"}}, {"q": {"d": 1}}, "a number"),
    ],
)
def test_what_cannot_be_scored_is_refused(run: Any, qrels: Any, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        evaluate(run, qrels)


def test_a_run_of_other_documents_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for document, told in (("d", ""), ("x", "Warning: run 1 ranks no document that is relevant to any query")):
        values = evaluate({"q": {document: 1.0}}, {"q": {"d": 1}}).get_column("value")
        assert values.max() == (0 if told else 1)
        said = capsys.readouterr().err
        assert said.startswith(told)
        assert bool(said) == bool(told)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q 0 d 1\nq 0 d 2\n", "judges 'd' again"),
        ("q 0 d high\n", "is not a judgement"),
        ("", "holds no data"),
    ],
)
def test_bad_qrels_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "qrels.txt").write_text(text)
    with pytest.raises(InputError, match=expected):
        evaluate({"q": {"d": 1.0}}, tmp_path / "qrels.txt")


@pytest.mark.parametrize("qrels", ["a%20b percent-encoded c%25 1\n", "a b\tc%\t1\n"])
def test_ids_of_marked_files_are_decoded(tmp_path: Path, qrels: str) -> None:
    (tmp_path / "my.run").write_text("a%20b percent-encoded c%25 1 2.0 tag\na%20b percent-encoded 100%25 2 1.0 tag\n")
    path = tmp_path / ("test.tsv" if "\t" in qrels else "qrels.txt")
    path.write_text(qrels)
    assert evaluate(tmp_path / "my.run", path).filter(measure="mrr")["value"].to_list() == [1.0]


BAD_GRADES: list[Any] = [0.6, 1.4, 40_000, -40_000, 10**30, float("nan"), float("inf"), None, "high", True, [1]]


@pytest.mark.parametrize("grade", BAD_GRADES)
def test_a_grade_is_a_whole_number_in_every_form(tmp_path: Path, grade: Any) -> None:
    (tmp_path / "q.json").write_text(json.dumps({"q": {"d": 1, "e": grade}}))
    rows = [{"query-id": "q", "corpus-id": "d", "score": 1}, {"query-id": "q", "corpus-id": "e", "score": grade}]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "q.txt").write_text(f"q 0 d 1\nq 0 e {grade}".replace("True", "x"))
    for qrels in ({"q": {"d": 1, "e": grade}}, *(tmp_path / name for name in ("q.json", "q.jsonl", "q.txt"))):
        with pytest.raises(InputError, match="a grade must be a whole number|is not JSON"):
            evaluate({"q": {"d": 1.0}}, qrels)


def test_a_query_without_a_paper_of_the_grade_is_left_out_or_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    qrels = {"q1": {"b": 2, "d": 2, "a": 1}, "q2": {"a": 1}, "q3": {"b": 2}, "q4": {"a": 0}}
    run = {query: {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0} for query in qrels}
    means = {}
    for no_positive in ("ignore", "zero"):
        scores = evaluate(run, qrels, measures="map(rel=2),recall_5", no_positive=no_positive)
        means[no_positive] = dict(scores.group_by("measure").agg(pl.col("value").mean()).iter_rows())
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"map"}, relevance_level=2).evaluate(run)
    zero = np.mean([values["map"] for values in theirs.values()])
    assert means["zero"]["map(rel=2)"] == pytest.approx(zero)
    assert means["ignore"]["map(rel=2)"] == pytest.approx(zero * 2)
    assert means["zero"]["map"] == pytest.approx(means["ignore"]["map"] * 3 / 4)
    write(tmp_path, run, qrels)
    words = ["evaluate", f"--run=one={tmp_path}/mine.run", f"--run=two={tmp_path}/mine.run", "--baseline=one"]
    words += [f"--qrels={tmp_path}/qrels.txt", "--root", str(tmp_path), "--measures=map,map(rel=2)"]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "map(rel=2): 1 of 3 queries without a document of grade 2 left out." in printed
    (alone,) = tables(evaluate(run, qrels, measures="map(rel=2)"), ["map(rel=2)"])
    assert any(note.startswith("map(rel=2): 1 of 3 queries without") for note in alone.notes)
    assert "all 2^2 and 2^3 sign patterns" in printed
    assert main([*words, "--no-positive=zero"]) == 0
    assert "Queries without a positive, counted as 0: 1." in " ".join(capsys.readouterr().out.split())
    with pytest.raises(InputError, match=r"map\(rel=3\) must have a query with a document of grade 3, got none"):
        evaluate(run, qrels, measures="map(rel=3)")


def test_what_one_query_shows_and_queries_without_judgements_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {"q": {"d": 1.0}, "r": {"d": 1.0}, "s": {"d": 1.0}}
    path = write(tmp_path, run, {"q": {"d": 1}})
    assert main(["evaluate", f"--run={path}", f"--qrels={tmp_path}/qrels.txt", "--root", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "mine: 2 queries of the run without judgement left out" in printed.err
    assert "none interval" not in printed.out
    assert "Under 3 queries: no interval." in " ".join(printed.out.split())
    assert "[" not in printed.out.partition("Percent")[0]
    for judged in ({"q": {"d": 1}}, {"q": {"d": 1}, "r": {"e": 1}}):  # two values have no interval either
        frame = summarise(evaluate(path, judged))
        assert frame["low"].to_list() == frame["high"].to_list() == [None] * len(frame)


def test_reports_of_files_of_one_name_are_apart(tmp_path: Path) -> None:
    (tmp_path / "runs/reports/leaderboard").mkdir(parents=True)
    for place, grade in (("one", 1), ("two", 2), ("two", 2)):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "leaderboard.txt").write_text(f"q 0 d {grade}\n")
        (tmp_path / "my.run").write_text("q Q0 d 1 1 x\n")
        words = ["evaluate", f"--run={tmp_path}/my.run", f"--qrels={tmp_path}/{place}/leaderboard.txt"]
        assert main([*words, "--root", str(tmp_path)]) == 0
    assert len(list(tmp_path.glob("runs/reports/leaderboard-*/index.html"))) == 2
    assert not list(tmp_path.glob("runs/reports/leaderboard/*"))
