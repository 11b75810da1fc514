"""Numbers in the columns of tables that people write: percent, thousands, spreads, marks, and the scale of a column."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.text import number
from pipeline.sources.tables import NULLS

Floats = npt.NDArray[np.float64]

FRACTION, PERCENT, POINTS = "fraction", "percent", "points"
"""Scales of a column: from 0 to 1, from 0 to 100, or neither, such as Elo or words a second."""

MISSING = ("", "-", "–", "—", "--", "---", "…", "...", "?", *map(str.casefold, NULLS))
"""What tables write where there is no value, in lower case."""

_CELL = re.compile(
    r"[~≈]?\s*(?P<number>[+\-−]?(?:\d[\d,]*\.?\d*|[.,]\d+)(?:[eE][+-]?\d+)?)\s*(?P<percent>\\?%)?"
    r"(?:\s*(?:±|\+/-|\+-|\\pm)\s*[\d.,]+\s*\\?%?)?(?:\s*[(\[][^()\[\]]*[)\]])?[\s*^†‡§¶▲▼↑↓⬆⬇️]*"
)
"""A number, perhaps with a percent sign, its spread, a remark in brackets, and marks."""

_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_DECIMALS = re.compile(r"[+-]?(\d*,\d{1,2}|0?,\d+|\d+,\d{4,})")
_MOST_PERCENT = 1_000
"""Error rates in percent up to which a column is one."""

_ROWS = 3
"""Least rows and columns in which the mean of others is told."""


class Numbers(NamedTuple):
    """The numbers of a column.

    Attributes:
        values: float64 ``[rows]``, NaN where there is none.
        percent: whether a cell has a percent sign, bool ``[rows]``.
        odd: cells that are no number.
        problem: why the column cannot be read as a whole; empty if it can.
    """

    values: Floats
    percent: npt.NDArray[np.bool_]
    odd: Sequence[str] = ()
    problem: str = ""


def numbers_of(column: pl.Series) -> Numbers | None:
    """Return the numbers of a column of texts or numbers; None if most cells are something else."""
    none = np.zeros(len(column), bool)
    if column.dtype.is_numeric():
        return Numbers(column.cast(pl.Float64).to_numpy(), none)
    if column.dtype != pl.String:
        return None
    cells = [cell and cell.strip(" *_`") for cell in column.to_list()]
    cells = [None if cell is None or cell.casefold() in MISSING else cell for cell in cells]
    given = [cell for cell in cells if cell is not None]
    with contextlib.suppress(ValueError):  # numbers alone
        return (
            Numbers(np.array([math.nan if cell is None else number(cell) for cell in cells]), none) if given else None
        )
    found = [cell and _CELL.fullmatch(cell) for cell in cells]
    odd = [cell for cell, match in zip(cells, found, strict=True) if cell is not None and not match]
    if 2 * len(odd) >= len(given):
        return None
    texts = [match["number"].replace("−", "-") if match else "" for match in found]
    decimal, problem = _decimal(filter(None, texts))
    read = [float(text.replace(",", decimal)) if text and not problem else math.nan for text in texts]
    return Numbers(np.array(read), np.array([bool(match and match["percent"]) for match in found]), odd, problem)


def _decimal(texts: Iterable[str]) -> tuple[str, str]:
    """Return what a comma stands for in a column (a point, or nothing between thousands), or why that is unclear."""
    cells = [*texts]
    commas = [text for text in cells if "," in text]
    thousands = [text for text in commas if _THOUSANDS.fullmatch(text)]
    decimals = [text for text in commas if _DECIMALS.fullmatch(text)]
    if len(thousands) == len(commas):
        return "", ""
    if len(decimals) == len(commas) and not any("." in text for text in cells):
        return ".", ""
    first = decimals[0] if decimals else commas[0]
    other = next((text for text in cells if text != first and (text not in decimals or "." in text)), commas[-1])
    return "", f"{first!r} and {other!r}, which do not tell whether a comma is between thousands or before decimals"


def scale_of(values: Floats, percent: npt.NDArray[np.bool_], *, may_exceed: bool = False) -> str:
    """Return the scale of a column, or ``percent and fraction`` if some cells alone have percent signs.

    ``may_exceed``: of an error rate, values over 1 may be fractions; then the median decides.
    """
    known = ~np.isnan(values)
    sizes, percent = np.abs(values[known]), percent[known]
    most = sizes.max(initial=0)
    if percent.any():
        bare = sizes[~percent & (sizes > 0)]
        mixed = len(bare) and bare.max() <= 1 < sizes[percent].min()
        return f"{PERCENT} and {FRACTION}" if mixed else PERCENT
    if may_exceed and len(sizes):
        return FRACTION if np.median(sizes) <= 1 else PERCENT if most <= _MOST_PERCENT else POINTS
    return FRACTION if most <= 1 + 1e-9 else PERCENT if most <= 100 + 1e-9 else POINTS


def mean_of_others(columns: Floats) -> int | None:
    """Return the column, float64 ``[rows, columns]``, that is the rounded mean of all others in three rows or more."""
    known = columns[~np.isnan(columns).any(axis=1)]
    count = columns.shape[1]
    if len(known) < _ROWS or count < _ROWS:
        return None
    means = (known.sum(axis=1, keepdims=True) - known) / (count - 1)
    rounding = np.where(np.abs(known).max(axis=0) <= 1, 0.0051, 0.051)
    (found,) = np.nonzero((np.abs(known - means) <= rounding).all(axis=0) & (np.ptp(known, axis=0) > 0))
    return int(found[0]) if len(found) == 1 else None
