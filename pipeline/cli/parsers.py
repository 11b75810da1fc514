"""From the words of a command line to its options, and to the function that runs it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pipeline
from pipeline.cli.arguments import COMMANDS, function_of, groups_of
from pipeline.cli.spelling import Help, Parser
from pipeline.core.errors import require_known


def top() -> Parser:
    """Return the parser of ``mdcr`` alone: its help lists the commands."""
    parser = Parser(
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


def parser(name: str) -> Parser:
    """Return the parser of a command, with the options of the sources that plug-ins have added."""
    command = COMMANDS[name]
    about = f"{command.summary[0].upper()}{command.summary[1:]}."
    built = Parser(prog=f"mdcr {name}", description=about, allow_abbrev=False, formatter_class=Help)
    built.passes = command.passes
    built.details = function_of(command.details) if command.details else None
    if command.word is not None:
        built.take_word(command.word)
    for group in groups_of(name):
        built.take(group.title, group.settings, chooses=group.chooses, unset=group.unset)
    return built


def parsers() -> dict[str, Parser]:
    """Return the parsers of all commands by name."""
    return {name: parser(name) for name in COMMANDS}


def read(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; only the parser of its command is built.

    Raises:
        InputError: a command, an option or a word is unknown, missing or of another type.
    """
    if not words or words[0].startswith("-"):
        top().parse_args(words)
    require_known(words[0], COMMANDS, f"there is no command {words[0]!r}")
    options = parser(words[0]).read(words[1:])
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
