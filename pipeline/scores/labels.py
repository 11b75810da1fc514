"""What the rows of a table are called: the system, and the settings that tell rows of one name apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from pipeline.core.config import changed_fields, format_count
from pipeline.core.errors import InputError
from pipeline.encode.registry import Training, trainings
from pipeline.scores.store import as_json

_SPELLED = {"compute": "precision", "search": "engine"}
"""What labels call a setting, where users know it by another name."""


def labelled(runs: pl.DataFrame, *, together: bool = False) -> pl.DataFrame:
    """Return rankings with the ``label`` of their row and the ``kind`` of their table.

    A label is the name of the system, and the settings that tell it from others of that name in its table. The depth is
    named in every row where depths differ. Pools of all candidates have a table of their own (a ``kind`` of their own)
    where another pool of the field happens to be as large. ``together``: all pools are of one kind, whatever their
    settings.

    Raises:
        InputError: pools of one kind, field and size are of several settings.
    """
    if together:
        _refuse_mixtures(runs := runs.with_columns(kind=pl.lit("together")))
        return _labelled(runs)
    asked = pl.col("pool_settings").str.json_path_match("$.size")
    everything = (asked == "all").fill_null(value=False)
    twin = everything & (~everything).any().over("kind", "field", "size")
    runs = runs.with_columns(pl.when(twin).then(pl.col("kind") + "-all").otherwise(pl.col("kind")).alias("kind"))
    _refuse_mixtures(runs)
    of_kinds = [_labelled(of_kind) for of_kind in runs.with_row_index("number").partition_by("kind")]
    return pl.concat(of_kinds).sort("number").drop("number") if of_kinds else runs


def _labelled(table: pl.DataFrame) -> pl.DataFrame:
    rows = table.unique("row", keep="last", maintain_order=True).rows(named=True)
    settings_of = {row["row"]: _flat(json.loads(row["row_settings"]), row["engine"]) for row in rows}
    depths = len({row["depth"] for row in rows}) > 1
    label_of = {}
    for row in rows:
        namesakes = [settings_of[other["row"]] for other in rows if other["system"] == row["system"]]
        names = {name for settings in namesakes for name in settings} - {"depth"}
        telling = sorted(name for name in names if len({as_json(settings.get(name)) for settings in namesakes}) > 1)
        differing = [f"{_short(name)} {text(settings_of[row['row']].get(name))}" for name in telling]
        differing += [f"depth {row['depth']}"] if depths else []
        label_of[row["row"]] = f"{row['system']} ({', '.join(differing)})" if differing else row["system"]
    return table.with_columns(pl.col("row").replace_strict(label_of, return_dtype=pl.String).alias("label"))


def trainings_of(system: str) -> dict[str, Training]:
    """Return what the encoders of a stored system were trained on, by name."""
    return trainings(system.partition("@")[0])


def trained_on(system: str) -> str:
    """Return it in a few words: ``citations to 2021``; empty for a system without a known encoder."""
    return "; ".join(dict.fromkeys(filter(None, (training.short for training in trainings_of(system).values()))))


def text(value: Any) -> str:
    """Return a setting as labels and notes show it; digests are cut."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).removeprefix("sha256:")[:12] if isinstance(value, str) else str(value)


def _flat(settings: Mapping[str, Any], engine: str | None) -> dict[str, Any]:
    """Return the settings that identify a row, nested ones by dotted names."""
    named: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and name != "search":
            named |= {f"{name}.{inner}": deeper for inner, deeper in _flat(value, engine).items()}
        else:
            named[name] = engine if name == "search" else value
    return named


def _short(name: str) -> str:
    last = name.rpartition(".")[2]
    return _SPELLED.get(last, last)


def _refuse_mixtures(runs: pl.DataFrame) -> None:
    first_of: dict[tuple[Any, ...], dict[str, Any]] = {}
    sampled: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs.unique("pool", maintain_order=True).iter_rows(named=True):
        setup = (run["kind"], run["field"], run["size"])
        first = first_of.setdefault(setup, run)
        others, other = (
            {k: v for k, v in json.loads(r["pool_settings"]).items() if k != "sample"} for r in (first, run)
        )
        if others != other:
            changed = "; ".join(changed_fields(others, other))
            raise InputError(
                f"{first['pool']} and {run['pool']} have one field and size but other settings ({changed})",
                "Report them apart",
            )
        twin = sampled.setdefault((*setup, run["sample"]), run)
        if twin["pool"] != run["pool"]:
            raise InputError(
                f"{twin['pool']} and {run['pool']} are both sample {run['sample']} of {format_count(run['size'])}",
                "Report them apart",
            )
