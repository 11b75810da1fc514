"""Every option of every command: its variable of make, that it is read, and that a dry run writes nothing."""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import parsers as parsing
from pipeline.cli import variables as make
from pipeline.cli.parsers import parsers
from pipeline.core.errors import InputError
from tests.cli.run import flags, mdcr
from tests.cli.test_make import REPOSITORY

COMMANDS = parsers()
POOL = "--corpus tiny --size 900 --queries 20 --samples 1"


def given(monkeypatch: pytest.MonkeyPatch, command: str, goals: str = "", **values: str) -> list[str]:
    """Return the words of a command for which ``make`` was given variables."""
    monkeypatch.setenv("MDCR_MAKE", " ".join(values))
    monkeypatch.setenv("MDCR_GOALS", goals or command)
    for name, value in values.items():
        monkeypatch.setenv(f"MDCR_MAKE_{name}", value)
    return make.with_variables([command])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_variable_and_others_are_refused(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    options = {option: takes for option, takes in COMMANDS[command].options.items() if option != "--help"}
    words = given(monkeypatch, command, **{make.variable(option): "1" for option in options})
    assert words == [command, *(f"{option}=1" if takes else option for option, takes in options.items())]
    with pytest.raises(InputError, match=rf"^{command} takes no SIZES\."):
        given(monkeypatch, command, SIZES="1")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_usage_has_words_and_what_must_be_given_and_the_help_every_option(name: str) -> None:
    usage, text = COMMANDS[name].format_help().split("\n\n", 1)
    required = {
        option.option_strings[0] for option in COMMANDS[name]._actions if option.required and option.option_strings
    }
    assert usage.startswith(f"usage: mdcr {name} [OPTION ...]")
    assert {*re.findall(r"--\S+", usage)} == required
    assert {*re.findall(r"^  (?:-h, )?(--[a-z0-9-]+)", text, re.MULTILINE)} >= {*COMMANDS[name].options} - {"--api-key"}


def test_a_variable_may_be_of_one_of_several_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, "eval", goals="tune eval", MODEL="bm25", FIELD="Art")[1:] == [
        "--model=bm25",
        "--field=Art",
    ]
    assert given(monkeypatch, "tune", goals="tune eval", MODEL="bm25", FIELD="Art")[1:] == ["--field=Art"]


def test_the_help_of_make_names_every_command() -> None:
    shown = subprocess.run(["make", "-f", REPOSITORY / "Makefile", "help"], capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^  make (.{21})", shown.stdout, re.MULTILINE))
    assert set(COMMANDS) <= {word for line in listed for word in line.split()}


class Recorder:
    """Parsed options that note which of them are read."""

    def __init__(self, options: argparse.Namespace, read: set[str]) -> None:
        self._options, self._read = options, read

    def __getattr__(self, name: str) -> Any:
        self._read.add(name)
        return getattr(self._options, name)


RUNS = {
    "corpus": ["--source synthetic --papers 300 --dry-run", "--source synthetic --papers 300 --engine ray"],
    "pool": [POOL],
    "tune": ["--corpus tiny --size 900 --queries 20"],
    "embed": [f"{POOL} --model lsa", f"{POOL} --model lsa --engine ray"],
    "index": [f"{POOL} --model bm25", f"{POOL} --model lsa --engine ray"],
    "search": [f"{POOL} --model lsa", f"{POOL} --model lsa --engine ray"],
    "score": [f"{POOL} --model lsa", f"{POOL} --model lsa --engine ray"],
    "eval": [f"{POOL} --model lsa", f"{POOL} --model lsa --engine ray"],
    "submit": [f"eval {POOL} --model lsa --dry-run"],
    "triplets": ["mined --corpus tiny --until 2015 --from random --field Physics --queries 5 --seed 3"],
    "jobs": [""],
    "models": ["", "scincl"],
    "doctor": [""],
    "gc": [""],
}
"""Runs of each command that read all of its options together; show and report have tests of their own."""


@pytest.mark.parametrize("command", RUNS)
def test_every_option_is_read(root: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """``--root`` and ``--quiet`` are read for all commands at their entry."""
    read = {"root", "quiet", "help"}
    run = parsing.run
    monkeypatch.setattr(parsing, "run", lambda options: run(Recorder(options, read)))  # type: ignore[arg-type]
    monkeypatch.setattr("pipeline.cluster.ray_engine.ray_executor", lambda _address: None)
    for words in RUNS[command]:
        code = mdcr(root, command, *flags(words)).returncode
        assert code == 0
    always = {name for name, setting in COMMANDS[command].settings.items() if setting.goes_with}  # read with another
    taken = {action.dest for action in COMMANDS[command]._actions} - {"first word"} - always
    assert taken <= read, taken - read


def tree(root: Path) -> dict[str, float]:
    return {str(path): path.lstat().st_mtime_ns for path in [root, *root.rglob("*")]}


DRY = {
    "corpus": "--source synthetic --papers 300",
    "pool": POOL,
    "tune": "--corpus tiny --size 800 --queries 20",
    "study": "pool_size --corpus tiny --model lsa",
    **dict.fromkeys(("embed", "index", "search", "score", "eval"), f"{POOL} --seed 9 --model bm25,lsa,rrf(bm25,lsa)"),
    "judge": f"draw {POOL} --seed 9 --model lsa,newest",
    "submit": f"eval {POOL} --seed 9 --model bm25,lsa",
    "triplets": "specter --corpus tiny --until 2015",
    "reproduce": "csfcube --input nowhere",
    "report": None,
    "train": None,
    "fetch": None,
    "export": None,
}
"""Words of each command that has a dry run; None: its own tests try it."""


def test_the_dry_runs_are_all_tried() -> None:
    assert set(DRY) == {name for name, command in COMMANDS.items() if "--dry-run" in command.options}


@pytest.mark.parametrize("command", [name for name, words in DRY.items() if words is not None])
def test_a_dry_run_writes_nothing(own: Path, command: str) -> None:
    before = tree(own)
    result = mdcr(own, command, *flags(DRY[command] or ""), "--dry-run")
    assert result.returncode == 0, result.stderr
    assert tree(own) == before
