"""Tables of values of systems on items, long or wide, as people and leaderboards write them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from pipeline.core.errors import InputError
from pipeline.exchange.cells import (
    FRACTION,
    PERCENT,
    POINTS,
    Floats,
    Numbers,
    mean_of_others,
    numbers_of,
    scale_of,
)
from pipeline.exchange.markup import Grid
from pipeline.exchange.names import SUMS, describes, in_our_spelling, is_called, metric_in, sign_of_name

VALUES = {
    "system": pl.String, "group": pl.String, "item": pl.String, "family": pl.String, "sample": pl.String,
    "metric": pl.String, "value": pl.Float64, "scale": pl.String, "sign": pl.Int8,
}  # fmt: skip
"""Columns of values. ``group`` is the task of a query; empty if the item is itself a task, or there is one task.
``scale`` is one of :data:`pipeline.exchange.cells.FRACTION` and so on, or what is unclear; ``sign`` is -1 or 1 if the
name of the item or metric says whether lower or higher is better, else 0."""

Row = tuple[str, str, str, str | None, str, str, float]
"""A row of :data:`VALUES` without scale and sign."""

MAIN = "main"
"""Name of the metric that a tool calls the main one, or names first."""

JUDGED = "judged-"
"""Begins the names of metrics that were estimated from a part of the judgements: values of items may exceed 1."""

METHOD = "Convert the file to a table with the columns system, item, value"

_QUERY = ("query_id", "query", "qid", "topic", "topic_id", "instance", "example", "sample_id", "doc_id")
_ROLES = {
    "system": ("system", "label", "model", "model_name", "run", "encoder", "method"),
    "item": ("query_id", "item", *_QUERY[1:]),
    "group": ("field", "task", "task_name", "dataset", "benchmark", "collection", "corpus"),
    "family": ("family", "unit", "task_type", "domain", "category"),
    "sample": ("sample", "seed", "epoch", "repeat", "trial"),
    "metric": ("metric", "measure"),
    "value": ("value", "score", "result"),
}
"""Names of columns of long tables, preferred first."""

_SYSTEM_WORDS = re.compile(
    r"(?i).*\b(model|system|method|retriever|encoder|run|approach|llm|agent|team|submission|name)s?\b.*"
)
_ITEM_WORDS = re.compile(
    r"(?i).*\b(dataset|data set|task|benchmark|collection|corpus|query|queries|topic|test set|subset)s?\b.*"
)

_DIGITS, _QUERIES = 6, 500


class Reading:
    """What a table is read for: which items count, and where to note what is left out.

    Attributes:
        file: name of the file in notes.
        items: names of items that count, with ``*`` for any text; empty: all. A name without ``*`` counts always.
        left_out: gets what is no value, as ``what: reason``.
        rates: whether values are error rates, which may exceed 1.
    """

    def __init__(self, file: str, left_out: list[str], items: Sequence[str] = (), *, rates: bool = False) -> None:
        self.file, self.left_out, self.items, self.rates = file, left_out, items, rates

    def is_rate(self, name: str) -> bool:
        """Return whether an item or a metric is an error rate."""
        return self.rates or sign_of_name(name) < 0

    def note(self, what: str) -> None:
        """Name what is left out."""
        self.left_out.append(f"{self.file}: {what}")

    def is_named(self, name: str) -> bool:
        """Return whether an item is chosen by its name alone."""
        return name.strip() in self.items

    def counts(self, name: str) -> bool:
        """Return whether an item is chosen."""
        return not self.items or any(is_called(name, pattern) for pattern in self.items)


def of_grid(grid: Grid, reading: Reading, name: str) -> pl.DataFrame:
    """Return the values of a table of texts, its header first (:func:`of_table`).

    Raises:
        InputError: it has no systems, items or values.
    """
    if len(grid) < 2:
        raise InputError(f"{reading.file} must have a header and rows, got {len(grid)} rows", METHOD)
    heads, width = [head.strip() for head in grid[0]], len(grid[0])
    if twice := [head for head, count in Counter(heads).items() if count > 1 and head]:
        raise InputError(f"{reading.file} must have each column once, got {min(twice)!r} twice", "Rename one of them")
    rows = [row + [""] * (width - len(row)) for row in grid[1:] if not any(cell.strip() for cell in row[width:])]
    if odd := len(grid) - 1 - len(rows):
        reading.note(f"{odd} rows have more cells than the {width} columns")
    columns = {head: [row[index].strip() or None for row in rows] for index, head in enumerate(heads)}
    return of_table(pl.DataFrame(columns, dict.fromkeys(columns, pl.String)), reading, name)


def of_table(frame: pl.DataFrame, reading: Reading, name: str) -> pl.DataFrame:
    """Return the values of a table, with the columns :data:`VALUES`.

    A long table has a row a value, or a row a system and item with a column for each metric; without a column of
    systems it is of one, ``name``. A wide table has a row a system, or an item where its first column is named so, or
    is an index without a name beside numbers alone.

    Raises:
        InputError: the table has no systems, items or values, or a column that counts cannot be read.
    """
    if {"query", "query_id", "pool", "ranking"} <= {*frame.columns}:  # our export: draws are by positions, as elsewhere
        position = pl.col("query").cast(pl.String).str.zfill(_DIGITS)
        frame = frame.with_columns(query_id=pl.concat_str(position, pl.col("query_id").fill_null(""), separator=" "))
    names = {re.sub(r"[\s-]+", "_", head.strip().casefold()): head for head in frame.columns}
    found = {
        role: next((names[known] for known in spellings if known in names), None) for role, spellings in _ROLES.items()
    }
    for role in ("item", "group"):
        if (
            (head := found[role])
            and (of := numbers_of(frame[head]))
            and (of.values[~np.isnan(of.values)] % 1 != 0).any()
        ):
            found[role] = None  # a column of values
    item = found["item"] or found["group"]
    of_roles = [head for role, head in found.items() if head and role != "value"]
    numbers = {head: of for head in frame.columns if head not in of_roles and (of := numbers_of(frame[head]))}
    others = [head for head in numbers if head != found["value"] and not describes(head)]
    if found["value"] in numbers and item and (found["system"] or found["metric"] or not others):
        values = _long(frame, numbers[str(found["value"])], found, reading, name)
    elif found["system"] and item and frame.columns[0] != item:
        values = _by_metric(frame, numbers, found, reading, name)
    else:
        values = _wide(frame, numbers, found, reading)
    return values.with_columns(pl.col("system").str.replace(r"^\W*\[([^\]]+)\]\([^)]*\).*$", "$1"))


_Roles = dict[str, str | None]


def _long(frame: pl.DataFrame, numbers: Numbers, found: _Roles, reading: Reading, name: str) -> pl.DataFrame:
    """Return the values of a table with a row a value."""
    for cell in numbers.odd:
        reading.note(f"{found['value']} has {cell!r}, which is no number and counts as missing")
    if numbers.problem:
        raise InputError(f"{reading.file}: {found['value']} has {numbers.problem}", "Write 1234.5 for all numbers")
    roles = found if found["item"] else found | {"item": found["group"], "group": None}
    columns = {role: pl.lit(None) if head is None else pl.col(head) for role, head in roles.items()}
    columns |= {
        "system": pl.lit(name) if found["system"] is None else columns["system"],
        "value": pl.lit(pl.Series(numbers.values, nan_to_null=True)),
    }
    typed = frame.select(columns[role].cast(dtype).alias(role) for role, dtype in VALUES.items() if role in columns)
    typed = typed.with_columns(
        pl.col("group", "sample").fill_null(""), pl.col("metric").fill_null(MAIN), percent=pl.Series(numbers.percent)
    )
    spelled = {metric: in_our_spelling(metric) for metric in typed["metric"].unique()}
    typed = _without_sums(typed.with_columns(pl.col("metric").replace(spelled)).drop_nulls("value"), reading)
    of_tasks = (found["item"] or "").casefold() not in _QUERY and found["group"] in (None, roles["item"])
    return _scaled(typed, reading, by_item=of_tasks and typed["item"].n_unique() <= _QUERIES)


def _scaled(values: pl.DataFrame, reading: Reading, *, by_item: bool) -> pl.DataFrame:
    """Return values with scale and sign, decided for each metric and, ``by_item``, each item.

    Then items that describe the system, or are outside of the range of the others, are left out and named.
    """
    parts = []
    for part in values.partition_by("metric", *(["item"] if by_item else []), maintain_order=True):
        metric, first = part["metric"][0], str(part["item"][0])
        what = first if by_item and metric == MAIN else metric
        rates = (
            values.filter(metric=metric) if reading.is_rate(metric) else part
        )  # decided together: small ones are few
        scale = scale_of(rates["value"].to_numpy(), rates["percent"].to_numpy(), may_exceed=reading.is_rate(what))
        scale = FRACTION if metric.startswith(JUDGED) else scale
        if not by_item or reading.is_named(first) or not describes(first):
            parts.append(part.with_columns(scale=pl.lit(scale), sign=pl.lit(sign_of_name(what), pl.Int8)))
        else:
            reading.note(f"{first}: no item")
    if not parts:
        raise InputError(f"{reading.file} has no item that counts", "Choose others with --items")
    scaled = pl.concat(parts).select(*VALUES)
    scales = scaled.select("item", "scale").unique(maintain_order=True)
    outside = [item for item, scale in scales.iter_rows() if scale == POINTS and not reading.is_named(item)]
    if not by_item or not outside or scales["item"].n_unique() - len(outside) < 2:
        return scaled
    reading.note(f"{', '.join(outside)}: no items")
    return scaled.filter(~pl.col("item").is_in(outside))


def _by_metric(
    frame: pl.DataFrame, numbers: dict[str, Numbers], found: _Roles, reading: Reading, name: str
) -> pl.DataFrame:  # fmt: skip
    """Return the values of a table with a row a system and item, and a column for each metric."""
    left = [head for head in numbers if describes(head)]
    if left:
        reading.note(f"{', '.join(left)}: no metrics")
    parts = []
    for head, of_head in numbers.items():
        if head not in left and not of_head.problem:
            metric = pl.lit(head)
            table = frame.with_columns(_metric=metric, _value=pl.Series(of_head.values, nan_to_null=True))
            parts.append(_long(table, of_head, found | {"metric": "_metric", "value": "_value"}, reading, name))
    if not parts:
        raise InputError(f"{reading.file} must have numbers, {_got(frame)}", METHOD)
    return pl.concat(parts)


def _wide(frame: pl.DataFrame, numbers: dict[str, Numbers], found: _Roles, reading: Reading) -> pl.DataFrame:
    """Return the values of a table with a row a system, or an item."""
    first, texts = frame.columns[0], [head for head in frame.columns if head not in numbers]
    index = first.strip() in ("", "index", "unnamed", "Unnamed: 0")
    down = "↓" in first and "→" not in first.partition("↓")[2]
    named = [word for word, pattern in (("item", _ITEM_WORDS), ("system", _SYSTEM_WORDS)) if pattern.fullmatch(first)]
    if down and len(named) > 1:  # Model (→) / Dataset (↓)
        before = first.partition("↓")[0]
        last = max(("item", "system"), key=lambda role: _last(_ITEM_WORDS if role == "item" else _SYSTEM_WORDS, before))
        named = [last]
    is_item = first in (found["item"], found["group"]) or named == ["item"]
    is_index = index and first in numbers and len({*numbers[first].values.tolist()}) == len(frame) and not texts
    if (is_item or is_index) and not found["system"]:
        return _items_down(frame, first, numbers, found, reading)
    system = found["system"] or next((head for head in texts if _SYSTEM_WORDS.fullmatch(head)), None)
    system = system or next(
        (head for head in texts if frame[head].n_unique() == len(frame)), texts[0] if texts else None
    )
    if system is None:
        raise InputError(
            f"{reading.file} must have columns system, item, value, or systems and numbers, {_got(frame)}", METHOD
        )
    items = _items_across({head: of for head, of in numbers.items() if head != system}, frame, system, reading)
    systems, named_metric = _named_apart(frame[system], reading), {head: metric_in(head) for head in items}
    if not all(metric for metric, _ in named_metric.values()):
        named_metric = {head: (MAIN, head.strip()) for head in items}
    of_items = {
        "metric": [named_metric[head][0] for head in items],
        "item": [named_metric[head][1] or reading.file for head in items],
        "scale": [scale for _, scale in items.values()],
        "sign": pl.Series([sign_of_name(head) for head in items], dtype=pl.Int8),
        "value": pl.Series([of.values for of, _ in items.values()]),
    }
    values = pl.DataFrame(of_items).with_columns(system=pl.lit(systems).implode()).explode("system", "value")
    values = values.with_columns(
        pl.col("value").fill_nan(None), group=pl.lit(""), family=pl.lit(None, pl.String), sample=pl.lit("")
    )
    return (
        values.drop_nulls(["system", "value"])
        .filter(~pl.col("system").str.contains(f"^{SUMS.pattern}$"))
        .select(*VALUES)
    )


def _last(pattern: re.Pattern[str], text: str) -> int:
    """Return the end of the shortest beginning of a text that a pattern of words matches; -1 without any."""
    words = re.compile(pattern.pattern.removeprefix("(?i).*").removesuffix(".*"), re.IGNORECASE)
    return max((match.end() for match in words.finditer(text)), default=-1)


def _items_down(
    frame: pl.DataFrame, item: str, numbers: dict[str, Numbers], found: _Roles, reading: Reading
) -> pl.DataFrame:
    """Return the values of a table with a row an item, and a column a system."""
    group = found["group"] if found["group"] not in (None, item) else None
    systems = {head: of for head, of in numbers.items() if head not in (item, group) and not describes(head, sums=True)}
    if left := [head for head in frame.columns if head not in systems and head not in (item, group, found["family"])]:
        reading.note(f"{', '.join(head or 'unnamed' for head in left)}: no systems")
    for head, of in systems.items():
        for cell in of.odd:
            reading.note(f"{head} has {cell!r}, which is no number and counts as missing")
        if of.problem:
            raise InputError(f"{reading.file}: {head} has {of.problem}", "Write 1234.5 for all numbers")
    if not systems:
        raise InputError(f"{reading.file} must have a column for each system, {_got(frame)}", METHOD)
    names = frame[item].cast(pl.String).str.strip_chars().str.replace(r"^(\d+)\.0$", "$1")
    family = frame[found["family"]].cast(pl.String) if found["family"] else pl.lit(None, pl.String)
    facts = pl.select(
        item=names, group=frame[group].cast(pl.String) if group else pl.lit(""), family=family, sample=pl.lit(""),
        metric=pl.lit(MAIN),
    )  # fmt: skip
    values = pl.concat(
        facts.with_columns(
            system=pl.lit(head.strip()), value=pl.Series(of.values, nan_to_null=True), percent=pl.Series(of.percent)
        )
        for head, of in systems.items()
    )
    values = _without_sums(values.drop_nulls("value"), reading)
    of_tasks = bool(_ITEM_WORDS.fullmatch(item)) and item.casefold() not in _QUERY
    return _scaled(values, reading, by_item=of_tasks and values["item"].n_unique() <= _QUERIES)


def _items_across(
    numbers: dict[str, Numbers], frame: pl.DataFrame, system: str, reading: Reading
) -> dict[str, tuple[Numbers, str]]:
    """Return the columns of a wide table that are items, with their scales; the others are named."""
    others = [head for head in frame.columns if head not in numbers and head != system]
    kept = {}
    for head, of in numbers.items():
        if not reading.is_named(head) and (describes(head) or not reading.counts(head)):
            others += [head] if reading.counts(head) or not reading.items else []
            continue
        if of.problem:
            raise InputError(f"{reading.file}: {head} has {of.problem}", "Write 1234.5, or leave it out with --items")
        for cell in of.odd:
            reading.note(f"{head} has {cell!r}, which is no number and counts as missing")
        kept[head] = of, scale_of(of.values, of.percent)
    if rates := {head: of for head, (of, _) in kept.items() if reading.is_rate(head)}:  # together: small ones are few
        every = [np.concatenate([of[part] for of in rates.values()]) for part in (0, 1)]
        scale = scale_of(*every, may_exceed=True)
        kept |= {head: (of, scale) for head, of in rates.items()}
    of_means = mean_of_others(np.stack([of.values for of, _ in kept.values()], axis=1)) if kept else None
    if of_means is not None and not reading.is_named(head := list(kept)[of_means]):
        reading.note(f"{head}: the mean of the other columns")
        del kept[head]
    outside = [
        head for head, (of, scale) in kept.items() if not reading.is_named(head) and _is_outside(of.values, scale)
    ]
    if len(kept) - len(outside) >= 2:
        others += outside
        kept = {head: of for head, of in kept.items() if head not in outside}
    if others:
        reading.note(f"{', '.join(head or 'unnamed' for head in frame.columns if head in others)}: no items")
    if not kept:
        raise InputError(
            f"{reading.file} must have columns system, item, value, or systems and numbers, {_got(frame)}",
            "Name columns that count with --items" if numbers else METHOD,
        )
    return kept


def _is_outside(values: Floats, scale: str) -> bool:
    """Return whether a column is outside of the range of fractions and percent, or has -1 for what is unknown."""
    negative = values[values < 0]
    return scale == POINTS or (scale == PERCENT and len(negative) > 0 and bool((negative == -1).all()))


def _named_apart(systems: pl.Series, reading: Reading) -> pl.Series:
    """Return names of systems, of which a second one with a name is called ``name #2``."""
    seen, names = Counter[str](), []
    for name in systems.cast(pl.String):
        if name is not None:
            seen[name] += 1
        names.append(name if name is None or seen[name] < 2 else f"{name} #{seen[name]}")
    for name, count in seen.items():
        if count > 1:
            reading.note(f"{name} has {count} rows, which are called {name}, {name} #2 and so on")
    return pl.Series(names, dtype=pl.String)


def _without_sums(values: pl.DataFrame, reading: Reading) -> pl.DataFrame:
    """Return values without rows that sum up the others, such as the last line of many tables; they are named."""
    sums = [item for item in values["item"].unique(maintain_order=True).drop_nulls() if SUMS.fullmatch(item)]
    sums = [item for item in sums if not reading.is_named(item)]
    if not sums or len(sums) == values["item"].n_unique():
        return values
    reading.note(f"{', '.join(sums)}: no items")
    return values.filter(~pl.col("item").is_in(sums))


def _got(frame: pl.DataFrame) -> str:
    return "got " + ", ".join(f"{name} ({dtype})" for name, dtype in list(frame.schema.items())[:6])


def framed(rows: Iterable[Row]) -> pl.DataFrame:
    """Return the values of a tool, which are fractions."""
    schema = {name: of for name, of in VALUES.items() if name not in ("scale", "sign")}
    return pl.DataFrame([*rows], schema, orient="row").with_columns(scale=pl.lit(FRACTION), sign=pl.lit(0, pl.Int8))
