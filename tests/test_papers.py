"""``docs/papers.md`` lists every table and figure of the papers; its commands parse, and the outputs it names exist."""

from __future__ import annotations

import ast
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pipeline.cli.arguments import parser
from pipeline.cli.spelling import with_variables
from pipeline.encode import names, registry
from pipeline.studies.base import STUDIES, find
from pipeline.studies.recipe import find_recipe, read_recipe, replaced_systems, with_settings
from pipeline.studies.scirepeval.steps import multi_format
from tests.test_docs import COMMANDS, ROOT

NUMBERED = {
    "Medić & Šnajder 2022": (8, 0),
    "Singh et al. 2023": (11, 2),
    "Singh et al. 2022": (9, 2),
    "Singh & Singh 2022": (9, 13),
    "Mysore et al. 2021": (3, 3),
}
"""Numbered tables and figures in the text of each paper."""

CODE = ROOT / "pipeline/studies"


class Section(NamedTuple):
    """A paper: words of its commands by letter, and cells of its rows."""

    commands: dict[str, list[str]]
    rows: list[list[str]]


def sections() -> dict[str, Section]:
    found = {}
    for part in (ROOT / "docs/papers.md").read_text().split("\n## ")[1:]:
        title, _, body = part.partition(":")
        lettered = re.findall(r"^(.*\S) +# ([A-Z])\b", body.split("```")[1].replace("\\\n", " "), re.MULTILINE)
        lines = re.findall(r"^\| ((?:Table|Figure) .*)\|$", body, re.MULTILINE)
        rows = [[cell.strip() for cell in line.split("|")] for line in lines]
        found[title] = Section({letter: shlex.split(words) for words, letter in lettered}, rows)
    return found


PAPERS = sections()
LETTERED = [(paper, letter) for paper, section in PAPERS.items() for letter in section.commands]


def outputs(sources: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each letter of a cell such as "A; B: `tasks`, `formats`", with its outputs."""
    for part in sources.split(";"):
        letters, _, listed = part.partition(":")
        yield from ((letter, re.findall("`([^`]+)`", listed)) for letter in re.findall("[A-Z]", letters))


def options_of(words: list[str], patch: pytest.MonkeyPatch) -> Namespace:
    """Parse a command as ``mdcr`` does, and the variables of one of make."""
    tool, command, *rest = words
    if tool == "make":
        variables = dict(word.split("=", 1) for word in rest)
        for name, value in {"GOALS": command, "MAKE": " ".join(variables)}.items():
            patch.setenv(f"MDCR_{name}", value)
        for name, value in variables.items():
            patch.setenv(f"MDCR_MAKE_{name}", value)
        rest = with_variables([command], COMMANDS)[1:]
    return parser()[0].read([command, *rest])


def written(study: str) -> Iterator[str]:
    """Yield regular expressions of what a study may write: first arguments of the calls in its code, or their ``name``.

    These are the names of tables and figures, and the titles of parts of the page.
    """
    own = CODE / STUDIES[study].split(".")[1]
    for path in (CODE / "common.py", *([*own.glob("*.py")] if own.is_dir() else [own.with_suffix(".py")])):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and re.fullmatch(r"\w+|figures\.heat", ast.unparse(node.func)):
                named = [keyword.value for keyword in node.keywords if keyword.arg == "name"]
                match [*named, *node.args][:1]:
                    case [ast.Constant(value=str() as name)]:
                        yield re.escape(name)
                    case [ast.JoinedStr(values=[ast.Constant(value=str() as start), *_])]:
                        yield f"{re.escape(start)}.*"


def test_every_table_and_figure_of_each_paper_has_a_row() -> None:
    listed = {paper: [row[0] for row in section.rows] for paper, section in PAPERS.items()}
    assert listed == {
        paper: [*(f"Table {n + 1}" for n in range(tables)), *(f"Figure {n + 1}" for n in range(figures))]
        for paper, (tables, figures) in NUMBERED.items()
    }


@pytest.mark.parametrize("paper", PAPERS)
def test_a_row_names_a_command_or_says_why_there_is_none(paper: str) -> None:
    used = set()
    for number, _, here, sources, note in PAPERS[paper].rows:
        letters = {letter for letter, _ in outputs(sources)}
        used |= letters
        assert here in ("yes", "partly", "no"), number
        assert bool(letters) == (here != "no"), number
        assert note or here == "yes", number
        assert {f"Table {n}" for n in re.findall(r"`table-(\d+)`", sources)} <= {number}
    assert used == {*PAPERS[paper].commands}


@pytest.mark.parametrize(("paper", "letter"), LETTERED)
def test_commands_parse_and_name_known_settings_and_systems(
    paper: str, letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(PAPERS[paper].commands[letter], monkeypatch)
    systems = getattr(options, "model", None)
    if options.command == "study":
        study, settings = find(options.study), with_settings(options.set)
        changes = settings | (replaced_systems(study.recipe, settings, systems) if systems else {})
        path = find_recipe(Path(options.recipe)) if options.recipe else study.default_recipe
        systems = read_recipe(path, study.recipe, changes).systems
    for name in names.parse(systems or ""):
        assert name.base.partition(":")[0] in (*multi_format(), "bm25", "tfidf", "ot") or registry.kind_of(str(name))


@pytest.mark.parametrize(("paper", "letter"), LETTERED)
def test_outputs_stand_in_the_code_of_their_study(paper: str, letter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(PAPERS[paper].commands[letter], monkeypatch)
    listed = {
        output
        for row in PAPERS[paper].rows
        for source, found in outputs(row[3])
        for output in found
        if source == letter
    }
    assert not listed or options.command == "study"
    known = set(written(options.study)) if listed else set()
    assert not [output for output in listed if not any(re.fullmatch(name, output) for name in known)]
