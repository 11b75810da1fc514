"""``mdcr audit``, run as users run it."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
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
    usual, other = (audit(tmp_path, str(path))["board"] for path in (results, percent))
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
        (["--systems", "nobody"], "no system is called 'nobody'"),
        (["--scale", "none"], "scale must be auto, fraction"),
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


def board_of(tmp_path: Path, name: str, text: str, *words: str) -> dict[str, Any]:
    """Write a file, audit it, and return its tables."""
    (tmp_path / name).write_text(text)
    return audit(tmp_path, str(tmp_path / name), *words)


def means(tables: dict[str, Any]) -> dict[str, float]:
    return {row["system"]: row["mean"] for row in tables["board"]}


def items(tables: dict[str, Any]) -> list[str]:
    return [row["item"] for row in tables["items"]]


SPEECH = (
    "model,Avg. WER,RTFx,Model size (B),Licence,Clean WER,Noisy WER\n"
    "a,4,900,2,open,2,6\nb,5,-1,-1,closed,3,7\nc,6,40,1,open,3.5,8.5\n"
)


def test_columns_that_describe_systems_are_left_out_and_named(tmp_path: Path) -> None:
    tables = board_of(tmp_path, "speech.csv", SPEECH)
    assert items(tables) == ["Clean WER", "Noisy WER"]
    assert means(tables) == pytest.approx({"a": 0.04, "b": 0.05, "c": 0.06})
    assert [row["system"] for row in tables["board"]] == ["a", "b", "c"]  # lower is better, as the names say
    assert tables["skipped"] == [
        {"what": "speech.csv", "reason": "Avg. WER, RTFx, Model size (B), Licence: no items"}
    ]  # fmt: skip
    assert items(board_of(tmp_path, "speech.csv", SPEECH, "--items", "*WER")) == ["Clean WER", "Noisy WER"]
    named = board_of(tmp_path, "speech.csv", SPEECH, "--items", "Avg. WER,Noisy WER")
    assert items(named) == ["Avg. WER", "Noisy WER"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model,t,u\na,52.0%,31\nb,51.0,0.5\n", {"a": 0.415, "b": 0.2575}),  # a column is percent, not a cell
        ('model,x,t,u\na,"1,234",50.1,60\nb,"2,345",40.1,55\n', {"a": 0.5505, "b": 0.4755}),  # thousands
        ("model,Coding,Maths\na,1380,1390\nb,1360,1350\n", {"a": 1385, "b": 1355}),  # Elo: as it is
        ("model,clean,noisy,WER all\na,.05,1.2,0\nb,.06,1.4,0\n", None),
        ("model,t,u\nall-x,.5,.3\naverage_y,.2,.1\nAverage (2),.4,.2\n", {"all-x": 0.4, "average_y": 0.15}),
        ("Model,t,u\n<a href='x'>a</a>,.5,.3\n[b](y),.2,.1\n", {"a": 0.4, "b": 0.15}),
        (",Encoder,b\nt,.5(.1),.1\nu,.3(.1),.2\n", {"t": 0.3, "u": 0.25}),
        ("Subject,a,b\nphysics,.5,.3\nlaw,.3,.1\n", {"a": 0.4, "b": 0.2}),
        ("Model,seed,t,u\na,1,.5,.3\na,2,.7,.5\nb,1,.2,.1\nb,2,.4,.1\n", {"a": 0.5, "b": 0.2}),
        (
            "# x\n\n|Setting|Value|\n|--|--|\n|dim|7|\n\n|Model|t|u|\n|--|--|--|\n|a|50|60|\n|b|40|30|\n",
            {"a": 0.55, "b": 0.35},
        ),
        ("Results of today,,\n# by me, alone\nmodel,t,u\na,.5,.3\nb,.2,.1\n", {"a": 0.4, "b": 0.15}),
        (",a,b\n251,.1,.2\n252,.3,.4\n", {"a": 0.2, "b": 0.3}),  # to_csv() of pandas
    ],
)
def test_scales_are_decided_a_column(tmp_path: Path, text: str, expected: dict[str, float] | None) -> None:
    if expected is None:
        tables = board_of(tmp_path, "rates.csv", text, "--lower-is-better", "--items", "clean,noisy")
        assert means(tables) == pytest.approx({"a": 0.625, "b": 0.73})
        return
    name = "README.md" if text.startswith("# x") else "board.csv"
    assert means(board_of(tmp_path, name, text)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "said", "remedy"),
    [
        ("model,t,u,t2,u2,v\na,50,60,.5,.6,9\nb,40,20,.4,.2,8\n", "percent of t, u, v; fraction", "--items=t,u,v"),
        ("type,task,a,b\nx,t,.5,.6\nx,u,.4,.3\ny,v,-1.5,-1.2\ny,w,-2.5,-.4\n", "fraction of t, u", "--items=v,w"),
        ("model,Accuracy,F1,Hallucination rate\na,50,60,5\nb,40,20,4\n", "items must agree", "--items=Accuracy,F1"),
        ('model,"A, b",F1,error\na,50,60,5\nb,40,20,4\n', "items must agree", "--items='A? b,F1'"),
        ("system,item,value\na,t,12\na,u,20\nb,t,.3\nb,u,.2\n", "at most 1 of b", "--scale=percent"),
        ("system,item,family,value\na,t,f,.1\na,u,f,.2\nb,t,f,.3\nb,u,f,.5\n", "two families", "--family=none"),
        ("system,item,value\na,t,.1\na,u,.2\nb,t,.3\nb,u,.5\nc,x,.1\n", "got 0 of 3", "--coverage=0.5"),
        ("model,task,acc,f1\na,t,.1,.2\na,u,.3,.4\nb,t,.1,.2\nb,u,.3,.4\n", "one metric must be", "--metric=acc"),
        ("model,Average (2),STS Average\na,5,60\nb,40,20\n", "columns of items", "--items='Average (2),STS Average'"),
    ],
)  # fmt: skip
def test_every_remedy_of_a_refusal_works(tmp_path: Path, text: str, said: str, remedy: str) -> None:
    path = tmp_path / "board.csv"
    path.write_text(text)
    error = one_line_error(mdcr(tmp_path, "audit", str(path)))
    options = re.findall(r"--\w+=(?:'[^']*'|[^\s]+)", error.rpartition("--help")[0] or error.rstrip().removesuffix("."))
    assert said in error
    assert remedy in [option.rstrip(",") for option in options]
    for option in options:
        assert audit(tmp_path, str(path), *shlex.split(option.rstrip(",")))["board"]


def test_rows_without_names_are_refused_until_they_have_some(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("a,b\n.1,.2\n.3,.4\n")
    error = one_line_error(mdcr(tmp_path, "audit", str(tmp_path / "runs.csv")))
    assert "Add a first column called system, or item if columns are systems" in error
    assert means(board_of(tmp_path, "runs.csv", "item,a,b\n1,.1,.2\n2,.3,.4\n")) == pytest.approx({"a": 0.2, "b": 0.3})


FALLING = "".join(f"s{n},{n + 1},{n + 3}\n" for n in range(9))


@pytest.mark.parametrize(
    ("name", "text", "warning"),
    [
        ("asr_wer.csv", "model,t,u\na,12,20\nb,13,30\n", "asr_wer is usually better lower"),
        ("x.csv", "model,log_loss mean,t,u\na,9,12,20\nb,8,13,30\n", "log_loss mean is usually better lower"),
        ("x.csv", f"model,t,u\n{FALLING}", "the file lists its systems from the lowest mean up"),
        ("x.csv", "model,t,u,v\na,1,2,2\nb,2,1,3\nc,3,3,1\n", "the values are ranks"),
        ("x.csv", "model,t,u,v\na,1,2,2\nb,2,1,3\nc,3,2,1\n", "the values are ranks"),
        ("x.csv", "model,t,u,standard_error,n_draws\na,12,20,1,7\nb,13,30,2,8\n", ""),
    ],
)
def test_what_may_be_better_lower_is_said(tmp_path: Path, name: str, text: str, warning: str) -> None:
    for words in ((), ("--lower-is-better",)):
        board_of(tmp_path, name, text, *words)
        said = " ".join((tmp_path / "runs/reports/audit/board.md").read_text().replace("\\", "").split())
        expected = f"Warning: higher counts as better; {warning}: --lower-is-better." if warning and not words else ""
        assert expected in said
        assert bool(expected) == ("Warning" in said)


def test_a_metric_names_the_values_of_a_table_or_chooses(tmp_path: Path) -> None:
    table = "system,item,map,ndcg@10\na,t,.1,.5\na,u,.2,.6\nb,t,.3,.3\nb,u,.4,.2\n"
    assert means(board_of(tmp_path, "board.csv", table, "--metric", "MAP"))["a"] == pytest.approx(0.15)
    assert means(board_of(tmp_path, "board.csv", table))["a"] == pytest.approx(0.55)
    error = one_line_error(mdcr(tmp_path, "audit", str(tmp_path / "board.csv"), "--metric", "ndcg@5"))
    assert "no result has the metric 'ndcg@5'" in error
    assert means(board_of(tmp_path, "wide.csv", "model,t,u\na,.1,.2\nb,.3,.4\n", "--metric", "ndcg@5"))


def test_a_column_to_10_beside_columns_to_100_is_said(tmp_path: Path) -> None:
    tables = board_of(tmp_path, "board.csv", "model,MT,t,u\na,8.5,60,70\nb,7.5,50,80\n")
    assert "MT: no value above 10, unlike others, but read as percent" in tables["skipped"][0]["reason"]


def test_numbers_that_may_be_thousands_or_decimals_are_refused(tmp_path: Path) -> None:
    (tmp_path / "board.csv").write_text("model;t;u\na;1,234;.5\nb;0,41;.4\n")
    error = one_line_error(mdcr(tmp_path, "audit", str(tmp_path / "board.csv")))
    assert "which do not tell whether a comma is between thousands or before decimals" in error


MARKDOWN = (
    "# Results\n\n| Model | t | u |\n|:--|--:|--:|\n| [a](http://x) | **60.5** | 30.0 (±1) |\n| b | 50.5† | 20.0 |\n"
)
LATEX = r"""\begin{tabular}{lcccc}
 & \multicolumn{2}{c}{nDCG@10} & \multicolumn{2}{c}{R@100} \\ \cmidrule(lr){2-3}
Method & t & u & t & u \\ \midrule
a \cite{x} & \textbf{60.5} & 30.0 {\small $\pm$ 1} & 90 & 80 \\
b & 50.5$^{\dagger}$ & \underline{20.0} & 70 & 60 \\ \bottomrule
\end{tabular}"""
DATASETS = r"""\begin{tabular}{l|cc}
Model ($\rightarrow$) & \multicolumn{2}{c}{Lexical} \\
Dataset ($\downarrow$) & a & b \\ \midrule
t & 0.605 & 0.505 \\ u & 0.300 & 0.200 \\ \midrule
Avg. Performance & & -10\% \\ \end{tabular}"""


@pytest.mark.parametrize(("name", "text"), [("x.md", MARKDOWN), ("x.tex", LATEX), ("y.tex", DATASETS)])
def test_tables_of_papers(tmp_path: Path, name: str, text: str) -> None:
    tables = board_of(tmp_path, name, text)
    assert {system[-1]: mean for system, mean in means(tables).items()} == pytest.approx({"a": 0.4525, "b": 0.3525})
    assert items(tables) == ["t", "u"]
    if name == "x.tex":
        assert means(board_of(tmp_path, name, text, "--metric", "R@100"))["a"] == pytest.approx(0.85)


def test_a_unit_is_a_query_of_its_collection(tmp_path: Path) -> None:
    """Two collections with queries 1 to 12, each in a folder with qrels.txt."""
    for task in ("one", "two"):
        folder = tmp_path / "results" / task
        folder.mkdir(parents=True)
        (folder / "qrels.txt").write_text("".join(f"{query} 0 {task}{query} 1\n" for query in range(1, 13)))
        for system, place in (("good@10", 1), ("good@100", 3)):
            lines = [
                f"{query} Q0 {task + str(query) if rank == place else f'x{rank}'} {rank} {10 - rank} x\n"
                for query in range(1, 13)
                for rank in (1, 2, 3)
            ]
            (folder / f"{system}.run").write_text("".join(lines))
    tables = audit(tmp_path, str(tmp_path / "results"))
    assert [row["system"] for row in tables["board"]] == ["good@10", "good@100"]
    assert [row["collection"] for row in tables["items"]] == ["one"] * 12 + ["two"] * 12
    assert len({row["unit"] for row in tables["items"]}) == 24
    assert tables["board"][1]["letters"] == "b"


def test_tables_of_another_audit_do_not_stay(results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs/reports/audit"
    audit(tmp_path, str(results), "--plan", "5")
    assert (folder / "plan.csv").exists()
    audit(tmp_path, str(results))
    assert not [*folder.glob("plan.*")]
    assert (folder / "board.csv").exists()


def test_what_is_hostile_is_named_and_the_rest_goes_on(results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "board.csv").write_bytes(results.read_bytes())
    (folder / "empty.jsonl").write_text('{"system": "a", "item": "x", "value": {}}\n' * 2)
    (folder / "bomb.json.gz").write_bytes(gzip.compress(b"[" + b"[]," * 8_000_000 + b"[]]"))
    (folder / "long.csv").write_text(f'system,item,value\na,"{"x" * 45_000_000}",.5\n')
    many = pl.DataFrame({"system": ["a"], "item": ["x"], "value": [0.5]})
    many.select(pl.all().repeat_by(3_000_000).explode()).write_parquet(folder / "many.parquet")
    tables = audit(tmp_path, str(folder), "--memory", "512M")
    assert len(tables["board"]) == 4
    named = {Path(row["what"]).name: row["reason"] for row in tables["skipped"]}
    assert named.keys() == {"empty.jsonl", "bomb.json.gz", "long.csv", "many.parquet"}
    assert all("512 MiB of memory" in named[name] for name in ("bomb.json.gz", "long.csv", "many.parquet"))
    for plan in ("nan", "inf", "-1", "1e308"):
        error = one_line_error(mdcr(tmp_path, "audit", str(results), "--plan", plan))
        assert "--plan must be a difference above 0" in error


def test_a_file_name_may_be_no_utf_8(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / os.fsdecode(b"b\xff.csv")).write_text("model,t,u\na,.5,.3\nb,.2,.1\n")
    assert means(audit(tmp_path, str(folder))) == pytest.approx({"a": 0.4, "b": 0.15})
