"""What a page consists of. A report or a study gives parts; :func:`pipeline.scores.page.write.as_html` sets them.

Any text may come from a paper: parts hold plain text, and whoever sets it escapes it. The ``title`` of a part is its
heading, ``provenance`` what its figures were made from, ``note`` which data it has. ``views`` have a name, such as a
measure, by which the reader chooses one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.scores.tables import Table


@dataclass(frozen=True)
class TablePart:
    """A table with sortable columns and a filter.

    Attributes:
        name: stem of its downloads, one a page.
        table: what it shows; one download is its LaTeX.
        csv: the other download, its figures.
        source: its provenance, unless one of its notes says so.
        choosers: columns by whose values a reader chooses rows, by label: those equal to one (``=``), or up to or from
            a limit (``≤``, ``≥``).
        records: what the first figure of each line opens, a record a line; empty: figures open nothing.
    """

    name: str
    table: Table
    csv: str = ""
    source: str = ""
    choosers: Mapping[str, str] = field(default_factory=dict)
    records: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Leaderboard:
    """A sortable row for each system and pool; each figure opens its own provenance.

    Attributes:
        records: of :func:`pipeline.scores.summary.records`, without figures of single samples.
        measures: canonical names, in order.
        alpha: figures whose adjusted p-value is below it are marked.
        csv: the download.
    """

    title: str
    records: Sequence[Mapping[str, Any]]
    measures: Sequence[str]
    alpha: float = 0.05
    csv: str = ""


@dataclass(frozen=True)
class Series:
    """Points of one system.

    Attributes:
        label: its name.
        x: positions.
        values: fractions.
        low: lower ends of their intervals; None: no interval.
        high: upper ends.
        curve: positions and values of a curve through the points, in place of lines between them.
    """

    label: str
    x: Sequence[float]
    values: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    curve: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Chart:
    """A chart with intervals and hover.

    Attributes:
        x_label: of the positions.
        unit: of the values, such as ``%``.
        views: series by the name of a view.
        log: whether positions have a logarithmic axis.
        ticks: positions that are labelled, such as ``{1000: "1k"}``; empty: the library chooses.
        categories: labels of the positions 0, 1, ...; values then run along the horizontal axis.
    """

    title: str
    x_label: str
    unit: str
    views: Mapping[str, Sequence[Series]]
    log: bool = False
    ticks: Mapping[float, str] = field(default_factory=dict)
    categories: Sequence[str] = ()
    provenance: str = ""


@dataclass(frozen=True)
class HeatMap:
    """A table whose cells are coloured by value.

    Attributes:
        corner: label of the row labels.
        rows: their labels.
        columns: labels.
        views: rows of values by the name of a view; None: not measured.
    """

    title: str
    corner: str
    rows: Sequence[str]
    columns: Sequence[str]
    views: Mapping[str, Sequence[Sequence[float | None]]]
    provenance: str = ""


@dataclass(frozen=True)
class Image:
    """A drawing, as the text of an SVG file."""

    title: str
    svg: str
    provenance: str = ""


@dataclass(frozen=True)
class Browser:
    """Queries one by one: positives, what each system ranked where, two systems side by side.

    Attributes:
        pools: packed rankings of each pool (:mod:`pipeline.scores.page.browse`), by its name for the reader.
    """

    title: str
    pools: Mapping[str, str]
    note: str = ""


Mark = Literal["", "underline", "strike", "bold"]
"""How a piece of a text is set off; empty: not."""

Spans = Sequence[tuple[str, Mark]]
"""A text in pieces, white space included."""


@dataclass(frozen=True)
class TextTable:
    """A small table below a text.

    Attributes:
        title: caption.
        columns: labels.
        rows: cells, one for each column; the first is the row's label.
        texts: what each row opens, one for each row; empty: rows open nothing.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: Sequence[Spans] = ()


@dataclass(frozen=True)
class TextEntry:
    """One text.

    Attributes:
        chosen: its value of each chooser.
        heading: names it among those of one choice.
        spans: the text.
        listings: shown below it.
        facts: name and value, shown above it.
    """

    chosen: Sequence[str]
    heading: str
    spans: Spans
    listings: Sequence[TextTable] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TextBrowser:
    """Texts one by one, with marked spans.

    Attributes:
        choosers: names of the selections that narrow the list of texts, such as ``Facet``.
        marks: what each mark means.
        readings: the texts, in order; whoever makes the part samples what is too much for a page.
    """

    title: str
    choosers: Sequence[str]
    marks: Mapping[Mark, str]
    readings: Sequence[TextEntry]
    note: str = ""


LISTED = ("corpus", "year", "systems", "best row")
"""What an index says of each page."""

Part = TablePart | Leaderboard | Chart | HeatMap | Image | Browser | TextBrowser


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: heading.
        about: a line below it.
        parts: in order.
        facts: provenance of the whole page: name and value.
        listing: what an index of pages says of it, by the names of :data:`LISTED`.
    """

    title: str
    about: str
    parts: Sequence[Part]
    facts: Mapping[str, str] = field(default_factory=dict)
    listing: Mapping[str, str] = field(default_factory=dict)
