"""The options of commands as variables of ``make``: what a goal passes on.

The Makefile exports ``MDCR_MAKE`` (the names of the variables on its command line), ``MDCR_MAKE_NAME`` (the value of
each) and ``MDCR_GOALS`` (its goals). At least one goal must take a variable. Values are passed unexpanded and never
parsed by a shell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pipeline.cli.spelling import Parser, flags_of
from pipeline.core.errors import InputError, nearest


def with_variables(words: Sequence[str], commands: Mapping[str, Parser]) -> list[str]:
    """Return a command line with the variables of ``make`` as options; empty variables are left out.

    Raises:
        InputError: a variable is unknown, no goal takes it, or a flag is neither 0 nor 1.
    """
    command = words[0]
    options_of = {name: variables(parser) for name, parser in commands.items()}
    typed = {name: os.environ.get(f"MDCR_MAKE_{name}", "") for name in os.environ.get("MDCR_MAKE", "").split()}
    flags = flags_of(commands[command])
    stage = {"benchmark": "study"}.get(typed.get("STAGE", ""), typed.get("STAGE", ""))
    if commands[command].passes and stage in commands:
        options_of[command] = options_of[stage] | options_of[command]
        flags |= flags_of(commands[stage])
    running = {command, *os.environ.get("MDCR_GOALS", "").split()}
    options = []
    for name, value in typed.items():
        users = [user for user, options_by_name in options_of.items() if name in options_by_name]
        if not users:
            raise InputError(f"there is no variable {name}", nearest(name, sorted(set().union(*options_of.values()))))
        if not running & set(users):
            raise InputError(f"{name} must go with {', '.join(users)}, got {command}", "Leave it out")
        if not value or command not in users:  # another goal takes it
            continue
        option = f"--{options_of[command][name]}"
        if option not in flags:
            options.append(f"{option}={value}")
        elif value not in ("0", "1"):
            raise InputError(f"{name}={value!r} is not understood", "Give 1, or leave it out")
        elif value == "1":
            options.append(option)
    return [*words, *options]


def variables(parser: Parser) -> dict[str, str]:
    """Return the option of each variable that a command takes, without dashes."""
    return {variable(option): option[2:] for option in sorted(parser.options) if option != "--help"}


def variable(option: str) -> str:
    """Return the variable of ``make`` of an option."""
    return option.removeprefix("--").upper().replace("-", "_")
