"""``mdcr models``: the encoders."""

from __future__ import annotations

import argparse
from typing import Any

from pipeline.cli.output import print_json, print_rows, print_table
from pipeline.core.errors import require_known
from pipeline.encode import known
from pipeline.scores.tables import Column, Table

_LISTED = ("model", "here", "source", "revision", "licence")
"""Columns of the list."""


def models(options: argparse.Namespace) -> None:
    """List the encoders, or show the details of one."""
    what = options.what or "list"
    encoders = {encoder.name: encoder for encoder in known.known_models()}
    require_known(what, ("list", *encoders), f"mdcr models {what} is unknown")
    records = [_record(encoder) for encoder in encoders.values() if what in ("list", encoder.name)]
    if options.json:
        print_json({"models": records})
    elif what == "list":
        rows = [{name: record[name] or "-" for name in _LISTED} for record in records]
        print_rows("models", [row | {"revision": row["revision"][:12]} for row in rows], options)
    else:
        _print_details(records[0])


def _record(encoder: known.KnownModel) -> dict[str, Any]:
    return {
        "model": encoder.name,
        "here": "yes" if encoder.available else "no",
        "source": " + ".join(filter(None, (encoder.source, encoder.adapter))) or "fitted on the corpus",
        "revision": encoder.revision,
        "licence": encoder.licence,
        "exclusions": list(encoder.exclusions),
        "folder": str(encoder.folder or ""),
        "recipe": dict(encoder.recipe),
    }


def _print_details(record: dict[str, Any]) -> None:
    values = {**{name: record[name] or "-" for name in (*_LISTED, "folder")}}
    values |= {"training queries": " ".join(record["exclusions"]) or "-"}
    values |= {f" {name}": repr(value) for name, value in record["recipe"].items()}
    print_table(Table.of("", "", [Column("", "", text=True)], values.items()))
