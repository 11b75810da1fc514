"""The study ``audit``: error bars for results of any tool, without a corpus."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.api import Workspace
from pipeline.core import files
from pipeline.core.config import SHORT_ID, counted, digest
from pipeline.core.errors import InputError, nearest, require_known
from pipeline.data import DATA
from pipeline.exchange.boards import JUDGED, MAIN, in_our_spelling
from pipeline.exchange.results import Found, read_results
from pipeline.measure.board import ALPHA, Board, board, plan
from pipeline.measure.measures import parse_measures, sign_of
from pipeline.scores.files import evaluate
from pipeline.scores.tables import Cell, Column, Table, TableRow, frame_table
from pipeline.studies.audit.recipe import Recipe
from pipeline.studies.base import StudyResult, no_tasks, old_study

_PARTS = "CQADupstack"
_SHOWN, _LETTERS = 20, 12
_DEFAULT = "ndcg@10"
_MISSING = {"complete": "only items that all systems have count.", "impute": "they have an additive fit of both."}
_CORRECTED = {
    "holm": "Holm's correction",
    "bh": "Benjamini & Hochberg's correction for exploring (intervals of ranks do not hold together)",
}
_HEADS = {
    "deviation": "sd of differences", "needed": "items needed", "power": "simulated power", "stopped": "stops after",
    "stopped_most": "90% stop after", "false": "false stops",
}  # fmt: skip


def results(_workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the board of the results, the items that decide it, and the plan if one was asked for."""
    if not recipe.results:
        raise InputError("an audit must have results, got none", "Name files or folders, as in mdcr audit RESULTS/")
    paths = [Path(text).expanduser() for text in recipe.results]
    found = read_results(paths, recipe.qrels, in_our_spelling(recipe.metric))
    every, metric = _of_metric(found, recipe.metric)
    values = _levelled(_chosen(every, recipe), recipe.family)
    sign = -1 if recipe.lower_is_better else _sign(metric)
    made = board(values, seed=recipe.seed, missing=recipe.missing, correction=recipe.correction, sign=sign)
    standing, cells = made.standing(), values.select("system", "group", "item").unique(maintain_order=True)
    tables = [_standing(standing, [*_notes(made, found, cells, metric, recipe)]), _deciding(made)]
    if recipe.plan:
        tables.append(_planned(made, recipe))
    counts = (
        cells.group_by("system")
        .agg(has=pl.len())
        .with_columns(lacks=cells.select("group", "item").n_unique() - pl.col("has"))
    )
    if counts["lacks"].max():
        lacking = counts.filter(pl.col("lacks") > 0).sort("lacks", "system", descending=[True, False])
        tables.append(frame_table("missing", "Items that systems lack", lacking))
    if found.skipped:
        lines = [(what, reason) for what, _, reason in (line.partition(": ") for line in found.skipped)]
        tables.append(frame_table("skipped", "Left out", pl.DataFrame(lines, ["what", "reason"], orient="row")))
    best = f"{made.systems[0]}: first of {len(made.systems)}"
    contents = {str(path): files.sha256(path) for path in found.files}
    source = f"{counted(len(contents), 'file')} {digest(contents).removeprefix('sha256:')[:SHORT_ID]}"
    return StudyResult(tables, sources=[source], findings=_findings(made, standing), best=best, tables_first=True)


def _of_metric(found: Found, requested: str) -> tuple[pl.DataFrame, str]:
    """Return the values of the requested metric, or of the only or main one, and its name."""
    values, requested = found.values, in_our_spelling(requested)
    if found.runs:
        of_runs = requested or _DEFAULT
        parse_measures(of_runs)
        if scored := [*_scored(found, of_runs)]:
            values, requested = pl.concat([values, *scored]), of_runs
        elif values.is_empty():
            raise InputError("no run can be scored", found.skipped[-1])
    names = values["metric"].unique().sort().to_list()
    metric = requested or (MAIN if MAIN in names else _DEFAULT if _DEFAULT in names else names[0])
    if not requested and len(names) > 1 and metric not in (MAIN, _DEFAULT):
        raise InputError(f"one metric must be chosen of {', '.join(names[:12])}", "Give it with --metric")
    require_known(metric, names, f"no result is of the metric {metric!r}")
    of_metric = values.filter(pl.col("value").is_finite(), metric=metric)
    if of_metric.is_empty() or metric.startswith(JUDGED):
        return of_metric, metric
    return _fractions(of_metric), metric


def _fractions(values: pl.DataFrame) -> pl.DataFrame:
    """Return values as fractions; they may be percent, but then those of every system are."""
    by_size = values.filter(pl.col("value") != 0).sort(pl.col("value").abs())
    largest = by_size.unique("system", keep="last", maintain_order=True).select("value", "system", "item").rows()
    if not largest or abs(largest[-1][0]) <= 1 + 1e-9:
        return values
    (least, weakest, _), (most, system, item) = largest[0], largest[-1]
    if abs(most) > 100:
        got = f"got {most:g} of {system} for {item}"
        raise InputError(f"values must be fractions, or percent up to 100, {got}", "Scale them, or leave it out")
    if abs(least) <= 1:
        got = f"got at most {least:g} of {weakest}, {most:g} of {system}"
        raise InputError(f"values must all be fractions or all percent, {got}", "Write all as fractions")
    return values.with_columns(pl.col("value") / 100)


def _scored(found: Found, metric: str) -> Iterator[pl.DataFrame]:
    """Yield the values of the runs; what cannot be scored is named."""
    for run, qrels, collection in found.runs:
        try:
            scores = evaluate(run.entries, qrels, measures=metric).filter(measure=metric)
        except InputError as error:
            found.skipped.append(f"{run.path}: {error.what}")
            continue
        yield scores.select(
            system=pl.lit(run.system), group=pl.lit(collection), item="query_id", family=pl.lit(None, pl.String),
            sample=pl.lit(""), metric="measure", value="value",
        )  # fmt: skip


def _sign(metric: str) -> int:
    try:
        return sign_of(metric)
    except InputError:
        return 1


def _chosen(values: pl.DataFrame, recipe: Recipe) -> pl.DataFrame:
    """Return the values of the chosen systems and items, by names with ``*``; an item is also chosen by its task."""
    for patterns, names in ((recipe.systems, ("system",)), (recipe.items, ("item", "group"))):
        known = sorted({text for name in names for text in values[name]})
        matches = {pattern: fnmatch.filter(known, pattern) for pattern in patterns}
        for pattern, of_pattern in matches.items():
            if not of_pattern:
                raise InputError(f"no {names[0]} is called {pattern!r}", nearest(pattern, known))
        if patterns:
            chosen = {text for of_pattern in matches.values() for text in of_pattern}
            values = values.filter(pl.any_horizontal(pl.col(name).is_in(chosen) for name in names))
    items, has = values.select("group", "item").n_unique(), pl.struct("group", "item").n_unique().over("system")
    return values.filter(has >= recipe.coverage * items)


def _levelled(values: pl.DataFrame, family: str) -> pl.DataFrame:
    """Return values with the resampling unit of the item.

    If only some systems have values of queries, the mean of each task is the value of all.
    """
    keys = ["system", "group", "item"]
    doubled = values.filter(pl.struct(*keys, "sample").is_duplicated())
    if len(doubled):
        row = doubled.row(0, named=True)
        raise InputError(
            f"{row['system']} has two values of {row['item']!r}", "Give each system a name, or leave one out"
        )
    families = values.select("item", "family").drop_nulls().unique("item")
    of_queries = values.filter(pl.col("group") != "")["system"].n_unique()
    if 0 < of_queries < values["system"].n_unique():
        task = pl.when(pl.col("group") == "").then("item").otherwise("group")
        of_items = values.group_by(keys, maintain_order=True).agg(pl.mean("value"))
        means = of_items.group_by("system", item=task, maintain_order=True).agg(pl.mean("value"))
        values = means.with_columns(group=pl.lit(""))
    return values.with_columns(unit=_units(values, families, family))


def _units(values: pl.DataFrame, families: pl.DataFrame, family: str) -> pl.Series:
    """Return the resampling unit of each item; queries are units of their own."""
    items, known = values["item"], dict(families.iter_rows())
    column = {"type": "type", "domain": "domains", "auto": "" if known else "type"}.get(family)
    if column:
        known = dict(pl.read_csv(DATA / "mteb-tasks.csv").select("task", column).iter_rows())
    if column and family != "auto" and (unknown := sorted({*items} - known.keys())):
        raise InputError(f"{len(unknown)} items are no tasks of MTEB, such as {unknown[0]!r}", "Write --family=none")
    if family == "none" or values["group"].n_unique() > 1:
        return items
    return pl.Series([known.get(item, _PARTS if item.startswith(_PARTS) else item) for item in items])


def _standing(frame: pl.DataFrame, notes: Sequence[str]) -> Table:
    """Return the table of systems (:meth:`pipeline.measure.board.Board.standing`)."""

    def cell(row: Mapping[str, Any], name: str) -> Cell | None:
        value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
        return None if value is None else Cell(value, low, high, best=name == "mean" and row["rank"] == 1)

    lines = [
        TableRow(row["system"], (
            cell(row, "mean"), "{rank:g} [{rank_low:g}, {rank_high:g}]".format(**row), _short(row["letters"]),
            cell(row, "behind"), "{mean_rank:.2f} [{mean_rank_low:.2f}, {mean_rank_high:.2f}]".format(**row),
            cell(row, "borda"),
            *(None if row[name] is None else f"{row[name]:,}" for name in ("left_out", "needed")),
        ))
        for row in frame.iter_rows(named=True)
    ]  # fmt: skip
    heads = ("mean", "rank", "letters", "to the first", "mean rank", "Borda", "items that decide", "items needed")
    columns = tuple(Column("", head) for head in heads)
    return Table("Board", "system", columns, tuple(lines), tuple(notes), "board", frame)


def _short(letters: str) -> str:
    return letters if len(letters) <= _LETTERS else f"{letters[:3]}…{letters[-1]}"


def _notes(made: Board, found: Found, cells: pl.DataFrame, metric: str, recipe: Recipe) -> Iterator[str]:
    """Yield what was read, what the items are, and what the columns say."""
    kinds = ", ".join(f"{kind} ({count:,})" for kind, count in found.kinds.items())
    left_out = f" Left out: {len(found.skipped)}, with reasons in the last table." if found.skipped else ""
    yield f"Files: {kinds}.{left_out} Metric: {metric}, {'lower' if made.sign < 0 else 'higher'} is better."
    groups, items = made.items["group"].n_unique(), len(made.items)
    of_groups = f" of {groups} collections, which weigh the same" if groups > 1 else ""
    units = f"in {made.units} families, each resampled and flipped as one" if made.units < items else "each resampled"
    samples = f" A value is the mean of {made.samples:.3g} samples." if made.samples > 1 else ""
    whole = cells["system"].n_unique() * cells.select("group", "item").n_unique()
    lacking = f" {whole - len(cells):,} of {whole:,} values are missing: {_MISSING[recipe.missing]}"
    yield f"{items:,} items{of_groups}, {units}.{samples}{lacking if whole > len(cells) else ''}"
    yield (
        "Percent [95% interval]. Rank: its interval leaves out the places of significantly better and worse systems. "
        f"Systems that share a letter do not differ significantly: paired permutation tests of all {made.pairs:,} "
        f"pairs, {_CORRECTED[recipe.correction]}, p < {ALPHA:g}. Mean rank and Borda (percent of the other systems "
        "that it is above) are over items. Items that decide: the fewest without which the system is level with the "
        "first. Items needed: as many as show the difference with power .8 at the level of the first step of Holm's "
        "correction, if they are like these; not tested."
    )
    if made.least_p >= ALPHA:
        units = counted(made.units, "unit")
        yield f"{units} cannot show any difference: the least corrected p-value is {made.least_p:.2g}."


def _findings(made: Board, frame: pl.DataFrame) -> list[str]:
    first, second = made.systems[:2]
    row, others, tied = frame.row(1, named=True), len(frame) - 1, int((~made.apart[0, 1:]).sum())
    verdict = f"does not differ significantly from {tied}" if tied else "differs significantly from each"
    neighbours = sum(bool(made.apart[index, index + 1]) for index in range(others))
    sentences = [
        f"{first} has the best mean of {len(frame)} systems over {len(made.items):,} items, "
        f"{100 * abs(row['behind']):.1f} points from {second}; it {verdict} of the {others} others.",
        f"{neighbours} of {others} neighbouring ranks differ significantly.",
    ]
    return sentences + [f"Without {row['left_out']} of the items, {second} is level with it."] * bool(row["left_out"])


def _deciding(made: Board) -> Table:
    """Return the items that give most to the first system over the second."""
    frame, (first, second) = made.deciding(), made.systems[:2]
    shown = frame.head(_SHOWN).select(
        item=pl.concat_str("group", "item", separator=" ").str.strip_chars(), difference=pl.col("difference") * 100,
        share=pl.col("share") * 100, without="leader",
    ).rename({"without": "first without it"})  # fmt: skip
    note = f"The items that give most to {first} over {second}: points, and percent of the difference of means."
    return frame_table("deciding", "Items that decide the first place", frame, [note], shown=shown)


def _planned(made: Board, recipe: Recipe) -> Table:
    """Return what shows the difference of ``plan``, at once or by looking after every item."""
    frame = plan(made, recipe.plan / 100, recipe.seed).fill_nan(None)
    level = f"{ALPHA / made.pairs:.2g}"
    notes = [
        f"To show a difference of {recipe.plan:g} points between systems like these, each of {made.pairs:,} pairs at "
        f"the level {level}, the first step of Holm's correction. Needed: for a paired test with power .8. Stops: of a "
        "test that looks after every item and stops when its confidence sequence (Waudby-Smith & Ramdas 2024) leaves "
        f"out 0; it errs in at most {level} of experiments, whenever one looks. 500 simulated experiments draw the "
        "differences of these items, shifted to the planned difference, or to 0 for false stops.",
    ]
    if frame["samples"].max() == 1:
        frame = frame.drop("samples")
    else:
        notes.append(
            f"Samples: repeats of an item, drawn anew for each item; these results have {made.samples:.3g}. They cost "
            "as much as items, but only take away the variance within an item."
        )
    after = pl.col("stopped", "stopped_most").map_elements(
        lambda items: f"{items:,.0f}" if math.isfinite(items) else "later", pl.String
    )
    shown = frame.with_columns(pl.col("deviation", "power", "false") * 100, after).rename(_HEADS)
    return frame_table("plan", "What shows a difference", frame, notes, shown=shown)


STUDY = old_study(
    "audit", "error bars for results of any tool: ranks, differences, what would settle them", Recipe, no_tasks, results
)
