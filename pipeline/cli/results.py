"""Published scores as tables, files and JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline import settings
from pipeline.cli import options as read
from pipeline.cli.approximate import as_line
from pipeline.cli.output import print_json
from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import say
from pipeline.core.workspace import REPORTS
from pipeline.measure.measures import parse_measures
from pipeline.report import collect
from pipeline.report.aggregate import summarise
from pipeline.report.choice import Choice, choose
from pipeline.report.golden import check
from pipeline.report.identity import Chosen
from pipeline.report.longcsv import records
from pipeline.report.model import Report, ReportSettings, unique
from pipeline.report.naming import folder_names
from pipeline.report.page import index
from pipeline.report.page.of_report import page_of
from pipeline.report.render import check_format, render

_CHOOSING = ("corpus", "depth", "precision", "engine", "missing_positives", "measures")
"""Options that choose scores, beside those of pools and ``--model``."""

SHOWN = ("map", "ndcg", "recall@30")
"""Measures of a table by default: the paper's. JSON and CSV have all that were scored."""

_FILES = {"markdown": "table.md", "csv": "table.csv", "latex": "table.tex"}
FIGURES = "figures"
PAGE = "page"
_KINDS = (*_FILES, FIGURES, PAGE)


def choice_of(options: argparse.Namespace) -> Choice:
    """Return the scores that the options choose; an option that is not given restricts nothing."""
    given = {name: getattr(options, name) for name in _CHOOSING}
    return settings.choice(**read.given_pools(options), **given, systems=getattr(options, "model", None) or None)


def print_scores(
    root: Path, made: Sequence[Artifact], options: argparse.Namespace, approximate: Sequence[dict[str, Any]] = ()
) -> None:
    """Print the scores a command asked for, as a table or as JSON, with all measures of their rankings.

    Approximate rankings are compared with exact ones below the table, and in JSON under ``approximate``.
    """
    own = {each.id for each in made}
    chosen = choose(root, rankings=unique([each.manifest.inputs["ranking"] for each in made]))
    _print([each for each in chosen if own & {score.id for score in each.scores}], options, approximate)


def print_table(root: Path, options: argparse.Namespace) -> None:
    """Print the scores that the options choose, or compare them with a golden table (``--check``)."""
    if options.check and (options.json or options.format or options.sort):
        raise InputError("--check cannot be combined with --json, --format or --sort", "It prints no table")
    if options.tolerance is not None and not options.check:
        raise InputError("--tolerance must go with --check", "Name the golden table: --check=CSV")
    _checked_format(options)  # before scores are looked for
    chosen = choose(root, choice_of(options))
    if not options.check:
        _print(chosen, options)
        return
    tolerance = 0.01 if options.tolerance is None else options.tolerance
    found = [row for group in collect.tables(chosen) for row in records(_report(group, options))]
    print(f"{check(options.check, found, tolerance)} figures are within {tolerance:g}")


def write_report(options: argparse.Namespace) -> None:
    """Write the scores that the options choose as a page, Markdown, CSV, LaTeX and figures."""
    kinds = [kind.strip() for kind in (options.format or ",".join(_KINDS)).split(",")]
    for kind in kinds:
        if kind not in _KINDS:
            raise InputError(f"--format of files must be {', '.join(_KINDS)}, got {kind!r}", nearest(kind, _KINDS))
    root, choice = read.runner(options).root, choice_of(options)
    groups = collect.tables(choose(root, choice))
    reports = [_report(group, options) for group in groups]
    told = [f"by-{options.sort}"] if options.sort else []
    told += [f"against-{options.baseline}"] if options.baseline else []
    names = folder_names(root, groups, choice, told)
    output = options.output or root / REPORTS
    folders = [output / name for name in names]
    written: list[Path] = []
    for folder, report, group in zip(folders, reports, groups, strict=True):
        written += _files_of(folder, report, kinds) if options.dry_run else _write(folder, report, kinds, group)
    if PAGE in kinds:
        written.append(output / index.NAME if options.dry_run else index.write_index(output))
    if options.json:
        told_json = {"reports": [str(folder) for folder in folders], "files": [str(path) for path in written]}
        print_json({**told_json, "dry_run": True} if options.dry_run else told_json)
        return
    for path in written if options.dry_run else folders:
        print(path)
    if options.dry_run:
        say(f"{len(written)} files would be written")


def _write(folder: Path, report: Report, kinds: Sequence[str], group: Sequence[Chosen]) -> list[Path]:
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        files.remove_abandoned(folder)
        written = [folder / name for kind, name in _FILES.items() if kind in kinds]
        for kind, name in _FILES.items():
            if kind in kinds:
                files.write_text(folder / name, render(report, kind))
        if PAGE in kinds:
            written.append(index.write_page(page_of(report, group), folder))
        if FIGURES in kinds:
            try:
                from pipeline.report.plots import save_plots

                written += save_plots(report, folder)
            except InputError as error:
                say(f"no figures: {error}")
    return written


def _files_of(folder: Path, report: Report, kinds: Sequence[str]) -> list[Path]:
    """Return the files that a report would write."""
    from pipeline.report.figures import FORMATS
    from pipeline.report.plots import plots_of

    figures = [f"{name}.{suffix}" for name, _, _ in plots_of(report) for suffix in FORMATS] if FIGURES in kinds else []
    pages = [index.NAME] if PAGE in kinds else []
    return [folder / name for name in (*(name for kind, name in _FILES.items() if kind in kinds), *pages, *figures)]


def _report(group: Sequence[Chosen], options: argparse.Namespace) -> Report:
    measures, baseline, sort = (getattr(options, name, None) for name in ("measures", "baseline", "sort"))
    loaded = collect.load(group)
    known = {name for each in loaded for name in each.measures}
    asked = map(str, parse_measures(measures)) if measures else SHOWN
    shown = [name for name in asked if name in known] or None
    rows = [name for _, name in {(each.system, each.name) for each in loaded}]
    usual = next((name for name in ("bm25:tuned", "bm25") if rows.count(name) == 1 < len(rows)), None)
    # Bootstrap and permutations draw with the seed of the pools, so every command prints the same figures.
    seed = loaded[0].pool.settings.get("seed", ReportSettings.seed)
    sort = str(parse_measures(sort)[0]) if sort else None
    return summarise(loaded, ReportSettings(seed=seed, baseline=baseline or usual), shown, sort)


def check_shown(options: argparse.Namespace) -> None:
    """Refuse options of a table that are invalid, before anything is made for it."""
    _checked_format(options)
    if options.sort:
        parse_measures(options.sort)


def _checked_format(options: argparse.Namespace) -> str | None:
    output: str | None = getattr(options, "format", None)
    if output is not None:
        check_format(output)
        if options.json:
            raise InputError("--format cannot be combined with --json", "Give one of them")
    return output


def _print(chosen: Sequence[Chosen], options: argparse.Namespace, approximate: Sequence[dict[str, Any]] = ()) -> None:
    """Print tables, or all measures as JSON; what is approximate is compared with exact search below."""
    output = _checked_format(options)
    reports = [_report(group, options) for group in collect.tables(chosen)]
    if options.json:
        rows = [row for report in reports for row in records(report)]
        print_json({"rows": rows, **({"approximate": approximate} if approximate else {})})
        return
    if output == "csv":  # one header
        parts = [render(report, output).split("\n", 1) for report in reports]
        print(parts[0][0], *(body for _, body in parts), sep="\n", end="")
        return
    width = max(shutil.get_terminal_size((100, 24)).columns, 80)
    for report in reports:
        ansi = output in (None, "terminal") and sys.stdout.isatty()
        print(render(report, output or "terminal", width=width, ansi=ansi))
    for row in approximate if output in (None, "terminal") else ():
        print(as_line(row))
