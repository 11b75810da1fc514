"""The words of a command line: a parser with one-line errors, and options as variables of ``make``.

The Makefile exports ``MDCR_MAKE`` (the names of the variables on its command line), ``MDCR_MAKE_NAME`` (the value of
each) and ``MDCR_GOALS`` (its goals). At least one goal must take a variable. Values are passed unexpanded and never
parsed by a shell.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from pipeline.core.errors import InputError, nearest, require_known

_WORD = "first word"
"""Attribute for the word after the name of a command; no option has this name."""

_OPTIONS = argparse.Action(["OPTION ..."], "options", nargs=0)


class Help(argparse.HelpFormatter):
    """Help with usage on one line; the options are listed below."""

    def add_usage(self, usage: str | None, actions: Iterable[argparse.Action], *rest: Any) -> None:
        """Add the usage: required options and positional words."""
        required = [action for action in actions if action.required or not action.option_strings]
        super().add_usage(usage, [_OPTIONS, *required], *rest)


class Parser(argparse.ArgumentParser):
    """A parser with one-line errors that suggest the nearest spelling.

    Attributes:
        word: the option that can be given as the first word: ``mdcr show pools`` is ``mdcr show --what pools``.
        required: its choices if it is required, else empty.
        passes: whether :meth:`read` leaves other words to another command, in ``others`` of the options.
    """

    word = ""
    required = ""
    passes = False

    @property
    def options(self) -> dict[str, bool]:
        """The long options, with dashes; whether each takes a value."""
        return {text: option.nargs != 0 for text, option in self._option_string_actions.items() if text[:2] == "--"}

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words of a command line.

        Raises:
            InputError: an option or a word is unknown, missing or of another type.
        """
        commands = self._commands().choices
        if words[:1] and not words[0].startswith("-"):
            require_known(words[0], commands, f"there is no command {words[0]!r}")
        others: list[str] = []
        if (named := commands.get(words[0]) if words else None) and named.passes:
            count = 1 if words[1:2] and words[1].startswith("-") else 2
            valued, flags = set(named.options) - _flags(named), {*_flags(named), "-h"}
            own, others = _parted(words[count:], valued, flags)
            words = [*words[:count], *own]
        options, unknown = self.parse_known_args(words)
        options.others = others
        command = commands[options.command]
        if unknown:
            text = unknown[0].partition("=")[0]
            what = f"option {text}" if text.startswith("-") else f"use for {text!r}"
            remedy = nearest(text, command.options) if text.startswith("-") else f"See mdcr {options.command} --help"
            raise InputError(f"mdcr {options.command} has no {what}", remedy)
        if word := command.word:
            first = vars(options).pop(_WORD)
            if command.required and first is None and getattr(options, word) is None:
                raise InputError(f"--{word} must be given", f"Choose {command.required}")
            if first is not None and getattr(options, word) is not None:
                raise InputError(f"--{word} is given twice, as {first!r} too", "Give it once")
            setattr(options, word, getattr(options, word) if first is None else first)
        return options

    def error(self, message: str) -> NoReturn:
        """Raise an error of argparse as InputError."""
        match = re.fullmatch(r"argument (--[\w-]+): invalid (\w+) value: (.*)", message, re.DOTALL)
        what = f"{match[1]} must be a {'whole ' * (match[2] == 'int')}number, got {match[3]}" if match else message
        raise InputError(what, f"See {self.prog} --help")

    def add_word(self, name: str, about: str, *, required: bool = False) -> None:
        """Add an option that may be given as the first word."""
        self.word, self.required = name, about if required else ""
        self.add_argument(_WORD, nargs="?", metavar=name.upper(), help=about)
        self.add_argument(f"--{name}", help="the same, as an option")

    def _commands(self) -> argparse._SubParsersAction[Parser]:
        return next(action for action in self._actions if isinstance(action, argparse._SubParsersAction))


def with_variables(words: Sequence[str], commands: Mapping[str, Parser]) -> list[str]:
    """Return a command line with the variables of ``make`` as options; empty variables are left out.

    Raises:
        InputError: a variable is unknown, no goal takes it, or a flag is neither 0 nor 1.
    """
    command = words[0]
    options_of = {name: variables(parser) for name, parser in commands.items()}
    typed, flags = _typed_variables(), _flags(commands[command])
    stage = {"benchmark": "study"}.get(typed.get("STAGE", ""), typed.get("STAGE", ""))
    if commands[command].passes and stage in commands:
        options_of[command] = options_of[stage] | options_of[command]
        flags |= _flags(commands[stage])
    running = {command, *_goals()}
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
    return {_variable(option): option[2:] for option in sorted(parser.options) if option != "--help"}


def command_with(words: Sequence[str], changes: Mapping[str, str]) -> str:
    """Return a command line of ``mdcr`` with changed values of some options."""
    changed = [f"--{name}={value}" for name, value in changes.items()]
    return shlex.join(["mdcr", *without(words, {f"--{name}" for name in changes}), *changed])


def without(words: Sequence[str], options: Collection[str], flags: Collection[str] = ()) -> list[str]:
    """Return the words of a command line without some options and their values, and without some flags."""
    return _parted(words, options, flags)[1]


def _parted(words: Sequence[str], options: Collection[str], flags: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the words that are some options with their values or some flags, and the other words."""
    own: list[str] = []
    others: list[str] = []
    takes_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        (own if takes_next or name in options or name in flags else others).append(word)
        takes_next = not takes_next and name in options and not equals
    return own, others


def _typed_variables() -> dict[str, str]:
    return {name: os.environ.get(f"MDCR_MAKE_{name}", "") for name in os.environ.get("MDCR_MAKE", "").split()}


def _goals() -> list[str]:
    return os.environ.get("MDCR_GOALS", "").split()


def _flags(parser: Parser) -> set[str]:
    """Return the options of a command that take no value."""
    return {option for option, takes_value in parser.options.items() if not takes_value}


def _variable(option: str) -> str:
    return option.removeprefix("--").upper().replace("-", "_")
