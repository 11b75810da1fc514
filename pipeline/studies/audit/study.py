"""The study ``audit``: error bars for results of any tool, without a corpus."""

from __future__ import annotations

import contextlib
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
from pipeline.exchange.boards import MAIN, in_our_spelling, is_called
from pipeline.exchange.cells import FRACTION, PERCENT, POINTS
from pipeline.exchange.results import Found, read_results
from pipeline.measure.board import ALPHA, Board, board, plan
from pipeline.measure.measures import parse_measures, sign_of
from pipeline.scores.files import evaluate
from pipeline.scores.tables import Cell, Column, Table, TableRow, frame_table
from pipeline.studies.audit.recipe import Recipe
from pipeline.studies.base import StudyResult, no_tasks, old_study

_PARTS = "CQADupstack"
_SHOWN, _LETTERS, _LISTED = 20, 12, 300
MOST_POINTS = 100
_DEFAULT = "ndcg@10"
_READ_AS = {
    FRACTION: "Percent, of values that were read as fractions",
    PERCENT: "Percent, as the values were read",
    POINTS: "As in the files, neither fractions nor percent",
}
_MISSING = {"complete": "only items that all systems have count.", "impute": "they have an additive fit of both."}
_CORRECTED = {
    "holm": "Holm's correction",
    "bh": "Benjamini & Hochberg's correction for exploring (intervals of ranks do not hold together)",
}
_HEADS = {
    "deviation": "sd of differences", "needed": "items needed", "power": "simulated power", "stopped": "stops after",
    "stopped_most": "90% stop after", "false": "false stops",
}  # fmt: skip


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return the board of the results, the items that decide it, and the plan if one was asked for."""
    if not recipe.results:
        raise InputError("an audit must have results, got none", "Name files or folders, as in mdcr audit RESULTS/")
    if recipe.plan and not 0 < recipe.plan <= MOST_POINTS:
        raise InputError(f"--plan must be a difference above 0, up to 100 points, got {recipe.plan:g}", "Give 1.0")
    paths, memory = [Path(text).expanduser() for text in recipe.results], workspace.runner.resources.memory
    found = read_results(
        paths, recipe.qrels, in_our_spelling(recipe.metric), recipe.items, memory, rates=recipe.lower_is_better
    )
    every, metric = _of_metric(found, recipe.metric)
    chosen = _chosen(every, recipe)
    sign = _sign(chosen, metric, lower=recipe.lower_is_better)
    chosen, scale = _scaled(chosen, recipe.scale)
    values = _levelled(chosen, recipe.family)
    made = board(values, seed=recipe.seed, missing=recipe.missing, correction=recipe.correction, sign=sign)
    standing, cells = made.standing(), values.select("system", "group", "item").unique(maintain_order=True)
    tables = [_standing(standing, [*_notes(made, found, cells, metric, scale, recipe)], scale), _deciding(made, scale)]
    tables.append(_items(made))
    if recipe.plan and scale == POINTS:
        raise InputError("--plan must be of values with a range, fractions or percent, got others", "Leave it out")
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
    return StudyResult(
        tables, sources=[source], findings=_findings(made, standing, scale), best=best, tables_first=True
    )


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
    if requested and names == [MAIN]:  # a table that does not say what its values are
        values, names = values.with_columns(metric=pl.lit(requested)), [requested]
    metric = requested or (MAIN if MAIN in names else _DEFAULT if _DEFAULT in names else names[0])
    if not requested and len(names) > 1 and metric not in (MAIN, _DEFAULT):
        raise InputError(f"one metric must be chosen of {', '.join(names[:12])}", "Give it with --metric")
    require_known(metric, names, f"no result is of the metric {metric!r}")
    return values.filter(pl.col("value").is_finite(), metric=metric), metric


def _scaled(values: pl.DataFrame, requested: str) -> tuple[pl.DataFrame, str]:
    """Return values as fractions, or as they are where they are neither fractions nor percent, and their scale.

    Raises:
        InputError: the scales of items differ, or of systems, and ``requested`` says none.
    """
    scales = values.group_by("scale", maintain_order=True).agg(pl.col("item").unique(maintain_order=True))
    if requested != "auto":
        scale = {"points": POINTS}.get(requested, requested)
    elif len(scales) > 1 or " " in scales["scale"][0]:
        raise _refusal("values must have one scale", scales)
    else:
        scale = scales["scale"][0]
        nonzero = values.filter(pl.col("value") != 0).group_by("system").agg(pl.col("value").abs().max(), pl.len())
        low = nonzero.filter(pl.col("value") <= 1)["system"].sort().to_list()
        if scale == PERCENT and low and len(low) < len(nonzero):
            raise InputError(
                f"values must all be fractions or all percent, got at most 1 of {', '.join(low[:3])}, more of others",
                "Write --scale=percent if they are percent, or choose others with --systems",
            )
    factor = 0.01 if scale == PERCENT else 1.0
    return values.with_columns(pl.col("value") * factor), scale


def _refusal(problem: str, kinds: pl.DataFrame) -> InputError:
    """Return an error that names kinds of items, columns kind and ``item``, and chooses those of the largest kind."""
    kinds = kinds.sort(pl.col("item").list.len(), descending=True, maintain_order=True)
    got = "; ".join(f"{kind} of {_listed(items)}" for kind, items in kinds.iter_rows())
    names = ",".join(item.replace(",", "?").replace("'", "?") for item in kinds["item"][0])
    remedies = [f"choose some, such as --items='{names}'"] if len(kinds["item"][0]) > 1 else []
    remedies += ["write --scale=percent or --scale=fraction"] if "scale" in kinds.columns else []
    remedy = ", or ".join(remedies) or "write the values of one kind"
    return InputError(f"{problem}, got {got}", f"{remedy[0].upper()}{remedy[1:]}")


def _listed(items: Sequence[str]) -> str:
    return ", ".join(items[:6]) + (f" and {len(items) - 6} more" if len(items) > 6 else "")


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
            sample=pl.lit(""), metric="measure", value="value", scale=pl.lit(FRACTION), sign=pl.lit(0, pl.Int8),
        )  # fmt: skip


def _sign(values: pl.DataFrame, metric: str, *, lower: bool) -> int:
    """Return 1 if higher is better, else -1: of our measures by the measure, else by option, or by names of items.

    Raises:
        InputError: names say that lower is better of some items, and not of others.
    """
    with contextlib.suppress(InputError):
        return -1 if lower else sign_of(metric)
    signs = {*values["sign"].unique()}
    other = 1 if lower else 0
    if -1 in signs and any(sign >= other for sign in signs):
        kind = pl.when(pl.col("sign") < 0).then(pl.lit("lower is better")).otherwise(pl.lit("higher is better"))
        raise _refusal(
            "items must agree in what is better",
            values.group_by(kind=kind, maintain_order=True).agg(pl.col("item").unique(maintain_order=True)),
        )
    return -1 if lower or -1 in signs else 1


def _chosen(values: pl.DataFrame, recipe: Recipe) -> pl.DataFrame:
    """Return the values of the chosen systems and items, by names with ``*``; an item is also chosen by its task."""
    for patterns, names in ((recipe.systems, ("system",)), (recipe.items, ("item", "group"))):
        known = sorted({text for name in names for text in values[name]})
        matches = {pattern: [name for name in known if is_called(name, pattern)] for pattern in patterns}
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
    families = values.select("group", "item", "family").drop_nulls().unique(["group", "item"])
    of_queries = values.filter(pl.col("group") != "")["system"].n_unique()
    if 0 < of_queries < values["system"].n_unique():
        task = pl.when(pl.col("group") == "").then("item").otherwise("group")
        of_items = values.group_by(keys, maintain_order=True).agg(pl.mean("value"))
        means = of_items.group_by("system", item=task, maintain_order=True).agg(pl.mean("value"))
        values = means.with_columns(group=pl.lit(""))
    return values.with_columns(unit=_units(values, families, family))


def _units(values: pl.DataFrame, families: pl.DataFrame, family: str) -> pl.Series:
    """Return the resampling unit of each item: its family; else an item of a collection is a unit of its own."""
    own = values.select(pl.concat_str("group", "item", separator="\0")).to_series()
    known = {(group, item): of for group, item, of in families.iter_rows()}
    column = {"type": "type", "domain": "domains", "auto": "" if known else "type"}.get(family)
    tasks = values["group"].n_unique() == 1
    if column and tasks:
        table = pl.read_csv(DATA / "mteb-tasks.csv").select("task", column)
        known = {("", task): of for task, of in table.iter_rows()}
    if column and family != "auto" and (unknown := sorted({*values["item"]} - {task for _, task in known})):
        raise InputError(f"{len(unknown)} items are no tasks of MTEB, such as {unknown[0]!r}", "Write --family=none")
    if family == "none":
        return own
    if family == "auto" and column and len({known.get(("", item), item) for item in values["item"]}) == 1:
        return own  # one type of tasks: the question is then other tasks of this type
    keys = zip(values["group"] if not column else [""] * len(values), values["item"], own, strict=True)
    return pl.Series([
        known.get((group, item), _PARTS if tasks and item.startswith(_PARTS) else unit) for group, item, unit in keys
    ])  # fmt: skip


def _standing(frame: pl.DataFrame, notes: Sequence[str], scale: str) -> Table:
    """Return the table of systems (:meth:`pipeline.measure.board.Board.standing`)."""
    factor = 1 if scale == POINTS else 100

    def cell(row: Mapping[str, Any], name: str) -> Cell | None:
        shown = (100 if name == "borda" else factor) / 100
        value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
        low, high = (None, None) if low is None else (low * shown, high * shown)
        return None if value is None else Cell(value * shown, low, high, best=name == "mean" and row["rank"] == 1)

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


def _notes(
    made: Board, found: Found, cells: pl.DataFrame, metric: str, scale: str, recipe: Recipe
) -> Iterator[str]:  # fmt: skip
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
    yield f"{items:,} items{of_groups}, {units}.{samples}{lacking if whole > len(cells) else ''}{_named(made)}"
    yield (
        f"{_READ_AS[scale]} [95% interval]. Rank: its interval leaves out the places of significantly better and worse "
        f"systems. Systems that share a letter do not differ significantly: paired permutation tests of all "
        f"{made.pairs:,} pairs, {_CORRECTED[recipe.correction]}, p < {ALPHA:g}. Mean rank and Borda (percent of the "
        "other systems that it is above) are over items. Items that decide: the fewest without which the system is "
        "level with the first. Items needed: as many as show the difference with power .8 at the level of the first "
        "step of Holm's correction, if they are like these; not tested."
    )
    yield from made.remarks()


def _named(made: Board) -> str:
    """Return the items by name if they are few; all are in the table of items."""
    named = pl.concat_str("group", "item", separator=" ").str.strip_chars()
    names = made.items.select(named).to_series().to_list()
    return f" Items: {', '.join(names)}." if len(names) <= _SHOWN else ""


def _items(made: Board) -> Table:
    """Return the table of all items that count, with the units that are resampled together."""
    frame = made.items.select("item", collection="group", unit=pl.col("unit").str.replace("\0", " ", literal=True))
    note = f"All {len(frame):,} items are in items.csv." if len(frame) > _LISTED else ""
    return frame_table("items", "Items that count", frame, [note] if note else [], shown=frame.head(_LISTED))


def _findings(made: Board, frame: pl.DataFrame, scale: str) -> list[str]:
    factor = 1 if scale == POINTS else 100
    first, second = made.systems[:2]
    row, others, tied = frame.row(1, named=True), len(frame) - 1, int((~made.apart[0, 1:]).sum())
    verdict = f"does not differ significantly from {tied}" if tied else "differs significantly from each"
    neighbours = sum(bool(made.apart[index, index + 1]) for index in range(others))
    sentences = [
        f"{first} has the best mean of {len(frame)} systems over {len(made.items):,} items, "
        f"{factor * abs(row['behind']):.1f} points from {second}; it {verdict} of the {others} others.",
        f"{neighbours} of {others} neighbouring ranks differ significantly.",
    ]
    return sentences + [f"Without {row['left_out']} of the items, {second} is level with it."] * bool(row["left_out"])


def _deciding(made: Board, scale: str) -> Table:
    """Return the items that give most to the first system over the second."""
    frame, (first, second) = made.deciding(), made.systems[:2]
    points = pl.col("difference") * (1 if scale == POINTS else 100)
    shown = frame.head(_SHOWN).select(
        item=pl.concat_str("group", "item", separator=" ").str.strip_chars(), difference=points,
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
