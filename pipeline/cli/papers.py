"""``mdcr papers``: the tables of the five papers with their commands. ``mdcr reproduce``: run those of one paper."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import NamedTuple

import msgspec

from pipeline.cli import parsers
from pipeline.cli.arguments import running
from pipeline.cli.output import print_json, print_rows
from pipeline.core.errors import MdcrError, StageError
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.workspace import REPORTS
from pipeline.data import DATA

_FOLDER = r"(?<![\w/])/data/([\w-]+)"
_WIDTH = 140


class Command(NamedTuple):
    """A command: its letter (empty: it comes before the others), its text, and names of what it needs.

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

    title: str
    after: str
    commands: tuple[Command, ...]
    rows: tuple[Row, ...]

    @property
    def table(self) -> list[dict[str, str]]:
        """Its tables and figures: ``here`` is ``run``, ``implemented`` or ``no``, with needs; ``run`` is ``A: ...``."""
        rows = []
        for row in self.rows:
            commands = [each for each in self.commands if each.letter in row.letters]
            needs = ", ".join(dict.fromkeys(need for each in commands for need in each.needs))
            run = "; ".join(f"{each.letter}: {each.run}" for each in commands if each.run)
            state = "run" if run else "implemented" if row.letters else "no"
            here = state + (f", needs: {needs}" if needs else "")
            facts = {"number": row.number, "shows": row.shows, "here": here, "run": run}
            rows.append({**facts, "from": row.outputs, "note": row.note})
        return rows

    @property
    def script(self) -> str:
        """Its commands as lines of a shell; long ones are broken before ``--model``."""
        lines = (f"{text}  # {letter or 'first'}\n" for letter, text, *_ in self.commands)
        return "".join(line.replace(" --model", " \\\n  --model") if len(line) > _WIDTH else line for line in lines)


@dataclass(frozen=True)
class Listed:
    """What commands need, by name, and the papers by name."""

    needs: dict[str, str]
    papers: dict[str, Paper]


@cache
def listed() -> Listed:
    """Return the content of ``pipeline/data/papers.toml``."""
    return msgspec.convert(msgspec.toml.decode((DATA / "papers.toml").read_bytes()), Listed)


def sections() -> str:
    """Return the tables of ``docs/papers.md`` on the site."""
    needs = [{"what is needed": name, "it is": what} for name, what in listed().needs.items()]
    parts = (
        f"## {paper.title}\n\n```\n{paper.script}```\n\n{_markdown(paper.table)}\n{paper.after.strip()}\n"
        for paper in listed().papers.values()
    )
    return "\n".join([_markdown(needs), *parts])


def _markdown(rows: Sequence[dict[str, str]]) -> str:
    lines = [[*rows[0]], ["---"] * len(rows[0]), *([*row.values()] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |").replace("  |", " |") for line in lines)


def papers(options: argparse.Namespace) -> None:
    """Print every table and figure of the papers, or of one."""
    chosen = {name: paper for name, paper in listed().papers.items() if options.paper in (None, name)}
    if options.json:
        print_json({name: asdict(paper) for name, paper in chosen.items()})
    elif options.format == "markdown":
        print(sections(), end="")
    else:
        for name, paper in chosen.items():
            print(f"{paper.title} (make reproduce PAPER={name})\n\n{paper.script}")
            print_rows("tables", paper.table, options)
            print()


def reproduce(options: argparse.Namespace) -> None:
    """Run the commands of a paper in order for which the data are there; say what the others need, and what failed."""
    paper, about, done, failed = listed().papers[options.paper], listed().needs, 0, list[str]()
    for letter, text, needs, _ in paper.commands:
        number = letter or "first"
        has_gpu = "GPU" not in needs or Resources.of(device=options.device).device != "cpu"
        there = {"weights", *(["GPU"] if has_gpu else []), *(need for need in needs if (options.input / need).exists())}
        lacks = [need for need in needs if need not in there]
        if lacks:
            say(f"{number} skipped: {text}")
            say(f"  needs {'; '.join(f'{name}: {about[name]}' for name in lacks)}")
            continue
        words = [re.sub(_FOLDER, lambda found: str(options.input / found[1]), word) for word in shlex.split(text)[1:]]
        words += running(words[0], options)
        if words[0] == "study" and "--list" not in words:
            words.append(f"--output={options.root / REPORTS / f'{options.paper}-{number}'}")
        say(f"{number}: mdcr {shlex.join(words)}")
        try:
            if not options.dry_run:
                parsers.run(parsers.read(words))
            done += 1
        except MdcrError as error:
            say(f"{number} failed: {error}")
            failed.append(number)
    say(f"{paper.title}: {done} of {len(paper.commands)} commands {'would run' if options.dry_run else 'run'}")
    if failed:
        raise StageError(f"{', '.join(failed)} of {options.paper} failed", "The lines above say why")
