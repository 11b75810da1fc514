"""A table in the format a user asks for; Markdown here, the others in modules of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipeline.core.errors import InputError, nearest
from pipeline.scores import latex, terminal
from pipeline.scores.tables import Cell, Column, PublishedCell, Table, Value, percent

FORMATS = ("terminal", "markdown", "csv", "latex")


def render_table(table: Table, output: str = "terminal", *, width: int = 100, ansi: bool = False) -> str:
    """Return one table as text that ends with a line break; ``output`` is ``terminal``, ``markdown`` or ``latex``."""
    if output == "terminal":
        return terminal.render(table, width, ansi=ansi)
    return latex.render(table) if output == "latex" else _markdown(table)


def check_format(output: str) -> None:
    """Check that a format is one of :data:`FORMATS`."""
    if output not in FORMATS:
        raise InputError(f"there is no format {output!r}", nearest(output, FORMATS))


def _markdown(table: Table) -> str:
    """Return a heading, a pipe table and the notes."""
    header = [escape(f"{column.group} {column.label}".strip()) for column in (Column("", table.corner), *table.columns)]
    lines = [_line(header), _line([":---", *("---:" for _ in table.columns)])]
    lines += [_line([escape(line.label), *map(_text, line.values)]) for line in table.lines]
    return "\n\n".join([f"### {escape(table.title)}", "\n".join(lines), *map(escape, table.notes)]) + "\n"


def escape(text: str) -> str:
    """Return text with Markdown and HTML markup escaped, on one line."""
    return re.sub(r"([\\`*_<>|\[\]&~#$])", r"\\\1", " ".join(text.splitlines()))


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _text(value: Value) -> str:
    if isinstance(value, PublishedCell):
        return str(value)
    if not isinstance(value, Cell):
        return "–" if value is None else escape(str(value))
    shown = f"**{percent(value.value)}**" if value.best else percent(value.value)
    deviation = "" if value.deviation is None else f" ± {percent(value.deviation)}"
    return f"{shown}{value.marks}{deviation} [{percent(value.low)}, {percent(value.high)}]"
