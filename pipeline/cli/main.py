"""Entry point of ``mdcr``: parse and run one command; report any failure as one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from pipeline.cli import signals
from pipeline.core.errors import InputError, MdcrError

UNEXPECTED = 70


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``mdcr`` and return its exit code.

    The codes: 0 done, 1 failed, 2 invalid input or configuration, 70 unexpected error, and
    128 plus the number of the signal that stopped it (130 for Ctrl-C).
    """
    try:
        if arguments is None:
            _open_streams()
            signals.install()
        code = _run_and_report(list(sys.argv[1:] if arguments is None else arguments))
        if arguments is None:
            signals.ignore()
        return code
    except KeyboardInterrupt:
        return signals.report(signals.received() or signal.SIGINT)


def _run_and_report(words: list[str]) -> int:
    """Run a command, print one line if it fails, and return the exit code."""
    error: BaseException | None = None
    try:
        _run(words)
    except KeyboardInterrupt:
        raise
    except BaseException as caught:  # noqa: BLE001  # the only catch-all: it becomes an exit code
        error = caught
    flush_error = _flush()
    if signals.received():  # libraries turn an interrupt into other errors
        raise KeyboardInterrupt from error
    code, line = _code_and_line(error, flush_error, words)
    if line:
        _print_error(line)
    return code


def _open_streams() -> None:
    """Replace closed streams. Buffer standard output, so that :func:`_flush` finds write errors."""
    if sys.stdout is not None:
        descriptor, encoding = sys.stdout.fileno(), sys.stdout.encoding
        sys.stdout = open(descriptor, "w", encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell; a data file must not get its descriptor
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _run(words: list[str]) -> None:
    for word in words:
        if not word.isascii() and any("\ud800" <= letter <= "\udfff" for letter in word):
            raise InputError(f"{word!r} is not UTF-8", "Rename the file or folder")
    if words and words[0] not in ("-h", "--help", "--version"):
        from pipeline.core.install import load_plugins

        load_plugins()  # before options are declared: plug-ins add sources
    from pipeline.cli.parsers import read, run

    if words[:1] == ["--from-make"] and words[1:2]:
        from pipeline.cli.variables import with_variables

        words = with_variables(words[1:])
    options = read(words)
    from pipeline.core import progress
    from pipeline.core.files import disk_errors

    progress.set_quiet(options.quiet)
    with disk_errors(options.root):
        if options.root.exists() and not options.root.is_dir():
            raise InputError(f"--root {options.root} is not a folder", "Give the path of a folder")
        run(options)


def _flush() -> OSError | None:
    """Flush standard output. Return the error if it cannot be written; its remaining text is dropped."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def _code_and_line(error: BaseException | None, flush_error: OSError | None, words: Sequence[str]) -> tuple[int, str]:
    """Return the exit code and the line to print, which may be empty."""
    if isinstance(error, BrokenPipeError) and error.filename is None:  # the reader of a pipe, such as head, has ended
        return 0, ""
    if flush_error is not None and (error is None or isinstance(error.__cause__ or error, OSError | SystemExit)):
        reader_left = isinstance(flush_error, BrokenPipeError)
        return (0, "") if reader_left else (1, f"standard output cannot be written ({flush_error.strerror}).")
    if error is None:
        return 0, ""
    if isinstance(error, SystemExit):  # from argparse, which has printed the reason
        return (error.code or 0, "") if isinstance(error.code, int | None) else (1, str(error.code))
    if isinstance(error, MdcrError):
        return error.exit_code, _one_line(str(error))
    if isinstance(error, MemoryError):
        return 1, "the memory of this machine ran out. Ask for less with --memory or --workers."
    if isinstance(error, OSError) and error.strerror:
        path = f"{error.filename}: " if error.filename else ""
        return 1, _one_line(f"{path}{error.strerror}. Check the paths of the command.")
    return UNEXPECTED, _unexpected(error, words)


def _unexpected(error: BaseException, words: Sequence[str]) -> str:
    """Write the details of an unexpected error to a file, and return the line that names the file."""
    import platform
    import tempfile
    import traceback

    import pipeline
    from pipeline.core.text import without_credentials

    facts = f"mdcr {pipeline.__version__}, Python {platform.python_version()}, {platform.platform()}\n{list(words)}\n\n"
    text = facts + "".join(traceback.format_exception(error))
    summary = _one_line(f"{type(error).__name__}: {error}".strip(": "))
    try:
        descriptor, name = tempfile.mkstemp(prefix="mdcr-error-", suffix=".txt")
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as handle:
            handle.write(without_credentials(text))
    except OSError:
        return f"unexpected {summary}. The details cannot be written: set TMPDIR to a folder with space."
    return f"unexpected {summary}. Please report it with the details in {name}."


def _one_line(text: str) -> str:
    """Return text as one line of at most 2,000 characters, control characters escaped and passwords removed."""
    from pipeline.core.text import printable, without_credentials

    return printable(without_credentials(text[:2000])) + "..." * (len(text) > 2000)


def _print_error(line: str) -> None:
    try:
        print(f"mdcr: {line}", file=sys.stderr, flush=True)
    except OSError:  # standard error is full or closed; the exit code remains
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
