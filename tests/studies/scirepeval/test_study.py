"""The study, run as users run it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file

import pipeline
from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.stages.corpus import corpus_task
from pipeline.stages.embed import store_of
from pipeline.studies.scirepeval.report import GROUPS, GROUPS_OF_25
from pipeline.studies.scirepeval.study import TaskPapers, encoders, vector_tasks, vectors_of
from pipeline.studies.scirepeval.tasks import Folder, entries
from tests.cli.run import mdcr, mdcr_json, one_line_error
from tests.encode.tiny import save_bert
from tests.shared import real
from tests.studies.scirepeval.published import PAPERS, write

TASKS = ("biomimicry", "cite_count", "s2and", "reviewers", "scidocs_cite", "trec_covid")


def _study(folder: Path, *more: str) -> list[str]:
    chosen = "[" + ",".join(f'"{task}"' for task in TASKS) + "]"
    return ["study", "scirepeval", "--input", str(folder), "--set", f"tasks={chosen}", "--set", "resamples=50", *more]


@pytest.mark.parametrize(("edition", "groups"), [(24, GROUPS), (25, GROUPS_OF_25)])
def test_published_averages_are_those_of_as_many_figures(edition: int, groups: dict[str, pl.Expr]) -> None:
    averaged = [entry for entry in entries().values() if entry.averaged and edition in entry.editions]
    figures = [(e.name, e.in_train) for e in averaged for _ in range(1 if e.kind == "reviewers" else len(e.measures))]
    frame = pl.DataFrame(figures, ["task", "in_train"], orient="row")
    count = {group.replace("_", "-"): frame.filter(of).height for group, of in groups.items()}
    assert count.pop("average") == sum(count.values())
    table = Path(pipeline.__file__).parent / "data/reference/trainings/averages.csv"
    published = pl.read_csv(table).filter(edition=edition)
    ours = sum((pl.col(group) * number for group, number in count.items()), pl.lit(0.0)) / sum(count.values())
    assert published.height > 5
    # Rounding: 0.05 of the average, and 0.05 of the averages of the groups.
    assert published.select((ours - pl.col("average")).abs().max()).item() <= 0.1 + 1e-9


def test_every_kind_of_task_from_the_published_layout(tmp_path: Path) -> None:
    folder, root = write(tmp_path / "in"), tmp_path / "workspace"
    root.mkdir()
    study = mdcr_json(root, *_study(folder, "--model", "lsa:dimension=8,lsa:dimension=3,lsa:dimension=2"))
    rows = [row for row in study["tables"]["tasks"] if row["system"] == "lsa:dimension=8"]
    values = {(row["task"], row["measure"]): row["value"] for row in rows}
    assert {task for task, _ in values} == set(TASKS)
    assert values["scidocs_cite", "map"] > 0.9  # a topic has its own words
    assert values["trec_covid", "ndcg"] > 0.9
    assert values["s2and", "b3_f1"] > 0.9
    assert values["biomimicry", "f1 (all, 64, 16)"] > 0.9
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    assert {row["files"] for row in rows} == {"whole"}
    averages = {row["group"]: row for row in study["tables"]["averages"] if row["system"] == "lsa:dimension=8"}
    assert (averages["in-train"]["figures"], averages["out-of-train"]["figures"]) == (1, 6)
    assert averages["average"]["value"] == pytest.approx(np.mean(list(values.values())))
    assert study["tables"]["differences"][0]["figures"] == 7
    assert len(study["tables"]["correlations"]) == 7 * 6
    written = {path.name for path in Path(study["folder"]).iterdir()}
    assert {"averages.md", "tasks.csv", "formats.tex", "counts.csv"} <= written
    # Nothing is made twice, and a choice of tasks finds what was made.
    made = {path: path.stat().st_mtime_ns for path in root.rglob("manifest.json")}
    again = mdcr_json(root, *_study(folder, "--model", "lsa:dimension=8", "--set", 'tasks=["s2and"]'))
    assert again["tables"]["tasks"][0]["value"] == values["s2and", "b3_f1"]
    assert {path: path.stat().st_mtime_ns for path in root.rglob("manifest.json")} == made
    assert sum("vectors" in str(path) for path in made) == 6  # papers and ad-hoc queries of three systems


def test_each_format_s_vectors_on_each_format_s_tasks(tmp_path: Path) -> None:
    names = ("scidocs_mag", "cite_count", "scidocs_cite", "trec_covid")
    folder, base = write(tmp_path / "in", names), save_bert(tmp_path / "bert")
    codes = {"classification": "CLF", "regression": "RGN", "proximity": "PRX", "search": "PRX", "query": "QRY"}
    own = {name: f"{base}:pooling=position:1,paper_prefix=[{code}]" for name, code in codes.items()}
    (tmp_path / "own.toml").write_text("[mine]\n" + "".join(f'{name} = "{text}"\n' for name, text in own.items()))
    settings = [f"formats={tmp_path}/own.toml", "confusion=mine"]
    chosen = f"tasks={json.dumps(names)}"
    given = [word for setting in (*settings, chosen, "resamples=20") for word in ("--set", setting)]
    study = mdcr_json(tmp_path, "study", "scirepeval", "--input", str(folder), "--model", "mine", *given)
    codes_table, formats_table = (
        [row for row in study["tables"][name] if row["value"] is not None] for name in ("codes", "formats")
    )
    values = {(row["format"], row["vectors"]): row["value"] for row in codes_table}
    assert len(values) == 4 * 4
    alone = {row["format"]: row["value"] for row in formats_table}
    for name in ("classification", "regression", "proximity"):
        assert values[name, name] == alone[name]
    assert len(set(values.values())) > 8
    sizes = {row["formats"]: row["parameters"] for row in study["tables"]["efficiency"]}
    weights = load_file(base / "model.safetensors")
    assert sizes == dict.fromkeys(
        ("classification", "regression", "proximity, search"), sum(tensor.size for tensor in weights.values())
    )
    assert {row["own_parameters"] for row in study["tables"]["efficiency"]} == {32}  # the embedding of a code
    assert all(row["papers_per_second"] > 0 for row in study["tables"]["efficiency"])
    assert "confusion of formats" in (Path(study["folder"]) / "index.html").read_text()
    (tmp_path / "own.toml").write_text('[mine]\nclassification = "lsa"\n')
    again = mdcr(tmp_path, "study", "scirepeval", "--input", str(folder), "--model", "mine", *given)
    assert "system mine must have an encoder for each of" in one_line_error(again)


def test_encoders_of_sentences_rank_proximity_tasks_alone(tmp_path: Path) -> None:
    folder, encoder = write(tmp_path / "in"), f"sentences:encoder={save_bert(tmp_path / 'bert')}"
    systems = f"{encoder},ot({encoder})"
    one_vector = mdcr(tmp_path, *_study(folder, "--model", systems))
    assert "task cite_count needs one vector per paper" in one_line_error(one_vector)
    chosen = ("--set", 'tasks=["reviewers","scidocs_cite"]')
    study = mdcr_json(tmp_path, *_study(folder, "--model", systems, *chosen))
    maps = [row["value"] for row in study["tables"]["tasks"] if row["measure"] == "map"]
    assert len(maps) == 2  # the papers are one sentence each: its best pair is its transport
    assert maps[0] == pytest.approx(maps[1])
    assert [row["figures"] for row in study["tables"]["averages"] if row["group"] == "average"] == [3, 3]
    earlier = mdcr_json(tmp_path, *_study(folder, "--model", encoder, *chosen, "--set", "edition=25"))["tables"]
    assert {row["group"]: row["figures"] for row in earlier["averages"] if row["value"]} == {
        "out-of-train": 1, "scidocs": 2, "average": 3
    }  # fmt: skip
    wrong = mdcr(tmp_path, *_study(folder, "--model", "ot(lsa)", *chosen))
    assert "ot(lsa) must name an encoder with a vector a sentence" in one_line_error(wrong)


def test_the_listing_names_every_task(tmp_path: Path) -> None:
    folder = write(tmp_path / "in")
    rows = mdcr_json(tmp_path, "study", "scirepeval", "--list", "--input", str(folder))["tasks"]
    assert {row["task"] for row in rows if row["files"] == "whole"} >= set(TASKS)
    assert len(rows) == 27


@pytest.mark.parametrize(
    ("folder", "arguments", "said"),
    [
        ("absent", [], "hf download allenai/"),
        ("", [], "--input"),
        ("in", ["--set", 'tasks=["mesh"]'], "files of task mesh"),
        ("in", ["--set", "baseline=bm25"], "baseline"),
        ("in", ["--set", "systems=lsa", "--set", "confusion=mine"], "confusion must name a multi-format system"),
        ("in", ["--set", "systems=lsa", "--set", "formats=absent.toml"], "the TOML file absent.toml cannot be read"),
        ("in/s2and/tiny", [], "files of a task"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, folder: str, arguments: list[str], said: str) -> None:
    write(tmp_path / "in", ["drsm"])
    given = ["--input", str(tmp_path / folder)] if folder else []
    assert said in one_line_error(mdcr(tmp_path, "study", "scirepeval", *given, *arguments))


@pytest.mark.realdata
@pytest.mark.slow
def test_real_samples(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for source in real("scirepeval-sample").iterdir():
        (folder / source.name).symlink_to(source)
    given = ["study", "scirepeval", "--input", str(folder), "--set"]
    chosen = 'tasks=["mesh","same_author","search","cite_prediction"]'
    tables = mdcr_json(tmp_path, *given, chosen, "--model", "lsa:dimension=64", "--set", "resamples=50")["tables"]
    rows = {row["task"]: row for row in tables["tasks"]}
    assert {row["files"] for row in rows.values()} == {"sample"}
    items = {"mesh": 68, "same_author": 40, "search": 100, "cite_prediction": 200}
    assert {task: rows[task]["items"] for task in items} == items
    assert rows["cite_prediction"]["value"] > 0.8
    assert tables["averages"][0]["figures"] == 3


def test_formats_of_one_encoder_share_vectors_and_another_text_is_refused(tmp_path: Path) -> None:
    encoder = {"classification": 2, "regression": 3, "proximity": 4, "search": 4}
    lines = [f'{name} = "lsa:dimension={dimension}"\n' for name, dimension in encoder.items()]
    (tmp_path / "own.toml").write_text("[several]\n" + "".join(lines))
    folder, runner = Folder(write(tmp_path / "in")), Runner(tmp_path, Resources(workers=1))
    there = tuple(entry for entry in entries().values() if folder.state(entry) == "whole")
    corpus = runner.make(corpus_task("scirepeval", TaskPapers(folder=folder, entries=there)))
    tasks = vector_tasks(corpus, folder, there, encoders("several", str(tmp_path / "own.toml")))
    assert tasks["proximity"] is tasks["search"]
    papers = runner.make(tasks["regression"]["paper"])
    assert len(store_of(papers).rows) == PAPERS
    with pytest.raises(InputError, match="'p9' must be in the corpus"):
        vectors_of({"corpus": corpus, "papers": papers})(["p9~0"], "paper")
