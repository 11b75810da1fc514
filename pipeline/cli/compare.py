"""``mdcr compare``: two systems on the same pools."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import polars as pl

from pipeline.cli import options as read
from pipeline.cli.output import print_json
from pipeline.cli.results import choice_of, draws_of
from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.workspace import REPORTS
from pipeline.encode import registry
from pipeline.scores.caption import folder_names
from pipeline.scores.choose import choose
from pipeline.scores.compare import compare as compared
from pipeline.scores.compare import compare_pairs, most_different, paired
from pipeline.scores.comparison import as_records, as_text, page_of, pair_tables
from pipeline.scores.labels import labelled
from pipeline.scores.page import index
from pipeline.scores.render import render_table
from pipeline.scores.store import stored, values
from pipeline.stages.systems import stored_names


def compare(options: argparse.Namespace) -> None:
    """Print the comparison of two systems, a part for each field and size, and write its page; of more, all pairs."""
    systems = [*map(registry.display_names, options.systems or stored_names(options.model or ""))]
    if len(systems) < 2:
        raise InputError(
            f"two systems or more must be compared, got {len(systems)}", "Write it like mdcr compare bm25 lsa"
        )
    root, choice = read.runner(options).root, choice_of(options)
    measures = choice.pop("measures", None)
    runs = labelled(choose(stored(root), root, **choice))
    if (kinds := runs["kind"].n_unique()) > 1:
        raise InputError(
            f"pools of one kind must be compared, got {kinds} kinds",
            "Choose with --corpus, --year, --seed, --split, --queries or another setting of the pools",
        )
    if len(systems) > 2:
        _all_pairs(options, runs, systems, measures)
        return
    draws = draws_of(options)
    both, labels = paired(values(runs), *systems)
    differences = compared(both, *labels, measures, draws)
    queries = most_different(both, runs, labels, differences["measure"][0], options.most)
    choice = {name: value for name, value in choice.items() if name != "systems"} | {"measures": measures}
    (name,) = folder_names(root, runs, choice, ["-against-".join(reversed(labels))]).values()
    folder = options.output or root / REPORTS / name
    pairs = runs.filter(runs["label"].is_in(labels) & runs["pool"].is_in(both["pool"].unique().to_list()))
    with files.disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        index.write_page(page_of(differences, queries, pairs, both, draws), folder)
        if options.output is None:
            index.write_index(folder.parent)
    if options.json:
        print_json({"comparisons": as_records(differences, queries), "folder": str(folder)})
        return
    for part in differences.partition_by("field", "size", maintain_order=True):
        place = {name: part[name][0] for name in ("field", "size")}
        of_part = queries.filter(*(queries[name].eq_missing(value) for name, value in place.items()))
        print(as_text(part, of_part) + "\n")
    print(folder)


def _all_pairs(
    options: argparse.Namespace, runs: pl.DataFrame, systems: Sequence[str], measures: Sequence[str] | None
) -> None:
    """Print how each two of several systems differ; a page has the queries of two."""
    if options.output is not None:
        raise InputError(f"--output must be of two systems, got {len(systems)}", "Compare two, or leave it out")
    differences = compare_pairs(values(runs), systems, measures, draws_of(options))
    if options.json:
        print_json({"pairs": differences.drop("changes").rows(named=True)})
        return
    for table in pair_tables(differences):
        print(render_table(table))
