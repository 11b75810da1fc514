"""Published scores as tables, files and JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipeline.cli import options as read
from pipeline.cli.approximate import Approximate
from pipeline.cli.output import print_json
from pipeline.core import files
from pipeline.core.artifact import Artifact, published
from pipeline.core.config import digest
from pipeline.core.errors import InputError
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.workspace import POOLS, REPORTS, SCORES, find_corpus
from pipeline.measure.measures import parse_measures
from pipeline.report import collect
from pipeline.report.aggregate import summarise
from pipeline.report.golden import check
from pipeline.report.model import Report, Settings
from pipeline.report.render import check_format, render
from pipeline.stages.selection import parse_fields, parse_sizes
from pipeline.stages.systems import system_names

SHOWN = ("map", "ndcg", "recall@30")
"""Measures of a table by default: the paper's. JSON has all that were scored."""

_SUFFIX = {"markdown": "md", "csv": "csv", "latex": "tex", "terminal": "txt"}


def print_scores(
    root: Path, made: Sequence[Artifact], options: argparse.Namespace, approximate: Sequence[Approximate] = ()
) -> None:
    """Print new scores: as JSON, or as a table together with the scores of other systems on the same pools.

    Approximate rankings are compared with exact ones below the table, and in JSON under ``approximate``.
    """
    pools = list(published(root / POOLS))
    settings = Settings(seed=options.seed)
    if options.json:
        printed: dict[str, Any] = {"rows": collect.rows(collect.load(made, pools), settings)}
        if approximate:
            printed["approximate"] = [each._asdict() for each in approximate]
        print_json(printed)
        return
    for group in _groups([*made, *_beside(root, made)], pools):
        print(_table(_report(group, pools, options), "terminal"))
    for each in approximate:
        print(each.line())


def print_table(root: Path, options: argparse.Namespace) -> None:
    """Print the scores that the options select, or compare them with a golden table (``--check``).

    Raises:
        DriftError: a figure is not what the golden table says.
    """
    pools = list(published(root / POOLS))
    chosen = _chosen(root, pools, options)
    if options.check:
        reports = [_report(group, pools, options, every=True) for group in _groups(chosen, pools)]
        summaries = [summary for report in reports for summary in report.summaries]
        print(f"{check(options.check, summaries, options.tolerance)} figures are within {options.tolerance:g}")
        return
    if options.json:
        print_json({"rows": [row for group in _groups(chosen, pools) for row in _rows(group, pools, options)]})
        return
    for group in _groups(chosen, pools):
        print(_table(_report(group, pools, options), options.format))


def write_report(options: argparse.Namespace) -> None:
    """Write the scores that the options select as Markdown, CSV, LaTeX and figures."""
    root = read.runner(options).root
    pools = list(published(root / POOLS))
    folder = options.output or root / REPORTS
    written: list[Path] = []
    for group in _groups(_chosen(root, pools, options), pools):
        report = _report(group, pools, options)
        place = folder / f"{report.corpus}-{digest([artifact.id for artifact in group])[:8]}"
        place.mkdir(parents=True, exist_ok=True)
        for name in ("markdown", "csv", "latex"):
            files.write_text(place / f"table.{_SUFFIX[name]}", render(report, name))
        written.append(place)
        try:
            from pipeline.report.plots import save_plots

            save_plots(report, place)
        except InputError as error:
            say(f"no figures: {error}")
    if options.json:
        print_json({"reports": [str(place) for place in written]})
        return
    for place in written:
        print(place)


def _rows(group: Sequence[Artifact], pools: Sequence[Artifact], options: argparse.Namespace) -> list[dict[str, Any]]:
    return collect.rows(collect.load(group, pools), Settings(seed=options.seed))


def _report(
    group: Sequence[Artifact], pools: Sequence[Artifact], options: argparse.Namespace, *, every: bool = False
) -> Report:
    """Return the report of some scores, of the measures to show or of every one."""
    loaded = collect.load(group, pools)
    if every:
        return summarise(loaded, Settings(seed=options.seed))
    scored = set(loaded[0].measures)
    shown = [name for name in _measures(options) or SHOWN if name in scored] or None
    systems = {each.system for each in loaded}
    baseline = getattr(options, "baseline", None) or ("bm25:tuned" if "bm25:tuned" in systems else "bm25")
    compared = baseline if baseline in systems and len(systems) > 1 else None
    return summarise(loaded, Settings(seed=options.seed, baseline=compared), shown)


def _measures(options: argparse.Namespace) -> list[str]:
    return [str(measure) for measure in parse_measures(options.measures.split(","))] if options.measures else []


def _table(report: Report, output: str) -> str:
    width = shutil.get_terminal_size((100, 24)).columns
    return render(report, output, width=max(width, 80), ansi=output == "terminal" and sys.stdout.isatty())


def _groups(scores: Iterable[Artifact], pools: Sequence[Artifact]) -> list[list[Artifact]]:
    """Return the scores by table: each table has one corpus, one kind of pool and one set of measures.

    Of several scores of one system on one pool (another tuning or depth), the first is taken.
    """
    of_name = {pool.id: pool for pool in pools}
    groups: dict[str, dict[tuple[str, str], Artifact]] = {}
    for artifact in scores:
        pool = of_name.get(artifact.manifest.inputs["pool"])
        if pool is None:
            continue
        varying = ("field", "size", "sample")
        settings = {name: value for name, value in pool.manifest.config.items() if name not in varying}
        key = digest([pool.manifest.inputs["corpus"], settings, artifact.manifest.config["measures"]])
        groups.setdefault(key, {}).setdefault((artifact.manifest.config["system"], pool.id), artifact)
    return [list(group.values()) for group in groups.values()]


def _beside(root: Path, made: Sequence[Artifact]) -> list[Artifact]:
    """Return all scores of the same pools and measures."""
    pools = {artifact.manifest.inputs["pool"] for artifact in made}
    measures = made[0].manifest.config["measures"]
    return [
        artifact
        for artifact in _latest_first(published(root / SCORES))
        if artifact.manifest.inputs["pool"] in pools and artifact.manifest.config["measures"] == measures
    ]


def _latest_first(scores: Iterable[Artifact]) -> list[Artifact]:
    """Return scores with the last published before others of its system and pool, else in the order given.

    A system keeps its name when BM25 is tuned again or another depth is ranked.
    """
    groups: dict[tuple[str, str], list[Artifact]] = {}
    for artifact in scores:
        key = (artifact.manifest.config["system"], artifact.manifest.inputs["pool"])
        groups.setdefault(key, []).append(artifact)
    return [each for group in groups.values() for each in sorted(group, key=_published_at, reverse=True)]


def _published_at(artifact: Artifact) -> int:
    return (artifact.path / MANIFEST).stat().st_mtime_ns


def _chosen(root: Path, pools: Sequence[Artifact], options: argparse.Namespace) -> list[Artifact]:
    """Return the scores that the options select; an option that is not given restricts nothing."""
    check_format(options.format)
    corpus = find_corpus(root, options.corpus).id if options.corpus else None
    fields, sizes = parse_fields(options.field), parse_sizes(options.size)
    wanted = {
        pool.id
        for pool in pools
        if (corpus is None or pool.manifest.inputs["corpus"] == corpus)
        and (not fields or pool.manifest.config["field"] in fields)
        and (not sizes or pool.manifest.config["size"] in sizes)
        and (options.year is None or pool.manifest.config["year"] == options.year)
    }
    systems = set(system_names(options.model)) if options.model else None
    if systems and "bm25" in systems:
        systems.add("bm25:tuned")
    chosen = [
        artifact
        for artifact in _latest_first(published(root / SCORES))
        if artifact.manifest.inputs["pool"] in wanted
        and (systems is None or artifact.manifest.config["system"] in systems)
    ]
    if not chosen:
        raise InputError(f"nothing that was scored in {root / SCORES} fits", "Run mdcr eval first, or ask for less")
    return chosen
