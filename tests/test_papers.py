"""Every table and figure of the papers has a row; its commands parse, its outputs exist, and the page shows it all."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from pipeline.cli.papers import Paper, listed
from pipeline.cli.parsers import read
from pipeline.cli.study import read_chosen
from pipeline.encode import names, registry
from pipeline.studies.base import STUDIES
from pipeline.studies.scirepeval.steps import multi_format
from tests.cli.run import mdcr
from tests.test_docs import COMMANDS, ROOT

NUMBERED = {
    "mdcr": (8, 0),
    "scirepeval": (11, 2),
    "scirepeval2022": (9, 2),
    "neighbours": (9, 13),
    "csfcube": (3, 3),
}
"""Numbered tables and figures in the text of each paper."""

CODE = ROOT / "pipeline/studies"
PAPERS = listed().papers
LETTERED = [(paper, each.letter) for paper, found in PAPERS.items() for each in found.commands]


def words_of(paper: str, letter: str) -> list[str]:
    """Return the words of a command, the first after ``mdcr``."""
    return next(shlex.split(each.text)[1:] for each in PAPERS[paper].commands if each.letter == letter)


def outputs(sources: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each letter of a cell such as "A; B: `tasks`, `formats`", with its outputs."""
    for part in sources.split(";"):
        letters, _, listed = part.partition(":")
        yield from ((letter, re.findall("`([^`]+)`", listed)) for letter in re.findall("[A-Z]", letters))


def written(study: str) -> Iterator[str]:
    """Yield regular expressions of what a study may write: first arguments of the calls in its code, or their ``name``.

    These are the names of tables and figures, and the titles of parts of the page.
    """
    module = STUDIES[study]
    own = CODE / module.split(".")[1] if module.startswith(".") else ROOT / module.replace(".", "/")
    paths = [*own.glob("*.py")] or [own.with_suffix(".py")]
    if study == "multi_format":  # it evaluates by another study
        paths += (CODE / "scirepeval").glob("*.py")
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Constant(value=str() as name):
                    yield re.escape(name)
                case ast.JoinedStr(values=[ast.Constant(value=str() as start), *_]) if len(start) > 3:
                    yield f"{re.escape(start)}.*"


def test_the_command_takes_every_paper() -> None:
    assert get_args(COMMANDS["papers"].settings["paper"].kind) == (*PAPERS,)


def test_every_table_and_figure_of_each_paper_has_a_row() -> None:
    listed = {name: [row.number for row in paper.rows] for name, paper in PAPERS.items()}
    assert listed == {
        name: [*(f"Table {n + 1}" for n in range(tables)), *(f"Figure {n + 1}" for n in range(figures))]
        for name, (tables, figures) in NUMBERED.items()
    }


@pytest.mark.parametrize("paper", PAPERS.values(), ids=PAPERS)
def test_a_row_names_commands_or_says_what_it_is(paper: Paper) -> None:
    for row in paper.rows:
        assert row.note or row.letters, row.number
        assert {f"Table {n}" for n in re.findall(r"`table-(\d+)`", row.outputs)} <= {row.number}
    assert {letter for row in paper.rows for letter in row.letters} == {c.letter for c in paper.commands} - {""}
    assert {need for command in paper.commands for need in command.needs} <= {*listed().needs}


@pytest.mark.parametrize(("paper", "letter"), LETTERED)
def test_commands_parse_and_name_known_settings_and_systems(paper: str, letter: str) -> None:
    options = read(words_of(paper, letter))
    systems = getattr(options, "model", None)
    if options.command == "study":
        systems = read_chosen(options)[2].systems
    for name in names.parse(systems or ""):
        placeholder = name.base.startswith("/data/")
        known_base = name.base.partition(":")[0] in (*multi_format(), "bm25", "tfidf", "ot")
        assert known_base or placeholder or registry.kind_of(str(replace(name, label="")))


@pytest.mark.parametrize(("paper", "letter"), LETTERED)
def test_outputs_stand_in_the_code_of_their_study(paper: str, letter: str) -> None:
    words = words_of(paper, letter)
    listed = {
        output for row in PAPERS[paper].rows for source, found in outputs(row.outputs) for output in found
        if source == letter
    }  # fmt: skip
    assert not listed or words[0] == "study"
    known_names = set(written(words[1])) if listed else set()
    assert not [output for output in listed if not any(re.fullmatch(name, output) for name in known_names)]


def test_nothing_at_hand_is_said(tmp_path: Path) -> None:
    said = mdcr(tmp_path, "reproduce", "scirepeval", "--input", str(tmp_path))
    assert said.returncode == 0, said.stderr
    assert said.stderr.count(" skipped: mdcr study") == len(PAPERS["scirepeval"].commands)
    assert f"needs scirepeval: {listed().needs['scirepeval']}" in said.stderr


def test_what_has_its_data_runs_and_the_rest_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "mdcr").mkdir()
    said = mdcr(tmp_path, "reproduce", "mdcr", "--input", str(tmp_path), "--dry-run").stderr
    assert re.search(rf"^C: mdcr study mdcr_eval --input {tmp_path}/mdcr ", said, re.MULTILINE)
    assert "D skipped: mdcr study scirepeval" in said
    failed = mdcr(tmp_path, "reproduce", "mdcr", "--input", str(tmp_path))
    assert failed.returncode == 1
    assert "C failed: " in failed.stderr
