"""The tables of the study, and the heat maps of its page."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.encode import registry
from pipeline.scores.page.parts import HeatMap, Part
from pipeline.scores.tables import Cell, Column, PublishedCell, Table, TableRow, Value, grid
from pipeline.studies.base import StudyTable
from pipeline.studies.scirepeval.layout import State
from pipeline.studies.scirepeval.outcomes import (
    GROUPS,
    LEAST_SYSTEMS,
    Found,
    Mean,
    average,
    correlations,
    difference,
    labels,
    smallest_subset,
)
from pipeline.studies.scirepeval.tasks import FORMATS

Made = Mapping[tuple[str, str], Artifact]
"""The figures of each task and system."""
Row = dict[str, Any]


def averages(found: Found, published: Mapping[str, str], states: Mapping[str, State]) -> StudyTable:
    """Return the averages beside the published ones (table 2), those of the system that ``published`` names."""
    rows, measured, beside = [], dict[tuple[str, Column], Value](), dict[tuple[str, Column], Value]()
    for name, figures in found.items():
        reference = registry.published(published.get(name, name))
        for group in GROUPS:
            mean, printed = average(figures, group), reference.get(f"scirepeval.{group}")
            measured[name, Column("measured", group)] = _cell(mean)
            beside[name, Column("published", group)] = None if printed is None else f"{printed:.1f}"
            rows.append({"system": name, "group": group, "published": printed, **_record(mean)})
    if not any(beside.values()):
        beside = {}
    inner, outer, _ = (mean.figures if (mean := average(next(iter(found.values())), group)) else 0 for group in GROUPS)
    notes = [
        f"Means of {inner} in-train and {outer} out-of-train figures; of the whole benchmark 7 and 20.",
        "Intervals: 95%, bootstrap over test items, repetitions of few-shot rows, or blocks of S2AND.",
    ]
    if sample := [name for name, state in states.items() if state == "sample"]:
        notes.append(f"Samples of training data, not comparable with published figures: {', '.join(sample)}.")
    return _study("averages", grid("SciRepEval: averages over tasks", "system", measured | beside, notes), rows)


def tasks(found: Found, states: Mapping[str, State], made: Made) -> StudyTable:
    """Return every figure, and what its task cost."""
    lines, rows = [], []
    for each in zip(*found.values(), strict=True):
        entry, best, cells = each[0].task, max(one.value for one in each), list[Value]()
        seconds = [made[entry.name, name].manifest.provenance["wall_seconds"] for name in found]
        trained = "in-train" if entry.in_train else "out-of-train"
        for name, one, cost in zip(found, each, seconds, strict=True):
            low, high = one.interval or (None, None)
            marks = (one.value if low is None else low, one.value if high is None else high)
            cells.append(Cell(one.value, None, *marks, one.value == best and len(each) > 1, marked=False))
            row = {"task": entry.name, "measure": one.measure, "system": name, "value": one.value, "low": low}
            row |= {"high": high, "items": one.items, "in_train": entry.in_train, "files": states[entry.name]}
            rows.append({**row, "seconds": cost})
        facts = f"{trained}, {states[entry.name]}, {each[0].items:,}, {np.mean(seconds):.0f} s"
        lines.append(TableRow(f"{entry.title}, {each[0].measure}", (*cells, facts)))
    columns = [*found, "trained, files, items, mean time"]
    notes = ("Proximity and search rank by Euclidean distance, whatever the encoder's own distance.",)
    return _table("tasks", "tasks", "task", columns, lines, rows, notes)


def formats(found: Found) -> StudyTable:
    """Return the averages by format."""
    rows, cells = [], dict[tuple[str, Column], Value]()
    for name, group, kind in itertools.product(found, GROUPS[:2], FORMATS):
        mean = average(found[name], group, kind)
        cells[name, Column(group, kind)] = _cell(mean)
        rows.append({"system": name, "group": group, "format": kind, **_record(mean)})
    return _study("formats", grid("SciRepEval: averages by format", "system", cells, ()), rows)


def codes(found: Found, columns: Mapping[str, str]) -> StudyTable:
    """Return every format's tasks on the vectors of every format's encoder, beside the published figures (table 3).

    ``columns`` has the encoder of each format, and of ad-hoc queries.
    """
    rows, cells = [], dict[tuple[str, str], Value]()
    for group, kind, (code, name) in itertools.product(GROUPS[:2], FORMATS, columns.items()):
        printed = registry.published(name).get(f"scirepeval-codes.{group}-{kind}")
        mean = average(found[name], group, kind)
        rows.append({"group": group, "format": kind, "vectors": code, "published": printed, **_record(mean)})
        beside = None if printed is None else printed / 100
        cells[f"{kind}, {group}", code] = PublishedCell(mean.value, beside) if mean else None
    note = (
        "Rows: format of the tasks. Columns: format of the vectors, of ad-hoc queries too. In parentheses: difference "
        "to the published figure, which is of one task a row."
    )
    return _study("codes", grid("SciRepEval: confusion of formats", "tasks", cells, (note,)), rows)


def differences(found: Found, baseline: str, seed: int) -> StudyTable:
    """Return the difference of each system from the baseline over all figures."""
    lines, rows = [], []
    for name in (each for each in found if each != baseline):
        mean, p, better = difference(found[name], found[baseline], seed)
        lines.append(TableRow(name, (_cell(mean), f"{p:.4f}", f"{better} of {mean.figures}")))
        rows.append({"system": name, "baseline": baseline, **_record(mean), "p": p, "better": better})
    columns = ("difference", "p", "better")
    notes = ("p: paired permutation test over figures. Interval: bootstrap over test items.",)
    return _table("differences", f"differences from {baseline}", "system", columns, lines, rows, notes)


def correlated(found: Found) -> StudyTable:
    """Return the figure that each is nearest to over systems; the CSV file has all pairs."""
    names, matrix, lines, rows = labels(found), correlations(found), list[TableRow](), list[Row]()
    for name, values in zip(names, matrix.tolist(), strict=True):
        own = [(other, value) for other, value in zip(names, values, strict=True) if other != name]
        rows += [{"figure": name, "other": other, "correlation": _known(value)} for other, value in own]
        near = max((pair for pair in own if _known(pair[1]) is not None), key=lambda pair: pair[1], default=None)
        lines.append(TableRow(name, (near[0], f"{near[1]:.2f}") if near else (None, None)))
    subset = smallest_subset(found)
    notes = [f"The mean of {' and '.join(subset)} orders the systems like the mean of all."] if subset else []
    columns = ("nearest", "correlation")
    return _table("correlations", "correlation of figures over systems", "figure", columns, lines, rows, notes)


def leaks(made: Mapping[str, Artifact]) -> StudyTable:
    """Return how many test papers of each task stand in training data."""
    lines, rows = [], []
    for task, artifact in made.items():
        for row in artifact.arrow("leaks.arrow").to_pylist():
            rows.append({"task": task, **row})
            lines.append(TableRow(task, (row["training"], *(f"{row[each]:,}" for each in ("papers", "ids", "titles")))))
    columns = ("training data", "test papers", "in it by id", "by title alone")
    return _table("leaks", "test papers in training data", "task", columns, lines, rows)


def counts(made: Made) -> StudyTable:
    """Return what each task counted; counts of one system where all are equal."""
    lines, rows, seen = [], [], set[tuple[str, str]]()
    for (task, system), artifact in made.items():
        for name, number in artifact.manifest.counts.items():
            if number and name != "figures":
                rows.append({"task": task, "system": system, "count": name, "number": number})
                if (task, name) not in seen:
                    lines.append(TableRow(task, (name.replace("_", " "), f"{number:,}")))
                seen.add((task, name))
    return _table("counts", "what was read and left out", "task", ("count", "number"), lines, rows)


def heats(found: Found, confused: StudyTable | None, source: str) -> list[Part]:
    """Return the heat maps: tasks by systems, correlation of tasks, confusion of formats."""
    names, values = labels(found), [[one.value for one in each] for each in zip(*found.values(), strict=True)]
    parts: list[Part] = [HeatMap("Tasks by systems", "task", names, list(found), {"percent": values}, source)]
    if len(found) >= LEAST_SYSTEMS:
        matrix = [[_known(value) for value in row] for row in correlations(found).tolist()]
        parts.append(HeatMap("Correlation of tasks over systems", "task", names, names, {"percent": matrix}, source))
    if confused is not None:
        table = confused.table
        cells = [
            [each.value if isinstance(each, PublishedCell) else None for each in line.values] for line in table.lines
        ]
        rows, columns = [line.label for line in table.lines], [column.label for column in table.columns]
        parts.append(HeatMap("Confusion of formats", table.corner, rows, columns, {"percent": cells}, source))
    return parts


def _table(
    name: str,
    title: str,
    corner: str,
    columns: Sequence[str],
    lines: Sequence[TableRow],
    rows: Sequence[Row],
    notes: Sequence[str] = (),
) -> StudyTable:
    shown = Table(
        f"SciRepEval: {title}", corner, tuple(Column("", each) for each in columns), tuple(lines), tuple(notes)
    )
    return _study(name, shown, rows)


def _study(name: str, shown: Table, rows: Sequence[Row]) -> StudyTable:
    return StudyTable(name, shown, pl.DataFrame(rows, infer_schema_length=None))


def _cell(mean: Mean | None) -> Value:
    return None if mean is None else Cell(mean.value, None, mean.low, mean.high, best=False, marked=False)


def _record(mean: Mean | None) -> Row:
    return {name: getattr(mean, name, None) for name in ("value", "low", "high", "figures")}


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
