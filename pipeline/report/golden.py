"""Comparing figures with a golden table: a CSV that says what they should be."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from pipeline.core.config import parse_count
from pipeline.core.errors import DriftError, InputError
from pipeline.core.progress import say
from pipeline.measure.measures import parse_measures
from pipeline.report.model import Summary

COLUMNS = ("system", "field", "size", "measure", "value")
"""``value`` is a fraction. An empty field is the dataset level; an empty size, such as 200k, matches any."""


def check(path: Path, summaries: Sequence[Summary], tolerance: float) -> int:
    """Compare figures with a golden table and return how many rows agree.

    Rows of systems that have no figure at all are skipped with a message.

    Args:
        path: CSV with the columns :data:`COLUMNS`, in any order, perhaps among others; ``#`` starts a comment line.
        summaries: the figures.
        tolerance: the largest difference allowed, a fraction.

    Raises:
        InputError: the table cannot be read, or has no row of a system that has figures.
        DriftError: a figure differs by more than the tolerance or was not measured; every such row is listed.
    """
    systems = {each.system for each in summaries}
    rows = _read(path)
    own = [row for row in rows if row["system"] in systems]
    if not own:
        raise InputError(f"{path} has no row of {', '.join(sorted(systems))}", "Check the names of the systems")
    if len(own) < len(rows):
        say(f"{len(rows) - len(own)} rows of {path} are of systems without scores")
    drifted = []
    for row in own:
        expected, size = _number(row["value"]), row["size"] and parse_count(row["size"], "size")
        key = (row["system"], row["field"] or None, str(parse_measures([row["measure"]])[0]))
        same = [each for each in summaries if (each.system, each.field, each.measure) == key]
        found = [each.value for each in same if size in ("", each.size)]
        if len(found) != 1 or abs(found[0] - expected) > tolerance:
            shown = ", ".join(f"{value:.4f}" for value in found) or "nothing"
            drifted.append(f"{' '.join(filter(None, row.values()))}: found {shown}")
    if drifted:
        raise DriftError(f"{len(drifted)} of {len(own)} figures differ from {path}:\n  " + "\n  ".join(drifted))
    return len(own)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r} in the column value is not a number", "Give a fraction such as 0.645") from None


def _read(path: Path) -> list[dict[str, str]]:
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error})", "Give a CSV file in UTF-8") from error
    rows = list(csv.DictReader(lines))
    if not rows or not set(COLUMNS) <= rows[0].keys():
        raise InputError(f"{path} does not have the columns {', '.join(COLUMNS)}", "Add them, or rows")
    return [{name: (row[name] or "").strip() for name in COLUMNS} for row in rows]
