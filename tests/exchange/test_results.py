from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import ir_measures
import polars as pl
import pytest
import pytrec_eval

from pipeline.core.errors import InputError
from pipeline.exchange.boards import MAIN
from pipeline.exchange.results import read_results

QRELS = {"q1": {"d1": 1, "d2": 0}, "q2": {"d3": 2, "d4": 1}}
RUN = {"q1": {"d2": 2.0, "d1": 1.0}, "q2": {"d3": 3.0, "d4": 1.0}}


def values(path: Path, **options: object) -> dict[tuple[str, str, str], float]:
    found = read_results([path], **options)  # type: ignore[arg-type]
    factor = pl.when(scale="percent").then(0.01).otherwise(1.0)
    rows = found.values.with_columns(pl.col("value") * factor).iter_rows(named=True)
    return {(row["system"], row["item"], row["metric"]): row["value"] for row in rows}


def write_trec(folder: Path) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    qrels, run = folder / "qrels.txt", folder / "mine.run"
    qrels.write_text("".join(f"{q} 0 {d} {g}\n" for q, of in QRELS.items() for d, g in of.items()))
    run.write_text(
        "".join(f"{q} Q0 {d} {r} {s} x\n" for q, of in RUN.items() for r, (d, s) in enumerate(of.items(), 1))
    )
    return run, qrels


def test_runs_have_the_qrels_that_share_their_queries(tmp_path: Path) -> None:
    run, qrels = write_trec(tmp_path / "one")
    other = tmp_path / "other.qrels"
    other.write_text("q9 0 d1 1\n")
    stray = tmp_path / "stray.run"
    stray.write_text("q7 Q0 d1 1 1.0 x\n")
    found = read_results([tmp_path])
    assert [(judged.run.system, judged.run.path, judged.qrels) for judged in found.runs] == [("mine", run, qrels)]
    assert found.kinds == {"run": 2, "qrels": 2}
    reason = "it is a run, and no qrels next to it share a query. Give --qrels=FILE"
    assert found.skipped == [f"{stray}: {reason}"]


def test_qrels_may_be_given_in_any_format(tmp_path: Path) -> None:
    run, _ = write_trec(tmp_path / "runs")
    given = tmp_path / "given"
    (given / "qrels").mkdir(parents=True)
    (given / "qrels" / "test.json").write_text(json.dumps(QRELS))
    (given / "corpus.csv").write_text("system,item,value\na,t,0.1\n")
    for qrels in (given, given / "qrels" / "test.json"):
        found = read_results([run], str(qrels))
        assert [judged.qrels for judged in found.runs] == [given / "qrels" / "test.json"]
        assert found.values.is_empty()


def test_collections_are_taken_off_the_names_of_systems(tmp_path: Path) -> None:
    for task, query in (("scifact", "a"), ("nfcorpus", "b")):
        (tmp_path / f"qrels.beir-v1.0.0-{task}.test.txt").write_text(f"{query}1 0 d1 1\n")
        (tmp_path / f"run.beir-v1.0.0-{task}.bm25.txt").write_text(f"{query}1 Q0 d1 1 1.0 x\n")
    found = read_results([tmp_path])
    assert {judged.run.system for judged in found.runs} == {"bm25"}
    assert {judged.qrels.name.split("-")[2].split(".")[0] for judged in found.runs} == {"scifact", "nfcorpus"}


def test_values_of_other_tools(tmp_path: Path, plain_ranx: ModuleType) -> None:
    of_trec = pytrec_eval.RelevanceEvaluator(QRELS, {"map"}).evaluate(RUN)
    lines = [f"map                   \t{query}\t{of['map']:.4f}\n" for query, of in of_trec.items()]
    (tmp_path / "trec.eval").write_text("".join(lines) + "map                   \tall\t0.7500\n")
    (tmp_path / "tool.irm").write_text("".join(
        f"{of.query_id}\t{of.measure}\t{of.value:.4f}\n" for of in ir_measures.iter_calc([ir_measures.AP], QRELS, RUN)
    ))  # fmt: skip
    run = plain_ranx.Run.from_dict(RUN)
    plain_ranx.evaluate(plain_ranx.Qrels.from_dict(QRELS), run, ["map"])
    scores = {metric: {query: float(value) for query, value in of.items()} for metric, of in run.scores.items()}
    (tmp_path / "ranx.json").write_text(json.dumps(scores))
    expected = {
        (name, query, "map"): value
        for name in ("trec.eval", "tool.irm", "ranx")
        for query, value in (("q1", 0.5), ("q2", 1.0))
    }
    assert values(tmp_path) == expected


def test_results_and_revisions_of_mteb(tmp_path: Path) -> None:
    def write(revision: str, task: str, value: float) -> None:
        folder = tmp_path / "results" / "org__model" / revision
        folder.mkdir(parents=True, exist_ok=True)
        subset = {"hf_subset": "default", "main_score": value, "ndcg_at_10": value / 2, "languages": ["eng-Latn"]}
        content = {
            "task_name": task,
            "mteb_version": "2",
            "scores": {"test": [subset], "dev": [subset | {"main_score": 0}]},
        }
        (folder / f"{task}.json").write_text(json.dumps(content))
        (folder / "model_meta.json").write_text(json.dumps({"name": "org/model"}))

    write("one", "SciFact", 0.5)
    write("one", "ArguAna", 0.4)
    write("two", "SciFact", 0.9)
    assert values(tmp_path) == {("org/model", "SciFact", MAIN): 0.5, ("org/model", "ArguAna", MAIN): 0.4}
    assert read_results([tmp_path]).skipped[0].startswith("org/model@two: 1 tasks")
    assert values(tmp_path, metric="ndcg@10")["org/model", "SciFact", "ndcg@10"] == 0.25


BOARD = {("a", "t"): 0.412, ("a", "u"): 0.25, ("b", "t"): 0.5}


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("Rank,Model,Mean (Task),t,u,By\n1,a,.331,.412,.25,x\n2,b,.5,.5,,\n", "Rank, Mean (Task), By: no items"),
        ("model,t,u\n[a](https://a.b),41.2%,25%\n[b](https://a.c),50.0 %,n/a\n", None),
        ("model,t,u\na,0.412 ± 0.01,**0.25**\nb,0.5 ± 0.2,-\n", None),
        ("sep=;\n# of today\nmodel;t;u\na;0,412;0,25\nb;0,5;–\n", None),
        ("Query ID,a,b\nt,.412,.5\nu,.25,\nAverage,.331,.5\n", "Average: no items"),
        ("model,dataset,ndcg@10,seconds\na,t,.412,3\na,u,.25,3\nb,t,.5,4\n", "seconds: no metrics"),
        (
            "system,t,u\na,.412,.25\nb,.5,\nc,failed,.1\nd,.1,.1\n",
            "t has 'failed', which is no number and counts as missing",
        ),
    ],
)  # fmt: skip
def test_boards_as_people_write_them(tmp_path: Path, text: str, left_out: str | None) -> None:
    path = tmp_path / "board.csv"
    path.write_text(text)
    of_two = {key[:2]: value for key, value in values(path).items() if key[0] in "ab" and key[2] != "seconds"}
    assert of_two == pytest.approx(BOARD)
    assert read_results([path]).skipped == ([f"board.csv: {left_out}"] if left_out else [])


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl"])
def test_long_and_wide_tables(tmp_path: Path, ending: str) -> None:
    long = pl.DataFrame(
        {"model": ["a", "a", "b"], "task": ["t", "u", "t"], "score": [0.1, 0.2, 0.3], "family": ["x", "x", "x"]}
    )
    wide = pl.DataFrame({"name": ["a", "b"], "t": [0.1, 0.3], "u": [0.2, None]})
    for name, frame in (("long", long), ("wide", wide)):
        path = tmp_path / f"{name}.{ending}"
        if ending == "parquet":
            frame.write_parquet(path)
        elif ending == "jsonl":
            frame.write_ndjson(path)
        else:
            frame.write_csv(path, separator="\t" if ending == "tsv" else ",")
        assert values(path) == {("a", "t", MAIN): 0.1, ("a", "u", MAIN): 0.2, ("b", "t", MAIN): 0.3}


def test_a_wide_table_has_a_row_an_item_where_its_first_column_is_named_so(tmp_path: Path) -> None:
    path = tmp_path / "board.csv"
    path.write_text("qid,dataset,text,a,b\n7,t,x,.1,.3\n8,t,y,.2,\n")
    rows = read_results([path]).values.select("system", "group", "item", "value").rows()
    assert rows == [("a", "t", "7", 0.1), ("a", "t", "8", 0.2), ("b", "t", "7", 0.3)]
    path.write_text("Task,a,b\nt,.1,.3\nu,.2,\n")
    expected = {("a", "t", MAIN): 0.1, ("a", "u", MAIN): 0.2, ("b", "t", MAIN): 0.3}
    assert values(path) == expected
    path.write_text("type,task,a,b\nbinary,t,.1,.3\nbinary,u,.2,\n")
    assert values(path) == expected, "its tasks are no systems"
    path.write_text("type,task,fold,a,b\nbinary,t,0,.1,.3\nbinary,t,1,.2,\n")
    found = read_results([path]).values.select("system", "item", "sample", "value").rows()
    assert found == [("a", "t", "0", 0.1), ("a", "t", "1", 0.2), ("b", "t", "0", 0.3)]


@pytest.mark.parametrize("first", ["dataset", "query_id"])
def test_columns_of_metrics_beside_items_are_of_one_system(tmp_path: Path, first: str) -> None:
    for name in ("a", "b"):
        text = f"{first},accuracy_mean,accuracy_standard_deviation,seconds,Recall@5\n1,.1,.01,7,.5\n2,.2,.02,8,.6\n"
        (tmp_path / f"{name}.csv").write_text(text)
    found = values(tmp_path)
    assert {key[0] for key in found} == {"a", "b"}
    assert {key[2] for key in found} == {"accuracy_mean", "recall@5"}
    path = tmp_path / "long.csv"
    path.write_text("dataset,model,accuracy\nt,a,.1\nu,a,.2\nt,b,.3\nu,b,.4\n")
    assert values(path)["b", "u", "accuracy"] == 0.4


def test_rows_of_folds_are_repetitions_of_a_system(tmp_path: Path) -> None:
    path = tmp_path / "folds.csv"
    path.write_text("framework,task,fold,accuracy\na,t,0,.1\na,t,1,.3\nb,t,0,.2\nb,t,1,.4\n")
    rows = read_results([path]).values.select("system", "item", "sample", "value").rows()
    assert rows == [("a", "t", "0", 0.1), ("a", "t", "1", 0.3), ("b", "t", "0", 0.2), ("b", "t", "1", 0.4)]


def test_what_is_unknown_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "board.csv").write_text("system,t,u\na,0.1,0.2\n")
    (tmp_path / "notes.txt").write_text("some words here\n")
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "bad.json").write_text("{not json")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "empty.json").write_text('{"task_name": "T", "scores": {"test": []}}')
    run, _ = write_trec(tmp_path)
    (tmp_path / "bad.run").write_text(run.read_text() + "q2 Q0 d9 z\n")
    (tmp_path / "bad.qrels").write_text("q1 0 d1 1\nq1 0 d2 high\n")
    found = read_results([tmp_path])
    assert (len(found.values), [judged.run.system for judged in found.runs]) == (2, ["mine"])
    left_out = {line.partition(": ")[0].rpartition("/")[2] for line in found.skipped}
    assert left_out == {"bad.json", "bad.qrels", "bad.run", "empty.csv", "empty.json", "notes.txt", "other.json"}
    assert all("\n" not in line for line in found.skipped)
    with pytest.raises(InputError, match="is text without known columns"):
        read_results([tmp_path / "notes.txt"])
    with pytest.raises(InputError, match="must hold results, got none"):
        read_results([tmp_path / "notes.txt", tmp_path / "other.json"])
    with pytest.raises(InputError, match="there is no file or folder"):
        read_results([tmp_path / "gone"])


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret words\n")
    snapshot = tmp_path / "repository" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "repository" / "blobs").mkdir()
    (tmp_path / "repository" / "blobs" / "b").write_text("system,t,u\na,0.1,0.2\n")
    (snapshot / "board.csv").symlink_to("../../blobs/b")
    (snapshot / "link.csv").symlink_to(tmp_path / "secret.txt")
    found = read_results([snapshot])
    assert len(found.values) == 2
    assert len(found.skipped) == 1
    assert "must stay in its folder" in found.skipped[0]
    assert "secret words" not in found.skipped[0]


def test_tables_of_spreadsheets(tmp_path: Path) -> None:
    table = tmp_path / "board.csv"
    table.write_text("name;t;u\na;0,1;0,2\nb;0,3;0,4\n")
    assert values(table)["b", "u", MAIN] == 0.4
    rows = "".join(f'"r(a,b)",{n},0.{n},x; y; z; v; w; u\n' for n in range(3))
    table.write_text(f"system,item,value,settings\n{rows}")
    assert values(table)["r(a,b)", "2", MAIN] == 0.2
    table.write_text("system,item,value\na,t,0.1\n,t,0.2\na,,0.3\n")
    found = read_results([table])
    assert len(found.values) == 1
    assert found.skipped == ["2 values: they lack the name of a system or an item"]
    table.write_text("system,t,t\na,0.1,0.2\n")
    with pytest.raises(InputError, match="must have each column once, got 't' twice"):
        read_results([table])
