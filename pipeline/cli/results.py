"""``mdcr report``, ``compare`` and ``evaluate``: scores as tables, files, JSON and pages."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.cli import options as read
from pipeline.cli.output import print_json, terminal
from pipeline.core import files
from pipeline.core.artifact import readable
from pipeline.core.config import counted, digest, file_name, folder_name
from pipeline.core.errors import InputError, require_known
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.workspace import REPORTS
from pipeline.encode import names
from pipeline.exchange.entries import name_of
from pipeline.exchange.export import as_csv
from pipeline.measure.design import Draws
from pipeline.measure.measures import parse_measures
from pipeline.scores import compare as comparing
from pipeline.scores import comparison
from pipeline.scores.caption import folder_names
from pipeline.scores.charts import figures
from pipeline.scores.choose import choose, settings_of_choice
from pipeline.scores.files import score_files
from pipeline.scores.layout import TABLE_MEASURES
from pipeline.scores.page.report import Report, page_of
from pipeline.scores.page.write import NAME, write_index, write_page
from pipeline.scores.plot import FORMATS, draw, drawing, save
from pipeline.scores.render import render_table
from pipeline.scores.store import stored, values
from pipeline.scores.summary import USUAL, summarise
from pipeline.stages.chain import Evaluation
from pipeline.stages.settings import CHOICE
from pipeline.stages.systems import stored_names

_FILES = {"markdown": "table.md", "csv": "table.csv", "latex": "table.tex", "page": NAME}
_KINDS = ("markdown", "csv", "latex", "figures", "page")


def choice_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of :func:`pipeline.scores.choose.choose` that the options give."""
    chosen = {name: getattr(options, name, None) or None for name in CHOICE}
    return settings_of_choice(**read.given_pools(options), **chosen)


def print_scores(root: Path, options: argparse.Namespace) -> None:
    """Print the scores that the options choose, or the table with the newest ranking."""
    check_display(options)  # before scores are read
    runs = choose(stored(root), root, **choice_of(options))
    if options.what == "last":
        runs = runs.filter(kind=runs.filter(pl.col("published") == pl.col("published").max())["kind"][0])
    print_reports(reports_of(runs, options), options)


def write_report(options: argparse.Namespace) -> None:
    """Write the scores that the options choose as a page, Markdown, CSV, LaTeX and figures."""
    kinds = [kind.strip() for kind in (options.format or ",".join(_KINDS)).split(",")]
    for kind in kinds:
        require_known(kind, _KINDS, f"--format of files must be {', '.join(_KINDS)}, got {kind!r}")
    root, choice = read.runner(options).root, choice_of(options)
    runs = choose(stored(root), root, **choice)
    reports = reports_of(runs, options)
    display = {"against": options.baseline, "resample": options.resample}
    suffixes = [f"{name}-{value}" for name, value in display.items() if value]
    output = options.output or root / REPORTS
    folders = [output / name for name in folder_names(root, runs, choice, suffixes).values()]
    written: list[Path] = []
    for folder, report in zip(folders, reports, strict=True):
        written += write_files(folder, report, kinds, dry=options.dry_run)
    if "page" in kinds:
        written.append(output / NAME if options.dry_run else write_index(output))
    if options.json:
        paths = {"reports": [str(folder) for folder in folders], "files": [str(path) for path in written]}
        print_json(paths | ({"dry_run": True} if options.dry_run else {}))
        return
    for path in written if options.dry_run else folders:
        print(path)
    if options.dry_run:
        say(f"{counted(len(written), 'file')} would be written")
    elif "page" in kinds:
        say(f"all pages: {output / NAME}")


def write_files(folder: Path, report: Report, kinds: Sequence[str] = _KINDS, *, dry: bool = False) -> list[Path]:
    """Write a report as files of some kinds, and return their paths; ``dry``: write nothing."""
    written = [folder / name for kind, name in _FILES.items() if kind in kinds]
    charts = list(figures(report.shown, report.runs)) if "figures" in kinds else []
    if dry:
        return written + [folder / f"{name}.{suffix}" for name, _, _ in charts for suffix in FORMATS]
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        files.remove_abandoned(folder)
        for path in written:
            if path.name == NAME:
                write_page(page_of(report), folder)
            elif path.suffix == ".csv":
                files.write_text(path, as_csv(report.figures))
            else:
                files.write_text(path, report.text("latex" if path.suffix == ".tex" else "markdown"))
        try:
            for name, chart, view in charts:
                with drawing() as figure_class:
                    written += save(draw(figure_class, chart, view), folder / name, FORMATS, chart.provenance)
        except InputError as error:
            say(f"no figures: {error}")
    return written


def reports_of(runs: pl.DataFrame, options: argparse.Namespace, scores: pl.DataFrame | None = None) -> list[Report]:
    """Return a report for each kind of pool; ``scores`` are those of the rankings, None: they are read."""
    measures, baseline = (getattr(options, name, None) for name in ("measures", "baseline"))
    requested = [str(measure) for measure in parse_measures(measures)] if measures else TABLE_MEASURES
    draws, reports = draws_of(options), []
    for of_kind in runs.partition_by("kind", maintain_order=True):
        values_of = values(of_kind) if scores is None else scores
        summary = summarise(values_of, of_kind, baseline=baseline or USUAL, draws=draws)
        scored = list(summary["measure"].unique(maintain_order=True))
        measures_shown = [name for name in requested if name in scored] or scored
        reports.append(Report(of_kind, values_of, summary, measures_shown, draws))
    return reports


def draws_of(options: argparse.Namespace) -> Draws:
    """Return the settings of intervals and tests."""
    return Draws(resample=getattr(options, "resample", None) or "queries")


def check_display(options: argparse.Namespace) -> None:
    """Check the options of a table, before anything is made or read for it."""
    if options.format is not None and options.json:
        raise InputError("--format cannot be combined with --json", "Give one of them")
    draws_of(options)


def print_reports(
    reports: Sequence[Report], options: argparse.Namespace, approximate: Sequence[dict[str, Any]] = ()
) -> None:
    """Print tables, or all measures as JSON or CSV.

    ``approximate`` are rows of :func:`recalls`, printed below the tables, or in JSON under this name.
    """
    output = options.format or "terminal"
    if options.json or output == "csv":
        all_figures = pl.concat([report.figures for report in reports])
        if options.json:
            print_json({"rows": all_figures.rows(named=True), **({"approximate": approximate} if approximate else {})})
        else:
            print(as_csv(all_figures), end="")
        return
    for report in reports:
        print(report.text(output, **terminal(), brief=options.brief))
    for row in approximate if output == "terminal" else ():
        print(f"{row['system']} on {row['pool']}: recall@{row['depth']} {row['recall']:.4f} of exact search")


def recalls(runner: Runner, evaluations: Iterable[Evaluation]) -> list[dict[str, Any]]:
    """Return a row for every evaluation by approximate search.

    ``recall`` is the fraction of the entries of the exact ranking, to its ``depth``, that the ranking contains.
    """
    rows = []
    for evaluation in evaluations:
        if evaluation.exact is not None:
            ranking, score = map(runner.make, (evaluation.ranking, evaluation.scores[0]))
            names = {"system": score.manifest.config["system"], "pool": score.arrow("scores.arrow")["pool"][0].as_py()}
            rows.append({**names, **{name: ranking.manifest.counts[name] for name in ("depth", "recall")}})
    return rows


def compare(options: argparse.Namespace) -> None:
    """Compare two systems, print where they differ most, and write the page. Of more systems, print all pairs."""
    systems = [*map(names.display_names, options.compared or stored_names(options.model or ""))]
    if len(systems) < 2:
        raise InputError(
            f"two systems or more must be compared, got {len(systems)}", "Write it like mdcr compare bm25 lsa"
        )
    if len(systems) > 2 and options.output is not None:
        raise InputError(f"--output must be of two systems, got {len(systems)}", "Compare two, or leave it out")
    root, choice = read.runner(options).root, choice_of(options)
    measures = choice.get("measures")
    runs = choose(stored(root), root, **{name: value for name, value in choice.items() if name != "measures"})
    shared = comparing.on_shared_pools(runs, systems)
    runs = runs if shared.is_empty() else shared  # without any, what follows says what is missing
    measures = measures or comparing.usual_measures(runs, systems)
    scores, draws = values(runs), draws_of(options)
    differences = comparing.compare_pairs(scores, runs, systems, measures, draws)
    labels = {label for pair in differences.select("first", "second").iter_rows() for label in pair}
    compared = runs.filter(
        pl.col("label").is_in(labels), pl.col("pool").is_in(differences["pools"].explode().implode())
    )
    tables = [comparison.difference_table(differences, compared)]
    record: dict[str, Any] = {"pairs": differences.rows(named=True)}
    if len(systems) == 2:
        both, pair = comparing.paired(scores, runs, *systems)
        find = partial(comparing.most_different, both, runs, pair, differences["measure"][0])
        queries = next(readable([options.most], find), pl.DataFrame(schema=comparing.QUERIES))
        tables += [comparison.queries_table(differences, queries)] if len(queries) else []
        (name,) = folder_names(root, runs, choice, ["-against-".join(reversed(pair))]).values()
        folder = options.output or root / REPORTS / name
        with files.disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_page(comparison.page_of(differences, queries, compared, both, draws), folder)
            if options.output is None:
                write_index(folder.parent)
        record |= {"most_different": queries.rows(named=True), "folder": str(folder)}
    if options.json:
        print_json(record)
        return
    for table in tables:
        print(render_table(table, **terminal()))
    print(record.get("folder", ""))


def evaluate(options: argparse.Namespace) -> None:
    """Score runs of any tool against qrels, print their table with intervals and tests, and write its page."""
    check_display(options)
    if not options.run:
        raise InputError("--run must be given", "Give a file of TREC, JSON or Parquet")
    frame, scores = score_files(
        options.run,
        options.qrels,
        options.measures,
        no_positive=options.no_positive,
        memory=Resources.of(memory=options.memory).memory,
    )
    reports = reports_of(frame, options, scores)
    print_reports(reports, options)
    names = [frame["corpus"][0], *frame["ranking"]]  # of qrels and runs, with digests of their content
    name = folder_name(file_name(name_of(Path(options.qrels)), kept="._-") or "qrels", digest(names))
    folder = options.output or options.root / REPORTS / name
    for report in reports:
        write_files(folder, report)
    say(f"page: {folder / NAME}")
