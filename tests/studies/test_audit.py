"""``mdcr audit``, run as users run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.cli.run import mdcr, mdcr_json, one_line_error


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board of four systems on 40 tasks of two families, of which one system lacks ten."""
    random = np.random.default_rng(23)
    tasks = random.uniform(0.2, 0.6, 40)
    rows = [
        (f"s{system}", f"t{task}", round(float(np.clip(tasks[task] + bonus + random.normal(0, 0.03), 0, 1)), 4))
        for system, bonus in enumerate((0.2, 0.1, 0.1, 0.0))
        for task in range(40)
        if system < 3 or task >= 10
    ]
    path = tmp_path_factory.mktemp("results") / "board.csv"
    pl.DataFrame(rows, ["system", "item", "value"], orient="row").write_csv(path)
    return path


def audit(tmp_path: Path, *words: str) -> dict[str, Any]:
    tables: dict[str, Any] = mdcr_json(tmp_path, "audit", *words)["tables"]
    return tables


def test_board_of_a_table(results: Path, tmp_path: Path) -> None:
    tables = audit(tmp_path, str(results))
    board = tables["board"]
    assert [row["system"] for row in board][0::3] == ["s0", "s3"]
    assert [row["letters"] for row in board] == ["a", "b", "b", "c"]
    assert [(row["rank_low"], row["rank_high"]) for row in board] == [(1, 1), (2, 3), (2, 3), (4, 4)]
    assert tables["missing"] == [{"system": "s3", "has": 30, "lacks": 10}]
    frame = pl.read_csv(results).filter(pl.col("item").str.tail(-1).cast(int) >= 10)
    means = dict(frame.group_by("system").agg(pl.mean("value")).iter_rows())
    assert {row["system"]: row["mean"] for row in board} == pytest.approx(means)
    folder = tmp_path / "runs/reports/audit"
    assert "10 of 160 values are missing: only items that all systems have count" in (folder / "board.md").read_text()
    assert "s0 has the best mean of 4 systems over 30 items" in (folder / "index.html").read_text()
    assert json.loads((folder / "study.json").read_text())["recipe"]["results"] == [str(results)]


def test_percent_equals_fractions_and_lower_may_be_better(results: Path, tmp_path: Path) -> None:
    percent = tmp_path / "percent.csv"
    pl.read_csv(results).with_columns(pl.col("value") * 100).write_csv(percent)
    usual, other = (audit(tmp_path, str(path), "--missing", "impute")["board"] for path in (results, percent))
    assert [row["mean"] for row in other] == pytest.approx([row["mean"] for row in usual])
    lower = audit(tmp_path, str(results), "--lower-is-better", "--items", "t3*")["board"]
    assert [lower[0]["system"], lower[-1]["system"]] == ["s3", "s0"]


def test_families_are_units_and_may_be_undone(results: Path, tmp_path: Path) -> None:
    families = tmp_path / "families.csv"
    family = pl.when(pl.col("item").str.len_chars() > 2).then(pl.lit("long")).otherwise(pl.lit("short"))
    pl.read_csv(results).with_columns(family=family).write_csv(families)
    words = (str(families), "--systems", "s0,s1,s2")
    assert {row["letters"] for row in audit(tmp_path, *words)["board"]} == {"a"}
    said = " ".join(mdcr(tmp_path, "audit", *words).stdout.split())
    assert "40 items, in 2 families, each resampled and flipped as one." in said
    assert "2 units cannot show any difference: the least corrected p-value is 1." in said
    assert [row["letters"] for row in audit(tmp_path, *words, "--family", "none")["board"]] == ["a", "b", "b"]


def test_runs_of_two_collections_are_scored(tmp_path: Path) -> None:
    random = np.random.default_rng(29)
    for task in ("one", "two"):
        folder = tmp_path / "results" / task
        folder.mkdir(parents=True)
        queries = [f"{task}{query}" for query in range(12)]
        (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{q}\td0\t1\n" for q in queries))
        for system in ("good", "bad"):
            lines = [
                f"{query} Q0 d{document} {rank} {10 - rank} x\n"
                for query in queries
                for rank, document in enumerate((0, 1, 2) if system == "good" else random.permutation(9), 1)
            ]
            (folder / f"{system}.trec").write_text("".join(lines))
    board = audit(tmp_path, str(tmp_path / "results"))["board"]
    assert [row["system"] for row in board] == ["good", "bad"]
    assert board[0]["mean"] == 1
    assert board[1]["letters"] == "b"


def test_a_plan(results: Path, tmp_path: Path) -> None:
    rows = audit(tmp_path, str(results), "--plan", "5")["plan"]
    assert [row["pair"] for row in rows] == ["first and second", "median pair", "widest pair"]
    assert all(0.7 <= row["power"] <= 1 for row in rows)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metric", "ndcg@5"], "no result is of the metric 'ndcg@5'"),
        (["--systems", "nobody"], "no system is called 'nobody'"),
        (["--family", "type"], "40 items are no tasks of MTEB"),
        (["--missing", "zero"], "missing must be"),
        (["--correction", "none"], "correction must be holm or bh"),
        (["--systems", "s0"], "two systems or more must be compared, got s0"),
    ],
)
def test_errors(results: Path, tmp_path: Path, words: list[str], message: str) -> None:
    assert message in one_line_error(mdcr(tmp_path, "audit", str(results), *words))


def test_what_cannot_be_one_board_is_refused(results: Path, tmp_path: Path) -> None:
    twice = tmp_path / "twice"
    twice.mkdir()
    for name in ("a.csv", "b.csv"):
        (twice / name).write_bytes(results.read_bytes())
    assert "s0 has two values of 't0'" in one_line_error(mdcr(tmp_path, "audit", str(twice)))
    mixed = tmp_path / "mixed.csv"
    mixed.write_text("system,item,value\na,x,12\nb,x,.3\n")
    assert "values must all be fractions or all percent, got at most 1 of b" in one_line_error(
        mdcr(tmp_path, "audit", str(mixed))
    )
