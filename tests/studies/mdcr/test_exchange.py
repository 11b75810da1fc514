"""Files of other tools: score files and runs against pytrec_eval, and bad files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.core.errors import InputError
from pipeline.studies.mdcr.lists import read_lists
from tests.cli.run import flags, mdcr, one_line_error
from tests.studies.mdcr.conftest import by_pytrec_eval, close, evaluate, export_scores, random_lists


@pytest.mark.parametrize("system", ["bm25", "lsa", "rrf(bm25,lsa)"])
def test_systems_agree_with_their_score_file(workspace: Path, folder: Path, tmp_path: Path, system: str) -> None:
    file, scores = tmp_path / "scores.json", export_scores(workspace, folder, system)
    expected = by_pytrec_eval(read_lists(folder, "test"), scores)
    file.write_text(json.dumps(scores))
    assert evaluate(workspace, folder, f"run:{file}") == close(expected)
    if system == "lsa":  # the score of a pair is the same in both fields
        assert evaluate(workspace, folder, system) == close(expected)


def test_a_run_of_another_tool_is_scored_on_every_field(workspace: Path, folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "theirs.trec"
    scores = export_scores(workspace, folder, "lsa")
    lines = [f"{key.replace('_', ' Q0 ')} 1 {score!r} theirs\n" for key, score in scores.items()]
    run.write_text("".join(lines))
    expected = by_pytrec_eval(read_lists(folder, "test"), scores)
    assert evaluate(workspace, folder, f"run:{run}") == close(expected)
    run.write_text("".join(lines[1:]))
    query, candidate = next(iter(scores)).split("_")
    command = flags(f"study mdcr_eval --set baseline= --input {folder} --model run:{run}")
    assert f"query {query} and candidate {candidate}" in one_line_error(mdcr(workspace, *command))


def test_a_name_from_a_benchmark_is_never_a_path(tmp_path: Path, folder: Path) -> None:
    """Pools of fields such as ``/../../x`` stay where those of other fields are."""
    outer = tmp_path / "outer"
    root, benchmark = (outer / "one" / "two" / name for name in ("root", "benchmark"))
    root.mkdir(parents=True)
    benchmark.mkdir()
    queries = random_lists(1)["Art"]
    names = ["/../../../../x", "..", "\n\u202e" + "long " * 100]
    (benchmark / "mdcr_test.json").write_text(json.dumps(dict.fromkeys(names, queries)))
    (benchmark / "mdcr_test_data.jsonl").write_bytes((folder / "mdcr_test_data.jsonl").read_bytes())
    before = {path for path in tmp_path.rglob("*") if root not in path.parents}
    assert list(evaluate(root, benchmark, "bm25")) == [*sorted(names), "AVG"]
    assert {path for path in tmp_path.rglob("*") if root not in path.parents} == before
    assert len(list((root / "corpora" / "pools").glob("*/manifest.json"))) == 3


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[]", "map fields"),
        ('{"Art": {"1": {"true": [], "bm25": ["2"]}}}', "query 1 of Art"),
        ('{"Art": {"1": {"true": ["2", "1"]}}}', "query 1 of Art has itself as candidate"),
        ('{"Art": {"1": {"true": ["2"]}}, "Art": {"1": {"true": ["3"]}}}', "each key once, got 'Art' twice"),
        ('{"Art": {"\\ud800": {"true": ["2"]}}}', "must be a JSON file"),
    ],
)
def test_bad_layouts_are_named(tmp_path: Path, content: str, named: str) -> None:
    (tmp_path / "mdcr_test.json").write_text(content)
    with pytest.raises(InputError, match=named):
        read_lists(tmp_path, "test")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--input FOLDER --model lsa", "baseline must be one of lsa, got 'bm25'"),
        ("--input absent --model bm25", "the input folder absent does not exist"),
        ("--input FOLDER --model bm25 --set split=dev", "dev"),
        ("--input FOLDER --model bm25 --set split=val", "mdcr_val"),
    ],
)
def test_bad_commands_are_one_line(workspace: Path, folder: Path, arguments: str, named: str) -> None:
    command = flags("study mdcr_eval " + arguments.replace("FOLDER", str(folder)))
    assert named in one_line_error(mdcr(workspace, *command))


def test_a_paper_without_text_is_named(workspace: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mdcr_test.json").write_text('{"Art": {"00001": {"true": ["99999"]}}}')
    (tmp_path / "mdcr_test_data.jsonl").write_bytes((folder / "mdcr_test_data.jsonl").read_bytes())
    line = one_line_error(mdcr(workspace, *flags(f"study mdcr_eval --input {tmp_path} --model bm25")))
    assert "query 00001 of Art needs the text of paper 99999" in line
