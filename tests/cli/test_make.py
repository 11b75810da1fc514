"""``make`` passes what was typed to ``mdcr`` as it is; nothing of it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

HOSTILE = ["$(shell touch ran)", "$$(touch ran)", "$(touch ran)", "`touch ran`", "'; touch ran; '", '"; touch ran; "']
HOSTILE += ["x\ntouch ran\n", "x && touch ran", "x | touch ran", "$(error stop)", "-e", "--help", " two  words ", "*"]
HOSTILE += ["100% é ${HOME} \\ # $("]
VARIABLES = ["FIELD", "CORPUS", "SIZE", "QUERIES", "SPLIT", "MODEL", "ENGINE", "MEASURES", "MEMORY", "DEVICE"]

REAL = f'#!/bin/sh\nexec "{sys.executable}" -m pipeline "$@"\n'
TELLS = f"""#!{sys.executable} -IS
import json, os, sys
given = {{name: os.environ["MDCR_MAKE_" + name] for name in os.environ.get("MDCR_MAKE", "").split()}}
json.dump([sys.argv[1:], given], sys.stdout)
"""
"""A program in the place of ``mdcr`` that tells what it was given."""


def make(
    folder: Path, *words: str, program: str = REAL, env: dict[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run ``make`` in a folder where what runs leaves a file."""
    binaries = folder / "venv/bin"
    binaries.mkdir(parents=True, exist_ok=True)
    (folder / "venv/.installed").touch()
    (binaries / "mdcr").write_text(program)
    (binaries / "mdcr").chmod(0o755)
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "MDCR_MAKE"))}
    return subprocess.run(
        ["make", "-f", str(REPOSITORY / "Makefile"), "-o", "venv/.installed", "VENV=venv", *words],
        cwd=folder,
        env={**outer, "PYTHONPATH": str(REPOSITORY), **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    folder = tmp_path_factory.mktemp("make")
    (folder / "corpora").symlink_to(tiny / "corpora")
    return folder


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_arrives_as_it_is_and_nothing_runs(tmp_path: Path, value: str) -> None:
    shown = make(tmp_path, "eval", *(f"{name}={value}" for name in VARIABLES), program=TELLS)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == [["--from-make", "eval"], dict.fromkeys(VARIABLES, value.lstrip())]
    for goal, name in (("setup", "PYTHON"), ("bench", "PART")):
        assert "must be one plain word" in make(tmp_path, goal, f"{name}={value}", program=TELLS).stderr
    assert not list(tmp_path.glob("**/ran"))


def test_a_hostile_value_is_refused_in_one_line(workspace: Path) -> None:
    for goal, name in (("pool", "FIELD"), ("show", "WHAT"), ("eval", "MODEL")):
        ended = make(workspace, goal, f"{name}=$(shell touch ran)`touch ran`'\n\"é")
        assert ended.returncode == 2, ended
        assert ended.stderr.count("mdcr: ") == 1, ended.stderr
    assert not list(workspace.glob("**/ran"))


def test_variables_of_the_environment_do_not_count(tmp_path: Path) -> None:
    surroundings = {"SEED": "7", "FIELD": "Art", "MDCR_MAKE": "SEED", "MDCR_MAKE_SEED": "7"}
    shown = make(tmp_path, "pool", "SIZE=900", program=TELLS, env=surroundings)
    assert json.loads(shown.stdout) == [["--from-make", "pool"], {"SIZE": "900"}]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["eval", "FEILD=Medicine"], "eval takes no FEILD. Did you mean 'FIELD'?"),
        (["eval", "field=Medicine"], "eval takes no field. Did you mean 'FIELD'?"),
        (["eval", "YEA=2019"], "eval takes no YEA. Did you mean 'YEAR'?"),
        (["check", "FEILD=Medicine"], "check takes no FEILD"),
        (["pool", "DRY_RUN=yes"], "DRY_RUN='yes' is not understood. Give 1, or leave it out."),
    ],
)
def test_what_make_does_not_know_is_refused(workspace: Path, words: list[str], expected: str) -> None:
    ended = make(workspace, *words)
    assert ended.returncode == 2
    assert expected in ended.stderr


@pytest.mark.parametrize("goal", ["eval", "check", "help", "demo"])
@pytest.mark.parametrize(
    "name",
    ["MDCR", "GIVEN", "v", "c", "MAKE_OWN", "SPECIAL", "PIP", "COMMANDS", "MDCR_MAKE", "MDCR_GOALS", "MDCR_MAKE_SEED"],
)
def test_names_of_the_makefiles_own_are_refused(tmp_path: Path, goal: str, name: str) -> None:
    ended = make(tmp_path, goal, "WORKERS=1", f"{name}=touch ran; true")
    assert ended.returncode == 2, ended
    assert name in ended.stderr
    assert not list(tmp_path.glob("**/ran"))


def test_options_flags_and_variables_of_other_commands(workspace: Path) -> None:
    plan = make(workspace, "pool", "SIZE=900", "QUERIES=20", "SAMPLES=1", "DRY_RUN=1", "JSON=1", "QUIET=0", "FIELD=")
    assert plan.stdout.startswith('{"plan": [')
    shown = make(workspace, "show", "WHAT=fields", "NODES=4")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "mdcr: show takes no NODES." in shown.stderr
