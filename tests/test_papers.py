"""Every table and figure of the papers has a row; its commands parse, and run where their data is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from pipeline.cli.papers import Paper, listed
from pipeline.cli.parsers import read
from pipeline.cli.study import read_chosen
from pipeline.encode import names
from pipeline.studies.scirepeval.study import multi_format
from tests.cli.run import mdcr
from tests.test_docs import COMMANDS

NUMBERED = {
    "mdcr": (8, 0),
    "scirepeval": (11, 2),
    "scirepeval2022": (9, 2),
    "neighbours": (9, 13),
    "csfcube": (3, 3),
}
"""Numbered tables and figures in the text of each paper."""

PAPERS = listed().papers
LETTERED = {f"{paper} {each.letter}": each.text for paper, found in PAPERS.items() for each in found.commands}


def test_every_table_and_figure_of_each_paper_has_a_row() -> None:
    assert get_args(COMMANDS["papers"].settings["paper"].kind) == (*PAPERS,)
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


@pytest.mark.parametrize("name", LETTERED)
def test_commands_parse_and_name_known_settings_and_systems(name: str) -> None:
    options = read(shlex.split(LETTERED[name])[1:])
    systems = getattr(options, "model", None)
    if options.command == "study":
        systems = read_chosen(options)[2].systems
    for system in names.parse(systems or ""):
        placeholder = system.base.startswith("/data/")
        known_base = system.base.partition(":")[0] in (*multi_format(), "bm25", "tfidf", "ot")
        assert known_base or placeholder or system.base in names.entries()


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
