"""Tables of values of systems on items, long or wide, as people and leaderboards write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from pipeline.core.errors import InputError
from pipeline.measure.measures import parse_measures
from pipeline.sources.tables import NULLS

VALUES = {
    "system": pl.String, "group": pl.String, "item": pl.String, "family": pl.String, "sample": pl.String,
    "metric": pl.String, "value": pl.Float64,
}  # fmt: skip
"""Columns of values. ``group`` is the task of a query; empty if the item is itself a task, or there is one task."""

Row = tuple[str, str, str, str | None, str, str, float]
"""A row of :data:`VALUES`."""

MAIN = "main"
"""Name of the metric that a tool calls the main one, or names first."""

JUDGED = "judged-"
"""Begins the names of metrics that were estimated from a part of the judgements: values of items may exceed 1."""

METHOD = "Convert the file to a table with the columns system, item, value"

_ROLES = {
    "system": ("system", "label", "model", "model_name", "run", "encoder", "method"),
    "item": ("query_id", "item", "query", "qid", "topic", "instance", "example", "sample_id", "doc_id"),
    "group": ("field", "task", "task_name", "dataset", "benchmark", "collection"),
    "family": ("family", "task_type", "domain", "category"),
    "sample": ("sample", "seed", "epoch", "repeat", "trial"),
    "metric": ("metric", "measure"),
    "value": ("value", "score", "result"),
}
"""Names of columns of long tables, preferred first."""

_MISSING = ("", "-", "–", "—", *map(str.casefold, NULLS))
"""What tables write where there is no value, in lower case."""

_SUMS = ("all", "average", "avg", "avg.", "mean", "overall")

_NO_ITEM = re.compile(
    r"#|index|unnamed.*|no\.?|rank\b.*|position|(.*[\W_])?(avg|average|mean)\b.*|overall|total|borda\b.*|zero.shot"
    r"|memory.*|.*\bparam(eter)?s?\b.*|.*\bdim(ension)?s?\b.*|max(imum)?.tokens|.*\blength|release.date|year"
)
"""Columns of leaderboards that sum up the others or describe the system."""

_DIGITS = 6


def in_our_spelling(metric: str) -> str:
    """Return the name of a metric in our spelling (``ndcg@10`` for ``nDCG@10``), or unchanged if it is no measure."""
    return measure_name(metric) or metric


def measure_name(text: str) -> str | None:
    """Return a measure's name in our spelling; None if it is none."""
    try:
        return str(parse_measures(text)[0])
    except InputError:
        return (
            text
            if re.fullmatch(r"(num|gm|set|iprec|relstring|bpref|Rprec|infAP|AP|RR|nDCG|P|R|RBP|ERR)\w*([@(].*)?", text)
            else None
        )


def of_table(path: Path, frame: pl.DataFrame, left_out: list[str]) -> pl.DataFrame:
    """Return the values of a table, with the columns :data:`VALUES`.

    A long table has a row a value, or a row a system and item with a column for each metric. A wide one has a row a
    system, or an item where its column is first and named so. ``left_out`` gets what is no value, as ``what: reason``.

    Raises:
        InputError: the table has no systems, items or values.
    """
    if {"query", "query_id", "pool", "ranking"} <= {*frame.columns}:  # our export: draws are by positions, as elsewhere
        position = pl.col("query").cast(pl.String).str.zfill(_DIGITS)
        frame = frame.with_columns(query_id=pl.concat_str(position, pl.col("query_id").fill_null(""), separator=" "))
    names = {re.sub(r"[\s-]+", "_", name.strip().casefold()): name for name in frame.columns}
    found = {role: next((names[name] for name in known if name in names), None) for role, known in _ROLES.items()}
    has_item = found["item"] or found["group"]
    frame = _numbers(path, frame, [name for role, name in found.items() if name and role != "value"], left_out)
    if not (found["value"] and found["system"] and has_item):
        of_item = not found["system"] and frame.columns[0] in (found["item"], found["group"])
        texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
        system = found["system"] or (texts[0] if len(texts) == 1 else None)
        is_long = bool(found["system"] and has_item)
        rows = [name for name in found.values() if name] if of_item or is_long else texts
        numbers = [name for name, dtype in frame.schema.items() if dtype.is_numeric() and name not in rows]
        if not (of_item or system) or len(numbers) < 2 - is_long:
            raise InputError(
                f"{path} must have columns system, item, value, or systems and numbers, {_got(frame)}", METHOD
            )
        across = "metric" if is_long else "system" if of_item else "item"
        if across == "item":
            found = dict.fromkeys(_ROLES) | {"system": system}
            numbers = _items(path, frame.columns, numbers, system, left_out)
        frame = frame.unpivot(numbers, index=rows, variable_name=across)
        found |= {across: across, "value": "value"}
    if not found["item"]:
        found |= {"item": found["group"], "group": None}
    columns = {role: pl.lit(None) if name is None else pl.col(name) for role, name in found.items()}
    typed = _without_sums(frame.select(columns[role].cast(dtype).alias(role) for role, dtype in VALUES.items()))
    spelled = {name: in_our_spelling(name) for name in typed["metric"].unique().drop_nulls()}
    return typed.drop_nulls("value").with_columns(
        pl.col("system").str.replace(r"^\W*\[([^\]]+)\]\([^)]*\).*$", "$1"),  # a link of Markdown
        pl.col("group", "sample").fill_null(""),
        pl.col("metric").replace(spelled).fill_null(MAIN),
    )


def _numbers(path: Path, frame: pl.DataFrame, names: Iterable[str], left_out: list[str]) -> pl.DataFrame:
    """Return a table whose texts are numbers where most of a column are: ``12.3%``, ``**0.4**``, ``0.4 ± 0.1``."""
    for name in [name for name, dtype in frame.schema.items() if dtype == pl.String and name not in names]:
        text = frame[name].str.strip_chars("* ")
        given = ~text.str.to_lowercase().is_in(_MISSING) & text.is_not_null()
        number = (
            text.str.replace(r"\s*±.*$", "")
            .str.replace(r"\s*%$", "")
            .str.replace(r"^([+-]?\d+),", "$1.")
            .cast(pl.Float64, strict=False)
        )
        number = pl.select(pl.when(text.str.contains("%")).then(number / 100).otherwise(number)).to_series()
        odd = given & number.is_null()
        if given.any() and 2 * odd.sum() < given.sum():
            left_out += [
                f"{path.name}: {name} has {text!r}, which is no number and counts as missing"
                for text in frame[name].filter(odd)
            ]
            frame = frame.with_columns(number.alias(name))
    return frame


def _items(
    path: Path, columns: Sequence[str], numbers: Sequence[str], system: str | None, left_out: list[str]
) -> list[str]:
    """Return the columns of a wide table that are items; the others are named."""
    items = [name for name in numbers if not _NO_ITEM.fullmatch(name.strip().casefold())]
    others = [name for name in columns if name not in items and name != system]
    left_out += [f"{path.name}: {', '.join(others)}: no items"] if others else []
    return items


def _without_sums(values: pl.DataFrame) -> pl.DataFrame:
    """Return values without rows that sum up the others, such as the last line of many tables."""
    single = values.filter(~pl.col("item").str.strip_chars().str.to_lowercase().is_in(_SUMS).fill_null(False))
    return values if single.is_empty() else single


def _got(frame: pl.DataFrame) -> str:
    return "got " + ", ".join(f"{name} ({dtype})" for name, dtype in list(frame.schema.items())[:6])
