"""Published scores as tables, files and JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from pipeline.cli import options as read
from pipeline.cli.output import print_json
from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, nearest
from pipeline.core.progress import say
from pipeline.core.runner import Runner
from pipeline.core.workspace import REPORTS
from pipeline.measure.measures import parse_measures
from pipeline.scores.average import Draws
from pipeline.scores.caption import folder_names
from pipeline.scores.charts import figures
from pipeline.scores.choose import choose, settings_of_choice
from pipeline.scores.golden import check
from pipeline.scores.labels import labelled
from pipeline.scores.layout import SHOWN, build_tables, shown
from pipeline.scores.page import index
from pipeline.scores.page.report import page_of
from pipeline.scores.plot import FORMATS, draw, drawing, save
from pipeline.scores.render import check_format, render_table
from pipeline.scores.store import runs_of, stored, values
from pipeline.scores.summary import USUAL, as_csv, records, summarise, summarise_samples
from pipeline.stages.chain import Evaluation

_CHOOSING = ("corpus", "depth", "precision", "engine", "missing_positives", "measures")
"""Options that choose scores, beside those of pools and ``--model``."""

_FILES = {"markdown": "table.md", "csv": "table.csv", "latex": "table.tex"}
_KINDS = (*_FILES, "figures", "page")


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
    chosen = {name: getattr(options, name) for name in _CHOOSING}
    return settings_of_choice(**read.given_pools(options), **chosen, systems=getattr(options, "model", None) or None)


def print_scores(
    runner: Runner,
    scored: Sequence[Evaluation],
    options: argparse.Namespace,
    approximate: Sequence[dict[str, Any]] = (),
) -> None:
    """Print what a command has scored, as a table or as JSON.

    ``approximate`` has the rows of :func:`recalls`: they stand below the table, and in JSON under their name.
    """
    print_reports(reports_of(labelled(runs_of(runner, scored)), options), options, approximate)


def print_last(root: Path, options: argparse.Namespace) -> None:
    """Print the table that has the newest ranking."""
    _checked_format(options)
    runs = labelled(choose(stored(root), root, **choice_of(options)))
    newest = runs.filter(pl.col("published") == pl.col("published").max())
    print_reports(reports_of(runs.filter(kind=newest["kind"][0]), options), options)


def print_table(root: Path, options: argparse.Namespace) -> None:
    """Print the scores that the options choose, or compare them with a golden table (``--check``)."""
    if options.check and (options.json or options.format or options.sort):
        raise InputError("--check cannot be combined with --json, --format or --sort", "It prints no table")
    if options.tolerance is not None and not options.check:
        raise InputError("--tolerance must go with --check", "Name the golden table: --check=CSV")
    _checked_format(options)  # before scores are looked for
    reports = reports_of(labelled(choose(stored(root), root, **choice_of(options))), options)
    if not options.check:
        print_reports(reports, options)
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
    reports = reports_of(runs, options)
    margin = None if options.margin is None else f"{options.margin:g}"
    shown_by = {"by": options.sort, "against": options.baseline, "family": options.family, "margin": margin}
    shown_by["resample"] = options.resample
    look = [f"{how}-{value}" for how, value in shown_by.items() if value]
    output = options.output or root / REPORTS
    folders = [output / name for name in folder_names(root, runs, choice, look).values()]
    written: list[Path] = []
    for folder, report in zip(folders, reports, strict=True):
        written += _files_of(folder, report, kinds) if options.dry_run else write_files(folder, report, kinds)
    if "page" in kinds:
        written.append(output / index.NAME if options.dry_run else index.write_index(output))
    if options.json:
        paths = {"reports": [str(folder) for folder in folders], "files": [str(path) for path in written]}
        print_json(paths | ({"dry_run": True} if options.dry_run else {}))
        return
    for path in written if options.dry_run else folders:
        print(path)
    if options.dry_run:
        say(f"{len(written)} files would be written")
    elif "page" in kinds:
        say(f"all pages: {output / index.NAME}")


def write_files(folder: Path, report: Report, kinds: Sequence[str] = _KINDS) -> list[Path]:
    """Write what a command shows as files of some kinds, and return their paths."""
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        files.remove_abandoned(folder)
        written = [folder / name for kind, name in _FILES.items() if kind in kinds]
        for path in written:
            csv = path.suffix == ".csv"
            text = as_csv(report.records()) if csv else report.text("latex" if path.suffix == ".tex" else "markdown")
            files.write_text(path, text)
        if "page" in kinds:
            samples = summarise_samples(report.scores, report.draws)
            page = page_of(report.runs, report.scores, report.summary, samples, report.measures)
            written.append(index.write_page(page, folder))
        if "figures" in kinds:
            try:
                for name, chart, view in figures(shown(report.summary, report.measures), report.runs):
                    with drawing() as figure_class:
                        written += save(draw(figure_class, chart, view), folder / name, FORMATS, chart.provenance)
            except InputError as error:
                say(f"no figures: {error}")
    return written


def _files_of(folder: Path, report: Report, kinds: Sequence[str]) -> list[Path]:
    """Return the files that a report would write."""
    charts = figures(shown(report.summary, report.measures), report.runs) if "figures" in kinds else ()
    names = [name for kind, name in {**_FILES, "page": index.NAME}.items() if kind in kinds]
    names += [f"{name}.{suffix}" for name, _, _ in charts for suffix in FORMATS]
    return [folder / name for name in names]


def reports_of(runs: pl.DataFrame, options: argparse.Namespace, scores: pl.DataFrame | None = None) -> list[Report]:
    """Return what the options show of each kind of pool; ``scores`` are those of the rankings, where they are known."""
    measures, baseline, sort = (getattr(options, name, None) for name in ("measures", "baseline", "sort"))
    asked = [str(measure) for measure in parse_measures(measures)] if measures else SHOWN
    sort = str(parse_measures(sort)[0]) if sort else None
    draws, reports = draws_of(options), []
    for part in runs.partition_by("kind", maintain_order=True):
        values_of = values(part) if scores is None else scores
        summary = summarise(values_of, baseline=baseline or USUAL, sort=sort, draws=draws)
        scored = list(summary["measure"].unique(maintain_order=True))
        measures_shown = [name for name in asked if name in scored] or scored
        reports.append(Report(part, values_of, summary, draws, measures_shown))
    return reports


def draws_of(options: argparse.Namespace) -> Draws:
    """Return what decides the intervals and tests of tables and comparisons; the margin is typed in points."""
    family, margin, resample = (getattr(options, name, None) for name in ("family", "margin", "resample"))
    return Draws(
        family=family or "system", margin=None if margin is None else margin / 100, resample=resample or "queries"
    )


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


def print_reports(
    reports: Sequence[Report], options: argparse.Namespace, approximate: Sequence[dict[str, Any]] = ()
) -> None:
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
        print(_recall_line(row))


def recalls(runner: Runner, evaluations: Iterable[Evaluation]) -> list[dict[str, Any]]:
    """Return a row for every evaluation by approximate search that was made.

    ``recall`` is the fraction of the exact ranking's entries that the ranking has; ``map``, ``map_exact`` and
    ``change`` are fractions, None where no query has a positive.
    """
    rows = []
    for evaluation in evaluations:
        if evaluation.exact is None:
            continue
        ranking, score, exact = map(runner.make, (evaluation.ranking, evaluation.scores[0], evaluation.exact.scores[0]))
        mean, exact_mean = _mean_map(score), _mean_map(exact)
        pool = score.arrow("scores.arrow").column("pool")
        rows.append(
            {
                "system": score.manifest.config["system"],
                "pool": pool[0].as_py() if len(pool) else "",
                "depth": ranking.manifest.counts["depth"],
                "recall": ranking.manifest.counts["recall"],
                "map": mean,
                "map_exact": exact_mean,
                "change": None if mean is None or exact_mean is None else mean - exact_mean,
            }
        )
    return rows


def _recall_line(row: dict[str, Any]) -> str:
    line = f"{row['system']} on {row['pool']}: recall@{row['depth']} {row['recall']:.4f} of exact search"
    if row["change"] is None:
        return line
    change = round(100 * row["change"], 2) + 0.0  # never -0.00
    return f"{line}, MAP {100 * row['map']:.2f} against {100 * row['map_exact']:.2f} ({change:+.2f})"


def _mean_map(scores: Artifact) -> float | None:
    values = pl.DataFrame(scores.arrow("scores.arrow")).filter(measure="map")["value"].to_numpy()
    return float(values.mean()) if len(values) else None
