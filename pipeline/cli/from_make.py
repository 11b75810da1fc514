"""Options from the variables that ``make`` was given.

The Makefile exports ``MDCR_MAKE``, the names of the variables on its command line, and ``MDCR_MAKE_NAME``, the value of
each. Values reach this module unexpanded and are never words of a shell.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence

from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import say

_POSITIONAL = {"fetch": "SOURCE", "show": "WHAT", "models": "WHAT", "study": "STUDY"}
"""The variable that is the first word of a command."""

_OPTION = r"--([a-z][a-z0-9-]*)"


def with_variables(words: Sequence[str], commands: Mapping[str, ArgumentParser]) -> list[str]:
    """Return a command line with the variables of ``make`` as options; an empty variable is left out.

    Args:
        words: the command and options of the Makefile's own.
        commands: the parser of each command.

    Raises:
        InputError: no command has such an option, or a flag is neither 0 nor 1.
    """
    command = words[0]
    usages = {name: each.format_usage() for name, each in commands.items()}
    own, flags = (set(re.findall(pattern, usages[command])) for pattern in (_OPTION, rf"\[{_OPTION}\]"))
    known = {_variable(option) for usage in usages.values() for option in re.findall(_OPTION, usage)}
    known |= {*_POSITIONAL.values(), "API_KEY"}
    first, options = [], []
    for name in os.environ.get("MDCR_MAKE", "").split():
        value, option = os.environ.get(f"MDCR_MAKE_{name}", ""), name.lower().replace("_", "-")
        if name not in known:
            raise InputError(f"there is no variable {name}", nearest(name, sorted(known)))
        if not value:
            continue
        if name == _POSITIONAL.get(command):
            first = ["--", value]
        elif option not in own and (command, option) != ("fetch", "api-key"):
            say(f"{command} does not use {name}")
        elif option not in flags:
            options.append(f"--{option}={value}")
        elif value not in ("0", "1"):
            raise InputError(f"{name}={value!r} is not understood", "Give 1, or leave it out")
        elif value == "1":
            options.append(f"--{option}")
    return [*words, *options, *first]


def _variable(option: str) -> str:
    return option.upper().replace("-", "_")
