"""What has too few papers: left out with a line, refused where it was named, an error with ``--strict``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.core.artifact import published
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.workspace import POOLS
from tests.cli.run import Result, flags, mdcr, one_line_error

ALL = flags("--field all --size 300,1k --queries 10 --year 2019 --samples 2")
ENOUGH = {"Biology", "Chemistry", "Computer Science", "Medicine"}
"""Fields of the corpus with 10 queries and 300 candidates; none has 1,000."""


def left_out(result: Result) -> list[str]:
    return [line.removeprefix("left out: ") for line in result.stderr.splitlines() if line.startswith("left out: ")]


@pytest.fixture(scope="module")
def evaluated(root: Path) -> Result:
    return mdcr(root, "eval", *ALL, "--model", "lsa", "--json", "--quiet")


def test_all_fields_go_on_without_those_that_lack_papers(root: Path, evaluated: Result) -> None:
    assert evaluated.returncode == 0, evaluated.stderr
    rows = json.loads(evaluated.stdout)["rows"]
    assert {(row["field"], row["size"], row["sample"]) for row in rows if row["sample"]} == {
        (field, 300, sample) for field in ENOUGH for sample in (1, 2)
    }
    lines = left_out(evaluated)
    without_queries = {line.split(":")[0] for line in lines if "queries requested" in line or "no paper" in line}
    assert without_queries == set(MAG_FIELDS) - ENOUGH
    assert {line.split(":")[0] for line in lines if "a pool of 1k was requested, but only" in line} == ENOUGH
    others = [line for line in evaluated.stderr.splitlines() if not line.startswith("Warning: ")]
    assert len(lines) == len(MAG_FIELDS) == len(others)  # each once, and nothing else
    assert {pool.manifest.config["field"] for pool in published(root / POOLS)} == ENOUGH
    assert not list((root / POOLS).glob(".*.partial"))


@pytest.mark.parametrize("command", ["pool", "embed --model lsa", "index --model lsa", "search --model lsa"])
@pytest.mark.parametrize("dry", ["", "--dry-run"])
def test_every_command_leaves_the_same_out(root: Path, evaluated: Result, command: str, dry: str) -> None:
    result = mdcr(root, *flags(f"{command} {dry}"), *ALL)
    assert result.returncode == 0, result.stderr
    assert {line for line in left_out(evaluated) if not dry or "no paper of" in line} <= set(left_out(result))
    assert "art" not in result.stdout
    assert "medicine-2019-300" in result.stdout


def test_tuning_leaves_out_fields_without_validation_queries(root: Path) -> None:
    result = mdcr(root, *flags("tune --field all --size 300 --queries 10 --year 2019 --json"))
    assert result.returncode == 0, result.stderr
    tuned = {tuning["pool"]["field"] for tuning in json.loads(result.stdout)["tunings"]}
    assert tuned
    assert tuned | {line.split(":")[0] for line in left_out(result)} == set(MAG_FIELDS)


@pytest.mark.parametrize("words", ["--field Medicine,Art", "--field all --strict", "--field all --strict --dry-run"])
def test_named_fields_and_strict_runs_fail(root: Path, words: str) -> None:
    failed = mdcr(root, *flags(f"eval --model lsa --size 300 --queries 10 {words}"))
    assert "in Art" in one_line_error(failed)


def test_no_field_at_all_is_an_error(root: Path) -> None:
    assert "no field has enough papers" in one_line_error(mdcr(root, *flags("pool --field all --year 2031")))
