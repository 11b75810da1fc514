"""A parser of the standard library whose errors are those of the project."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from pipeline.core.errors import InputError, nearest

_WORD = "first word"
"""Where a parser keeps the word behind the name of a command; no option has this name."""


_OPTIONS = argparse.Action(["OPTION ..."], "options", nargs=0)


class Help(argparse.HelpFormatter):
    """Help with a usage of one line; the options are listed below it."""

    def add_usage(self, usage: str | None, actions: Iterable[argparse.Action], *rest: Any) -> None:
        """Add the usage: the options that must be given, and words."""
        shown = [action for action in actions if action.required or not action.option_strings]
        super().add_usage(usage, [_OPTIONS, *shown], *rest)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the spelling of what may be meant.

    Attributes:
        word: the option that may be given as the first word: ``mdcr show pools`` is ``mdcr show --what pools``.
        required: its choices, where it must be given.
    """

    word = ""
    required = ""

    @property
    def options(self) -> dict[str, bool]:
        """Its options, with dashes, and whether each takes a value."""
        return {text: option.nargs != 0 for text, option in self._option_string_actions.items() if text[:2] == "--"}

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words of a command line.

        Raises:
            InputError: an option or a word is unknown, missing or of another type.
        """
        commands = self._commands().choices
        if words[:1] and not words[0].startswith("-") and words[0] not in commands:
            raise InputError(f"there is no command {words[0]!r}", nearest(words[0], commands))
        options, unknown = self.parse_known_args(words)
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
        """Raise an error of argparse as one of ours."""
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
