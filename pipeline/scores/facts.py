"""What a row of a frame of rankings says of its pool and its artifacts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.core.workspace import CORPORA, POOLS, RANKINGS
from pipeline.corpus.poolconfig import OMITTED, SETTINGS, PoolConfig, value_in
from pipeline.corpus.prefilter import MARKS

Row = Mapping[str, Any]

Gaps = Mapping[str, Mapping[str, int]]
"""Counts of positives and negatives, and of those without metadata (:func:`pipeline.corpus.prefilter.count_marks`)."""

_COLUMNS = {"samples": "sample", "size": "size_asked", "queries": "queries_asked", "positives": "positives_from"}
"""Columns of pool settings whose names are taken, by setting; the others have the name of the setting."""


def columns(kind: Any, names: str) -> dict[str, Any]:
    """Return columns of a frame that have one type, by name."""
    return dict.fromkeys(names.split(), kind)


def _columns(cls: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the column of each setting of a configuration and its type; ``exclude`` has two."""
    for name, kind in get_type_hints(cls).items():
        kinds = (kind, *get_args(kind))
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            yield from _columns(kind)
        elif name == "exclude":
            yield from ((column, pl.List(pl.String)) for column in (name, "exclude_sha256"))
        else:
            yield _COLUMNS.get(name, name), pl.Boolean if bool in kinds else pl.Int64 if int in kinds else pl.String


REQUESTED = {
    name: kind for name, kind in _columns(PoolConfig) if name not in ("field", "year", "sample", "split", "seed")
}
"""Columns of the settings that a pool was asked for, besides those that identify it. The numbers of candidates and
queries are null for ``all``; the names and SHA-256 of excluded lists are two columns."""

GAPS = {f"{kind}_{mark}": pl.Int64 for kind in ("positives", "negatives") for mark in ("papers", *MARKS)}
"""Columns of :data:`Gaps`."""

_PARENTS = {"corpus": CORPORA, "pool": POOLS, "ranking": RANKINGS}


def requested(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a pool's configuration as columns; an omitted switch has its default."""
    values = {**{name: value_in(config, name) for name in SETTINGS}, "queries_are": config.get("queries_are")}
    pairs = values.pop("exclude") or ()
    row = {_COLUMNS.get(name, name): None if value == "all" else value for name, value in values.items()}
    row |= {"exclude": [name for name, _ in pairs], "exclude_sha256": [sha256 for _, sha256 in pairs]}
    off = {name: SETTINGS[name].default for name in OMITTED if SETTINGS[name].kind is bool}
    return row | {name: default for name, default in off.items() if row[name] is None}


def setting_of(run: Row, name: str) -> Any:
    """Return a pool setting of a row, as configurations have it; None if its pool has none."""
    if name == "exclude":
        return [list(pair) for pair in zip(run["exclude"] or (), run["exclude_sha256"] or (), strict=True)]
    value = run[_COLUMNS.get(name, name)]
    return "all" if value is None and name in ("size", "queries") and run["queries_are"] else value


def settings_of_pool(run: Row) -> dict[str, Any]:
    """Return all settings of the pool of a row by name, and its corpus, without the number of its sample."""
    return {"corpus": run["corpus"]} | {name: setting_of(run, name) for name in SETTINGS if name != "samples"}


def effective(run: Row) -> dict[str, Any]:
    """Return the settings that apply to the pool of a row, by name."""
    names: Iterable[str] = ("drop_identical_id",) if has_own_queries(run) else SETTINGS
    return {name: value for name in names if (value := setting_of(run, name)) not in (None, [])}


def has_own_queries(run: Row) -> bool:
    """Whether the queries came with the release; the whole collection is its candidates."""
    return run["queries_are"] == "texts" and run["year"] is None


def gaps_of(run: Row) -> Gaps:
    """Return the counts of missing texts and years of the pool of a row; empty if they are unknown."""
    if run["positives_papers"] is None:
        return {}
    return {kind: {mark: run[f"{kind}_{mark}"] for mark in ("papers", *MARKS)} for kind in ("positives", "negatives")}


def as_text(settings: Mapping[str, Any]) -> str:
    """Return settings as text for records of provenance: ``b=0.4; k1=0.9``."""
    return "; ".join(f"{name}={value}" for name, value in sorted(settings.items()))


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one mapping with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def format_setting(value: Any) -> str:
    """Return a setting as text for labels and notes; digests are shortened."""
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value).removeprefix("sha256:")
    return text[:12] if re.fullmatch(r"[0-9a-f]{40,64}", text) else text


def artifact_of(run: Row, kind: str) -> Artifact:
    """Open the ``corpus``, ``pool`` or ``ranking`` of a row of a frame of rankings."""
    return Artifact.open(path_of(run, kind))


def path_of(run: Row, kind: str) -> Path:
    """Return the folder of the ``corpus``, ``pool`` or ``ranking`` of a row."""
    return Path(run["workspace"], _PARENTS[kind], run[kind])
