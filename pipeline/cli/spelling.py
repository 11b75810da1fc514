"""How messages name settings: as options of ``mdcr``, or under ``make`` as its variables.

Messages below the command line write ``--size``, or ``--size=900`` with a value.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

from pipeline.cli.arguments import Parser


def as_options(text: str) -> str:
    """Return a message with options of ``mdcr``."""
    return re.sub(r"(?<![^\s(])(--[a-z-]+)=(?=\S)", r"\1 ", text)


def as_variables(text: str, commands: Mapping[str, Parser]) -> str:
    """Return a message with goals and variables of ``make``; options of other programs stay."""
    options = {name for each in commands.values() for name in each._option_string_actions}
    flags = {name for each in commands.values() for name in flags_of(each)} | {"--help"}
    words = re.split(r"(\s)", text)
    command, joins = "", False
    for place, word in enumerate(words):
        bare = word.strip("(,.;:)")
        if place > 1 and words[place - 2] == "mdcr" and bare in commands and "--help" not in words[place:]:
            command, words[place - 2] = bare, "make"
        elif bare.partition("=")[0] in options and bare.startswith("--"):
            name, _, value = bare.partition("=")
            value = "1" if name in flags else value
            joins = not value
            if name != "--help":
                words[place] = word.replace(bare, _variable(name) + (f"={value}" if value else ""))
        elif bare.strip():
            if joins and (command or re.fullmatch(r"\d[\w.]*", bare)):
                words[place - 1] = "="
            elif command and commands[command].word and words[place - 2] == command:
                words[place] = f"{_variable(commands[command].word)}={word}"
            else:
                command = ""
            joins = False
    return "".join(words)


def flags_of(parser: Parser) -> set[str]:
    """Return the options of a command that take no value."""
    return {name for name, action in parser._option_string_actions.items() if action.nargs == 0}


def command_with(words: Sequence[str], changes: Mapping[str, str]) -> str:
    """Return a command as it was typed, by ``make`` or else ``mdcr``, with other values of some options."""
    if words[:1] == ["--from-make"]:
        given = {name: os.environ.get(f"MDCR_MAKE_{name}", "") for name in os.environ.get("MDCR_MAKE", "").split()}
        given |= {_variable(option): value for option, value in changes.items()}
        goals = os.environ.get("MDCR_GOALS", "").split() or words[1:2]
        return shlex.join(["make", *goals, *(f"{name}={value}" for name, value in given.items())])
    kept, takes_next = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        if not takes_next and f"--{name.lstrip('-')}" == name and name[2:] in changes:
            takes_next = not equals
        elif takes_next:
            takes_next = False
        else:
            kept.append(word)
    return shlex.join(["mdcr", *kept, *(each for name, value in changes.items() for each in (f"--{name}", value))])


def _variable(option: str) -> str:
    return option.removeprefix("--").upper().replace("-", "_")
