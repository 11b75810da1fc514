"""Hostile lines, files and options: each is refused in one line, or counted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.cli.run import flags, mdcr, one_line_error
from tests.faults.hostile import ADDRESSES, BENCHMARKS, Input, inputs, shown
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
    fill(row.files, folder) if isinstance(row.files, Mapping) else row.files(folder)
    tally.count("tried")
    words = ["corpus", "--source", row.source, "--input", str(folder), *flags("--corpus t --workers 1 --json")]
    result = mdcr(root, *words, *(option.replace("INPUT", str(folder)) for option in row.options))
    if isinstance(row.outcome, str):
        assert row.outcome in one_line_error(result)
        assert not published(root)
        tally.count("refused")
    else:
        assert result.returncode == 0, result.stderr
        counts = json.loads(result.stdout)["counts"]
        found = counts["dropped"] | counts["noted"] | {"kept": counts["kept"]}
        assert {name: found.get(name) for name in row.outcome} == row.outcome
        assert counts["read"] == counts["kept"] + sum(counts["dropped"].values())
        tally.count("counted")
    assert not leftovers(root)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_is_refused(tmp_path: Path, tally: Tally, name: str) -> None:
    content, said = BENCHMARKS[name]
    folder, root = tmp_path / "outer" / "benchmark", tmp_path / "outer" / "root"
    folder.mkdir(parents=True)
    (folder / "mdcr_test.json").write_text(content)
    (folder / "mdcr_test_data.jsonl").write_text('{"paper_id": "9", "title": "Nine", "abstract": "Words."}\n')
    tally.count("tried")
    assert said in one_line_error(mdcr(root, *flags(f"study mdcr_eval --input {folder} --model bm25 --workers 1")))
    assert [path.name for path in tmp_path.iterdir()] == ["outer"]
    assert not leftovers(root)
    tally.count("refused")


@pytest.mark.parametrize("row", IMPORTS, ids=[row.name for row in IMPORTS])
def test_an_import_is_refused(row: Import, tiny: Path, tmp_path: Path, tally: Tally) -> None:
    fill(row.files, tmp_path)
    before = published(tiny)
    tally.count("tried")
    given = flags("eval --queries 10 --size all --samples 1 --workers 1 --measures map --memory 512M")
    assert row.said in one_line_error(mdcr(tiny, *given, "--model", row.system.format(tmp_path)))
    assert not [path for path in published(tiny) if path not in before and path.parts[-3] != "pools"]
    assert not leftovers(tiny)
    tally.count("refused")


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_refused_at_once(address: str, tmp_path: Path, tally: Tally) -> None:
    tally.count("tried")
    said = one_line_error(mdcr(tmp_path, "fetch", "s2ag", "--endpoint", address), 1)
    assert "cannot be reached" in said
    assert "secret" not in said
    assert "attempt" not in said
    tally.count("refused")


def test_nothing_of_a_release_acts_on_a_terminal(tmp_path: Path, tally: Tally) -> None:
    fill({"input/a.jsonl": shown()}, tmp_path)
    tally.count("tried")
    words = ["corpus", "--source", "jsonl", "--input", str(tmp_path / "input"), *flags("--corpus t --workers 1")]
    built, shown_again = mdcr(tmp_path, *words), mdcr(tmp_path, *flags("show corpus --corpus t"))
    for result in (built, shown_again):
        assert result.returncode == 0, result.stderr
        assert all(line.isprintable() for line in (result.stdout + result.stderr).splitlines())
    assert r"F\n\x1b[31m\x00\u202e" in built.stdout
    tally.count("counted")


def fill(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def published(root: Path) -> Sequence[Path]:
    """Return the manifests of a workspace and the names of its corpora."""
    return sorted([*root.rglob("manifest.json"), *root.rglob("*.name")])
