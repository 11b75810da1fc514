"""Which drawn pools count on the leaderboard: those that are chosen, else one suite a corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pipeline.core.config import counted
from pipeline.core.errors import InputError, require_known
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.scores.choose import filter_settings, is_called, settings_of_choice, typed_option
from pipeline.scores.facts import artifact_of, as_json, setting_of

ALL = "all"
"""In place of settings of pools: every drawn pool counts."""

_IN_SUITE = ("field", "year", "size", "sample")
"""Settings in which the drawn pools of a suite differ."""

_FLAGS = {"true": True, "false": False}


def kind_of(settings: Mapping[str, Any]) -> str:
    """Return the kind of benchmark of the pools with some settings: a key of ``COMMANDS``."""
    kind_of_setting = {"lists": "benchmark", "relevant": "facets", "kind": settings.get("kind", "").partition("-")[0]}
    kinds = (kind for name, kind in kind_of_setting.items() if name in settings)
    return next(kinds, "queries" if settings.get("queries_are") == "texts" else "pools")


def chosen(runs: pl.DataFrame, pools: Sequence[str], system: str) -> pl.DataFrame:
    """Return the rankings on the pools that count.

    Drawn pools of a corpus that differ in field, year, size and sample alone are a suite. The suite with the most
    systems counts (of several, that with the most rankings, then the newest), before it one that has ``system``. Other
    pools were drawn for a try, or for a study of settings.
    """
    settings = [artifact_of(run, "pool").manifest.config for run in runs.iter_rows(named=True)]
    runs = runs.with_columns(
        pl.Series("drawn", [kind_of(one) == "pools" for one in settings], pl.Boolean),
        pl.Series("suite", [as_json({k: v for k, v in one.items() if k not in _IN_SUITE}) for one in settings]),
        pl.Series("has", [is_called(run, system) for run in runs.iter_rows(named=True)], pl.Boolean),
    )
    drawn, others = runs.filter("drawn"), runs.filter(~pl.col("drawn"))
    if pools:
        matching = [filter_settings(drawn, _settings_of(text)) for text in pools]
        kept = drawn.filter(pl.col("pool").is_in(pl.concat(matching)["pool"].implode()))
    else:
        facts = (pl.max("has"), pl.n_unique("system"), pl.len(), pl.max("published"))
        suites = drawn.group_by("corpus", "suite").agg(*facts).sort("has", "system", "len", "published", "suite")
        best = suites.unique("corpus", keep="last")
        kept = drawn.join(best, on=["corpus", "suite"], how="semi", maintain_order="left")
    return pl.concat([kept, others]).drop("drawn", "suite", "has")


def _settings_of(text: str) -> dict[str, Any]:
    """Return the settings of pools in a text such as ``queries=100,size=2000``."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name.strip() and value.strip() for name, _, value in pairs):
        raise InputError(f"--pools must be {ALL}, or settings such as queries=100,size=2000; got {text!r}", "Mend it")
    given: dict[str, Any] = {name.strip().lstrip("-").replace("-", "_"): value.strip() for name, _, value in pairs}
    for name in given:
        require_known(name, SETTINGS, f"there is no setting {name!r} of pools")
    return settings_of_choice(**{name: _FLAGS.get(value, value) for name, value in given.items()})


def left_out(runs: pl.DataFrame, kept: pl.DataFrame) -> str:
    """Return the number of drawn pools in suites that were not chosen, and the settings that tell them apart."""
    others = runs.filter(~pl.col("pool").is_in(kept["pool"].implode())).unique("pool")
    if others.is_empty():
        return ""
    texts = set[str]()
    for of_corpus in others.partition_by("corpus"):
        texts |= _options(of_corpus) - _options(kept.filter(corpus=of_corpus["corpus"][0]))
    pools = f"{counted(len(others), 'drawn pool')}"
    return f"Left out: {pools} of other settings ({', '.join(sorted(texts))}); --pools chooses."


def _options(runs: pl.DataFrame) -> set[str]:
    """Return the options that choose the suites of some rankings."""
    rows = runs.unique("pool").rows(named=True)
    pools = [run for run in rows if kind_of(artifact_of(run, "pool").manifest.config) == "pools"]
    names = [name for name, known in SETTINGS.items() if known.path[0] not in _IN_SUITE]
    return {typed_option(name, setting_of(pool, name)) for pool in pools for name in names}
