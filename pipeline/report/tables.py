"""Tables as objects, with the notes below them. Formats only render them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.core.config import format_count
from pipeline.core.text import printable
from pipeline.measure.measures import parse_measures, sign_of
from pipeline.report.caption import title
from pipeline.report.model import AVERAGE, Family, Report, Setup, Summary
from pipeline.report.notes import notes

_EQUAL = 1e-12
"""Means that differ by less are equal but for rounding."""


@dataclass(frozen=True)
class Figure:
    """A figure of a table, as fractions; ``best`` of its comparison, ``marked`` if it differs from the baseline."""

    value: float
    deviation: float | None
    low: float
    high: float
    best: bool
    marked: bool


@dataclass(frozen=True)
class Beside:
    """A figure beside a published one, as fractions; ``published`` and the ends of its interval are None if unknown."""

    value: float
    published: float | None
    low: float | None = None
    high: float | None = None

    @property
    def worse(self) -> bool | None:
        """Whether it is below the published figure; None: equal when printed, or nothing to compare with."""
        difference = None if self.published is None else round(100 * (self.value - self.published), 1)
        return difference < 0 if difference else None

    @property
    def interval(self) -> str:
        """The interval in brackets; empty where there is none."""
        return "" if self.low is None or self.high is None else f"[{percent(self.low)}, {percent(self.high)}]"

    @property
    def difference(self) -> str:
        """The difference to the published figure in parentheses; empty where there is none."""
        return "" if self.published is None else f"({100 * (self.value - self.published):+.1f})"

    def __str__(self) -> str:
        return " ".join(filter(None, (percent(self.value), self.interval, self.difference)))


Value = Figure | Beside | str | None
"""None: not measured, which is not zero. Text is shown as it is."""


@dataclass(frozen=True)
class Column:
    """A column of figures: its label, below the label of its group."""

    group: str
    label: str


@dataclass(frozen=True)
class Line:
    """A row; a rule separates a ``summary`` from the rows above."""

    label: str
    values: tuple[Value, ...]
    summary: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: what it shows.
        corner: label of the row labels.
        columns: in order; those of one group are adjacent.
        lines: in order, one value a column.
        notes: how to read it, its provenance last.

    Its texts may come from data: what is not printable is escaped, line ends included, in every format.
    """

    title: str
    corner: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        shown = {
            "title": printable(self.title),
            "corner": printable(self.corner),
            "columns": tuple(Column(printable(each.group), printable(each.label)) for each in self.columns),
            "lines": tuple(Line(printable(e.label), tuple(map(_shown, e.values)), e.summary) for e in self.lines),
            "notes": tuple(map(printable, self.notes)),
        }
        for name, value in shown.items():
            object.__setattr__(self, name, value)


def _shown(value: Value) -> Value:
    return printable(value) if isinstance(value, str) else value


def build_tables(report: Report) -> tuple[Table, ...]:
    """Return the tables of a report, one a family.

    Pool sizes give systems by size and measure (as table 1 of Medić & Šnajder 2022). Fields give fields by measure and
    system, with the macro average below (their tables 2, 7 and 8, transposed).
    """
    return tuple(
        _by_size(report, family) if family.kind == "sizes" else _by_field(report, family) for family in report.families
    )


def percent(value: float) -> str:
    """Return a fraction in percent with one decimal, without the sign."""
    return f"{100 * value:.1f}"


def label_of(measure: str) -> str:
    """Return what tables and plots call a measure."""
    return parse_measures(measure)[0].label


def _by_size(report: Report, family: Family) -> Table:
    places = [(setup, measure) for setup in family.setups for measure in report.measures]
    found = [[report.find(system, *setup, measure) for system in report.systems] for setup, measure in places]
    kept = [place for place, column in enumerate(found) if any(column)]
    shown = [number for number, _ in enumerate(report.systems) if any(found[place][number] for place in kept)]
    figures = [_figures(report, found[place]) for place in kept]
    return Table(
        title=title(report, family),
        corner="system",
        columns=tuple(Column(format_count(places[place][0].size), label_of(places[place][1])) for place in kept),
        lines=tuple(Line(report.systems[number], tuple(column[number] for column in figures)) for number in shown),
        notes=notes(report, family, _summaries(report, family), "column"),
    )


def _by_field(report: Report, family: Family) -> Table:
    facts = [Column("", name) for name in ("candidates", "queries", "positives")]
    places: list[tuple[str | None, int | None]] = [*family.setups, (AVERAGE, family.size)]
    scored = {summary.system for summary in _summaries(report, family)}
    systems = [system for system in report.systems if system in scored]
    lines = []
    for field, size in places:
        found = [[report.find(system, field, size, measure) for system in systems] for measure in report.measures]
        some = next((each for row in found for each in row if each is not None), None)
        if some is not None:
            known = ("" if some.size is None else f"{some.size:,}", f"{some.queries:,}", f"{some.positives:,}")
            figures = [figure for row in found for figure in _figures(report, row)]
            lines.append(Line(str(field), (*figures, *known), field == AVERAGE))
    return Table(
        title=title(report, family),
        corner="field",
        columns=(*(Column(label_of(m), system) for m in report.measures for system in systems), *facts),
        lines=tuple(lines),
        notes=notes(report, family, _summaries(report, family), "row and measure"),
    )


def _figures(report: Report, found: Sequence[Summary | None]) -> list[Figure | None]:
    """Return figures that are compared with each other; those of one depth that share its best value are best."""
    depth_of = {each.system: each.depth for each in report.scored}
    values: dict[int, list[float]] = {}
    for each in found:
        if each is not None:
            values.setdefault(depth_of[each.system], []).append(sign_of(each.measure) * each.value)
    return [
        None
        if each is None
        else Figure(
            each.value,
            each.deviation,
            each.low,
            each.high,
            best=len(rivals := values[depth_of[each.system]]) > 1
            and sign_of(each.measure) * each.value >= max(rivals) - _EQUAL,
            marked=each.p_adjusted is not None and each.p_adjusted < report.settings.alpha,
        )
        for each in found
    ]


def _summaries(report: Report, family: Family) -> list[Summary]:
    setups: set[Setup] = set(family.setups)
    return [each for each in report.summaries if (each.field, each.size) in setups]


def groups(columns: Iterable[Column]) -> list[tuple[str, int]]:
    """Return the label of each group of columns, and how many columns it spans."""
    return [(label, len(list(members))) for label, members in itertools.groupby(column.group for column in columns)]


def blocks(table: Table, widths: Sequence[int], room: int) -> Iterator[Table]:
    """Yield the table in parts whose columns fit into ``room``, each with the row labels and at least one column.

    Groups of columns stay together if they fit.
    """
    start = 0
    while start < len(table.columns):
        end = start + 1
        while end < len(table.columns) and sum(widths[start : end + 1]) <= room:
            end += 1
        whole = end
        while start < whole < len(table.columns) and table.columns[whole - 1].group == table.columns[whole].group:
            whole -= 1
        end = whole if whole > start else end
        yield replace(
            table,
            columns=table.columns[start:end],
            lines=tuple(replace(line, values=line.values[start:end]) for line in table.lines),
        )
        start = end
