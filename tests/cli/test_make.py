"""``make`` passes what was typed to ``mdcr`` as it is; nothing of it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

HOSTILE = [
    "$(shell touch ran)",
    "$$(touch ran)",
    "$(touch ran)",
    "`touch ran`",
    "'; touch ran; '",
    '"; touch ran; "',
    "x\ntouch ran\n",
    "x && touch ran",
    "x | touch ran",
    "$(error stop)",
    "-e",
    "--help",
    " two  words ",
    "*",
    "100% é ${HOME} \\ # $(",
]
VARIABLES = ["FIELD", "CORPUS", "SIZE", "QUERIES", "SPLIT", "MODEL", "ENGINE", "MEASURES", "MEMORY", "DEVICE"]


def make(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``make`` with this interpreter as its environment, in a folder where what runs leaves a file."""
    binaries = folder / "venv/bin"
    binaries.mkdir(parents=True, exist_ok=True)
    (folder / "venv/.installed").touch()
    program = binaries / "mdcr"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pipeline "$@"\n')
    program.chmod(0o755)
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "MDCR_MAKE"))}
    return subprocess.run(
        ["make", "-f", str(REPOSITORY / "Makefile"), "-o", "venv/.installed", "VENV=venv", *words],
        cwd=folder,
        env={**outer, "PYTHONPATH": str(REPOSITORY), **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    folder = tmp_path_factory.mktemp("make")
    (folder / "corpora").symlink_to(tiny / "corpora")
    return folder


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_arrives_as_it_is_and_nothing_runs(workspace: Path, value: str) -> None:
    field = make(workspace, "pool", f"FIELD={value}", "DRY_RUN=1")
    assert f"there is no field {value.lstrip()!r}".encode("unicode_escape") in field.stderr.encode("unicode_escape")
    many = make(workspace, "eval", *(f"{name}={value}" for name in VARIABLES), "DRY_RUN=1")
    whats = [make(workspace, goal, f"{name}={value}") for goal, name in (("show", "WHAT"), ("fetch", "SOURCE"))]
    whats.append(make(workspace, "submit", f"STAGE={value}", "MODEL=lsa"))
    for ended in (field, many, *whats):
        assert ended.returncode == 2, ended
        assert ended.stderr.count("mdcr: ") == 1, ended.stderr
    own = [make(workspace, goal, f"{name}={value}") for goal in ("setup", "bench") for name in ("PYTHON", "PART")]
    assert all("must be one plain word" in ended.stderr for ended in own)
    assert not list(workspace.glob("**/ran"))


def test_variables_of_the_environment_do_not_count(workspace: Path) -> None:
    words = ("pool", "SIZE=900", "QUERIES=20", "SAMPLES=1", "DRY_RUN=1")
    typed = make(workspace, *words)
    surroundings = {"SEED": "7", "YEAR": "2018", "FIELD": "Art", "MDCR_MAKE": "SEED", "MDCR_MAKE_SEED": "7"}
    assert typed.returncode == 0, typed.stderr
    assert make(workspace, *words, env=surroundings).stdout == typed.stdout
    assert make(workspace, *words, "SEED=7").stdout != typed.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["eval", "FEILD=Medicine"], "there is no variable FEILD. Did you mean 'FIELD'."),
        (["eval", "field=Medicine"], "there is no variable field. Did you mean 'FIELD'."),
        (["eval", "YEA=2019"], "there is no variable YEA. Did you mean 'YEAR'."),
        (["check", "FEILD=Medicine"], "check takes no FEILD"),
        (["pool", "DRY_RUN=yes"], "DRY_RUN='yes' is not understood. Give 1, or leave it out."),
    ],
)
def test_what_make_does_not_know_is_refused(workspace: Path, words: list[str], expected: str) -> None:
    ended = make(workspace, *words)
    assert ended.returncode == 2
    assert expected in ended.stderr


def test_options_flags_first_words_and_variables_of_other_commands(workspace: Path) -> None:
    plan = make(workspace, "pool", "SIZE=900", "QUERIES=20", "SAMPLES=1", "DRY_RUN=1", "JSON=1", "QUIET=0", "FIELD=")
    assert plan.stdout.startswith('{"plan": [')
    assert "Neuroscience" in make(workspace, "show", "WHAT=fields").stdout
    shown = make(workspace, "show", "WHAT=fields", "NODES=4")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "mdcr: NODES must go with submit, collect, got show. Leave it out." in shown.stderr
    goals = make(workspace, "show", "doctor", "WHAT=fields")  # doctor has no such variable, but show has
    assert goals.returncode == 0, goals.stderr
