"""The words of a command line: a parser of settings with one-line errors."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, NoReturn

from pipeline.core.errors import InputError, nearest
from pipeline.core.settings import Setting

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
    """A parser whose options derive from settings, with one-line errors that suggest the nearest spelling.

    Attributes:
        settings: what a command takes, by name.
        unset: names of those that stay None if they are not given.
        word: the one that can be given as the first word: ``mdcr show pools`` is ``mdcr show --what=pools``.
        passes: whether :meth:`read` leaves other words to another command, in ``others`` of the options.
        details: what the help adds about a first word: a title, and texts by name.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.settings: dict[str, Setting] = {}
        self.unset: set[str] = set()
        self.word: Setting | None = None
        self.passes = False
        self.details: Callable[[str], tuple[str, Mapping[str, str]]] | None = None

    def take(self, title: str, settings: Mapping[str, Setting], *, chooses: bool = False, unset: bool = False) -> None:
        """Add settings as options, under a title of the help.

        Args:
            title: the title; ``options``: that of the help itself.
            settings: the settings by name.
            chooses: whether they choose what exists, so that a rule can be excluded too.
            unset: whether one that is not given stays None.
        """
        group = self if title == "options" else self.add_argument_group(title)
        for name, setting in settings.items():
            self.settings[name] = setting
            self.unset |= {name} if unset else set()
            keywords: dict[str, Any] = {"metavar": setting.metavar or setting.option.upper().replace("-", "_")}
            if setting.is_flag:
                keywords = {"action": "store_const", "const": not setting.default}
            elif setting.repeated:
                keywords["action"] = "append"
            about = setting.about() or argparse.SUPPRESS
            keywords |= {"required": True} if setting.default is MISSING else {}
            group.add_argument(f"--{setting.option}", dest=name, help=about, **keywords)
            if setting.is_flag and chooses:
                only = f"only pools without --{setting.option}"
                group.add_argument(
                    f"--no-{setting.option}", dest=name, action="store_const", const=setting.default, help=only
                )

    def take_word(self, word: Setting) -> None:
        """Add a setting that may be given as the first word; with several values, only so."""
        self.word, metavar = word, word.name.upper()
        if word.repeated:
            self.add_argument(word.name, nargs="*", metavar=word.metavar, help=word.help)
            return
        self.add_argument(_WORD, nargs="?", metavar=metavar, help=word.help)
        self.settings[word.name] = word
        self.add_argument(f"--{word.option}", help="the same, as an option")

    def list_details(self, title: str, texts: Mapping[str, str]) -> None:
        """Add names with their texts to the help, under a title."""
        group = self.add_argument_group(title)
        for name, text in texts.items():
            group._group_actions.append(argparse.Action([name], name, nargs=0, help=text.replace("%", "%%")))

    @property
    def options(self) -> dict[str, bool]:
        """The long options, with dashes; whether each takes a value."""
        return {text: option.nargs != 0 for text, option in self._option_string_actions.items() if text[:2] == "--"}

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words after the name of the command.

        Raises:
            InputError: an option or a word is unknown, missing or of another type.
        """
        others: list[str] = []
        if self.passes:
            count = 0 if words[:1] and words[0].startswith("-") else 1
            valued, flags = set(self.options) - flags_of(self), {*flags_of(self), "-h"}
            own, others = _parted(words[count:], valued, flags)
            words = [*words[:count], *own]
        if self.details and words[:1] and words[0][0:1] != "-" and {"-h", "--help"} & {*words}:
            self.list_details(*self.details(words[0]))
        options, unknown = self.parse_known_args(words)
        options.others = others
        if unknown:
            text = unknown[0].partition("=")[0]
            what = f"option {text}" if text.startswith("-") else f"use for {text!r}"
            remedy = nearest(text, self.options) if text.startswith("-") else f"See {self.prog} --help"
            raise InputError(f"{self.prog} has no {what}", remedy)
        if (word := self.word) and _WORD in options:
            first = vars(options).pop(_WORD)
            typed = getattr(options, word.name)
            if word.default is MISSING and first is typed is None:
                raise InputError(f"--{word.option} must be given", f"Choose {word.help}")
            if first is not None and typed is not None:
                raise InputError(f"--{word.option} is given twice, as {first!r} too", "Give it once")
            setattr(options, word.name, typed if first is None else first)
        options.given = {name for name in self.settings if getattr(options, name) is not None}
        for name, setting in self.settings.items():
            value = getattr(options, name)
            if name not in options.given:
                value = None if name in self.unset else setting.default
            elif not setting.is_flag:
                value = setting.read(value)
            setattr(options, name, value)
        self.check(options)
        return options

    def check(self, options: argparse.Namespace) -> None:
        """Raise InputError for an option that the first word does not take, or that lacks the one it goes with."""
        word = getattr(options, self.word.name) if self.word else None
        for setting in (self.settings[name] for name in self.settings if name in options.given):
            if isinstance(word, str) and setting.of and word not in setting.of:
                users = f"{self.prog.removeprefix('mdcr ')} {' or '.join(setting.of)}"
                raise InputError(f"{self.prog} {word} takes no --{setting.option}", f"It goes with {users}")
            other, equals, value = setting.goes_with.partition("=")
            if other in self.settings and not (getattr(options, other) == value if equals else other in options.given):
                raise InputError(f"--{setting.option} must go with --{setting.goes_with}", "Give both, or neither")

    def error(self, message: str) -> NoReturn:
        """Raise an error of argparse as InputError."""
        raise InputError(message, f"See {self.prog} --help")


def command_with(words: Sequence[str], changes: Mapping[str, str]) -> str:
    """Return a command line of ``mdcr`` with changed values of some options."""
    changed = [f"--{name}={value}" for name, value in changes.items()]
    return shlex.join(["mdcr", *_parted(words, {f"--{name}" for name in changes}, ())[1], *changed])


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


def flags_of(parser: Parser) -> set[str]:
    """Return the options of a command that take no value."""
    return {option for option, takes_value in parser.options.items() if not takes_value}
