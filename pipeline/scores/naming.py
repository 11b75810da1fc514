"""Names of the folders that reports are written into: the same choice has the same name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.core.config import digest, format_count
from pipeline.core.workspace import CORPORA, corpus_names
from pipeline.scores.caption import unusual
from pipeline.scores.choose import option

_LONGEST = 120

_IN_KIND = {
    *("corpus", "year", "queries", "seed", "split", "nested", "positives", "drop_same_title", "exclude"),
    *("citation_direction", "min_citations", "min_abstract_chars"),
}
"""Settings of a choice that the kind of pool names, whether they were chosen or not."""


def folder_names(root: Path, runs: pl.DataFrame, chosen: Mapping[str, Any], told: Sequence[str]) -> dict[str, str]:
    """Return a folder name for each kind of pool: corpus and kind, then what was chosen.

    Args:
        root: the workspace.
        runs: labelled rankings.
        chosen: as given to :func:`pipeline.scores.choose.choose`.
        told: what else decides the tables.
    """
    corpus_name: dict[str, str] = {}
    for name in corpus_names(root):
        folder = (root / CORPORA / f"{name}.name").read_text(encoding="utf-8", errors="replace").strip()
        corpus_name.setdefault(folder, name)
    parts = [
        _part(option(name)[2:], value) for name, value in chosen.items() if value is not None and name not in _IN_KIND
    ]
    names: dict[str, str] = {}
    for run in runs.unique("kind", keep="first", maintain_order=True).iter_rows(named=True):
        corpus = corpus_name.get(run["corpus"], run["corpus"])
        name = _cut("_".join([corpus, *_kind(json.loads(run["pool_settings"])), *parts, *map(_plain, told)]))
        same = sum(name == other or other.startswith(f"{name}_table-") for other in names.values())
        names[run["kind"]] = f"{name}_table-{same + 1}" if same else name
    return names


def _kind(config: Mapping[str, Any]) -> list[str]:
    parts = [str(config["year"])] if config.get("year") else []
    parts += ["validation"] if config.get("split") == "validation" else []
    parts += [_part("queries", config["queries"])] if "queries" in config else []
    parts += [_part("seed", config["seed"])] if "seed" in config else []
    return parts + [_plain(rule) for rule in unusual(config)]


def _part(name: str, value: Any) -> str:
    values = value if isinstance(value, tuple) else (value,)
    if len(values) == 19 and name == "field":
        return "field-all"
    return f"{name}-{'+'.join(format_count(v) if type(v) is int and name == 'size' else _plain(v) for v in values)}"


def _plain(value: Any) -> str:
    return re.sub(r"[^A-Za-z0-9.=,@()+-]+", "-", str(value)).strip("-").lower()


def _cut(name: str) -> str:
    """Return a name that file systems take; a long one ends in a digest of all of it."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 9]}-{digest(name)[:8]}"
