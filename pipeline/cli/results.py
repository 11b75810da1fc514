"""Published scores as tables, files and JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from pipeline.cli import options as read
from pipeline.cli.approximate import as_line
from pipeline.cli.output import print_json
from pipeline.core import files
from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import say
from pipeline.core.runner import Runner
from pipeline.core.workspace import REPORTS
from pipeline.measure.measures import parse_measures
from pipeline.scores.average import Draws
from pipeline.scores.charts import figures
from pipeline.scores.choose import choose, settings_of_choice
from pipeline.scores.figures import FORMATS, draw, drawing, save
from pipeline.scores.golden import check
from pipeline.scores.labels import labelled
from pipeline.scores.layout import SHOWN, build_tables, shown
from pipeline.scores.naming import folder_names
from pipeline.scores.page import index
from pipeline.scores.page.report import page_of
from pipeline.scores.records import as_csv, records
from pipeline.scores.render import check_format, render_table
from pipeline.scores.store import runs_of, stored, values
from pipeline.scores.summary import USUAL, summarise, summarise_samples
from pipeline.stages.chain import Evaluation

_CHOOSING = ("corpus", "depth", "precision", "engine", "missing_positives", "measures")
"""Options that choose scores, beside those of pools and ``--model``."""

_FILES = {"markdown": "table.md", "csv": "table.csv", "latex": "table.tex"}
FIGURES = "figures"
PAGE = "page"
_KINDS = (*_FILES, FIGURES, PAGE)


class Report(NamedTuple):
    """What one command shows of one kind of pool.

    Attributes:
        runs: labelled rankings, columns :data:`pipeline.scores.store.RUNS`.
        scores: of their queries.
        summary: of all measures.
        draws: of its intervals and tests.
        measures: what a table shows, in order.
    """

    runs: pl.DataFrame
    scores: pl.DataFrame
    summary: pl.DataFrame
    draws: Draws
    measures: Sequence[str]

    def records(self) -> list[dict[str, Any]]:
        """Return every figure, then those of each sample alone."""
        return [*records(self.summary), *records(summarise_samples(self.scores, self.draws))]

    def text(self, output: str = "terminal", **look: Any) -> str:
        """Return the tables of the measures shown."""
        tables = build_tables(shown(self.summary, self.measures), self.runs)
        return "\n".join(render_table(table, output, **look) for table in tables)


def choice_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the scores that the options choose, for :func:`pipeline.scores.choose.choose`."""
    given = {name: getattr(options, name) for name in _CHOOSING}
    return settings_of_choice(**read.given_pools(options), **given, systems=getattr(options, "model", None) or None)


def print_scores(
    runner: Runner,
    scored: Sequence[Evaluation],
    options: argparse.Namespace,
    approximate: Sequence[dict[str, Any]] = (),
) -> None:
    """Print what a command has scored, as a table or as JSON.

    Approximate rankings are compared with exact ones below the table, and in JSON under ``approximate``.
    """
    _print(_reports(labelled(runs_of(runner, scored)), options), options, approximate)


def print_table(root: Path, options: argparse.Namespace) -> None:
    """Print the scores that the options choose, or compare them with a golden table (``--check``)."""
    if options.check and (options.json or options.format or options.sort):
        raise InputError("--check cannot be combined with --json, --format or --sort", "It prints no table")
    if options.tolerance is not None and not options.check:
        raise InputError("--tolerance must go with --check", "Name the golden table: --check=CSV")
    _checked_format(options)  # before scores are looked for
    reports = _reports(labelled(choose(stored(root), root, **choice_of(options))), options)
    if not options.check:
        _print(reports, options)
        return
    tolerance = 0.01 if options.tolerance is None else options.tolerance
    figures_shown = [record for report in reports for record in report.records()]
    print(f"{check(options.check, figures_shown, tolerance)} figures are within {tolerance:g}")


def write_report(options: argparse.Namespace) -> None:
    """Write the scores that the options choose as a page, Markdown, CSV, LaTeX and figures."""
    kinds = [kind.strip() for kind in (options.format or ",".join(_KINDS)).split(",")]
    for kind in kinds:
        if kind not in _KINDS:
            raise InputError(f"--format of files must be {', '.join(_KINDS)}, got {kind!r}", nearest(kind, _KINDS))
    root, choice = read.runner(options).root, choice_of(options)
    runs = labelled(choose(stored(root), root, **choice))
    reports = _reports(runs, options)
    told = [f"by-{options.sort}"] if options.sort else []
    told += [f"against-{options.baseline}"] if options.baseline else []
    told += [
        f"{name}-{value:g}" if name == "margin" else f"{name}-{value}"
        for name in ("family", "margin")
        if (value := getattr(options, name)) is not None
    ]
    output = options.output or root / REPORTS
    folders = [output / name for name in folder_names(root, runs, choice, told).values()]
    written: list[Path] = []
    for folder, report in zip(folders, reports, strict=True):
        written += _files_of(folder, report, kinds) if options.dry_run else _write(folder, report, kinds)
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


def _write(folder: Path, report: Report, kinds: Sequence[str]) -> list[Path]:
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        files.remove_abandoned(folder)
        written = [folder / name for kind, name in _FILES.items() if kind in kinds]
        for path in written:
            csv = path.suffix == ".csv"
            text = as_csv(report.records()) if csv else report.text("latex" if path.suffix == ".tex" else "markdown")
            files.write_text(path, text)
        if PAGE in kinds:
            samples = summarise_samples(report.scores, report.draws)
            page = page_of(report.runs, report.scores, report.summary, samples, report.measures)
            written.append(index.write_page(page, folder))
        if FIGURES in kinds:
            try:
                for name, chart, view in figures(shown(report.summary, report.measures), report.runs):
                    with drawing() as figure_class:
                        written += save(draw(figure_class, chart, view), folder / name, FORMATS, chart.provenance)
            except InputError as error:
                say(f"no figures: {error}")
    return written


def _files_of(folder: Path, report: Report, kinds: Sequence[str]) -> list[Path]:
    """Return the files that a report would write."""
    drawn = figures(shown(report.summary, report.measures), report.runs) if FIGURES in kinds else ()
    names = [name for kind, name in _FILES.items() if kind in kinds]
    names += [index.NAME] if PAGE in kinds else []
    names += [f"{name}.{suffix}" for name, _, _ in drawn for suffix in FORMATS]
    return [folder / name for name in names]


def _reports(runs: pl.DataFrame, options: argparse.Namespace) -> list[Report]:
    """Return what the options show of each kind of pool."""
    measures, baseline, sort = (getattr(options, name, None) for name in ("measures", "baseline", "sort"))
    asked = [str(measure) for measure in parse_measures(measures)] if measures else SHOWN
    sort = str(parse_measures(sort)[0]) if sort else None
    draws, reports = draws_of(options), []
    for own in runs.partition_by("kind", maintain_order=True):
        scores = values(own)
        summary = summarise(scores, baseline=baseline or USUAL, sort=sort, draws=draws)
        known = list(summary["measure"].unique(maintain_order=True))
        measures_shown = [name for name in asked if name in known] or known
        reports.append(Report(own, scores, summary, draws, measures_shown))
    return reports


def draws_of(options: argparse.Namespace) -> Draws:
    """Return what decides the tests of tables and comparisons; the margin is typed in points."""
    margin = getattr(options, "margin", None)
    return Draws(family=getattr(options, "family", None) or "system", margin=None if margin is None else margin / 100)


def check_shown(options: argparse.Namespace) -> None:
    """Refuse options of a table that are invalid, before anything is made for it."""
    _checked_format(options)
    draws_of(options)
    if options.sort:
        parse_measures(options.sort)


def _checked_format(options: argparse.Namespace) -> str | None:
    output: str | None = getattr(options, "format", None)
    if output is not None:
        check_format(output)
        if options.json:
            raise InputError("--format cannot be combined with --json", "Give one of them")
    return output


def _print(reports: Sequence[Report], options: argparse.Namespace, approximate: Sequence[dict[str, Any]] = ()) -> None:
    """Print tables, or all measures as JSON; what is approximate is compared with exact search below."""
    output = _checked_format(options) or "terminal"
    if options.json or output == "csv":
        rows = [record for report in reports for record in report.records()]
        if options.json:
            print_json({"rows": rows, **({"approximate": approximate} if approximate else {})})
        else:
            print(as_csv(rows), end="")
        return
    width = max(shutil.get_terminal_size((100, 24)).columns, 80)
    for report in reports:
        print(report.text(output, width=width, ansi=output == "terminal" and sys.stdout.isatty()))
    for row in approximate if output == "terminal" else ():
        print(as_line(row))
