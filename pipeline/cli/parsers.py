"""From the words of a command line to its options, which derive from settings, and to the function that runs it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, NoReturn

import pipeline
from pipeline.cli.arguments import COMMANDS, Group, function_of, groups_of
from pipeline.core.errors import InputError, nearest, require_known
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


class Top(argparse.ArgumentParser):
    """A parser with one-line errors."""

    def error(self, message: str) -> NoReturn:
        """Raise an error of argparse as InputError."""
        raise InputError(message, f"See {self.prog} --help")


class Parser(Top):
    """The parser of a command, with the options of the sources that plug-ins have added.

    Attributes:
        command: the declaration of the command.
        settings: what it takes, by name.
        unset: names of those that stay None if they are not given.
    """

    def __init__(self, name: str) -> None:
        self.command, self.settings, self.unset = COMMANDS[name], dict[str, Setting](), set[str]()
        about = f"{self.command.summary[0].upper()}{self.command.summary[1:]}."
        super().__init__(prog=f"mdcr {name}", description=about, allow_abbrev=False, formatter_class=Help)
        if (word := self.command.word) and word.repeated:
            self.add_argument(word.name, nargs="*", metavar=word.metavar, help=word.help)
        elif word:
            self.add_argument(_WORD, nargs="?", metavar=word.name.upper(), help=word.help)
            self.settings[word.name] = word
            self.add_argument(f"--{word.option}", help="the same, as an option")
        for group in groups_of(name):
            self._take(group)

    def _take(self, taken: Group) -> None:
        """Add settings as options, under a title of the help."""
        group = self if taken.title == "options" else self.add_argument_group(taken.title)
        self.unset |= {*taken.settings} if taken.unset else set()
        for name, setting in taken.settings.items():
            self.settings[name] = setting
            keywords: dict[str, Any] = {"metavar": setting.metavar or setting.option.upper().replace("-", "_")}
            if setting.is_flag:
                keywords = {"action": "store_const", "const": not setting.default}
            elif setting.repeated:
                keywords["action"] = "append"
            keywords |= {"required": True} if setting.default is MISSING else {}
            group.add_argument(f"--{setting.option}", dest=name, help=setting.about() or argparse.SUPPRESS, **keywords)
            if setting.is_flag and taken.chooses:
                keywords |= {"const": setting.default, "help": f"only pools without --{setting.option}"}
                group.add_argument(f"--no-{setting.option}", dest=name, **keywords)

    @property
    def options(self) -> dict[str, bool]:
        """The long options, with dashes; whether each takes a value."""
        return {text: option.nargs != 0 for text, option in self._option_string_actions.items() if text[:2] == "--"}

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words after the name of the command.

        Raises:
            InputError: an option or a word is unknown, missing or of another type.
        """
        if self.command.details and words[:1] and words[0][0:1] != "-" and {"-h", "--help"} & {*words}:
            self._list_details(*function_of(self.command.details)(words[0]))
        options, others = self.parse_known_args(words)
        options.others = others
        if others and not self.command.passes:
            text = others[0].partition("=")[0]
            what = f"option {text}" if text.startswith("-") else f"use for {text!r}"
            remedy = nearest(text, self.options) if text.startswith("-") else f"See {self.prog} --help"
            raise InputError(f"{self.prog} has no {what}", remedy)
        if (word := self.command.word) and _WORD in options:
            first, typed = vars(options).pop(_WORD), getattr(options, word.name)
            if word.default is MISSING and first is typed is None:
                raise InputError(f"--{word.option} must be given", f"Choose {word.help}")
            if first is not None and typed is not None:
                raise InputError(f"--{word.option} is given twice, as {first!r} too", "Give it once")
            setattr(options, word.name, typed if first is None else first)
        options.given = {name for name in self.settings if getattr(options, name) is not None}
        for name, setting in self.settings.items():
            if name not in options.given:
                setattr(options, name, None if name in self.unset else setting.default)
            elif not setting.is_flag:
                setattr(options, name, setting.read(getattr(options, name)))
        self._check(options)
        return options

    def _list_details(self, title: str, texts: Mapping[str, str]) -> None:
        """Add names with their texts to the help, under a title."""
        group = self.add_argument_group(title)
        for name, text in texts.items():
            group._group_actions.append(argparse.Action([name], name, nargs=0, help=text.replace("%", "%%")))

    def _check(self, options: argparse.Namespace) -> None:
        """Raise InputError for an option that the first word does not take, or that lacks the one it goes with."""
        word = getattr(options, self.command.word.name) if self.command.word else None
        for setting in (self.settings[name] for name in self.settings if name in options.given):
            if isinstance(word, str) and setting.of and word not in setting.of:
                users = f"{self.prog.removeprefix('mdcr ')} {' or '.join(setting.of)}"
                raise InputError(f"{self.prog} {word} takes no --{setting.option}", f"It goes with {users}")
            other, equals, value = setting.goes_with.partition("=")
            if other in self.settings and not (getattr(options, other) == value if equals else other in options.given):
                raise InputError(f"--{setting.option} must go with --{setting.goes_with}", "Give both, or neither")


def top() -> Top:
    """Return the parser of ``mdcr`` alone: its help lists the commands."""
    parser = Top(
        prog="mdcr",
        allow_abbrev=False,
        description="Evaluate scientific-article encoders on citation recommendation, on pools of up to millions.",
        epilog="The chain: corpus -> pool -> embed -> index -> search -> score -> report; eval makes what is missing.",
    )
    parser.add_argument("--version", action="version", version=f"mdcr {pipeline.__version__}")
    listed = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        listed.add_parser(name, help=command.summary)
    return parser


def parsers() -> dict[str, Parser]:
    """Return the parsers of all commands by name."""
    return {name: Parser(name) for name in COMMANDS}


def read(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; only the parser of its command is built.

    Raises:
        InputError: a command, an option or a word is unknown, missing or of another type.
    """
    if not words or words[0].startswith("-"):
        top().parse_args(words)
    require_known(words[0], COMMANDS, f"there is no command {words[0]!r}")
    options = Parser(words[0]).read(words[1:])
    options.command = words[0]
    return options


def run(options: argparse.Namespace) -> None:
    """Run the command that was parsed."""
    if not getattr(options, "dry_run", False):
        function_of(COMMANDS[options.command].run)(options)
        return
    from pipeline.encode import hub

    with hub.planning():
        function_of(COMMANDS[options.command].run)(options)
