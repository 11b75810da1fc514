"""Hostile lines, files and options: each is refused in one line, or counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.run import Result, flags, mdcr, mdcr_json, one_line_error
from tests.faults.hostile import BENCHMARKS, RUNS, Input, inputs, shown
from tests.faults.imports import Import, imports
from tests.faults.tally import Tally
from tests.faults.workspace import leftovers

pytestmark = pytest.mark.usefixtures("limit")

ROWS = list(inputs())
IMPORTS = list(imports())


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_an_input_is_counted_or_refused(row: Input, tmp_path: Path, tally: Tally) -> None:
    folder, root = tmp_path / "input", tmp_path / "root"
    folder.mkdir()
    fill(row, folder)
    tally.count("tried")
    words = ["corpus", "--source", row.source, "--input", str(folder), *flags("--corpus t --workers 1 --json")]
    result = mdcr(root, *words, *(option.replace("INPUT", str(folder)) for option in row.options))
    if row.counted is None:
        refused(result, row.said)
        assert not published(root)
        tally.count("refused")
    else:
        assert result.returncode == 0, result.stderr
        counts = json.loads(result.stdout)["counts"]
        reasons = counts["dropped"] | counts["noted"]
        assert {name: reasons.get(name) for name in row.counted} == row.counted
        assert counts["read"] == counts["kept"] + sum(counts["dropped"].values())
        tally.count("counted")
    assert not leftovers(root)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tiny")
    mdcr_json(root, *flags("corpus --source synthetic --papers 500 --seed 5 --corpus tiny --workers 1"))
    return root


@pytest.mark.parametrize(("name", "content", "said"), BENCHMARKS, ids=[name for name, _, _ in BENCHMARKS])
def test_a_benchmark_is_refused(tmp_path: Path, tally: Tally, name: str, content: str, said: str) -> None:
    folder, root = tmp_path / "outer" / "benchmark", tmp_path / "outer" / "root"
    folder.mkdir(parents=True)
    (folder / "mdcr_test.json").write_text(content)
    (folder / "mdcr_test_data.jsonl").write_text('{"paper_id": "9", "title": "Nine", "abstract": "Words."}\n')
    tally.count("tried")
    refused(mdcr(root, *flags(f"study mdcr_eval --input {folder} --model bm25 --workers 1")), said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outer"], name
    assert not leftovers(root)
    tally.count("refused")


@pytest.mark.parametrize("row", IMPORTS, ids=[row.name for row in IMPORTS])
def test_an_import_is_refused(row: Import, tiny: Path, tmp_path: Path, tally: Tally) -> None:
    row.make(tmp_path)
    before = published(tiny)
    tally.count("tried")
    given = flags("eval --queries 10 --size all --samples 1 --workers 1 --measures map")
    result = mdcr(tiny, *given, "--model", row.system.format(tmp_path))
    assert row.said in one_line_error(result)
    assert [path for path in published(tiny) if path.parts[-3] != "pools"] == [
        path for path in before if path.parts[-3] != "pools"
    ]
    assert not leftovers(tiny)
    tally.count("refused")


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_refused(name: str, tiny: Path, tmp_path: Path, tally: Tally) -> None:
    content, said = RUNS[name]
    (tmp_path / name).write_bytes(content)
    tally.count("tried")
    given = flags("eval --queries 10 --size all --samples 1 --memory 512M")
    refused(mdcr(tiny, *given, "--model", f"run:{tmp_path / name}"), said)
    assert not leftovers(tiny)
    tally.count("refused")


def test_nothing_of_a_release_acts_on_a_terminal(tmp_path: Path, tally: Tally) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input/a.jsonl").write_bytes(shown())
    tally.count("tried")
    words = ["corpus", "--source", "jsonl", "--input", str(tmp_path / "input"), *flags("--corpus t --workers 1")]
    for result in (mdcr(tmp_path, *words), mdcr(tmp_path, *flags("show corpus --corpus t"))):
        assert result.returncode == 0, result.stderr
        assert all(line.isprintable() for line in (result.stdout + result.stderr).splitlines())
        assert r"F\n\x1b[31m\x00\u202e" in result.stdout
    tally.count("counted")


def fill(row: Input, folder: Path) -> None:
    """Write the files of a row."""
    if callable(row.files):
        row.files(folder)
        return
    for name, data in row.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def refused(result: Result, said: str) -> None:
    """Check that a command failed with one line on standard error that says something, and printed no result."""
    assert result.returncode in (1, 2), (result.returncode, result.stdout[-300:], result.stderr[-300:])
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("mdcr") and ": " in line]
    assert len(lines) == 1, result.stderr
    assert said in lines[0]


def published(root: Path) -> Sequence[Path]:
    """Return the manifests of a workspace and the names of its corpora."""
    return sorted([*root.rglob("manifest.json"), *root.rglob("*.name")])
