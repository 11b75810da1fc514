"""Files of other tools: score files against pytrec_eval, runs, BEIR folders that mteb reads, and bad files."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.studies.mdcr.exchange import read_scores
from pipeline.studies.mdcr.lists import candidates_of, read_lists
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error
from tests.studies.mdcr.conftest import (
    MEASURES,
    by_pytrec_eval,
    close,
    evaluate,
    export_scores,
    pairs_of,
    random_lists,
)


def score(workspace: Path, folder: Path, file: Path, *further: str) -> dict[str, dict[str, float]]:
    rows = mdcr_json(workspace, *flags(f"score --benchmark {folder} --scores {file}"), *further)["scores"]
    return {row["field"]: {name: row[name] for name in MEASURES.values()} for row in rows}


@pytest.mark.parametrize("seed", range(6))
def test_score_files_score_as_trec_eval(workspace: Path, tmp_path: Path, seed: int) -> None:
    lists, file = random_lists(seed), tmp_path / "scores.json"
    chance = np.random.default_rng(seed)
    (tmp_path / "mdcr_val.json").write_text(json.dumps(lists))
    drawn = [1.0, 1.0 + 1e-12, 2, -3.5, 1e30] if seed % 2 else chance.normal(size=40)
    scores = {f"{query}_{paper}": float(chance.choice(drawn)) for query, paper in pairs_of(lists)}
    file.write_text(json.dumps(scores))
    expected = by_pytrec_eval(lists, scores)
    assert score(workspace, tmp_path, file, "--split", "val") == close(expected)
    table = mdcr(workspace, *flags(f"score --benchmark {tmp_path} --split val --scores {file}")).stdout
    assert f"{100 * expected['AVG']['ndcg']:.4f}" in table


@pytest.mark.parametrize("system", ["bm25", "lsa", "rrf(bm25,lsa)"])
def test_systems_agree_with_their_score_file(workspace: Path, folder: Path, tmp_path: Path, system: str) -> None:
    file, lists = tmp_path / "scores.json", read_lists(folder, "test")
    index = "field" if system.startswith("rrf") else "corpus"
    command = flags(f"eval --benchmark {folder} --model {system} --bm25-index {index} --export-scores {file}")
    several = "pairs have another score in each field" in mdcr(workspace, *command).stderr
    assert several == (index == "field")
    expected = by_pytrec_eval(lists, json.loads(file.read_text()))
    assert score(workspace, folder, file) == close(expected)
    if index == "corpus":  # the score of a pair is the same in both fields
        assert evaluate(workspace, folder, system, "--bm25-index", index) == close(expected)


def test_a_run_of_another_tool_is_scored_on_every_field(workspace: Path, folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "theirs.trec"
    scores = export_scores(workspace, folder, "lsa", tmp_path / "scores.json")
    lines = [f"{key.replace('_', ' Q0 ')} 1 {score!r} theirs\n" for key, score in scores.items()]
    run.write_text("".join(lines))
    assert evaluate(workspace, folder, f"run:{run}") == close(by_pytrec_eval(read_lists(folder, "test"), scores))
    run.write_text("".join(lines[1:]))
    query, candidate = next(iter(scores)).split("_")
    line = one_line_error(mdcr(workspace, *flags(f"eval --benchmark {folder} --model run:{run}")))
    assert f"query {query} and candidate {candidate}" in line


def test_mteb_runs_the_exported_tasks(
    workspace: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loads each field with the candidates of each query, and measures what we measure."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    command = flags(f"export benchmark --format mteb --benchmark {folder} --output {tmp_path / 'beir'}")
    exported = mdcr_json(workspace, *command)
    assert [Path(path).name for path in exported["exported"]] == ["art", "physics", "mteb_tasks.py"]
    lists, scores = read_lists(folder, "test"), export_scores(workspace, folder, "lsa", tmp_path / "scores.json")
    expected = by_pytrec_eval(lists, scores)
    for task, (field, queries) in zip(runpy.run_path(exported["exported"][-1])["tasks"](), lists.items(), strict=True):
        task.load_data()
        split = task.dataset["default"]["test"]
        listed = {query: sorted(candidates_of(by_type)) for query, by_type in queries.items()}
        assert {query: sorted(ids) for query, ids in split["top_ranked"].items()} == listed
        run = {query: {paper: scores[f"{query}_{paper}"] for paper in ids} for query, ids in listed.items()}

        class Ours:
            mteb_model_meta = None

            def index(self, *args: object, **settings: object) -> None: ...

            def search(self, queries: object, *, run: Any = run, **settings: object) -> Any:
                return run

        values = task.evaluate(Ours(), "test", encode_kwargs={})["default"]
        assert values["map_at_1000"] == pytest.approx(expected[field]["map"], abs=1e-5)
        assert values["recall_at_5"] == pytest.approx(expected[field]["recall@5"], abs=1e-5)


def test_a_name_from_a_benchmark_is_never_a_path(tmp_path: Path, folder: Path) -> None:
    """Pools and exported folders of fields such as ``/../../x`` stay where those of other fields are."""
    outer = tmp_path / "outer"
    root, benchmark, beir = (outer / "one" / "two" / name for name in ("root", "benchmark", "beir"))
    root.mkdir(parents=True)
    benchmark.mkdir()
    queries = random_lists(1)["Art"]
    names = ["/../../../../x", "..", "\n\u202e" + "long " * 100, "\u0436"]
    (benchmark / "mdcr_test.json").write_text(json.dumps(dict.fromkeys(names[:-1], queries)))
    (benchmark / "mdcr_test_data.jsonl").write_bytes((folder / "mdcr_test_data.jsonl").read_bytes())
    before = {path for path in tmp_path.rglob("*") if root not in path.parents}
    assert list(evaluate(root, benchmark, "bm25")) == [*sorted(names[:-1]), "AVG"]
    assert {path for path in tmp_path.rglob("*") if root not in path.parents} == before
    assert len(list((root / "corpora" / "pools").glob("*/manifest.json"))) == 3
    command = flags(f"export benchmark --benchmark {benchmark} --output {beir}")
    exported = [Path(path) for path in mdcr_json(root, *command)["exported"]]
    assert {path.parent for path in exported} == {beir}
    assert {path for path in tmp_path.rglob("*") if not {root, beir} & {path, *path.parents}} == before - {root, beir}
    (benchmark / "mdcr_test.json").write_text(json.dumps(dict.fromkeys(names[1:], queries)))
    assert "must have different folders" in one_line_error(mdcr(root, *command))


@pytest.mark.parametrize("value", [None, "missing", float("nan"), float("inf"), 10**400, "0.5", True])
def test_bad_scores_are_named(folder: Path, tmp_path: Path, value: Any) -> None:
    lists, file = read_lists(folder, "test"), tmp_path / "scores.json"
    scores: dict[str, Any] = {f"{query}_{paper}": 0.5 for query, paper in pairs_of(lists)}
    key = next(iter(scores))
    file.write_text(json.dumps(scores | {key: value} if value != "missing" else dict(list(scores.items())[1:])))
    with pytest.raises(InputError, match="query 00000 and candidate" if value == "missing" else key):
        read_scores(file, lists)


@pytest.mark.parametrize(
    ("lists", "scores", "named"),
    [
        ('{"1": {"true": ["2"]}}', '{"1_2": 0.5, "1_3": 0.5}', "score pairs of the benchmark, got '1_3'"),
        ('{"1": {"true": ["2"]}}', '{"1_2": 0.5, "1_2": 0.25}', "scores.json must have each key once, got '1_2' twice"),
        ('{"1": {"true": ["2"]}}', "[]", 'must map "queryid_candidateid" to a score'),
        ('{"1": {"true": ["2_3"]}, "1_2": {"true": ["3"]}}', "{}", "one pair, got 1, 2_3 and 1_2, 3"),
    ],
)
def test_bad_score_files_are_one_line(workspace: Path, tmp_path: Path, lists: str, scores: str, named: str) -> None:
    (tmp_path / "mdcr_test.json").write_text(f'{{"Art": {lists}}}')
    (tmp_path / "scores.json").write_text(scores)
    line = one_line_error(mdcr(workspace, *flags(f"score --benchmark {tmp_path} --scores {tmp_path / 'scores.json'}")))
    assert named in line


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "JSON"),
        ("[]", "map fields"),
        ('{"Art": []}', "Art"),
        ('{"Art": {"1": {"true": "2"}}}', "query 1 of Art"),
        ('{"Art": {"1": {"true": [], "bm25": ["2"]}}}', "query 1 of Art"),
        ('{"Art": {"1": {"true": ["2", "1"]}}}', "query 1 of Art has itself as candidate"),
        ('{"Art": {"1": {"true": ["2"]}}, "Art": {"1": {"true": ["3"]}}}', "each key once, got 'Art' twice"),
        ('{"Art": {"1": {"true": ["2"]}, "1": {"true": ["3"]}}}', "got '1' twice"),
        ('{"Art": {"1": {"true": ["2"], "true": ["3"]}}}', "got 'true' twice"),
        ('{"Art": {"\\ud800": {"true": ["2"]}}}', "must be a JSON file"),
        (f'{{"Art": {"[" * 600}{{"1": 2, "1": 3}}{"]" * 600}}}', "must have each key once, got '1' twice"),
    ],
)
def test_bad_layouts_are_named(tmp_path: Path, content: str, named: str) -> None:
    (tmp_path / "mdcr_test.json").write_text(content)
    with pytest.raises(InputError, match=named):
        read_lists(tmp_path, "test")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("eval --model bm25 --scores x.json", "--benchmark"),
        ("score", "--model"),
        ("study mdcr_eval --input FOLDER --model lsa", "baseline must be one of lsa, got 'bm25'"),
        ("eval --model bm25 --benchmark absent", "mdcr_test_data.jsonl"),
        ("eval --model bm25 --benchmark FOLDER --split dev", "dev"),
        ("eval --model bm25 --benchmark FOLDER --split val", "mdcr_val"),
        ("eval --model bm25 --benchmark FOLDER --field Art", "--field"),
        ("eval --model bm25 --benchmark FOLDER --bm25-index pool", "pool"),
        ("eval --model rrf(bm25,lsa) --benchmark FOLDER --bm25-index query", "fused"),
        ("eval --model bm25,lsa --benchmark FOLDER --export-scores x.json", "bm25, lsa"),
        ("score --model bm25 --benchmark FOLDER --scores x.json", "--model"),
    ],
)
def test_bad_commands_are_one_line(workspace: Path, folder: Path, arguments: str, named: str) -> None:
    assert named in one_line_error(mdcr(workspace, *flags(arguments.replace("FOLDER", str(folder)))))


def test_a_paper_without_text_is_named(workspace: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mdcr_test.json").write_text('{"Art": {"00001": {"true": ["99999"]}}}')
    (tmp_path / "mdcr_test_data.jsonl").write_bytes((folder / "mdcr_test_data.jsonl").read_bytes())
    line = one_line_error(mdcr(workspace, *flags(f"eval --model bm25 --benchmark {tmp_path}")))
    assert "query 00001 of Art needs the text of paper 99999" in line
