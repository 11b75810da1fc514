"""Errors. Each message says what is wrong, which value, where, and the remedy.

Messages name settings as the command line writes them: ``--min-citations=3``, which is ``MIN_CITATIONS=3`` of make and
``min_citations=3`` in Python.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self


class MdcrError(Exception):
    """Base of all errors that this package raises on purpose.

    ``what`` went wrong, with value and place, is one sentence without a full stop, or a question; ``remedy`` is
    another.
    """

    exit_code = 1

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        ending = "" if self.remedy.endswith("?") else "."
        return f"{self.what}. {self.remedy}{ending}" if self.remedy else f"{self.what}."


class InputError(MdcrError):
    """Bad input or configuration (exit code 2)."""

    exit_code = 2


class CorruptError(InputError):
    """A file of an artifact does not match its manifest (exit code 2)."""


class InsufficientDataError(InputError):
    """A corpus has too few queries, candidates or validation queries (exit code 2).

    One of the settings ``nearest`` has to change, to the value that may help; ``instead`` has options that work.
    """

    nearest: Mapping[str, Any] = {}
    instead: Mapping[str, str] = {}

    def naming(self, **nearest: Any) -> Self:
        """Return the error with settings that may help."""
        self.nearest = nearest
        return self

    def __str__(self) -> str:
        if not self.instead:
            return super().__str__()
        alternative = " ".join(f"--{name}={value}" for name, value in self.instead.items())
        return f"{super().__str__()} This works: {alternative}"


class EmptyFileError(CorruptError):
    """A file of a release has no data (exit code 2)."""


class StageError(MdcrError):
    """A stage could not finish (exit code 1)."""


def require_known(value: object, known: Collection[str], what: str, otherwise: str = "") -> None:
    """Raise InputError, which says ``what`` is wrong and names the nearest known value, unless a value is known.

    ``otherwise`` is as in :func:`nearest`.
    """
    if value not in known:
        raise InputError(what, nearest(value, known, otherwise))


def nearest(value: object, choices: Iterable[str], otherwise: str = "") -> str:
    """Return a hint that names the closest of ``choices``; if none is close, ``otherwise``, or all of them."""
    import difflib  # here, because every start of the command loads this module

    names = list(choices)
    by_casefold = {choice.casefold(): choice for choice in names}
    matches = difflib.get_close_matches(str(value).casefold(), by_casefold, n=1, cutoff=0.6)
    if matches:
        return f"Did you mean {by_casefold[matches[0]]!r}?"
    return otherwise or ("Choose one of: " + ", ".join(names) if names else "There is none yet")
