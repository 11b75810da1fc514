"""Print results: JSON, rows, and counts of artifacts."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.core.artifact import Artifact
from pipeline.scores.render import render_table
from pipeline.scores.tables import Column, Table


def print_json(values: Mapping[str, Any]) -> None:
    """Print values as one line of JSON."""
    print(json.dumps(values, ensure_ascii=False))


def print_rows(what: str, rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> None:
    """Print rows as a table, or as JSON under the name ``what``; a row may lack columns."""
    if options.json:
        print_json({what: list(rows)})
        return
    if not rows:
        print(f"no {what} yet")
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    first = [next(row[name] for row in rows if name in row) for name in names]
    is_text = [isinstance(value, bool) or not isinstance(value, int | float) for value in first]
    columns = (Column("", name, text) for name, text in zip(names[1:], is_text[1:], strict=True))
    lines = ([_cell(row.get(names[0])) or "-", *(_cell(row.get(name)) for name in names[1:])] for row in rows)
    print_table(Table.of("", names[0], columns, lines))


def print_table(table: Table) -> None:
    """Print a table, wrapped at the width of a terminal; elsewhere a line of the table is one line."""
    width = max(shutil.get_terminal_size().columns, 80) if sys.stdout.isatty() else sys.maxsize
    print(render_table(table, width=width), end="")


def terminal() -> dict[str, Any]:
    """Return how tables that may be wrapped are shown on this terminal (:func:`render_table`)."""
    return {"width": max(shutil.get_terminal_size((100, 24)).columns, 80)}


def print_artifacts(kind: str, artifacts: Sequence[Artifact], options: argparse.Namespace) -> None:
    """Print the counts of artifacts, or their records as JSON."""
    if options.json and not options.dry_run:
        print_json({kind: [as_record(artifact) for artifact in artifacts]})
        return
    for artifact in artifacts:
        print_counts(f"{artifact.manifest.stage} {artifact.name}", artifact)


def print_made(kind: str, artifact: Artifact, options: argparse.Namespace, name: str = "", **more: Any) -> bool:
    """Print the counts of an artifact of a kind, or with ``--json`` its record and more; return whether as counts."""
    if options.json:
        print_json({kind: as_record(artifact), **more})
    else:
        print_counts(f"{kind} {name or artifact.name}", artifact)
    return not options.json


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
    counts = dict(artifact.manifest.counts)
    if artifact.manifest.stage == "corpus" and "queries" in counts:
        del counts["prefilter"]
    print_table(Table.of(title, "", [""], _lines(counts)))


_LABELS = {"judgements_of_nothing": "judgements of absent papers", "marks": "papers without metadata"}
"""Names of counts that say more than those that are stored."""


def _lines(counts: Mapping[str, Any], indent: str = "") -> Iterator[tuple[str, str]]:
    for name, value in counts.items():
        label = indent + (_LABELS.get(name) or name.replace("_", " "))
        if isinstance(value, Mapping):
            yield from ((f"{label}:", ""), *_lines(value, f"{indent}  ")) if value else ()
        elif isinstance(value, int | float):
            yield label, f"{value:,}"


def _cell(value: Any) -> str | None:
    number = isinstance(value, int) and not isinstance(value, bool) and value > 9999
    return None if value is None else f"{value:,}" if number else str(value)
