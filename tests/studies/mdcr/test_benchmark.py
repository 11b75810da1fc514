"""The benchmark that the study builds: rules of its lists on random corpora, bytes, kills, the files of the study."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline as interface
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.workspace import find_corpus
from pipeline.corpus.reader import Corpus
from pipeline.encode.names import split_names
from pipeline.studies.base import find
from pipeline.studies.mdcr.build import benchmark_task
from pipeline.studies.mdcr.lists import TRUE, existing, file_names, read_lists
from pipeline.studies.mdcr.study import Recipe, benchmark
from pipeline.studies.recipe import read_recipe
from tests.builders import made_up_paper, make_corpus
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

SYSTEMS = "bm25,bm25:k1=2,b=0.9,bm25:k1=0.1,b=0.1"
SETTINGS = {
    "corpus": "tiny",
    "fields": "all",
    "systems": SYSTEMS,
    "model_negatives": "",
    "size": "200",
    "queries": 6,
    "top": 30,
}


def recipe() -> Recipe:
    chosen: Recipe = read_recipe(find("mdcr").default_recipe, Recipe, SETTINGS)
    return chosen


def crowded(root: Path, seed: int) -> None:
    """Make a corpus in which most papers are of 2019, of several fields, and some share a title."""
    chance = np.random.default_rng(seed)
    papers = []
    for number in range(400):
        paper = made_up_paper(number) | {"year": int(chance.choice([2010, 2019, 2019, 2021]))}
        paper["title"] = paper["title"] if number % 7 else f"Same title {number % 3}"
        paper["fields"] = sorted(
            chance.choice(["Physics", "Medicine", "Art"], chance.integers(1, 3), replace=False).tolist()
        )
        papers.append(paper)
    links = np.unique(chance.integers(0, 400, (3_000, 2)), axis=0)
    make_corpus(root, papers, [(f"{a:05d}", f"{b:05d}") for a, b in links.tolist() if a != b])


@pytest.fixture(scope="module", params=["tiny", 1])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return a workspace and what the study printed there."""
    if request.param == "tiny":
        root = request.getfixturevalue("root")
    else:
        root = tmp_path_factory.mktemp("crowded")
        crowded(root, request.param)
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    return root, mdcr_json(root, "study", "mdcr", *settings)


def planned(workspace: Any, of: Recipe | None = None) -> Any:
    """Return the rankings of a benchmark, whose BM25 is tuned if need be, and its task."""
    steps, made = benchmark(workspace, of or recipe()), None
    while True:
        try:
            made = workspace.make(list(steps.send(made)))
        except StopIteration as end:
            return end.value


def artifact_of(root: Path) -> Artifact:
    workspace = interface.open(root)
    return workspace.runner.make(planned(workspace)[1])


def test_lists_keep_their_rules(built: tuple[Path, dict[str, Any]]) -> None:
    root, printed = built
    folder, corpus = Path(printed["folder"]), Corpus(find_corpus(root, "tiny"))
    year, titles = corpus.attributes["year"], corpus.attributes["title_key"]
    counts = artifact_of(root).manifest.counts
    queries: dict[str, set[str]] = {}
    for split in ("val", "test"):
        lists = read_lists(folder, split)
        used: set[str] = set()
        for query, by_type in (item for of_field in lists.values() for item in of_field.items()):
            (row,) = corpus.rows_of([query])
            listed = [paper for ids in by_type.values() for paper in ids]
            assert len({query, *listed}) == 1 + len(listed)
            cited = set(corpus.ids(corpus.outgoing.of(int(row))))
            negatives = corpus.rows_of([paper for paper in listed if paper not in by_type[TRUE]])
            assert by_type[TRUE]
            assert set(by_type[TRUE]) <= cited
            assert not cited & set(corpus.ids(negatives))
            assert (year[negatives] <= 2019).all()
            assert not (titles[negatives] == titles[row]).any()
            assert list(by_type) == [TRUE, *split_names(SYSTEMS), "graph", "most_cited", "random"]
            assert all(len(ids) <= (5 if name == TRUE else 10) for name, ids in by_type.items())
            used |= {query, *listed}
        queries[split] = {query for of_field in lists.values() for query in of_field}
        lines = existing(folder, file_names(split)[1]).read_text().splitlines()
        assert {json.loads(line)["paper_id"] for line in lines} == used
        every = [by_type for of_field in lists.values() for by_type in of_field.values()]
        fewer = {name: [len(by_type[name]) < (5 if name == TRUE else 10) for by_type in every] for name in every[0]}
        expected = {
            "queries": sum(map(len, lists.values())),
            "fields": len(lists),
            "papers": len(used),
            "pairs": sum(len(ids) for by_type in every for ids in by_type.values()),
            "queries_with_fewer_negatives": sum(map(any, zip(*(fewer[n] for n in fewer if n != TRUE), strict=True))),
            "queries_with_fewer_positives": sum(fewer[TRUE]),
            "queries_with_fewer_graph_candidates": sum(fewer["graph"]),
        }
        assert {name: counts[f"{split}_{name}"] for name in expected} == expected
        assert not set(lists) & set(counts["fields_left_out"])
    assert not queries["val"] & queries["test"]
    assert counts["left_out_fields"] == 19 - counts["test_fields"] == len(counts["fields_left_out"])
    shared = 6 * counts["val_fields"] - counts["val_queries"]
    assert shared == counts["val_queries_left_out_as_test_queries"]
    assert shared or len(corpus) == 3000  # papers of several fields are many in the other corpora


def test_the_study_leaves_its_files(built: tuple[Path, dict[str, Any]]) -> None:
    root, printed = built
    folder, artifact = Path(printed["folder"]), artifact_of(root)
    for output in artifact.outputs("mdcr_*"):
        assert hashlib.sha256((folder / output.path).read_bytes()).hexdigest() == output.sha256
    assert [0 <= row["jaccard"] <= 1 for row in printed["tables"]["jaccard"]] == [True] * 3
    assert artifact.manifest.counts["model_negatives"] == split_names(SYSTEMS)


@pytest.mark.parametrize("built", [1], indirect=True)
def test_bytes_follow_the_seed(built: tuple[Path, dict[str, Any]]) -> None:
    root, _ = built
    workspace, first = interface.open(root), artifact_of(root)
    shutil.rmtree(first.path)
    assert artifact_of(root).manifest.outputs == first.manifest.outputs
    parts, task = planned(workspace)
    lists = read_lists(first.path, "test")
    for change in ({"seed": 14}, {"redraw": 1}):
        config = dataclasses.replace(task.config, drawing=dataclasses.replace(task.config.drawing, **change))
        other = benchmark_task(find_corpus(root, "tiny"), parts, config)
        others = read_lists(workspace.runner.make(other).path, "test")
        for name in ("bm25", "random", TRUE):
            drawn = [[by_type[name] for f in content.values() for by_type in f.values()] for content in (lists, others)]
            assert (drawn[0] == drawn[1]) == (name == TRUE and "redraw" in change)


@pytest.mark.parametrize("built", [1], indirect=True)
def test_a_field_without_validation_queries_of_its_own_is_refused(built: tuple[Path, dict[str, Any]]) -> None:
    root, _ = built
    parts, task = planned(interface.open(root))
    test = next(part for part in parts if part.split == "test")
    both = benchmark_task(find_corpus(root, "tiny"), [dataclasses.replace(test, split="val"), test], task.config)
    with pytest.raises(InputError, match=f"every validation query of {test.field} is a test query"):
        interface.open(root).runner.make(both)


@pytest.mark.java
def test_a_tuning_in_the_workspace_leaves_the_benchmark_as_it_is(tmp_path: Path) -> None:
    crowded(tmp_path, 2)
    before = planned(interface.open(tmp_path))[1].id
    result = mdcr(tmp_path, *flags("tune --field Medicine --size 200 --queries 6"))
    assert result.returncode == 0, result.stderr
    assert planned(interface.open(tmp_path))[1].id == before


@pytest.mark.java
def test_bm25_gives_negatives_by_the_parameters_tuned_on_val(tmp_path: Path) -> None:
    crowded(tmp_path, 2)
    settings = {**SETTINGS, "fields": "Medicine,Physics", "tune": True, "model_negatives": SYSTEMS}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    plan = mdcr(tmp_path, "study", "mdcr", *words, "--dry-run")
    assert plan.returncode == 0, plan.stderr
    mdcr_json(tmp_path, "study", "mdcr", *words)
    opened = interface.open(tmp_path)
    fields, _ = planned(opened, read_recipe(find("mdcr").default_recipe, Recipe, settings))
    tuned = {}
    for path in (tmp_path / "runs" / "tunings").glob("*/manifest.json"):
        manifest = json.loads(path.read_text())
        tuned[manifest["config"]["pool"]["field"]] = manifest["counts"]["k1"], manifest["counts"]["b"]
    assert {*tuned} == {"Medicine", "Physics"}
    for field in fields:
        assert {*field.rankings} == {*split_names(SYSTEMS)}
        config = Artifact.open(opened.runner.path(field.rankings["bm25"])).manifest.config
        assert (config["k1"], config["b"]) == tuned[field.field]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("queries=2000", "enough papers"),
        ("model_negatives=lsa", "model_negatives"),
        ("systems=bm25", "3"),
        ("systems=bm25,lsa,rrf(bm25:tuned,lsa)", "a tuning serves test pools alone"),
        ("positive=5", "positives"),
    ],
)
def test_bad_settings_are_one_line(root: Path, settings: str, named: str) -> None:
    fixed = ["--set", "size=200", "--set", "queries=6", "--set", "model_negatives=", "--model", SYSTEMS]
    name, _, value = settings.partition("=")
    given = ["--model", value] if name == "systems" else ["--set", settings]
    assert named in one_line_error(mdcr(root, *flags("study mdcr --corpus tiny"), *fixed, *given))
