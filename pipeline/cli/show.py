"""``mdcr show``: print scores, corpora, pools and artifacts of a workspace, as text or JSON."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pipeline.cli.output import print_json, print_rows, print_table
from pipeline.cli.settings import RUNNING
from pipeline.core.artifact import published, readable
from pipeline.core.workspace import artifact_parents, corpus_folders, corpus_names, find_corpus


def show(options: argparse.Namespace) -> None:
    """Print one kind of thing: scores, corpora, pools, ..."""
    options.what = options.what or ("table" if options.given - {*RUNNING} | options.given & {"json"} else "last")
    root = options.root
    if options.what in ("last", "table"):
        from pipeline.cli.results import print_scores  # here and below: listings need little of the rest

        print_scores(root, options)
    elif options.what == "corpus":
        _show_corpus(root, options)
    else:
        print_rows(options.what, _ROWS[options.what](root, options), options)


def _show_corpus(root: Path, options: argparse.Namespace) -> None:
    """Print the profile of one corpus."""
    from pipeline.corpus.reader import Corpus
    from pipeline.scores.profile import profile, profile_tables

    artifact = find_corpus(root, options.corpus)
    name = options.corpus or corpus_folders(root)[artifact.name]
    statistics = profile(Corpus(artifact), name)
    if options.json:
        print_json(statistics)
    else:
        for table in profile_tables(statistics):
            print_table(table)
            print()


def _corpora(root: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    def row(name: str) -> dict[str, Any]:
        artifact = find_corpus(root, name)
        counts = artifact.manifest.counts
        return {
            "corpus": name,
            "artifact": artifact.name,
            "source": artifact.manifest.config.get("source", artifact.manifest.stage),
            "papers": counts["kept"],
            "prefiltered": None if "queries" in counts else counts.get("prefilter", {}).get("kept"),
            "references": counts.get("references"),
            "in_corpus": counts.get("references_in_corpus"),
        }

    return [row(options.corpus)] if options.corpus else list(readable(corpus_names(root), row))


def _pools(root: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    from pipeline.cli.results import choice_of
    from pipeline.scores.choose import choose_pools

    return [
        {
            "pool": artifact.name,
            "field": artifact.manifest.config["field"] or "-",
            **{name: artifact.manifest.config[name] for name in ("year", "split", "seed", "sample")},
            **{name: artifact.manifest.counts[name] for name in ("queries", "candidates", "positives")},
        }
        for artifact in choose_pools(root, **choice_of(options))
    ]


def _artifacts(root: Path, _options: argparse.Namespace) -> list[dict[str, Any]]:
    return [
        {
            "artifact": f"{parent}/{artifact.name}",
            "stage": artifact.manifest.stage,
            "MB": round(sum(output.bytes for output in artifact.manifest.outputs) / 1e6, 1),
            "seconds": artifact.manifest.provenance["wall_seconds"],
            "complete": artifact.complete(),
        }
        for parent in reversed(artifact_parents(root))
        for artifact in published(root / parent)
    ]


def _measures(_root: Path, _options: argparse.Namespace) -> list[dict[str, Any]]:
    from pipeline.measure.measures import MEASURES

    return [
        {
            "measure": measure.name + "[@k|%p]" * measure.cuts,
            "label": measure.label,
            "aliases": " ".join(measure.aliases) or "-",
            "better": "higher" if measure.higher_is_better else "lower",
            "definition": measure.text,
        }
        for measure in MEASURES.values()
    ]


_ROWS = {
    "corpora": _corpora,
    "pools": _pools,
    "artifacts": _artifacts,
    "measures": _measures,
}
