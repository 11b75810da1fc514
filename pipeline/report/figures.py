"""The look of figures, and writing them: the same figure gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.core import files
from pipeline.core.errors import InputError

FORMATS = ("svg", "pdf", "png")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito (2008): distinguishable with any colour vision."""
MARKERS = "osD^vPX*"
WIDTH = 3.4
"""Inches: one column of a two-column page."""

_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
    "svg.hashsalt": "mdcr",
}
_METADATA = {
    "svg": ({"Date": None}, "Description"),
    "pdf": ({"CreationDate": None}, "Subject"),
    "png": ({"Software": None}, "Description"),
}
"""By format: metadata left out because it changes from run to run, and the key of the provenance."""


@contextmanager
def drawing() -> Iterator[Any]:
    """Give matplotlib's figure class in our style, whatever the user's configuration; no window, no global state.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("figures need matplotlib, which is not installed", "pip install matplotlib") from error
    defaults = {key: value for key, value in mpl.rcParamsDefault.items() if key != "backend"}
    with mpl.rc_context({**defaults, **_STYLE}):
        yield Figure


def save(figure: Any, stem: Path, formats: Sequence[str], source: str) -> list[Path]:
    """Write a figure as ``STEM.FORMAT`` in some of :data:`FORMATS`, with ``source`` and no date in its metadata."""
    written = []
    for each in formats:
        path = stem.with_name(f"{stem.name}.{each}")
        unset, described = _METADATA[each]
        with files.replacing(path) as temporary:
            figure.savefig(temporary, format=each, metadata={**unset, described: source})
        written.append(path)
    return written
