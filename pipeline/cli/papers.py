"""``mdcr papers``: the tables of the five papers with their commands. ``mdcr reproduce``: run those of one paper."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from pipeline.cli import parsers
from pipeline.cli.arguments import running
from pipeline.cli.output import print_json, print_rows
from pipeline.cli.study import read_chosen
from pipeline.core.errors import InputError, MdcrError, StageError
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.settings import marked
from pipeline.core.workspace import REPORTS, corpus_names
from pipeline.data import DATA
from pipeline.encode import hub, names, registry
from pipeline.studies.scirepeval.steps import multi_format

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
    """Run the commands of a paper in order with what is at hand, and say what was skipped and what it would need."""
    paper, about, done, failed = listed().papers[options.paper], listed().needs, 0, list[str]()
    corpora = set(corpus_names(options.root))
    for letter, text, needs, _ in paper.commands:
        number = letter or "first"
        words, lacks = _at_hand(shlex.split(text)[1:], options, corpora)
        if "GPU" in needs and Resources.of(device=options.device).device == "cpu":
            words, lacks = [], [*lacks, "GPU"]
        if not words:
            say(f"{number} skipped: {text}")
            say(f"  needs {'; '.join(f'{name}: {about[name]}' if name in about else name for name in lacks)}")
            continue
        words += running(words[0], options)
        if words[0] == "study" and "--list" not in words:
            words.append(f"--output={options.root / REPORTS / f'{options.paper}-{number}'}")
        say(f"{number}: mdcr {shlex.join(words)}")
        if lacks:
            say(f"  without {', '.join(lacks)}")
        corpora |= {words[words.index("--corpus") + 1]} if words[0] == "corpus" else set()
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


def _at_hand(words: list[str], options: argparse.Namespace, corpora: set[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command without systems that are not at hand, and what is not; no words: it cannot run."""
    at = words.index("--model") if "--model" in words else len(words)
    folders = dict.fromkeys(name for word in words[:at] + words[at + 2 :] for name in re.findall(_FOLDER, word))
    if lacks := [name for name in folders if not (options.input / name).exists()]:
        return [], lacks
    words = [re.sub(_FOLDER, lambda found: str(options.input / found[1]), word) for word in words]
    if words[0] == "train" and (corpus := words[words.index("--corpus") + 1]) not in corpora:
        return [], [f"the corpus {corpus}"]
    if words[0] != "study" or "--list" in words:
        return words, []
    chosen, _, recipe = read_chosen(parsers.read(words))
    if not getattr(recipe, "input", "") and (corpus := getattr(recipe, "corpus", "")) and corpus not in corpora:
        return [], [f"the corpus {corpus}"]
    settings = {"systems", *marked(chosen.recipe, "systems")}
    named = {setting: names.split_names(getattr(recipe, setting, "")) for setting in sorted(settings)}
    gone = {system: absent for systems in named.values() for system in systems if (absent := _absent(system, corpora))}
    if not any({*systems} - gone.keys() for systems in named.values()):
        words = []
    elif gone:  # the systems that are left stand in --set
        left = {setting: ",".join(name for name in systems if name not in gone) for setting, systems in named.items()}
        words = words[:at] + words[at + 2 :] + [f"--set={setting}={systems}" for setting, systems in left.items()]
    return words, [f"{name} ({', '.join(absent)})" for name, absent in gone.items()]


def _absent(system: str, corpora: set[str]) -> list[str]:
    """Return what the encoders of a system lack: weights, corpora, or the reason why one cannot be loaded."""
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
    return sorted(gone)
