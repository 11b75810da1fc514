"""Labels of table rows: the name of the system, and the settings that distinguish rows of one name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from pipeline.core.config import changed_fields, format_count
from pipeline.core.errors import InputError
from pipeline.scores.store import as_json

_SETTING_LABELS = {"compute": "precision", "search": "engine"}
"""Names of settings in labels, where users know them by other names."""


def labelled(runs: pl.DataFrame, *, together: bool = False) -> pl.DataFrame:
    """Return rankings with the ``label`` of their row and the ``kind`` of their table.

    A label is the name of the system, and the settings that distinguish it from others of that name in its table. Every
    label states the depth if depths differ. Pools of all candidates get a separate ``kind``, hence a separate table, if
    another pool of the field happens to have the same size. ``together``: all pools are of one kind, whatever their
    settings.

    Raises:
        InputError: pools of one kind, field and size have different settings.
    """
    if together:
        _refuse_mixtures(runs := runs.with_columns(kind=pl.lit("together")))
        return _labelled(runs)
    size_setting = pl.col("pool_settings").str.json_path_match("$.size")
    all_candidates = (size_setting == "all").fill_null(value=False)
    clashes = all_candidates & (~all_candidates).any().over("kind", "field", "size")
    runs = runs.with_columns(pl.when(clashes).then(pl.col("kind") + "-all").otherwise(pl.col("kind")).alias("kind"))
    _refuse_mixtures(runs)
    tables = [_labelled(table) for table in runs.with_row_index("number").partition_by("kind")]
    return pl.concat(tables).sort("number").drop("number") if tables else runs


def _labelled(table: pl.DataFrame) -> pl.DataFrame:
    rows = table.unique("row", keep="last", maintain_order=True).rows(named=True)
    settings_of = {row["row"]: _flatten(json.loads(row["row_settings"]), row["engine"]) for row in rows}
    depths = len({row["depth"] for row in rows}) > 1
    label_of = {}
    for row in rows:
        namesakes = [settings_of[other["row"]] for other in rows if other["system"] == row["system"]]
        names = {name for settings in namesakes for name in settings} - {"depth"}
        varying = sorted(name for name in names if len({as_json(settings.get(name)) for settings in namesakes}) > 1)
        differing = [f"{_setting_label(name)} {format_setting(settings_of[row['row']].get(name))}" for name in varying]
        differing += [f"depth {row['depth']}"] if depths else []
        label_of[row["row"]] = f"{row['system']} ({', '.join(differing)})" if differing else row["system"]
    return table.with_columns(pl.col("row").replace_strict(label_of, return_dtype=pl.String).alias("label"))


def format_setting(value: Any) -> str:
    """Return a setting as text for labels and notes; digests are shortened."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).removeprefix("sha256:")[:12] if isinstance(value, str) else str(value)


def _flatten(settings: Mapping[str, Any], engine: str | None) -> dict[str, Any]:
    """Return the settings that identify a row; nested settings have dotted names."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and name != "search":
            flat |= {f"{name}.{inner}": setting for inner, setting in _flatten(value, engine).items()}
        else:
            flat[name] = engine if name == "search" else value
    return flat


def _setting_label(name: str) -> str:
    last = name.rpartition(".")[2]
    return _SETTING_LABELS.get(last, last)


def _refuse_mixtures(runs: pl.DataFrame) -> None:
    first_of: dict[tuple[Any, ...], dict[str, Any]] = {}
    first_of_sample: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs.unique("pool", maintain_order=True).iter_rows(named=True):
        group = (run["kind"], run["field"], run["size"])
        first = first_of.setdefault(group, run)
        first_settings, settings = (
            {k: v for k, v in json.loads(pool["pool_settings"]).items() if k != "sample"} for pool in (first, run)
        )
        if first_settings != settings:
            changed = "; ".join(changed_fields(first_settings, settings))
            raise InputError(
                f"{first['pool']} and {run['pool']} have one field and size but other settings ({changed})",
                "Report them apart",
            )
        twin = first_of_sample.setdefault((*group, run["sample"]), run)
        if twin["pool"] != run["pool"]:
            raise InputError(
                f"{twin['pool']} and {run['pool']} are both sample {run['sample']} of {format_count(run['size'])}",
                "Report them apart",
            )
