"""The options of commands as variables of ``make``: what a goal passes on.

The Makefile exports ``MDCR_MAKE`` (the names of the variables on its command line), ``MDCR_MAKE_NAME`` (the value of
each) and ``MDCR_GOALS`` (its goals). At least one goal must take a variable. Values are passed unexpanded and never
parsed by a shell.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from pipeline.cli.arguments import COMMANDS
from pipeline.cli.parsers import Parser
from pipeline.core.errors import InputError, nearest


def with_variables(words: Sequence[str]) -> list[str]:
    """Return a command line with the variables of ``make`` as options; empty variables are left out.

    Raises:
        InputError: no goal takes a variable, or a flag is neither 0 nor 1.
    """
    command, goals = words[0], os.environ.get("MDCR_GOALS", "").split()
    typed = {name: os.environ.get(f"MDCR_MAKE_{name}", "") for name in os.environ.get("MDCR_MAKE", "").split()}
    takes = {goal: Parser(goal).options for goal in (command, *goals) if goal in COMMANDS}
    stage = {"benchmark": "study"}.get(typed.get("STAGE", ""), typed.get("STAGE", ""))
    if COMMANDS[command].passes and stage in COMMANDS:
        takes[command] = Parser(stage).options | takes[command]
    options = []
    for name, value in typed.items():
        option = f"--{name.lower().replace('_', '-')}" if name.isupper() else name
        if not any(option in of_goal for of_goal in takes.values()):
            known = sorted({variable(each) for of_goal in takes.values() for each in of_goal} - {"HELP"})
            raise InputError(f"{' and '.join(takes)} takes no {name}", nearest(name, known))
        if not value or option not in takes[command]:  # another goal takes it
            continue
        if takes[command][option]:
            options.append(f"{option}={value}")
        elif value not in ("0", "1"):
            raise InputError(f"{name}={value!r} is not understood", "Give 1, or leave it out")
        elif value == "1":
            options.append(option)
    return [*words, *options]


def variable(option: str) -> str:
    """Return the variable of ``make`` of an option."""
    return option.removeprefix("--").upper().replace("-", "_")
