"""Print results: JSON, rows, and counts of artifacts."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.core.artifact import Artifact
from pipeline.core.text import printable


def print_json(values: Mapping[str, Any]) -> None:
    """Print values as one line of JSON."""
    print(json.dumps(values, ensure_ascii=False))


def print_rows(what: str, rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> None:
    """Print rows as a table, or as JSON under the name ``what``; a row may lack columns.

    On a terminal the last column is wrapped.
    """
    if options.json:
        print_json({what: list(rows)})
        return
    if not rows:
        print(f"no {what} yet")
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[printable(name) for name in names], *([_cell(row.get(name, "-")) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    first = [next(row[name] for row in rows if name in row) for name in names]
    numeric = [isinstance(value, int | float) and not isinstance(value, bool) for value in first]
    indent = sum(widths[:-1]) + 2 * len(widths[:-1])
    room = max(shutil.get_terminal_size().columns, 80) - indent if sys.stdout.isatty() else widths[-1]
    for line in lines:
        columns = zip(line, widths, numeric, strict=True)
        *cells, last = (text.rjust(width) if right else text.ljust(width) for text, width, right in columns)
        wrapped = textwrap.wrap(last, max(room, 30), break_long_words=False) or [""]
        print("  ".join([*cells, wrapped[0]] if wrapped[0] else cells).rstrip())
        for rest in wrapped[1:]:
            print(" " * indent + rest)


def print_artifacts(kind: str, artifacts: Sequence[Artifact], options: argparse.Namespace) -> None:
    """Print the counts of artifacts, or their records as JSON."""
    if options.json and not options.dry_run:
        print_json({kind: [as_record(artifact) for artifact in artifacts]})
        return
    for artifact in artifacts:
        print_counts(f"{artifact.manifest.stage} {artifact.name}", artifact)


def as_record(artifact: Artifact) -> dict[str, Any]:
    """Return the record of an artifact for JSON."""
    manifest = artifact.manifest
    return {
        "stage": manifest.stage,
        "name": artifact.name,
        "id": manifest.id,
        "path": str(artifact.path),
        "config": manifest.config,
        "counts": manifest.counts,
    }


def print_counts(title: str, artifact: Artifact) -> None:
    """Print the counts of an artifact, a line each; those of the prefilter only for a corpus without queries."""
    print(title)
    counts = dict(artifact.manifest.counts)
    if artifact.manifest.stage == "corpus" and "queries" in counts:
        del counts["prefilter"]
    for line in _lines(counts):
        print(f"  {line}")


_LABELS = {"judgements_of_nothing": "judgements of absent papers", "marks": "papers without metadata"}
"""Names of counts that say more than those that are stored."""


def _lines(counts: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in counts.items():
        label = _LABELS.get(name) or printable(name).replace("_", " ")
        if isinstance(value, Mapping):
            lines += [f"{label}:", *(f"  {line}" for line in _lines(value))] if value else []
        elif isinstance(value, int | float):
            lines.append(f"{label:32}{value:>14,}")
    return lines


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    number = isinstance(value, int) and not isinstance(value, bool) and value > 9999
    return f"{value:,}" if number else printable(str(value))
