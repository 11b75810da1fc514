"""Published scores as tables, files and JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pipeline.cli import options as read
from pipeline.cli.approximate import as_line
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
from pipeline.report.model import Report, ReportSettings
from pipeline.report.render import check_format, render
from pipeline.stages.selection import parse_fields, parse_sizes
from pipeline.stages.systems import system_names

SHOWN = ("map", "ndcg", "recall@30")
"""Measures of a table by default: the paper's. JSON has all that were scored."""


def print_scores(
    root: Path, made: Sequence[Artifact], options: argparse.Namespace, approximate: Sequence[dict[str, Any]] = ()
) -> None:
    """Print new scores: as JSON, or as a table together with the scores of other systems on the same pools.

    Approximate rankings are compared with exact ones below the table, and in JSON under ``approximate``.
    """
    pools = list(published(root / POOLS))
    if options.json:
        rows = collect.rows(collect.load(made, pools), ReportSettings(seed=options.seed))
        print_json({"rows": rows, **({"approximate": approximate} if approximate else {})})
        return
    own = {each.manifest.inputs["pool"] for each in made}
    others = [each for each in _latest_first(root) if each.manifest.inputs["pool"] in own]
    for group in _groups([*made, *others], pools):
        _print_table(_report(group, pools, options), "terminal")
    for row in approximate:
        print(as_line(row))


def print_table(root: Path, options: argparse.Namespace) -> None:
    """Print the scores that the options select, or compare them with a golden table (``--check``).

    Raises:
        InputError: no scores are selected, or an option is invalid.
        DriftError: a figure is not what the golden table says.
    """
    pools = list(published(root / POOLS))
    groups = _groups(_selected(root, pools, options), pools)
    settings = ReportSettings(seed=options.seed)
    if options.check:
        reports = [summarise(collect.load(group, pools), settings) for group in groups]
        count = check(options.check, [each for report in reports for each in report.summaries], options.tolerance)
        print(f"{count} figures are within {options.tolerance:g}")
    elif options.json:
        print_json({"rows": [row for group in groups for row in collect.rows(collect.load(group, pools), settings)]})
    else:
        for group in groups:
            _print_table(_report(group, pools, options), options.format)


def write_report(options: argparse.Namespace) -> None:
    """Write the scores that the options select as Markdown, CSV, LaTeX and figures."""
    root = read.runner(options).root
    pools = list(published(root / POOLS))
    written: list[Path] = []
    for group in _groups(_selected(root, pools, options), pools):
        report = _report(group, pools, options)
        folder = (options.output or root / REPORTS) / f"{report.corpus}-{digest([each.id for each in group])[:8]}"
        with files.disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            files.remove_abandoned(folder)
            for output, suffix in (("markdown", "md"), ("csv", "csv"), ("latex", "tex")):
                files.write_text(folder / f"table.{suffix}", render(report, output))
            written.append(folder)
            try:
                from pipeline.report.plots import save_plots

                save_plots(report, folder)
            except InputError as error:
                say(f"no figures: {error}")
    if options.json:
        print_json({"reports": [str(folder) for folder in written]})
        return
    for folder in written:
        print(folder)


def _report(group: Sequence[Artifact], pools: Sequence[Artifact], options: argparse.Namespace) -> Report:
    loaded = collect.load(group, pools)
    asked = map(str, parse_measures(options.measures)) if options.measures else SHOWN
    shown = [name for name in asked if name in loaded[0].measures] or None
    systems = {each.system for each in loaded}
    baseline = getattr(options, "baseline", None) or ("bm25:tuned" if "bm25:tuned" in systems else "bm25")
    compared = baseline if baseline in systems and len(systems) > 1 else None
    return summarise(loaded, ReportSettings(seed=options.seed, baseline=compared), shown)


def _print_table(report: Report, output: str) -> None:
    width = shutil.get_terminal_size((100, 24)).columns
    print(render(report, output, width=max(width, 80), ansi=output == "terminal" and sys.stdout.isatty()))


def _groups(scores: Iterable[Artifact], pools: Sequence[Artifact]) -> list[list[Artifact]]:
    """Return the scores by table: each table has one corpus and one kind of pool.

    Of several rankings of one system on one pool (another tuning or depth), the first is taken, with all its scores.
    """
    of_id = {pool.id: pool for pool in pools}
    groups: dict[str, dict[str, Artifact]] = {}
    ranking_of: dict[tuple[str, str], str] = {}
    for artifact in scores:
        pool = of_id.get(artifact.manifest.inputs["pool"])
        if pool is not None:
            varying = ("field", "size", "sample")
            settings = {name: value for name, value in pool.manifest.config.items() if name not in varying}
            key = digest([pool.manifest.inputs["corpus"], settings])
            ranking = artifact.manifest.inputs["ranking"]
            if ranking_of.setdefault((artifact.manifest.config["system"], pool.id), ranking) == ranking:
                groups.setdefault(key, {})[artifact.id] = artifact
    return [list(group.values()) for group in groups.values()]


def _latest_first(root: Path) -> list[Artifact]:
    """Return all scores by system and pool, those published last first.

    A system keeps its name when BM25 is tuned again or another depth is ranked.
    """
    groups: dict[tuple[str, str], list[Artifact]] = {}
    for artifact in published(root / SCORES):
        key = (artifact.manifest.config["system"], artifact.manifest.inputs["pool"])
        groups.setdefault(key, []).append(artifact)
    for group in groups.values():
        group.sort(key=lambda each: (each.path / MANIFEST).stat().st_mtime_ns, reverse=True)
    return [each for group in groups.values() for each in group]


def _selected(root: Path, pools: Sequence[Artifact], options: argparse.Namespace) -> list[Artifact]:
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
    selected = [
        each
        for each in _latest_first(root)
        if each.manifest.inputs["pool"] in wanted and (systems is None or each.manifest.config["system"] in systems)
    ]
    if not selected:
        raise InputError(f"nothing that was scored in {root / SCORES} fits", "Run mdcr eval first, or ask for less")
    return selected
