"""``mdcr compare``: two systems on the same pools."""

from __future__ import annotations

import argparse
import dataclasses

from pipeline.cli import options as read
from pipeline.cli.output import print_json
from pipeline.cli.results import choice_of
from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.workspace import REPORTS
from pipeline.encode import registry
from pipeline.report.choice import choose
from pipeline.report.collect import tables
from pipeline.report.compare import compare as compared
from pipeline.report.compare import paired
from pipeline.report.comparison import as_text
from pipeline.report.model import ReportSettings
from pipeline.report.naming import folder_names
from pipeline.report.page import index
from pipeline.report.page.of_comparison import page_of
from pipeline.stages.systems import stored_names


def compare(options: argparse.Namespace) -> None:
    """Print the comparison of two systems, a part for each field and size, and write its page.

    Raises:
        InputError: not two systems are named, or nothing that both were scored on fits the options.
    """
    named = [*map(registry.shown, options.systems or stored_names(options.model or ""))]
    if len(named) != 2:
        raise InputError(f"two systems must be compared, got {len(named)}", "Write it like mdcr compare bm25 lsa")
    root, choice = read.runner(options).root, choice_of(options)
    groups = tables(choose(root, dataclasses.replace(choice, measures=None)))
    if len(groups) > 1:
        raise InputError(
            f"pools of one kind must be compared, got {len(groups)} kinds",
            "Choose with --corpus, --year, --seed, --split, --queries or another setting of the pools",
        )
    seed = groups[0][0].pool.manifest.config.get("seed", ReportSettings.seed)
    settings = ReportSettings(seed=seed)
    pairs = paired(groups[0], named[0], named[1])
    found = compared(pairs, settings, measures=choice.measures, most=options.most)
    kept = dataclasses.replace(choice, systems=None)
    (name,) = folder_names(root, groups, kept, [f"{found[0].second}-against-{found[0].first}"])
    folder = options.output or root / REPORTS / name
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        index.write_page(page_of(found, pairs, settings), folder)
        if options.output is None:
            index.write_index(folder.parent)
    if options.json:
        shown = [{key: value for key, value in dataclasses.asdict(each).items() if key != "changes"} for each in found]
        print_json({"comparisons": shown, "folder": str(folder)})
        return
    print("\n\n".join(map(as_text, found)))
    print(f"\n{folder}")
