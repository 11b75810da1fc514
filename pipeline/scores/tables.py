"""Tables with their notes, as objects that output formats render."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import polars as pl

from pipeline.core.text import printable
from pipeline.measure.measures import parse_measures


class Form(NamedTuple):
    """How figures are written: multiplied, then by a format of Python."""

    scale: float = 100
    spec: str = ".1f"

    def __call__(self, value: float) -> str:
        """Return a figure as text."""
        return f"{self.scale * value:{self.spec}}"


percent = Form()
"""Fractions in percent with one decimal, without the sign."""

DIFFERENCE = Form(spec="+.1f")
"""Differences of fractions, in points."""


@dataclass(frozen=True)
class Cell:
    """A figure of a table; None: unknown.

    Attributes:
        value: the figure.
        low: lower end of its interval.
        high: upper end.
        deviation: standard deviation over samples.
        best: whether it is the best among those compared.
        marks: results of tests: ``†`` differs from the baseline.
        published: the corresponding figure of a paper.
        form: how it is written; figures of tests and papers are fractions.
    """

    value: float
    low: float | None = None
    high: float | None = None
    deviation: float | None = None
    best: bool = False
    marks: str = ""
    published: float | None = None
    form: Form = percent

    @property
    def figure(self) -> str:
        """The value as text."""
        return self.form(self.value)

    @property
    def worse(self) -> bool | None:
        """Whether it is below the published figure; None: equal as printed, or there is no published figure."""
        difference = None if self.published is None else round(100 * (self.value - self.published), 1)
        return difference < 0 if difference else None

    @property
    def spread(self) -> str:
        """Deviation, interval in brackets and difference to the published figure in parentheses, if known."""
        deviation = "" if self.deviation is None else f"± {self.form(self.deviation)}"
        return " ".join(filter(None, (deviation, self.interval, self.difference)))

    @property
    def interval(self) -> str:
        """The interval in brackets; empty without one."""
        return "" if self.low is None or self.high is None else f"[{self.form(self.low)}, {self.form(self.high)}]"

    @property
    def difference(self) -> str:
        """The difference to the published figure in parentheses; empty without one."""
        return "" if self.published is None else f"({100 * (self.value - self.published):+.1f})"

    @property
    def plain(self) -> str:
        """The value with its interval alone."""
        return f"{self.figure} {self.interval}".rstrip()

    def __str__(self) -> str:
        return f"{self.figure}{self.marks} {self.spread}".rstrip()


Value = Cell | str | None
"""None: not measured, which is not zero. Text is shown unchanged."""


def cell(
    value: float | None, low: float | None = None, high: float | None = None, *, form: Form = percent
) -> Cell | None:
    """Return a figure with its interval as a cell; NaN is unknown, as None is."""
    if value is None or math.isnan(value):
        return None
    if low is None or high is None or math.isnan(low):
        return Cell(float(value), form=form)
    return Cell(float(value), float(low), float(high), form=form)


@dataclass(frozen=True)
class Column:
    """A column of figures, with the labels of its group and of itself.

    Attributes:
        text: whether it has texts, which are aligned to the left and searched by the filter of a page.
        choose: comparison by which readers of a page filter rows: equal to a value (``=``), or at most or at least a
            limit (``≤``, ``≥``); empty: none.
    """

    group: str
    label: str
    text: bool = False
    choose: str = ""

    def __str__(self) -> str:
        return f"{self.group} {self.label}".strip()


@dataclass(frozen=True)
class TableRow:
    """A row; a rule separates ``summary`` rows, and rows that are not compared with others, from the rows above."""

    label: str
    values: tuple[Value, ...]
    summary: bool = False


@dataclass(frozen=True)
class Table:
    """A table: what a terminal, Markdown, LaTeX and a page show (``lines``), and what a CSV file has (``frame``).

    Attributes:
        title: caption.
        corner: label of the column of row labels.
        columns: columns of figures; those of one group are adjacent.
        lines: rows, with one value for each column.
        notes: notes below the table, provenance last.
        name: stem of the names of its files and downloads, unique in a study and on a page.
        frame: its figures in full precision; empty: there is no CSV file.
        records: details that the first figure of each line opens on a page, or, where there are as many as figures,
            each; empty: figures open nothing.
        source: its provenance, unless one of its notes states it.

    Texts may come from data: unprintable characters, line ends included, are escaped in what is shown.
    """

    title: str
    corner: str
    columns: tuple[Column, ...]
    lines: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    name: str = "table"
    frame: pl.DataFrame = field(default_factory=pl.DataFrame, compare=False)
    records: Sequence[Any] = ()
    source: str = ""

    def __post_init__(self) -> None:
        escaped = {
            "title": printable(self.title),
            "corner": printable(self.corner),
            "columns": tuple(replace(e, group=printable(e.group), label=printable(e.label)) for e in self.columns),
            "lines": tuple(TableRow(printable(e.label), tuple(map(_escape, e.values)), e.summary) for e in self.lines),
            "notes": tuple(map(printable, self.notes)),
        }
        for name, value in escaped.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(
        cls,
        title: str,
        corner: str,
        columns: Iterable[Column | str],
        lines: Iterable[TableRow | Sequence[Value]],
        notes: Iterable[str] = (),
        name: str = "table",
        frame: pl.DataFrame | None = None,
    ) -> Table:
        """Return a table; a column may be its label alone, and a line its label followed by its values."""
        header = tuple(column if isinstance(column, Column) else Column("", column) for column in columns)
        rows = (line if isinstance(line, TableRow) else TableRow(str(line[0]), tuple(line[1:])) for line in lines)
        return cls(title, corner, header, tuple(rows), tuple(notes), name, pl.DataFrame() if frame is None else frame)

    def has_rule_above(self, number: int) -> bool:
        """Return whether a row is the first below a rule."""
        return self.lines[number].summary and not (number and self.lines[number - 1].summary)

    def __str__(self) -> str:
        from pipeline.scores.render import render_table

        return render_table(self)

    def _repr_markdown_(self) -> str:
        from pipeline.scores.render import render_table

        return render_table(self, "markdown")


def _escape(value: Value) -> Value:
    return printable(value) if isinstance(value, str) else value


def grid(
    name: str,
    title: str,
    corner: str,
    cells: Mapping[tuple[str, str], Value] | Mapping[tuple[str, Column], Value],
    notes: Sequence[str] = (),
    frame: pl.DataFrame | None = None,
) -> Table:
    """Return a table of cells, keyed by row label and column, both in order of first appearance."""
    known: Mapping[Any, Value] = cells
    labels, columns = dict.fromkeys(label for label, _ in known), dict.fromkeys(column for _, column in known)
    lines = (TableRow(label, tuple(known.get((label, column)) for column in columns)) for label in labels)
    return Table.of(title, corner, columns, lines, notes, name, frame)


def frame_table(
    name: str,
    title: str,
    frame: pl.DataFrame,
    notes: Sequence[str] = (),
    decimals: int = 1,
    shown: pl.DataFrame | None = None,
) -> Table:
    """Return a frame as a table: its first column labels the rows, numbers have a fixed number of decimals.

    ``shown`` replaces the frame in display.
    """

    def text(value: Any) -> str | None:
        if isinstance(value, float):
            return f"{value:.{decimals}f}"
        return None if value is None else f"{value:,}" if isinstance(value, int) else str(value)

    displayed = frame if shown is None else shown
    corner, *labels = displayed.columns
    lines = ([str(first), *map(text, values)] for first, *values in displayed.iter_rows())
    return Table.of(title, corner, labels, lines, notes, name, frame)


def points(figures: Iterable[float | None], digits: int = 1) -> str:
    """Return a difference of fractions and its interval, if known, as text in points: ``+1.2 [+0.8, +1.6]``."""
    return str(cell(*figures, form=Form(spec=f"+.{digits}f")))


def label_of(measure: str) -> str:
    """Return the name of a measure in tables and plots."""
    return parse_measures(measure)[0].label


def groups(columns: Iterable[Column]) -> list[tuple[str, int]]:
    """Return the label of each group of columns, and how many columns it spans."""
    return [(label, len(list(members))) for label, members in itertools.groupby(column.group for column in columns)]


def blocks(table: Table, widths: Sequence[int], width: int) -> Iterator[Table]:
    """Yield tables with some of the columns, at least one, whose ``widths`` fit into ``width``, and all row labels.

    Groups of columns stay together if they fit.
    """
    start = 0
    while start < len(table.columns):
        end = start + 1
        while end < len(table.columns) and sum(widths[start : end + 1]) <= width:
            end += 1
        cut = end
        while start < cut < len(table.columns) and table.columns[cut - 1].group == table.columns[cut].group:
            cut -= 1
        end = cut if cut > start else end
        yield replace(
            table,
            columns=table.columns[start:end],
            lines=tuple(replace(line, values=line.values[start:end]) for line in table.lines),
        )
        start = end
