"""Parts of a page. Reports and studies create them; :func:`pipeline.scores.page.write.as_html` turns them into HTML.

Parts contain plain text, which may come from papers; the conversion escapes it. The ``title`` of a part is its heading,
``provenance`` states the source of its figures, ``note`` the data it contains. The reader selects one of its ``views``
by name, such as a measure. A :class:`pipeline.scores.tables.Table` is a part too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
class Browser:
    """A browser of queries: positives, rankings of each system, two systems side by side.

    Attributes:
        pools: packed rankings (:mod:`pipeline.scores.page.browse`) by the displayed name of the pool.
    """

    title: str
    pools: Mapping[str, str]
    note: str = ""


Part = Table | Chart | Browser


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: heading.
        about: a line below the heading.
        parts: parts in order.
        facts: provenance of the whole page: names and values.
        findings: what the figures show: sentences, with which the page begins.
    """

    title: str
    about: str
    parts: Sequence[Part]
    facts: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[str] = ()
