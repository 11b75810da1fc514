"""Options from the variables that ``make`` was given.

The Makefile exports ``MDCR_MAKE``, the names of the variables on its command line, ``MDCR_MAKE_NAME``, the value of
each, and ``MDCR_GOALS``, what it was asked to make: a variable must be of use to one of the goals. Values reach this
module unexpanded and are never words of a shell.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence

from pipeline.core.errors import InputError, nearest

_GOALS = {"demo": ("corpus", "eval")}
"""The commands of the goals of ``make`` that run several."""


def with_variables(words: Sequence[str], commands: Mapping[str, ArgumentParser]) -> list[str]:
    """Return a command line with the variables of ``make`` as options; an empty variable is left out."""
    command, goals = words[0], os.environ.get("MDCR_GOALS", "").split()
    takes = {name: variables(each) for name, each in commands.items()}
    own = takes[command]
    actions = commands[command]._option_string_actions
    flags = {option for option in own.values() if actions[f"--{option}"].nargs == 0}
    known = {name for each in takes.values() for name in each}
    here = {name for goal in (command, *goals) for each in _GOALS.get(goal, (goal,)) for name in takes.get(each, ())}
    options = []
    for name in os.environ.get("MDCR_MAKE", "").split():
        value, option = os.environ.get(f"MDCR_MAKE_{name}", ""), own.get(name, "")
        if name not in known:
            raise InputError(f"there is no variable {name}", nearest(name, sorted(known)))
        if name not in here:
            users = ", ".join(each for each, names in takes.items() if name in names)
            raise InputError(f"{name} must go with {users}, got {command}", "Leave it out")
        if not value or name not in own:  # another goal takes it
            continue
        if option not in flags:
            options.append(f"--{option}={value}")
        elif value not in ("0", "1"):
            raise InputError(f"{name}={value!r} is not understood", "Give 1, or leave it out")
        elif value == "1":
            options.append(f"--{option}")
    return [*words, *options]


def variables(parser: ArgumentParser) -> dict[str, str]:
    """Return the option of each variable that a command takes."""
    options = {text[2:] for text in parser._option_string_actions if text.startswith("--")} - {"help"}
    return {option.upper().replace("-", "_"): option for option in sorted(options)}
