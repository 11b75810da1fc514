"""Parts of a page. Reports and studies create them; :func:`pipeline.scores.page.write.as_html` turns them into HTML.

Parts contain plain text, which may come from papers; the conversion escapes it. The ``title`` of a part is its heading,
``provenance`` states the source of its figures, ``note`` the data it contains. The reader selects one of its ``views``
by name, such as a measure. A :class:`pipeline.scores.tables.Table` is a part too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipeline.scores.tables import Table


@dataclass(frozen=True)
class Series:
    """Points of one system.

    Attributes:
        label: name of the system.
        x: positions.
        values: fractions.
        low: lower ends of the intervals; None: no interval.
        high: upper ends.
        curve: positions and values of a curve, in place of lines between the points.
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
        x_label: label of the position axis.
        unit: unit of the values, such as ``%``.
        views: series by view.
        log: whether the position axis is logarithmic.
        ticks: labels of positions, such as ``{1000: "1k"}``; empty: the library chooses.
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
        corner: label of the column of row labels.
        rows: row labels.
        columns: column labels.
        views: rows of values by view; None: not measured.
    """

    title: str
    corner: str
    rows: Sequence[str]
    columns: Sequence[str]
    views: Mapping[str, Sequence[Sequence[float | None]]]
    provenance: str = ""


@dataclass(frozen=True)
class Image:
    """A drawing; ``svg`` is the text of an SVG file."""

    title: str
    svg: str
    provenance: str = ""


@dataclass(frozen=True)
class Browser:
    """A browser of queries: positives, rankings of each system, two systems side by side.

    Attributes:
        pools: packed rankings (:mod:`pipeline.scores.page.browse`) by the displayed name of the pool.
    """

    title: str
    pools: Mapping[str, str]
    note: str = ""


Mark = Literal["", "underline", "strike", "bold"]
"""Style of a piece of text; empty: plain."""

Spans = Sequence[tuple[str, Mark]]
"""A text in styled pieces, white space included."""


@dataclass(frozen=True)
class TextEntry:
    """One text.

    Attributes:
        chosen: its values of the choosers.
        heading: its name in the list of texts.
        spans: the text.
        listings: tables shown below it; the records of one are texts that its rows open, :data:`Spans`.
        facts: names and values shown above it.
    """

    chosen: Sequence[str]
    heading: str
    spans: Spans
    listings: Sequence[Table] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TextBrowser:
    """A browser of texts with marked spans.

    Attributes:
        choosers: names of the selections that filter the list of texts, such as ``Facet``.
        marks: meaning of each mark.
        readings: the texts, in order; the creator of the part samples if there are too many for a page.
    """

    title: str
    choosers: Sequence[str]
    marks: Mapping[Mark, str]
    readings: Sequence[TextEntry]
    note: str = ""


LISTED = ("corpus", "year", "systems", "best row")
"""Columns of the index of pages."""

Part = Table | Chart | HeatMap | Image | Browser | TextBrowser


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: heading.
        about: a line below the heading.
        parts: parts in order.
        facts: provenance of the whole page: names and values.
        listing: its entry in the index of pages, by the names of :data:`LISTED`.
        findings: what the figures show: sentences, with which the page begins.
    """

    title: str
    about: str
    parts: Sequence[Part]
    facts: Mapping[str, str] = field(default_factory=dict)
    listing: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[str] = ()
