"""Tables of values of systems on items, long or wide, as people and leaderboards write them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from pipeline.core.errors import InputError
from pipeline.data import DATA
from pipeline.exchange import names
from pipeline.exchange.cells import (
    FRACTION,
    PERCENT,
    POINTS,
    Numbers,
    mean_of_others,
    numbers_of,
    scale_of,
)
from pipeline.exchange.markup import Grid
from pipeline.exchange.names import SUMS, describes, is_called, is_metric, metric_in, sign_of_name

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
NAMES = "Add a first column called system, or item if columns are systems"

_QUERY = ("query_id", "query", "qid", "topic", "topic_id", "instance", "example", "sample_id", "doc_id")
_ROLES = {
    "system": ("system", "label", "model", "model_name", "run", "encoder", "method", "framework", "classifier_name"),
    "item": ("query_id", "item", *_QUERY[1:]),
    "group": ("field", "task", "task_name", "dataset", "dataset_name", "benchmark", "collection", "corpus"),
    "family": ("family", "unit", "task_type", "domain", "category"),
    "sample": ("sample", "seed", "epoch", "repeat", "trial", "fold", "iteration"),
    "metric": ("metric", "measure"),
    "value": ("value", "score", "result"),
}
"""Names of columns of long tables, preferred first."""

_Roles = dict[str, str | None]

_WORDS = {
    "item": re.compile(
        r"(?i)\b(dataset|data set|task|benchmark|collection|corpus|query|queries|topic|test set|subset|subject|category"
        r"|language|scenario)s?\b"
    ),
    "system": re.compile(
        r"(?i)\b(model|system|method|retriever|encoder|run|approach|llm|agent|team|submission|name)s?\b"
    ),
}
"""Words of the names of columns of items and of systems."""

_SUM_OF_ROWS = re.compile(
    r"(?i)\W*(\w+\W+)?(all|avg|average|mean|median|overall|total|sum|std)([\W_]+(rank|scores?|tasks?|datasets?|\d+))*\W*(\(.*)?"
)
"""Names of rows that sum up systems, unlike all-mpnet and average_word_embeddings."""

_DIGITS, _QUERIES, _PARTS, _TEN, _TENS = 6, 500, "CQADupstack", 10, 50
_LINK, _TAG = (r"^\W*\[([^\]]+)\]\([^)]*\).*$", "$1"), (r"</?(?:a|b|i|em|strong|sup|sub|span|br)\b[^>]*>", "")


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

    def leave_out(self, names: Iterable[str], what: str) -> None:
        """Name columns or rows that are none of ``what``."""
        if listed := ", ".join(name or "unnamed" for name in names):
            self.note(f"{listed}: no {what}")

    def check(self, head: str, numbers: Numbers) -> None:
        """Name cells of a column that are no numbers; InputError if it cannot be read."""
        for cell in numbers.odd:
            self.note(f"{head} has {cell!r}, which is no number and counts as missing")
        if numbers.problem:
            raise InputError(f"{self.file}: {head} has {numbers.problem}", "Write 1234.5, or leave it out with --items")

    def is_named(self, name: str) -> bool:
        """Return whether an item is chosen by its name alone, which may have ``?`` for a comma."""
        return any("*" not in of and is_called(name, of) for of in self.items)

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
    frame = frame.with_columns(pl.selectors.string().str.replace(*_LINK).str.replace_all(*_TAG))
    numbers = {head: of for head in frame.columns if (of := numbers_of(frame[head]))}
    found = _roles(frame, numbers)
    item, value = found["item"] or found["group"], found["value"]
    facts = {head for role, head in found.items() if head and role != "value"}
    heads = {head: of for head, of in numbers.items() if head not in facts}
    metrics = [head for head, of in heads.items() if not describes(head, of_metrics=True) and not of.problem]
    if value in heads and item and (found["system"] or found["metric"] or not {*metrics} - {value}):
        return _melted(frame, {str(value): heads[str(value)]}, found, reading, name=name)
    if item and (found["system"] or (metrics and all(map(is_metric, metrics)))):
        reading.leave_out([head for head in heads if head not in metrics], "metrics")
        return _melted(frame, {head: heads[head] for head in metrics}, found, reading, "metric", name)
    if (down := _item_down(frame, numbers, found)) is not None:
        found |= {"item": down, "group": None if found["group"] == down else found["group"]}
        heads = {head: of for head, of in heads.items() if head != down and not describes(head, sums=True)}
        reading.leave_out([head for head in frame.columns if head not in {*heads, *facts, down}], "systems")
        return _melted(frame, heads, found, reading, "system")
    return _across(frame, numbers, found, reading)


def _roles(frame: pl.DataFrame, numbers: Mapping[str, Numbers]) -> _Roles:
    """Return the column of each role; one of measured numbers has none."""
    heads = {re.sub(r"[\s-]+", "_", head.strip().casefold()): head for head in frame.columns}
    found: _Roles = {}
    for role, spellings in _ROLES.items():
        found[role] = next((heads[known] for known in spellings if known in heads), None)
        of = numbers.get(found[role] or "") if role in ("item", "group", "system") else None
        if of and (of.values[~np.isnan(of.values)] % 1 != 0).any():
            found[role] = None
    item = found["item"] or found["group"]
    if found["system"] in numbers and item and not found["value"] and frame[item].n_unique() == len(frame):
        found["system"] = None  # a system that is called Run
    return found


def _melted(
    frame: pl.DataFrame, heads: dict[str, Numbers], found: _Roles, reading: Reading, of_heads: str = "", name: str = ""
) -> pl.DataFrame:
    """Return the values in the columns ``heads``, whose names are what ``of_heads`` says: a role, or nothing.

    ``name`` is that of the system in a table without a column of systems.
    """
    if not heads:
        raise InputError(f"{reading.file} must have numbers in columns of its own, {_got(frame)}", METHOD)
    for head, of in heads.items():
        reading.check(head, of)
    roles = found if found["item"] is not None else found | {"item": found["group"], "group": None}
    filled = {"system": None, "item": None, "group": "", "family": None, "sample": "", "metric": MAIN}
    absent = {role: pl.lit(name if role == "system" else None, pl.String) for role in filled}
    texts = {of: absent[of] if (of_role := roles[of]) is None else pl.col(of_role).cast(pl.String) for of in filled}
    facts = frame.select(
        pl.coalesce(texts[role], pl.lit(default, pl.String)).alias(role) for role, default in filled.items()
    ).with_columns(pl.col("item").str.strip_chars().str.replace(r"^(\d+)\.0$", "$1"))
    called = _called(heads, of_heads, reading.file)
    values = pl.concat(
        facts.with_columns(
            *(pl.lit(text).alias(role) for role, text in called[head].items()), decides=pl.lit(head),
            value=pl.Series(of.values, nan_to_null=True), percent=pl.Series(of.percent),
        )
        for head, of in heads.items()
    ).drop_nulls("value")  # fmt: skip
    spelled = {metric: names.in_our_spelling(metric) for metric in values["metric"].unique()}
    values = values.with_columns(pl.col("metric").replace(spelled))
    values = _without_sums(values, "system" if of_heads == "item" else "item", reading)
    if of_heads == "item":
        return _scaled(values, reading, by_item=True)
    head = str(roles["item"])
    of_tasks = roles["group"] is None and head.casefold() not in _QUERY
    of_tasks &= of_heads != "system" or bool(_WORDS["item"].search(head))
    by_item = of_tasks and values["item"].n_unique() <= _QUERIES
    decides = pl.when(metric=MAIN).then("item").otherwise("metric") if by_item else pl.col("metric")
    return _scaled(values.with_columns(decides=decides), reading, by_item=by_item)


def _without_sums(values: pl.DataFrame, role: str, reading: Reading) -> pl.DataFrame:
    texts = values[role].unique(maintain_order=True).drop_nulls()
    sums = [text for text in texts if SUMS.fullmatch(text) and not reading.is_named(text)]
    sums = [text for text in sums if role == "item" or _SUM_OF_ROWS.fullmatch(text)]
    if not 0 < len(sums) < len(texts):  # such as the last line of many tables
        return values
    reading.leave_out(sums, f"{role}s")
    return values.filter(~pl.col(role).is_in(sums))


def _called(heads: Iterable[str], of_heads: str, file: str) -> dict[str, dict[str, str]]:
    """Return what the names of columns say: an item alone, or after or before its metric; else ``of_heads``."""
    if of_heads != "item":
        return {head: {of_heads: head.strip()} if of_heads else {} for head in heads}
    metrics = {head: metric_in(head) for head in heads}
    if not all(metric for metric, _ in metrics.values()):
        return {head: {"item": head.strip()} for head in metrics}
    return {head: {"metric": metric, "item": item or file} for head, (metric, item) in metrics.items()}


def _scaled(values: pl.DataFrame, reading: Reading, *, by_item: bool) -> pl.DataFrame:
    """Return values with scale and sign, decided for each metric and, ``by_item``, each item by the name ``decides``.

    Then items that describe the system, or are outside of the range of the others, are left out and named. Error rates
    are decided together, since small ones are few.
    """
    rates = values.filter(pl.col("decides").map_elements(reading.is_rate, pl.Boolean))
    parts, left, outside = list[pl.DataFrame](), list[str](), list[str]()
    for part in values.partition_by("metric", *(["item"] if by_item else []), maintain_order=True):
        metric, item, name = (str(part[column][0]) for column in ("metric", "item", "decides"))
        if by_item and describes(item) and not (reading.is_named(item) or reading.is_named(name)):
            left.append(item)
            continue
        of, is_rate = (rates, True) if reading.is_rate(name) else (part, False)
        scale = scale_of(of["value"].to_numpy(), of["percent"].to_numpy(), may_exceed=is_rate)
        scale = FRACTION if metric.startswith(JUDGED) else scale
        unknown = scale == PERCENT and [*part["value"].filter(part["value"] < 0).unique()] == [-1]  # is written so
        outside += [item] if (scale == POINTS or unknown) and not reading.is_named(name) else []
        parts.append(part.with_columns(scale=pl.lit(scale), sign=pl.lit(sign_of_name(name), pl.Int8)))
    tops = {str(part["item"][0]): part["value"].max() for part in parts if part["scale"][0] == PERCENT and by_item}
    if tops and np.median([*tops.values()]) > _TENS:
        low = (
            item for item, top in tops.items() if top <= _TEN and not (reading.is_rate(item) or reading.is_named(item))
        )
        reading.leave_out(low, "value above 10, unlike others, but read as percent; --items leaves it out")
    if not parts:
        raise InputError(f"{reading.file} has no item that counts", "Choose others with --items")
    scaled = pl.concat(parts).select(*VALUES)
    outside = outside if by_item and len({*scaled["item"]} - {*outside}) >= 2 else []
    reading.leave_out(left + outside, "items")
    return scaled.filter(~pl.col("item").is_in(outside)) if outside else scaled


def _item_down(frame: pl.DataFrame, numbers: Mapping[str, Numbers], found: _Roles) -> str | None:
    """Return the column of items of a wide table with a row an item and a column a system, such as type, task, a, b."""
    first, has_texts = frame.columns[0], len(numbers) < len(frame.columns)
    is_index = first.strip() in ("", "index", "unnamed", "Unnamed: 0") and first in numbers and not has_texts
    named = [role for role, words in _WORDS.items() if words.search(first)]
    if "↓" in first and "→" not in first.partition("↓")[2]:  # Model (→) / Dataset (↓)
        before = first.partition("↓")[0]
        named = sorted(named, key=lambda role: max((of.end() for of in _WORDS[role].finditer(before)), default=-1))[-1:]
    is_item = first in (found["item"], found["group"]) or named == ["item"]
    is_index = is_index and frame[first].n_unique() == len(frame)
    if found["system"] or is_item or is_index:
        return None if found["system"] else first
    item, is_named = found["item"] or found["group"], any(map(_WORDS["system"].search, frame.columns))
    key = [item, found["sample"]] if item and found["sample"] else item
    is_key = frame.select(key).n_unique() == len(frame) and (first in numbers or frame[first].n_unique() < len(frame))
    return item if item and not is_named and is_key else None


def _across(frame: pl.DataFrame, numbers: Mapping[str, Numbers], found: _Roles, reading: Reading) -> pl.DataFrame:
    """Return the values of a table with a row a system and a column an item; columns that are no items are named."""
    texts = [head for head in frame.columns if head not in numbers]
    named = (head for head in texts if _WORDS["system"].search(head))
    unique = (head for head in texts if frame[head].n_unique() == len(frame))
    system = found["system"] or next(itertools.chain(named, unique, texts), None)
    counts = {head: of for head, of in numbers.items() if head != system and reading.counts(head)}
    left = [head for head in counts if describes(head) and not reading.is_named(head)]
    heads = {head: of for head, of in counts.items() if head not in left}
    not_chosen = numbers.keys() - {system, *left} if reading.items else set[str]()
    reading.leave_out(
        [head for head in frame.columns if head not in {system, *heads} and head not in not_chosen], "items"
    )
    of_means = mean_of_others(np.stack([of.values for of in heads.values()], axis=1)) if heads else None
    if of_means is not None and not reading.is_named(head := list(heads)[of_means]):
        reading.note(f"{head}: the mean of the other columns")
        del heads[head]
    if system is None:
        what = "names of its rows beside numbers" if numbers else "columns system, item, value, or systems and numbers"
        raise InputError(f"{reading.file} must have {what}, {_got(frame)}", NAMES if numbers else METHOD)
    if not heads:
        means = ",".join(head.replace(",", "?") for head in left if not describes(head, of_metrics=True))
        what = f"{reading.file} must have columns of items, got {', '.join(numbers) or 'no numbers'}"
        raise InputError(what, f"Name columns that count, as in --items='{means}'" if "," in means else METHOD)
    if not system.strip():
        reading.note("the column without a name has systems; call it item if its texts are items")
    sample = found["sample"]
    if sample is None or frame.select(system, sample).is_duplicated().any():
        frame, sample = _named_apart(frame, system, reading), None
    return _melted(frame, heads, dict.fromkeys(_ROLES) | {"system": system, "sample": sample}, reading, "item")


def _named_apart(frame: pl.DataFrame, system: str, reading: Reading) -> pl.DataFrame:
    """Return a table in which the second row of a system is called ``name #2``."""
    rows = frame.drop_nulls(system).group_by(system, maintain_order=True).len().filter(pl.col("len") > 1)
    for name, count in rows.iter_rows():
        reading.note(f"{name} has {count} rows, which are called {name}, {name} #2 and so on")
    name, number = pl.col(system).cast(pl.String), pl.int_range(1, pl.len() + 1).over(system)
    return frame.with_columns(pl.when(number > 1).then(pl.concat_str(name, pl.lit(" #"), number)).otherwise(name))


def _got(frame: pl.DataFrame) -> str:
    return "got " + ", ".join(f"{name} ({dtype})" for name, dtype in list(frame.schema.items())[:6])


def framed(rows: Iterable[Row]) -> pl.DataFrame:
    """Return the values of a tool, which are fractions."""
    schema = {name: of for name, of in VALUES.items() if name not in ("scale", "sign")}
    return pl.DataFrame([*rows], schema, orient="row").with_columns(scale=pl.lit(FRACTION), sign=pl.lit(0, pl.Int8))


def kinds_of(values: pl.DataFrame, kind: pl.Expr) -> str:
    """Return kinds of items in words, the largest first."""
    kinds = values.group_by(kind=kind, maintain_order=True).agg(pl.col("item").unique(maintain_order=True))
    kinds = kinds.sort(pl.col("item").list.len(), descending=True, maintain_order=True)
    return "; ".join(
        f"{name} of {', '.join(items[:6])}" + (f" and {len(items) - 6} more" if len(items) > 6 else "")
        for name, items in kinds.iter_rows()
    )


def units(values: pl.DataFrame, families: pl.DataFrame, *, alone: bool) -> pl.Series:
    """Return the resampling unit of each item: its family, or type as a task of MTEB; else it is one of its own.

    ``families`` has the families of ``group`` and ``item``. With ``alone``, or all of one type, no item has a family.
    """
    own = values.select(pl.concat_str("group", "item", separator="\0")).to_series()
    known = {(group, item): of for group, item, of in families.iter_rows()}
    if tasks := not known and values["group"].n_unique() == 1:
        table = pl.read_csv(DATA / "mteb-tasks.csv").select("task", "type")
        known = {(group, task): of for task, of in table.iter_rows() for group in values["group"].unique()}
    if alone or (tasks and len({known.get(key, key) for key in values.select("group", "item").iter_rows()}) == 1):
        return own
    return pl.Series([
        known.get((group, item), _PARTS if tasks and item.startswith(_PARTS) else unit)
        for group, item, unit in zip(values["group"], values["item"], own, strict=True)
    ])  # fmt: skip
