"""The study ``audit``: error bars for results of any tool, without a corpus."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.studies import kit
from pipeline.studies.audit.recipe import Recipe
from pipeline.studies.kit import FRACTION, MAIN, PERCENT, POINTS, InputError

_SHOWN, _LETTERS, _LISTED = 20, 12, 300
MOST_POINTS = 100
_DEFAULT = "ndcg@10"
_REMEDIES, _LONGEST, _FEW, _TURNED, _ROUNDING, _MOST = 3, 500, 7, -0.9, 1e-9, 0.9
_READ_AS = {
    FRACTION: "Percent, of values that were read as fractions",
    PERCENT: "Percent, as the values were read",
    POINTS: "As in the files, neither fractions nor percent",
}


@kit.study("audit", "error bars for results of any tool: ranks, differences, what would settle them", Recipe)
def audit(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return the board of the results, the items that decide it, and the plan if one was asked for."""
    yield ()
    if not recipe.results:
        raise InputError("an audit must have results, got none", "Name files or folders, as in mdcr audit RESULTS/")
    if recipe.plan and not 0 < recipe.plan <= MOST_POINTS:
        raise InputError(f"--plan must be a difference above 0, up to 100 points, got {recipe.plan:g}", "Give 1.0")
    found = _found(recipe, memory := workspace.runner.resources.memory)
    try:
        values, metric, scale, sign = _settled(found, recipe)
    except InputError as error:
        remedies = [*itertools.islice(_remedies(found.values, recipe, memory), _REMEDIES)]
        raise InputError(error.what, f"Write {', or '.join(remedies)}" if remedies else error.remedy) from None
    made = kit.board(values, seed=recipe.seed, sign=sign)
    standing, cells = made.standing(), values.select("system", "group", "item").unique(maintain_order=True)
    factor = 1 if scale == POINTS else 100
    doubts = _doubts(made, found, values) if sign > 0 else ()
    notes = [*doubts, *_notes(made, found, cells, metric, scale), *made.remarks()]
    tables = [_standing(standing, notes, factor), *_of_items(made, factor)]
    if recipe.plan and scale == POINTS:
        raise InputError("--plan must be of values with a range, fractions or percent, got others", "Leave it out")
    tables += [_planned(made, recipe)] if recipe.plan else []
    whole = cells.select("group", "item").n_unique()
    lacking = cells.group_by("system").agg(has=pl.len()).with_columns(lacks=whole - pl.col("has"))
    lacking = lacking.filter(pl.col("lacks") > 0).sort("lacks", "system", descending=[True, False])
    left_out = pl.DataFrame([line.partition(": ")[::2] for line in found.skipped], ["what", "reason"], orient="row")
    tables += [kit.table("missing", "Items that systems lack", lacking, "{system}")] if len(lacking) else []
    tables += [kit.table("skipped", "Left out", left_out, "{what}")] if len(left_out) else []
    contents = {str(path).encode("utf-8", "replace").decode(): kit.sha256(path) for path in found.files}
    source = f"{kit.counted(len(contents), 'file')} {kit.digest(contents).removeprefix('sha256:')[:12]}"
    return kit.Report(
        tables, sources=[source], findings=_findings(made, standing, factor),
        title="Audit: which differences the results show",
    )  # fmt: skip


def _found(recipe: Recipe, memory: int) -> kit.Found:
    paths, metric = [Path(text).expanduser() for text in recipe.results], kit.in_our_spelling(recipe.metric)
    return kit.read_results(paths, recipe.qrels, metric, recipe.items, memory, rates=recipe.lower_is_better)


def _settled(found: kit.Found, recipe: Recipe) -> tuple[pl.DataFrame, str, str, int]:
    """Return values of a board, their metric and scale, and 1 if higher is better, else -1; InputError if unclear."""
    every, metric = _of_metric(found, kit.in_our_spelling(recipe.metric))
    chosen = _chosen(every, recipe)
    kit.check_distinct(chosen)
    sign = _sign(chosen, metric, lower=recipe.lower_is_better)
    chosen, scale = _scaled(chosen, recipe.scale)
    values = _levelled(chosen, recipe.family)
    kit.shared(values)
    return values, metric, scale, sign


def _remedies(values: pl.DataFrame, recipe: Recipe, memory: int) -> Iterator[str]:
    """Yield options with which refused results make a board: each is tried."""
    kinds = values.group_by("scale", pl.col("sign") < 0, maintain_order=True).agg(pl.col("item").unique())
    options: list[dict[str, Any]] = [
        {"items": tuple(re.sub("[,']", "?", name) for name in sorted(names))}
        for names in sorted(kinds["item"].to_list(), key=len, reverse=True)
    ]
    options += [{"scale": PERCENT}, {"scale": FRACTION}]
    options += [{"metric": name} for name in values["metric"].unique().sort()]
    options += [{"family": "none"}, *({"coverage": least} for least in (1.0, 0.9, 0.75, 0.5))]
    for option in options:
        texts = {of: ",".join(to) if isinstance(to, tuple) else str(to) for of, to in option.items()}
        words = " ".join(f"--{of}={shlex.quote(text)}" for of, text in texts.items())
        if len(words) <= _LONGEST and all(getattr(recipe, of) == getattr(Recipe(), of) for of in option):
            with contextlib.suppress(InputError):
                other: Recipe = replace(recipe, **option)
                _settled(_found(other, memory), other)
                yield words


def _of_metric(found: kit.Found, requested: str) -> tuple[pl.DataFrame, str]:
    """Return the values of the requested metric, or of the only or main one, and its name."""
    values = found.values
    if found.runs:
        of_runs = requested or _DEFAULT
        kit.parse_measures(of_runs)
        if scored := [*_scored(found, of_runs)]:
            values, requested = pl.concat([values, *scored]), of_runs
        elif values.is_empty():
            raise InputError("no run can be scored", found.skipped[-1])
    names = values["metric"].unique().sort().to_list()
    if requested and names == [MAIN]:  # a table that does not say what its values are
        values, names = values.with_columns(metric=pl.lit(requested)), [requested]
    metric = requested or (MAIN if MAIN in names else _DEFAULT if _DEFAULT in names else names[0])
    if not requested and len(names) > 1 and metric not in (MAIN, _DEFAULT):
        raise InputError(f"one metric must be chosen of {', '.join(names[:12])}", "Leave out the others")
    kit.require_known(metric, names, f"no result has the metric {metric!r}")
    return values.filter(pl.col("value").is_finite(), metric=metric), metric


def _scored(found: kit.Found, metric: str) -> Iterator[pl.DataFrame]:
    """Yield the values of the runs; what cannot be scored is named."""
    for run, qrels, collection in found.runs:
        try:
            scores = kit.evaluate(run.entries, qrels, measures=metric).filter(measure=metric)
        except InputError as error:
            found.skipped.append(f"{run.path}: {error.what}")
            continue
        yield scores.select(
            system=pl.lit(run.system), group=pl.lit(collection), item="query_id", family=pl.lit(None, pl.String),
            sample=pl.lit(""), metric="measure", value="value", scale=pl.lit(FRACTION), sign=pl.lit(0, pl.Int8),
        )  # fmt: skip


def _chosen(values: pl.DataFrame, recipe: Recipe) -> pl.DataFrame:
    """Return the values of the chosen systems and items, by names with ``*``; an item is also chosen by its task."""
    for patterns, names in ((recipe.systems, ("system",)), (recipe.items, ("item", "group"))):
        known = sorted({text for name in names for text in values[name]})
        matches = {pattern: [name for name in known if kit.is_called(name, pattern)] for pattern in patterns}
        for pattern, of_pattern in matches.items():
            if not of_pattern:
                raise InputError(f"no {names[0]} is called {pattern!r}", kit.nearest(pattern, known))
        if patterns:
            chosen = {text for of_pattern in matches.values() for text in of_pattern}
            values = values.filter(pl.any_horizontal(pl.col(name).is_in(chosen) for name in names))
    items, has = values.select("group", "item").n_unique(), pl.struct("group", "item").n_unique().over("system")
    return values.filter(has >= recipe.coverage * items)


def _sign(values: pl.DataFrame, metric: str, *, lower: bool) -> int:
    """Return 1 if higher is better, else -1: of our measures by the measure, else by option, or by names of items.

    Raises:
        InputError: names say that lower is better of some items, and not of others.
    """
    with contextlib.suppress(InputError):
        return -1 if lower or kit.sign_of_name(metric) < 0 else kit.sign_of(metric)
    signs = {*values["sign"].unique()}
    other = 1 if lower else 0
    if -1 in signs and any(sign >= other for sign in signs):
        kind = pl.when(pl.col("sign") < 0).then(pl.lit("lower is better")).otherwise(pl.lit("higher is better"))
        what = f"items must agree in what is better, got {kit.kinds_of(values, kind)}"
        raise InputError(what, "Write the values of one kind")
    return -1 if lower or -1 in signs else 1


def _scaled(values: pl.DataFrame, requested: str) -> tuple[pl.DataFrame, str]:
    """Return values as fractions, or as they are where they are neither fractions nor percent, and their scale.

    Raises:
        InputError: the scales of items differ, or of systems, and ``requested`` says none.
    """
    scales = values["scale"].unique(maintain_order=True)
    scale = {"points": POINTS, "auto": (*scales, FRACTION)[0]}.get(requested, requested)
    if requested == "auto" and (len(scales) > 1 or " " in scale):
        what = f"values must have one scale, got {kit.kinds_of(values, pl.col('scale'))}"
        raise InputError(what, "Write the values of one kind")
    if requested == "auto" and scale == PERCENT:
        most = values.filter(pl.col("value") != 0).group_by("system").agg(pl.col("value").abs().max())
        if 0 < len(low := most.filter(pl.col("value") <= 1)["system"].sort()) < len(most):
            what = f"values must all be fractions or all percent, got at most 1 of {', '.join(low[:3])}, more of others"
            raise InputError(what, "Write all in one of them")
    return values.with_columns(pl.col("value") * (0.01 if scale == PERCENT else 1.0)), scale


def _levelled(values: pl.DataFrame, family: str) -> pl.DataFrame:
    """Return values with the resampling unit of the item.

    If only some systems have values of queries, the mean of each task is the value of all.
    """
    keys = ["system", "group", "item"]
    families = values.select("group", "item", "family").drop_nulls().unique(["group", "item"])
    of_queries = values.filter(pl.col("group") != "")["system"].n_unique()
    if 0 < of_queries < values["system"].n_unique():
        task = pl.when(pl.col("group") == "").then("item").otherwise("group")
        of_items = values.group_by(keys, maintain_order=True).agg(pl.mean("value"))
        means = of_items.group_by("system", item=task, maintain_order=True).agg(pl.mean("value"))
        values = means.with_columns(group=pl.lit(""), sample=pl.lit(""))
    return values.with_columns(unit=kit.units(values, families, alone=family == "none"))


def _standing(frame: pl.DataFrame, notes: Sequence[str], factor: int) -> kit.Table:
    """Return the table of systems (:meth:`pipeline.measure.board.Board.standing`)."""

    def letters(row: kit.Row) -> str:
        of = row["letters"]
        return of if len(of) <= _LETTERS else f"{of[:3]}…{of[-1]}"

    mean, behind = (kit.figure(name, f"{name}_low", f"{name}_high", scale=factor) for name in ("mean", "behind"))
    shown: kit.Columns = {
        "mean": lambda row: mean({**row, "best": row["rank"] == 1}),
        "rank": "{rank:g} [{rank_low:g}, {rank_high:g}]", "letters": letters, "to the first": behind,
        "mean rank": "{mean_rank:.2f} [{mean_rank_low:.2f}, {mean_rank_high:.2f}]",
        "Borda": kit.figure("borda", "borda_low", "borda_high"),
        "items that decide": "{left_out:,}", "items needed": "{needed:,}",
    }  # fmt: skip
    return kit.table("board", "Board", frame, "{system}", shown, notes)


def _notes(
    made: kit.Board, found: kit.Found, cells: pl.DataFrame, metric: str, scale: str
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
    lacking = f" {whole - len(cells):,} of {whole:,} values are missing: only items that all systems have count."
    names = made.items.select(_named()).to_series().to_list()
    named = f" Items: {', '.join(names)}." if items <= _SHOWN else ""
    yield f"{items:,} items{of_groups}, {units}.{samples}{lacking if whole > len(cells) else ''}{named}"
    yield (
        f"{_READ_AS[scale]} [95% interval]. Rank: its interval leaves out the places of significantly better and worse "
        f"systems. Systems that share a letter do not differ significantly: paired permutation tests of all "
        f"{made.pairs:,} pairs, Holm's correction, p < {kit.ALPHA:g}. Mean rank and Borda (percent of "
        "the other systems that it is above) are over items. Items that decide: the fewest without which the system is "
        "level with the first. Items needed: as many as show the difference with power .8 at the level of the first "
        "step of Holm's correction, if they are like these; not tested."
    )


def _doubts(made: kit.Board, found: kit.Found, values: pl.DataFrame) -> Iterator[str]:
    """Yield what says that lower is better, though higher counts as better."""
    reasons = [f"{name} is usually better lower" for name in found.rates()][:1]
    item, value = ("group", "item", "sample"), pl.col("value")
    untied = values.filter(value.n_unique().over(item) == pl.len().over(item), pl.len().over(item) > 1)
    ratios = untied.select(value / value.rank().over(item))["value"]
    are_ranks = len(untied) * 2 > len(values) and ((ratios / ratios.median() - 1).abs() < _ROUNDING).mean() > _MOST
    reasons += ["the values are ranks"] * bool(are_ranks)
    places = [made.systems.index(system) for system in values["system"].unique(maintain_order=True)]
    if len(found.files) == 1 and len(places) > _FEW and np.corrcoef(places, range(len(places)))[0, 1] < _TURNED:
        reasons.append("the file lists its systems from the lowest mean up")
    if reasons:
        yield f"Warning: higher counts as better; {', and '.join(reasons)}: --lower-is-better."


def _named() -> pl.Expr:
    return pl.concat_str("group", "item", separator=" ").str.strip_chars()


def _findings(made: kit.Board, frame: pl.DataFrame, factor: int) -> list[str]:
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


def _of_items(made: kit.Board, factor: int) -> Iterator[kit.Table]:
    """Yield the items that give most to the first system over the second, and all that count, with their units."""
    frame, (first, second) = made.deciding(), made.systems[:2]
    note = f"The items that give most to {first} over {second}: points, and percent of the difference of means."
    shown: kit.Columns = {
        "difference": kit.figure("difference", None, None, scale=factor), "share": kit.figure("share", None, None),
        "first without it": "{leader}",
    }  # fmt: skip
    title, rows = "Items that decide the first place", frame.head(_SHOWN).with_columns(item=_named())
    yield kit.table("deciding", title, frame, "{item}", shown, [note], rows=rows)
    frame = made.items.select("item", collection="group", unit=pl.col("unit").str.replace("\0", " ", literal=True))
    notes = [f"All {len(frame):,} items are in items.csv."] if len(frame) > _LISTED else []
    yield kit.table("items", "Items that count", frame, "{item}", None, notes, rows=frame.head(_LISTED))


def _planned(made: kit.Board, recipe: Recipe) -> kit.Table:
    """Return what shows the difference of ``plan``."""
    frame = kit.plan(made, recipe.plan / 100, recipe.seed).fill_nan(None)
    level = f"{kit.ALPHA / made.pairs:.2g}"
    notes = [
        f"To show a difference of {recipe.plan:g} points between systems like these, each of {made.pairs:,} pairs at "
        f"the level {level}, the first step of Holm's correction. Needed: for a paired test with power .8. 500 "
        "simulated experiments draw the differences of these items, shifted to the planned difference."
    ]

    sd, power = (kit.figure(name, None, None) for name in ("sd", "power"))
    shown: kit.Columns = {"sd of differences": sd, "items needed": "{needed:,}", "simulated power": power}
    rows = frame.rename({"deviation": "sd"})  # a column "deviation" is shown with any figure
    return kit.table("plan", "What shows a difference", frame, "{pair}", shown, notes, rows=rows)
