"""``mdcr show``: what there is, in words."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pipeline.cli import options as read
from pipeline.cli import results
from pipeline.core.artifact import published
from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import say
from pipeline.core.workspace import CORPORA, FITS, LUCENE, POOLS, RANKINGS, SCORES, VECTORS, corpus_names, find_corpus

_ROOMS = (CORPORA, POOLS, FITS, LUCENE, RANKINGS, SCORES)
_KINDS = ("table", "corpora", "corpus", "pools", "artifacts", "vectors", "fields")


def show(root: Path, options: argparse.Namespace) -> None:
    """Print one kind of thing.

    Raises:
        InputError: there is no such kind.
    """
    if options.what == "table":
        results.print_table(root, options)
    elif options.what == "corpus":
        _show_corpus(root, options)
    elif options.what == "fields":
        from pipeline.sources.fieldmaps import MAPPINGS

        rows = [
            {"subject": subject, "counts as": name, "of": source}
            for source, pairs in MAPPINGS.items()
            for subject, name in pairs
        ]
        print_rows("fields", rows, options)
    elif options.what == "corpora":
        names = [options.corpus] if options.corpus else corpus_names(root)
        print_rows(options.what, [_corpus(root, name) for name in names], options)
    elif options.what == "pools":
        pools = [_pool(artifact.manifest.config, artifact) for artifact in published(root / POOLS)]
        print_rows(options.what, pools, options)
    elif options.what == "artifacts":
        folders = [*_ROOMS, *(f"{VECTORS}/{f.name}" for f in sorted((root / VECTORS).glob("[!.]*")))]
        found = [(room, artifact) for room in folders for artifact in published(root / room)]
        print_rows(options.what, [_artifact(room, artifact) for room, artifact in found], options)
    elif options.what == "vectors":
        from pipeline.stages.embed import describe_stores

        corpus = find_corpus(root, options.corpus).id if options.corpus else None
        resources = read.runner(options).resources
        print_rows("vectors", list(describe_stores(root, corpus, options.spot, resources)), options)
    else:
        raise InputError(f"there is nothing called {options.what!r} to show", nearest(options.what, _KINDS))


def _show_corpus(root: Path, options: argparse.Namespace) -> None:
    """Print the profile of one corpus, and draw its figures where a folder for them is given."""
    from pipeline.corpus.reader import Corpus
    from pipeline.report.profile import profile
    from pipeline.report.profile_text import render_profile, save_profile_plots

    artifact = find_corpus(root, options.corpus)
    name = options.corpus or corpus_names(root)[0]
    found = profile(Corpus(artifact), name, read.runner(options).resources.memory // 2)
    written = save_profile_plots(found, options.output) if options.output else []
    print(json.dumps(found, ensure_ascii=False) if options.json else render_profile(found))
    for path in written:
        say(f"wrote {path}")


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


def print_rows(what: str, rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Print rows as a table, or as JSON under their name; a row may lack columns."""
    if options.json:
        print(json.dumps({what: rows}, ensure_ascii=False))
        return
    if not rows:
        print(f"no {what} yet")
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_cell(row.get(name, "-")) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    first = [next(row[name] for row in rows if name in row) for name in names]
    numeric = [isinstance(value, int | float) and not isinstance(value, bool) for value in first]
    for line in cells:
        shown = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(line, widths, numeric, strict=True))
        print("  ".join(shown).rstrip())


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and value > 9999 else str(value)
