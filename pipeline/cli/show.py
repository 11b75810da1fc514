"""``mdcr show``: what there is, in words."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pipeline.cli import results
from pipeline.core.artifact import published
from pipeline.core.errors import InputError, nearest
from pipeline.core.workspace import CORPORA, FITS, LUCENE, POOLS, RANKINGS, SCORES, VECTORS, corpus_names, find_corpus

_ROOMS = (CORPORA, POOLS, FITS, LUCENE, RANKINGS, SCORES)
_KINDS = ("table", "corpus", "pools", "artifacts")


def show(root: Path, options: argparse.Namespace) -> None:
    """Print one kind of thing.

    Raises:
        InputError: there is no such kind.
    """
    if options.what == "table":
        results.print_table(root, options)
    elif options.what == "corpus":
        _print([_corpus(root, name) for name in ([options.corpus] if options.corpus else corpus_names(root))], options)
    elif options.what == "pools":
        _print([_pool(artifact.manifest.config, artifact) for artifact in published(root / POOLS)], options)
    elif options.what == "artifacts":
        folders = [*_ROOMS, *(f"{VECTORS}/{f.name}" for f in sorted((root / VECTORS).glob("[!.]*")))]
        found = [(room, artifact) for room in folders for artifact in published(root / room)]
        _print([_artifact(room, artifact) for room, artifact in found], options)
    else:
        raise InputError(f"there is nothing called {options.what!r} to show", nearest(options.what, _KINDS))


def _corpus(root: Path, name: str) -> dict[str, Any]:
    artifact = find_corpus(root, name)
    counts = artifact.manifest.counts
    return {
        "corpus": name,
        "artifact": artifact.name,
        "source": artifact.manifest.config["source"],
        "papers": counts["kept"],
        "prefiltered": counts["prefilter"]["kept"],
        "references": counts["references"],
        "in_corpus": counts["references_in_corpus"],
    }


def _pool(config: Any, artifact: Any) -> dict[str, Any]:
    counts = artifact.manifest.counts
    return {
        "pool": artifact.name,
        "field": config["field"] or "-",
        "year": config["year"],
        "sample": config["sample"],
        "queries": counts["queries"],
        "candidates": counts["candidates"],
        "positives": counts["positives"],
    }


def _artifact(room: str, artifact: Any) -> dict[str, Any]:
    size = sum(output.bytes for output in artifact.manifest.outputs)
    return {
        "artifact": f"{room}/{artifact.name}",
        "stage": artifact.manifest.stage,
        "MB": round(size / 1e6, 1),
        "seconds": artifact.manifest.provenance["wall_seconds"],
        "complete": artifact.complete(),
    }


def _print(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({options.what: rows}, ensure_ascii=False))
        return
    if not rows:
        print(f"no {options.what} yet")
        return
    cells = [[str(name) for name in rows[0]], *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    numeric = [isinstance(value, int | float) and not isinstance(value, bool) for value in rows[0].values()]
    for line in cells:
        shown = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(line, widths, numeric, strict=True))
        print("  ".join(shown).rstrip())


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and value > 9999 else str(value)
