"""Names of the folders that reports are written into: the same choice has the same name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.core.config import digest, file_name, format_count
from pipeline.core.workspace import corpus_folders
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.report.caption import flat, unusual
from pipeline.report.choice import Choice, option
from pipeline.report.identity import Chosen

_LONGEST = 120


def folder_names(root: Path, groups: Sequence[Sequence[Chosen]], choice: Choice, told: Sequence[str]) -> list[str]:
    """Return a folder name for each table: corpus and kind of pool, then what was chosen.

    ``told`` is what else decides the tables.
    """
    named = corpus_folders(root)
    # The kind names the corpus, and what separates tables, whether it was chosen or not.
    asked = {name: value for name, value in choice.pools.items() if not SETTINGS[name].separates}
    asked |= {name: value for name, value in vars(choice).items() if name not in ("corpus", "pools")}
    chosen = [_part(option(name)[2:], value) for name, value in asked.items() if value is not None]
    names: list[str] = []
    for group in groups:
        corpus = group[0].corpus_name
        name = _cut("_".join([named.get(corpus, corpus), *_kind(group[0]), *chosen, *map(_plain, told)]))
        same = sum(name == other or other.startswith(f"{name}_table-") for other in names)
        names.append(f"{name}_table-{same + 1}" if same else name)
    return names


def _kind(chosen: Chosen) -> list[str]:
    config = flat(chosen.pool.manifest.config)
    parts = [str(config["year"])] if config.get("year") else []
    parts += ["validation"] if config.get("split") == "validation" else []
    parts += [_part("queries", config["queries"])] if "queries" in config else []
    parts += [_part("seed", config["seed"])] if "seed" in config else []
    return parts + [_plain(rule) for rule in unusual(chosen.pool.manifest.config)]


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
