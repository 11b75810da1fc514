"""``mdcr evaluate``: runs of any tool against qrels; ``mdcr open``: the newest page."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from pipeline.cli.results import check_shown, print_reports, reports_of, write_files
from pipeline.core.errors import InputError
from pipeline.core.progress import say
from pipeline.core.workspace import REPORTS
from pipeline.scores.files import name_of, score_files
from pipeline.scores.page import index


def evaluate(options: argparse.Namespace) -> None:
    """Score runs, print their table with intervals and tests, and write its page."""
    check_shown(options)
    runs: list[Path] = list(options.run)
    baseline = options.baseline and Path(options.baseline)
    if baseline and baseline.is_file():
        runs = [baseline, *(run for run in runs if run.resolve() != baseline.resolve())]
        options.baseline = name_of(baseline, "")
    if not runs:
        raise InputError("--run must be given", "Give a file of TREC, JSON, ranx or Parquet")
    frame, scores = score_files(runs, options.qrels, options.measures)
    reports = reports_of(frame, options, scores)
    print_reports(reports, options)
    folder = options.output or options.root / REPORTS / name_of(options.qrels, "qrels")
    for report in reports:
        write_files(folder, report)
    say(f"page: {folder / index.NAME}")


def open_page(options: argparse.Namespace) -> None:
    """Open the newest page of the workspace; where there is no browser, its path is what is printed."""
    pages = sorted((options.root / REPORTS).glob(f"*/{index.NAME}"), key=lambda page: page.stat().st_mtime_ns)
    if not pages:
        raise InputError(f"there is no page in {options.root / REPORTS}", "Run mdcr demo, mdcr report or mdcr study")
    webbrowser.open(pages[-1].resolve().as_uri())
    print(pages[-1])
