"""Runs of other tools against qrels alone: the figures are trec_eval's, and nothing bad passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import pytrec_eval

from pipeline.cli import main
from pipeline.core.errors import InputError
from pipeline.scores.files import evaluate
from pipeline.scores.layout import tables
from tests.cli.run import mdcr

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


def test_every_form_of_the_same_files_gives_the_same_scores(tmp_path: Path) -> None:
    run, qrels = random_files(1)
    expected = evaluate(write(tmp_path, run, qrels), tmp_path / "qrels.txt").select("query_id", "measure", "value")
    (tmp_path / "mine.json").write_text(json.dumps(run))
    (tmp_path / "q.json").write_text(json.dumps(qrels))
    tsv = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t{grade}" for q, of in qrels.items() for d, grade in of.items())]
    (tmp_path / "q.tsv").write_text("\n".join(tsv))
    for form, judged in (
        (run, qrels),
        (tmp_path / "mine.json", tmp_path / "q.json"),
        (str(tmp_path / "mine.run"), tmp_path / "q.tsv"),
    ):
        assert evaluate(form, judged).select("query_id", "measure", "value").equals(expected)


def test_python_compares_runs_like_any_scores(tmp_path: Path) -> None:
    run, qrels = random_files(2)
    files = [write(tmp_path, run, qrels, "one"), write(tmp_path, random_files(3)[0], qrels, "two")]
    scores = evaluate(files, qrels, measures="f1@5")
    (table,) = tables(scores)
    assert [line.label for line in table.lines] == ["one", "two"]
    assert "runs one-" in table.notes[-1]
    assert "Named in the files: 80 documents, 12 queries" in "".join(table.notes)


def test_the_command_prints_intervals_and_tests_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, qrels = random_files(4)
    write(tmp_path, run, qrels, "one")
    base = write(tmp_path, random_files(5)[0], qrels, "base")
    words = ["evaluate", f"--run={tmp_path}/one.run", f"--qrels={tmp_path}/qrels.txt", f"--baseline={base}"]
    assert main([*words, "--root", str(tmp_path)]) == 0
    printed_text = capsys.readouterr()
    rows = [line.split()[0] for line in printed_text.out.splitlines() if line.strip()]
    assert rows.index("base") < rows.index("one")
    assert "† differs from base: paired permutation test" in printed_text.out
    (page,) = (tmp_path / "runs/reports").glob("qrels-*/index.html")
    assert str(page) in printed_text.err
    assert mdcr(tmp_path, "open", "--quiet").stdout.strip() == str(page)
    assert main([*words, "--json", "--root", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)["rows"]
    mine = (
        evaluate([base, tmp_path / "one.run"], qrels)
        .filter(measure="map")
        .group_by("system")
        .agg(pl.col("value").mean())
    )
    assert {row["system"]: row["value"] for row in printed if row["measure"] == "map"} == pytest.approx(
        dict(mine.iter_rows())
    )


def test_reports_of_other_files_have_other_folders(tmp_path: Path) -> None:
    """Collections name their file alike, and a file may have the name of a study."""
    kept = tmp_path / "runs/reports/leaderboard/index.html"
    kept.parent.mkdir(parents=True)
    kept.write_text("kept")
    for seed, name in ((1, "qrels"), (2, "qrels"), (2, "leaderboard"), (2, "qrels")):
        run, qrels = random_files(seed)
        write(tmp_path, run, qrels)
        path = (tmp_path / "qrels.txt").rename(tmp_path / f"{name}.txt")
        words = ["evaluate", f"--run={tmp_path}/mine.run", f"--qrels={path}", "--root", str(tmp_path), "--quiet"]
        assert main(words) == 0
    assert kept.read_text() == "kept"
    names = sorted(folder.name.rpartition("-")[0] for folder in kept.parent.parent.iterdir() if folder != kept.parent)
    assert names == ["leaderboard", "qrels", "qrels"]


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
    for document, told in (("d", ""), ("x", "run 1 ranks no document that is relevant to any query")):
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


@pytest.mark.parametrize("qrels", ["a%20b 0 c%25 1\n", "a b\tc%\t1\n"])
def test_percent_encoded_ids_of_a_run_are_those_of_the_qrels(tmp_path: Path, qrels: str) -> None:
    (tmp_path / "my.run").write_text("a%20b Q0 c%25 1 2.0 tag\na%20b Q0 100% 2 1.0 tag\n")
    path = tmp_path / ("test.tsv" if "\t" in qrels else "qrels.txt")
    path.write_text(qrels)
    assert evaluate(tmp_path / "my.run", path, measures="mrr").filter(measure="mrr")["value"].to_list() == [1.0]


def test_two_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    run, qrels = random_files(1)
    path = write(tmp_path, run, qrels)
    with pytest.raises(InputError, match="two runs are named 'mine'"):
        evaluate([path, path], qrels)
