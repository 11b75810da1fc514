"""``mdcr papers``: the tables of the five papers with their commands. ``mdcr reproduce``: run those of one paper."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from pipeline.cli import commands as cli
from pipeline.cli.arguments import parser
from pipeline.cli.output import print_json, print_table
from pipeline.cli.study import read_chosen
from pipeline.core.errors import InputError, MdcrError, StageError
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.workspace import REPORTS, corpus_names
from pipeline.data import DATA
from pipeline.encode import hub, names, registry
from pipeline.scores.tables import Column, Table, TableRow
from pipeline.studies.scirepeval.steps import multi_format

FILE = DATA / "papers.toml"
_FOLDER = r"(?<![\w/])/data/([\w-]+)"
_RUNNING = ("root", "memory", "workers", "device")
_WIDTH = 140
COLUMNS = ("shows", "here", "run", "from", "note")
"""Columns of the list behind the number."""


class Command(NamedTuple):
    """A command: its letter (empty: it comes before the others), its text, names of what it needs.

    ``run`` says on what it was run for the project's documents; empty: on stand-ins of the tests at most.
    """

    letter: str
    text: str
    needs: tuple[str, ...]
    run: str = ""


class Row(NamedTuple):
    """A table or figure: outputs are ``A: `table`; B``; without any, it is no result that a command could give."""

    number: str
    shows: str
    outputs: str
    note: str

    @property
    def letters(self) -> list[str]:
        """Letters of its commands."""
        return [letter for part in self.outputs.split(";") for letter in re.findall("[A-Z]", part.partition(":")[0])]


@dataclass(frozen=True)
class Paper:
    """A paper: its commands in order, its tables and figures; ``after`` is text below them."""

    name: str
    title: str
    commands: tuple[Command, ...]
    rows: tuple[Row, ...]
    after: str

    def here(self, row: Row) -> str:
        """Return whether commands give a table: ``yes``, ``yes, needs: ...`` or ``no``."""
        needed = [need for each in self.commands if each.letter in row.letters for need in each.needs]
        return ("yes" if row.letters else "no") + (f", needs: {', '.join(dict.fromkeys(needed))}" if needed else "")

    def run(self, row: Row) -> str:
        """Return on what the commands of a table were run: ``A: ...; B: ...``."""
        return "; ".join(
            f"{each.letter}: {each.run}" for each in self.commands if each.run and each.letter in row.letters
        )

    def cells(self, row: Row) -> tuple[str, ...]:
        """Return what stands behind the number of a row, in the order of ``COLUMNS``."""
        return row.shows, self.here(row), self.run(row), row.outputs, row.note

    @property
    def table(self) -> Table:
        """Its rows."""
        columns = tuple(Column("", label, text=True) for label in COLUMNS)
        return Table("", "number", columns, tuple(TableRow(row.number, self.cells(row)) for row in self.rows))

    @property
    def script(self) -> str:
        """Its commands as lines of a shell; long ones are broken before ``--model``."""
        texts = (
            each.text.replace(" --model", " \\\n  --model") if len(each.text) > _WIDTH else each.text
            for each in self.commands
        )
        return "".join(f"{text}  # {each.letter or 'first'}\n" for text, each in zip(texts, self.commands, strict=True))


def known() -> dict[str, Paper]:
    """Return the papers by name."""
    content = _content()
    return {
        name: Paper(
            name,
            paper["title"],
            tuple(Command(letter, text, tuple(needs), *run) for letter, text, needs, *run in paper["commands"]),
            tuple(Row(*row) for row in paper["rows"]),
            paper["after"].strip(),
        )
        for name, paper in content.items()
        if name != "needs"
    }


def needs() -> dict[str, str]:
    """Return what commands need, by name."""
    return dict(_content()["needs"])


def _content() -> dict[str, dict]:  # type: ignore[type-arg]
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def sections() -> str:
    """Return the sections of ``docs/papers.md``."""
    listed = "\n".join(f"| {name} | {what} |" for name, what in needs().items())
    parts = [f"| what is needed | it is |\n|---|---|\n{listed}\n"]
    for paper in known().values():
        lines = [("number", *COLUMNS), ("---",) * (1 + len(COLUMNS))]
        lines += [(row.number, *paper.cells(row)) for row in paper.rows]
        rows = "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |").replace("  |", " |") for line in lines)
        parts.append(f"## {paper.title}\n\n```\n{paper.script}```\n\n{rows}\n\n{paper.after}\n")
    return "\n".join(parts)


def papers(options: argparse.Namespace) -> None:
    """Print every table and figure of the papers, or of one."""
    chosen = [paper for name, paper in known().items() if options.paper in (None, name)]
    if options.json:
        print_json({paper.name: dataclasses.asdict(paper) for paper in chosen})
    elif options.format == "markdown":
        print(sections(), end="")
    else:
        for paper in chosen:
            print(f"{paper.title} (make reproduce PAPER={paper.name})\n\n{paper.script}")
            print_table(paper.table)
            print()


def reproduce(options: argparse.Namespace) -> None:
    """Run the commands of a paper in order with what is at hand, and say what was skipped and what it would need."""
    paper, about, skipped, failed = known()[options.paper], needs(), 0, list[str]()
    top, by_name = parser()
    corpora = set(corpus_names(options.root))
    for command in paper.commands:
        number = command.letter or "first"
        words, lacks = _at_hand(shlex.split(command.text)[1:], options, corpora)
        if "GPU" in command.needs and Resources.of(device=options.device).device == "cpu":
            words, lacks = [], [*lacks, "GPU"]
        if not words:
            needed = "; ".join(f"{name}: {about[name]}" if name in about else name for name in lacks)
            say(f"{number} skipped: {command.text}")
            say(f"  needs {needed}")
            skipped += 1
            continue
        takes = by_name[words[0]].options
        given = [f"--{name}={value}" for name in _RUNNING if (value := getattr(options, name)) is not None]
        words += [option for option in given if option.partition("=")[0] in takes]
        if words[0] == "study" and "--list" not in words:
            words.append(f"--output={options.root / REPORTS / f'{paper.name}-{number}'}")
        say(f"{number}: mdcr {shlex.join(words)}")
        if lacks:
            say(f"  without {', '.join(lacks)}")
        corpora |= {words[words.index("--corpus") + 1]} if words[0] == "corpus" else set()
        if options.dry_run:
            continue
        try:
            cli.run(top.read(words))
        except MdcrError as error:
            say(f"{number} failed: {error}")
            failed.append(number)
    run = "would run" if options.dry_run else "run"
    say(f"{paper.title}: {len(paper.commands) - skipped - len(failed)} of {len(paper.commands)} commands {run}")
    if failed:
        raise StageError(f"{', '.join(failed)} of {paper.name} failed", "The lines above say why")


def _at_hand(words: list[str], options: argparse.Namespace, corpora: set[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command without systems that are not at hand, and what is not; no words: it cannot run."""
    at = words.index("--model") if "--model" in words else len(words)
    folders = dict.fromkeys(name for word in words[:at] + words[at + 2 :] for name in re.findall(_FOLDER, word))
    if lacks := [name for name in folders if not (options.input / name).exists()]:
        return [], lacks
    if words[0] == "train" and (named := words[words.index("--corpus") + 1]) not in corpora:
        return [], [f"the corpus {named}"]
    words = [re.sub(_FOLDER, lambda found: str(options.input / found[1]), word) for word in words]
    if words[0] != "study" or "--list" in words:
        return words, []
    chosen, _, recipe = read_chosen(parser()[0].read(words))
    if not getattr(recipe, "input", "") and (corpus := getattr(recipe, "corpus", "")) and corpus not in corpora:
        return [], [f"the corpus {corpus}"]
    left = False
    for field in dataclasses.fields(chosen.recipe):
        if "systems" not in (field.name, *field.metadata):
            continue
        listed = names.split_names(getattr(recipe, field.name) or "")
        gone = {name: absent for name in listed if (absent := list(_absent(name, corpora)))}
        lacks += [f"{name} ({', '.join(absent)})" for name, absent in gone.items()]
        left |= len(gone) < len(listed)
        if gone:
            words.append(f"--set={field.name}={','.join(name for name in listed if name not in gone)}")
    if not left:
        return [], lacks
    if lacks:  # the systems that are left stand in --set
        del words[at : at + 2]
    return words, lacks


def _absent(system: str, corpora: set[str]) -> Iterator[str]:
    """Yield what the encoders of a system lack: weights, corpora, or the reason why one cannot be loaded."""
    row = multi_format().get(system)
    encoders = {value for key, value in row.items() if key != "published"} if row else {system}
    gone = set[str]()
    for name in (inner for text in encoders for inner in names.walk(text) if inner.parts is None):
        places = [name.base, *(value for _, value in name.options)]
        if absent := [place for place in places if place.startswith("/") and not Path(place).exists()]:
            gone |= {*absent}
            continue
        with hub.planning() as missing:
            try:
                registry.resolve(str(replace(name, label="")))
            except StageError as error:
                gone.add(str(error))
            except InputError:  # it is no encoder
                pass
        gone |= {f"weights of {each}" for each in missing}
        gone |= {f"the corpus {value}" for key, value in name.options if key == "corpus" and value not in corpora}
    yield from sorted(gone)
