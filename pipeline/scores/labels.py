"""Labels of table rows: the name of the system, and the settings that distinguish rows of one name."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from pipeline.core.config import changed_fields
from pipeline.core.errors import InputError
from pipeline.scores.facts import Row, setting_of, settings_of_pool

_SETTING_LABELS = {"compute": "precision", "search": "engine"}
"""Names of settings in labels, where users know them by other names."""


def labelled(runs: pl.DataFrame, *, together: bool = False) -> pl.DataFrame:
    """Return rankings with the ``label`` of their row and the ``kind`` of their table.

    A label is the name of the system, and the settings that distinguish it from others of that name in its table. Every
    label states the depth if depths differ. Pools that no table can hold together, since they have one field and size
    but were asked otherwise, get a separate ``kind``, hence a separate table. The samples of one pool share the largest
    of their sizes, where fewer candidates exist than were asked for. ``together``: all pools are of one kind, whatever
    their settings.

    Raises:
        InputError: pools that are to be together have one field and size but different settings.
    """
    if together:
        runs = runs.with_columns(kind=pl.lit("together"))
    asked = pl.col("size_asked")
    largest = pl.col("size").max().over("kind", "field", asked)
    runs = runs.with_columns(size=pl.when(asked.is_null()).then("size").otherwise(largest))
    apart = _tables_apart(runs, refuse=together)
    suffix = pl.col("pool").replace_strict(apart, default="", return_dtype=pl.String)
    runs = runs.with_columns(kind=pl.col("kind") + suffix)
    tables = [_labelled(table) for table in runs.with_row_index("number").partition_by("kind")]
    return pl.concat(tables).sort("number").drop("number") if tables else runs


def _labelled(table: pl.DataFrame) -> pl.DataFrame:
    rows = table.unique("row", keep="last", maintain_order=True).rows(named=True)
    settings_of = {row["row"]: {each["name"]: each["value"] for each in row["row_settings"]} for row in rows}
    depths = len({row["depth"] for row in rows}) > 1
    label_of = {}
    for row in rows:
        namesakes = [settings_of[other["row"]] for other in rows if other["system"] == row["system"]]
        names = {name for settings in namesakes for name in settings} - {"depth"}
        varying = sorted(name for name in names if len({settings.get(name) for settings in namesakes}) > 1)
        last = {name: name.rpartition(".")[2] for name in varying}
        shown = {name: _SETTING_LABELS.get(word, word) for name, word in last.items()}
        differing = [f"{shown[name]} {settings_of[row['row']].get(name)}" for name in varying]
        differing += [f"depth {row['depth']}"] if depths else []
        label_of[row["row"]] = f"{row['system']} ({', '.join(differing)})" if differing else row["system"]
    return table.with_columns(pl.col("row").replace_strict(label_of, return_dtype=pl.String).alias("label"))


def _tables_apart(runs: pl.DataFrame, *, refuse: bool) -> dict[str, str]:
    """Return the ending of the kind of each pool; a pool that a table cannot hold beside others is in a further one."""
    tables_of: dict[tuple[object, ...], list[dict[int, Row]]] = {}
    ending_of: dict[str, str] = {}
    pools = runs.unique("pool", maintain_order=True).rows(named=True)
    for pool in sorted(pools, key=lambda pool: setting_of(pool, "size") == "all"):
        tables = tables_of.setdefault((pool["kind"], pool["field"], pool["size"]), [])
        fitting = (pool["sample"] not in table and not _changed(table, pool) for table in tables)
        place = next((place for place, fits in enumerate(fitting) if fits), len(tables))
        if place == len(tables):
            tables.append({})
        if refuse and place:
            other, changed = next(iter(tables[0].values())), "; ".join(_changed(tables[0], pool))
            raise InputError(
                f"{other['pool']} and {pool['pool']} have one field and size, but ({changed})",
                "Report them apart",
            )
        tables[place][pool["sample"]] = pool
        ending_of[pool["pool"]] = f"-{place + 1}" if place else ""
    return ending_of


def _changed(table: Mapping[int, Row], pool: Row) -> list[str]:
    """Return the settings in which a pool differs from the samples of a table."""
    return changed_fields(settings_of_pool(next(iter(table.values()))), settings_of_pool(pool))
