"""A report in the format a user asks for."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.core.errors import InputError, nearest
from pipeline.report import latex, longcsv, markdown, terminal
from pipeline.report.model import Report
from pipeline.report.tables import Table, build_tables

FORMATS = ("terminal", "markdown", "csv", "latex")

_BY_TABLE: dict[str, Callable[[Table], str]] = {"markdown": markdown.render, "latex": latex.render}


def render(report: Report, output: str = "terminal", *, width: int = 100, ansi: bool = False) -> str:
    """Return a report as text that ends with a line break.

    Args:
        report: what :func:`pipeline.report.aggregate.summarise` made.
        output: one of :data:`FORMATS`.
        width: characters of a terminal line.
        ansi: whether the terminal shows bold.

    Raises:
        InputError: there is no such format.
    """
    if output == "csv":
        return longcsv.render(report)
    tables = build_tables(report)
    if output == "terminal":
        return "\n".join(terminal.render(table, width, ansi=ansi) for table in tables)
    if output in _BY_TABLE:
        return "\n".join(map(_BY_TABLE[output], tables))
    raise InputError(f"there is no format {output!r}", nearest(output, FORMATS))
