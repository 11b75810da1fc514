"""``mdcr models``: the encoders."""

from __future__ import annotations

import argparse
from typing import Any

from pipeline.cli.output import print_rows, print_table
from pipeline.core.errors import require_known
from pipeline.encode import known
from pipeline.scores.tables import Column, Table


def models(options: argparse.Namespace) -> None:
    """List the encoders, or show the details of one."""
    what = options.what or "list"
    encoders = {encoder.name: encoder for encoder in known.known_models()}
    require_known(what, ("list", *encoders), f"mdcr models {what} is unknown")
    chosen = list(encoders.values()) if what == "list" else [encoders[what]]
    if options.json or what == "list":
        print_rows("models", [_record(encoder) if options.json else _row(encoder) for encoder in chosen], options)
    else:
        _print_details(*chosen)


def _row(encoder: known.KnownModel) -> dict[str, str]:
    return {
        "model": encoder.name,
        "here": "yes" if encoder.available else "no",
        "source": " + ".join(filter(None, (encoder.source, encoder.adapter))) or "fitted on the corpus",
        "revision": encoder.revision[:12] or "-",
        "licence": encoder.licence or "-",
    }


def _record(encoder: known.KnownModel) -> dict[str, Any]:
    return {
        **_row(encoder),
        "revision": encoder.revision,
        "published": dict(encoder.published),
        "exclusions": list(encoder.exclusions),
        "folder": str(encoder.folder or ""),
        "recipe": dict(encoder.recipe),
    }


def _print_details(encoder: known.KnownModel) -> None:
    values = {**_row(encoder), "revision": encoder.revision or "-", "folder": str(encoder.folder or "-")}
    values |= {"training queries": " ".join(encoder.exclusions) or "-", "published": "" if encoder.published else "-"}
    values |= {f" {name}": repr(value) for name, value in encoder.recipe.items()}
    values |= {f"  {name}": known.as_printed(figure) for name, figure in encoder.published.items()}
    print_table(Table.of("", "", [Column("", "", text=True)], values.items()))
