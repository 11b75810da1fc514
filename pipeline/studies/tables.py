"""Frames as tables and charts: how a study shows what it estimated."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from pipeline.core.text import printable
from pipeline.scores.tables import Column, Form, Table, TableRow, Value, cell

Row = Mapping[str, Any]
Show = str | Callable[[Row], Value]
"""How a cell is written: a format of the row's columns, such as ``"{p:.4f}"``, or a function of the row.

A format is empty where one of its columns is null."""
Columns = Mapping[str, Show]
"""How each column of a table is written, by its heading."""

_FURTHER = ("deviation", "best", "marks", "published")


def figure(
    value: str = "value", low: str | None = "low", high: str | None = "high", *, spec: str = ".1f", scale: float = 100
) -> Callable[[Row], Value]:
    """Show a column with its interval, fractions in percent: ``14.3 [13.1, 15.6]``; null and NaN are left empty.

    ``low`` and ``high`` are the columns of its ends (None: it has none), ``spec`` is a format of Python, and ``scale``
    what a figure is multiplied by. Columns named ``deviation``, ``best``, ``marks`` and ``published`` are shown with it
    (:class:`pipeline.scores.tables.Cell`).
    """
    form = Form(scale, spec)

    def show(row: Row) -> Value:
        ends = (None if end is None else row[end] for end in (low, high))
        found = cell(row[value], *ends, form=form)
        further = {name: row[name] for name in _FURTHER if row.get(name) is not None}
        return found and replace(found, **further)

    return show


def points(value: str = "difference", low: str = "low", high: str = "high", *, digits: int = 1) -> Callable[[Row], str]:
    """Show a difference of fractions with its interval in points: ``+1.2 [+0.8, +1.6]``."""
    return lambda row: str(cell(row[value], row[low], row[high], form=Form(spec=f"+.{digits}f")))


def table(
    name: str,
    title: str,
    frame: pl.DataFrame,
    label: str,
    columns: Show | Columns | None = None,
    notes: Sequence[str] = (),
    *,
    rows: pl.DataFrame | None = None,
    across: str = "",
    group: str = "",
    last: Sequence[str] = (),
) -> Table:
    """Return a frame as a table.

    Args:
        name: stem of its files; the CSV file has ``frame`` in full precision.
        title: caption.
        frame: the figures.
        label: format of the label of a row, perhaps after a heading: ``"system, size: {system}, {size}"``. Without a
            heading, the names of its columns are the heading.
        columns: how each column is written, by its heading; with ``across``, one may be given alone. None: those that
            the label does not name, floats with one decimal.
        notes: sentences below it.
        rows: what is shown, if not ``frame``.
        across: format of the heading of a column, for frames that have a row for each cell: rows with one label make
            a line, and each heading a column. Empty: a row is a line.
        group: with ``across``, format of what stands above adjacent headings.
        last: labels of lines below a rule, such as of an average.

    Lines and headings are in order of first appearance.
    """
    corner, colon, form = label.rpartition(": ")
    corner = corner if colon else ", ".join(_names(label))
    if columns is None:
        names = (frame if rows is None else rows).columns
        columns = {name: _plain(name) for name in names if name not in _names(label)}
    by_heading = columns if isinstance(columns, Mapping) else {"": columns}
    shown = {heading: _written(show) for heading, show in by_heading.items()}
    cells, headings = dict[tuple[str, Column], Value](), dict[Column, None]()
    lines = dict[str, None]()
    for number, row in enumerate((frame if rows is None else rows).iter_rows(named=True)):
        line = form.format_map(row) if across else f"{number} {form.format_map(row)}"
        lines.setdefault(line)
        for heading, show in shown.items():
            column = _column(row, heading, across, group)
            headings.setdefault(column)
            cells[line, column] = show(row)
    if not headings:
        headings = dict.fromkeys(Column("", heading) for heading in shown)
    made = []
    for line in lines:
        text = line if across else line.partition(" ")[2]
        values = tuple(cells.get((line, column)) for column in headings)
        made.append(TableRow(text, values, printable(text) in last))
    return Table.of(title, corner, headings, made, notes, name, frame)


def _column(row: Row, heading: str, across: str, group: str) -> Column:
    """Return the column of a figure; of several figures a heading, each has its own below it."""
    if not across:
        return Column("", heading)
    above, label = group.format_map(row), across.format_map(row)
    return Column(f"{above} {label}".strip(), heading) if heading else Column(above, label)


def _plain(name: str) -> Callable[[Row], Value]:
    def show(row: Row) -> Value:
        value = row[name]
        if value is None or isinstance(value, str):
            return value
        return f"{value:.1f}" if isinstance(value, float) else f"{value:,}"

    return show


def _names(form: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(form) if name]


def _written(show: Show) -> Callable[[Row], Value]:
    if not isinstance(show, str):
        return show
    names = _names(show)
    return lambda row: None if any(row[name] is None for name in names) else show.format_map(row)
