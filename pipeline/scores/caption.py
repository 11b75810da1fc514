"""What a table is called: its title, its provenance, and the folder of its report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.core.config import canonical, digest, file_name, format_count
from pipeline.core.workspace import corpus_folders
from pipeline.corpus.poolconfig import SETTINGS, PoolConfig
from pipeline.measure.statistics import interval_kind
from pipeline.scores.average import AVERAGE, RESAMPLED
from pipeline.scores.choose import option

DATASET = "dataset level"

_RULES = [name for name, setting in SETTINGS.items() if setting.rule]
"""Rules of the pools that notes state."""


def title(table: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return the title of a table: what the pools it shows have in common, and every rule that is not the usual one."""
    settings = json.loads(runs["pool_settings"][0])
    config, depths = flat(settings), sorted(set(runs["depth"]))
    parts = [str(config["year"])] if config.get("year") else []
    parts += [f"{config['queries']} queries"] if config.get("queries") else []
    parts += [f"seed {config['seed']}"] if "seed" in config else []
    parts += [f"top {depths[0]:,}"] if len(depths) == 1 else []
    parts += unusual(settings)
    if table["over"][0] == "fields":
        size = common_size(table)
        what = "Retrieval by field" + ("" if size is None else f", {format_count(size)} candidates")
    elif is_given(settings) and table["field"][0] is None:
        what = f"Retrieval on {scope(runs.row(0, named=True))}"
    else:
        what = f"Retrieval by pool size, {scope(runs.row(0, named=True))}"
    if config.get("split") == "validation":
        what = f"Validation queries: {what[0].lower()}{what[1:]}"
    return f"{what} ({', '.join(parts)})" if parts else what


def common_size(table: pl.DataFrame) -> int | None:
    """Return the number of candidates if it is the same in all pools of a table."""
    sizes = table.filter(pl.col("field").ne_missing(AVERAGE))["size"].unique()
    return int(sizes[0]) if len(sizes) == 1 else None


def collection(corpus: str) -> str:
    """Return the readable part of a corpus's folder name: the name it was built under."""
    return corpus.rpartition("-")[0] or corpus


def scope(run: Mapping[str, Any]) -> str:
    """Return what a pool is of: a field, the collection whose own queries it has, or all fields (dataset level)."""
    given = is_given(json.loads(run["pool_settings"]))
    return run["field"] or (collection(run["corpus"]) if given else DATASET)


def is_given(settings: Mapping[str, Any]) -> bool:
    """Whether a release brought the queries of a pool: it is all of the collection, and nothing was drawn."""
    return settings.get("queries_are") == "texts" and settings.get("year") is None


def listing(runs: pl.DataFrame, labels: Iterable[str], best: str) -> dict[str, str]:
    """Return what an index says of the page of some scores (:data:`pipeline.scores.page.parts.LISTED`)."""
    year = flat(json.loads(runs["pool_settings"][0])).get("year")
    return {
        "corpus": collection(runs["corpus"][0]),
        "year": str(year or ""),
        "systems": ", ".join(labels),
        "best row": best,
    }


def unusual(settings: Mapping[str, Any]) -> list[str]:
    """Return the rules of a pool that differ from the protocol's."""
    given, usual = flat(settings), flat(canonical(PoolConfig()))
    parts = [
        _rule(name, given[name])
        for name in (*_RULES, "drop_identical_id")
        if name in given and given[name] != usual.get(name)
    ]
    return parts + [f"without {name} ({digest[:6]})" for name, digest in given.get("exclude", ())]


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a pool that apply, without nesting: those of the prefilter beside the others."""
    if is_given(settings):
        return {name: settings[name] for name in ("drop_identical_id",) if name in settings}
    applied = {name: value for name, value in settings.items() if name != "prefilter"}
    return applied | (settings.get("prefilter") or {})


def _rule(name: str, value: Any) -> str:
    return f"{name.replace('_', ' ')} {str(value).lower() if isinstance(value, bool) else value}"


def provenance(summary: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return what figures were made from, and with which settings."""
    pools = runs.unique("pool", keep="first", maintain_order=True)
    pools = pools.sort(pl.col("field").fill_null(""), "size", "sample", maintain_order=True)
    config = flat(json.loads(pools["pool_settings"][0]))
    scored = pools["queries"] - pools["queries_without_positive"]
    drawn_as = summary["resample"][0]
    kinds = " or ".join(sorted({interval_kind(count) for count in scored})) if drawn_as != "papers" else "percentile"
    rules = [_rule(name, config[name]) for name in ("year", "split", *_RULES) if config.get(name) is not None]
    seeds = sorted({given["seed"] for text in pools["pool_settings"] if "seed" in (given := flat(json.loads(text)))})
    drawn = f", drawn with seed {', '.join(map(str, seeds))}" if seeds else ""
    stated = f" and the rules {', '.join(rules)}" if drawn and rules else ""
    source = f"corpus {pools['corpus'][0]}; pools {', '.join(pools['pool'])}{drawn}{stated}"
    if json.loads(pools["pool_settings"][0]).get("documents") == "named":
        source = f"qrels {pools['corpus'][0]}; runs {', '.join(runs['ranking'])}"
    return (
        f"Provenance: {source}; ties: score descending, then paper id descending; bootstrap over "
        f"{RESAMPLED[drawn_as]}: {summary['resamples'][0]:,} resamples, "
        f"{summary['level'][0]:.0%} {kinds} interval, seed {summary['bootstrap_seed'][0]}."
    )


_LONGEST = 120


def folder_names(root: Path, runs: pl.DataFrame, chosen: Mapping[str, Any], further: Sequence[str]) -> dict[str, str]:
    """Return a folder name for each kind of pool: corpus and kind, then what was chosen.

    ``further`` is what decides the tables beside what was ``chosen``.
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
