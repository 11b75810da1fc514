"""Names of the folders that reports are written into: the same choice has the same name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.core.config import digest, file_name, format_count
from pipeline.core.workspace import corpus_folders
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.scores.caption import flat, unusual
from pipeline.scores.choose import option

_LONGEST = 120


def folder_names(root: Path, runs: pl.DataFrame, chosen: Mapping[str, Any], further: Sequence[str]) -> dict[str, str]:
    """Return a folder name for each kind of pool: corpus and kind, then what was chosen.

    Args:
        root: the workspace.
        runs: labelled rankings.
        chosen: as given to :func:`pipeline.scores.choose.choose`.
        further: what else decides the tables.
    """
    corpus_name = corpus_folders(root)
    # The kind names the corpus, and what separates tables, whether it was chosen or not.
    asked = {name: value for name, value in chosen.items() if name not in SETTINGS or not SETTINGS[name].separates}
    asked.pop("corpus", None)
    parts = [_part(option(name)[2:], value) for name, value in asked.items() if value is not None]
    names: dict[str, str] = {}
    for run in runs.unique("kind", keep="first", maintain_order=True).iter_rows(named=True):
        corpus = corpus_name.get(run["corpus"], run["corpus"])
        name = _cut("_".join([corpus, *_kind(json.loads(run["pool_settings"])), *parts, *map(_plain, further)]))
        same = sum(name == other or other.startswith(f"{name}_table-") for other in names.values())
        names[run["kind"]] = f"{name}_table-{same + 1}" if same else name
    return names


def _kind(settings: Mapping[str, Any]) -> list[str]:
    config = flat(settings)
    parts = [str(config["year"])] if config.get("year") else []
    parts += ["validation"] if config.get("split") == "validation" else []
    parts += [_part("queries", config["queries"])] if "queries" in config else []
    parts += [_part("seed", config["seed"])] if "seed" in config else []
    return parts + [_plain(rule) for rule in unusual(settings)]


def _part(name: str, value: Any) -> str:
    values = value if isinstance(value, tuple) else (value,)
    if len(values) == 19 and name == "field":
        return "field-all"
    return f"{name}-{'+'.join(format_count(v) if type(v) is int and name == 'size' else _plain(v) for v in values)}"


def _plain(value: Any) -> str:
    return file_name(str(value), kept=".=,@()+-").lower()


def _cut(name: str) -> str:
    """Return a name that file systems take; a long one ends in a digest of all of it."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 9]}-{digest(name)[:8]}"
