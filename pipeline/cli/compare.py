"""``mdcr compare``: two systems on the same pools."""

from __future__ import annotations

import argparse
import dataclasses

from pipeline.cli import options as read
from pipeline.cli.output import print_json
from pipeline.cli.results import choice_of
from pipeline.core.errors import InputError
from pipeline.report.choice import choose
from pipeline.report.collect import tables
from pipeline.report.compare import compare as compared
from pipeline.report.comparison import as_text
from pipeline.report.model import ReportSettings
from pipeline.stages.systems import system_names


def compare(options: argparse.Namespace) -> None:
    """Print the comparison of two systems, a part for each field and size.

    Raises:
        InputError: not two systems are named, or nothing that both were scored on fits the options.
    """
    named = options.systems or system_names(options.model or "")
    if len(named) != 2:
        raise InputError(f"two systems must be compared, got {len(named)}", "Write it like mdcr compare bm25 lsa")
    choice = choice_of(options)
    groups = tables(choose(read.runner(options).root, dataclasses.replace(choice, measures=None)))
    if len(groups) > 1:
        raise InputError(
            f"pools of one kind must be compared, got {len(groups)} kinds",
            "Choose with --corpus, --year, --seed, --split, --queries or another setting of the pools",
        )
    seed = groups[0][0].pool.manifest.config.get("seed", ReportSettings.seed)
    settings = ReportSettings(seed=seed)
    found = compared(groups[0], named[0], named[1], settings, measures=choice.measures, most=options.most)
    if options.json:
        print_json({"comparisons": [dataclasses.asdict(each) for each in found]})
        return
    print("\n\n".join(map(as_text, found)))
