"""The title of a table and its provenance, made from the pools it shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from pipeline.core.config import canonical, format_count
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.measure.statistics import interval_kind
from pipeline.scores.average import AVERAGE

DATASET = "dataset level"

_SHARED = ("positives", "drop_same_title", "nested", "citation_direction", "min_citations", "min_abstract_chars")
"""Rules of the pools that notes state."""


def title(table: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return the title of a table: what the pools it shows have in common, and every rule that is not the usual one.

    Args:
        table: the rows of one table of a summary.
        runs: the rankings behind it.
    """
    settings = json.loads(runs["pool_settings"][0])
    config, depths = flat(settings), sorted(set(runs["depth"]))
    told = [str(config["year"])] if config.get("year") else []
    told += [f"{config['queries']} queries"] if config.get("queries") else []
    told += [f"seed {config['seed']}"] if "seed" in config else []
    told += [f"top {depths[0]:,}"] if len(depths) == 1 else []
    told += unusual(settings)
    if table["over"][0] == "fields":
        size = common_size(table)
        what = "Retrieval by field" + ("" if size is None else f", {format_count(size)} candidates")
    else:
        what = f"Retrieval by pool size, {table['field'][0] or DATASET}"
    if config.get("split") == "validation":
        what = f"Validation queries: {what[0].lower()}{what[1:]}"
    return f"{what} ({', '.join(told)})" if told else what


def common_size(table: pl.DataFrame) -> int | None:
    """Return the number of candidates if it is the same in all pools of a table."""
    sizes = table.filter(pl.col("field").ne_missing(AVERAGE))["size"].unique()
    return int(sizes[0]) if len(sizes) == 1 else None


def unusual(settings: Mapping[str, Any]) -> list[str]:
    """Return the rules of a pool that differ from the protocol's."""
    own, usual = flat(settings), flat(canonical(PoolConfig()))
    told = [
        _rule(name, own[name]) for name in (*_SHARED, "drop_identical_id") if name in own and own[name] != usual[name]
    ]
    told += [f"without {name} ({digest[:6]})" for name, digest in own.get("exclude", ())]
    return told + (["the release's queries"] if own.get("queries_are") == "texts" and "split" in own else [])


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a pool without nesting: those of the prefilter beside the others."""
    own = {name: value for name, value in settings.items() if name != "prefilter"}
    return own | (settings.get("prefilter") or {})


def _rule(name: str, value: Any) -> str:
    return f"{name.replace('_', ' ')} {str(value).lower() if isinstance(value, bool) else value}"


def provenance(summary: pl.DataFrame, runs: pl.DataFrame) -> str:
    """Return what figures were made from, and with which settings."""
    pools = runs.unique("pool", keep="first", maintain_order=True)
    pools = pools.sort(pl.col("field").fill_null(""), "size", "sample", maintain_order=True)
    config = flat(json.loads(pools["pool_settings"][0]))
    scored = pools["queries"] - pools["queries_without_positive"]
    kinds = " or ".join(sorted({interval_kind(count) for count in scored}))
    rules = [_rule(name, config[name]) for name in ("year", "split", *_SHARED) if name in config]
    seeds = pools["seed"].drop_nulls().unique().sort()
    drawn = f", drawn with seed {', '.join(map(str, seeds))}" if len(seeds) else ""
    stated = f" and the rules {', '.join(rules)}" if drawn and rules else ""
    return (
        f"Provenance: corpus {pools['corpus'][0]}; pools {', '.join(pools['pool'])}{drawn}{stated}; ties: "
        f"score descending, then paper id descending; bootstrap over queries: {summary['resamples'][0]:,} resamples, "
        f"{summary['level'][0]:.0%} {kinds} interval, seed {summary['bootstrap_seed'][0]}."
    )
