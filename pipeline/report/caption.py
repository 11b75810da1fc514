"""The title of a table and its provenance, made from the pools it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.core.config import canonical, format_count
from pipeline.corpus.poolconfig import SETTINGS, PoolConfig
from pipeline.measure.statistics import interval_kind
from pipeline.report.model import Family, PoolFacts, Report, Scored

DATASET = "dataset level"

_RULES = [name for name, each in SETTINGS.items() if each.rule]
"""Rules of the pools that notes state."""


def title(report: Report, family: Family) -> str:
    """Return the title of a table: what the pools it shows have in common, and every rule that is not the usual one."""
    scored = report.within(family)
    config = flat(scored[0].pool.settings)
    depths = sorted({each.depth for each in scored})
    told = [str(config["year"])] if config.get("year") else []
    told += [f"{config['queries']} queries"] if config.get("queries") else []
    told += [f"seed {config['seed']}"] if "seed" in config else []
    told += [f"top {depths[0]:,}"] if len(depths) == 1 else []
    told += unusual(scored[0].pool.settings)
    if family.kind == "fields":
        what = "Retrieval by field" + ("" if family.size is None else f", {format_count(family.size)} candidates")
    elif is_given(scored[0].pool.settings) and family.setups[0].field is None:
        what = f"Retrieval on {scope(scored[0])}"
    else:
        what = f"Retrieval by pool size, {scope(scored[0])}"
    if config.get("split") == "validation":
        what = f"Validation queries: {what[0].lower()}{what[1:]}"
    return f"{what} ({', '.join(told)})" if told else what


def scope(scored: Scored) -> str:
    """Return what a pool is of: a field, the collection whose own queries it has, or all fields (dataset level)."""
    return scored.pool.setup.field or (scored.collection if is_given(scored.pool.settings) else DATASET)


def is_given(settings: Mapping[str, Any]) -> bool:
    """Whether a release brought the queries of a pool: it is all of the collection, and nothing was drawn."""
    return settings.get("queries_are") == "texts"


def listing(scored: Scored, systems: Sequence[str], best: str) -> dict[str, str]:
    """Return what an index says of the page of some scores (:data:`pipeline.report.page.parts.LISTED`)."""
    year = flat(scored.pool.settings).get("year")
    return {
        "corpus": scored.collection,
        "year": str(year or ""),
        "systems": ", ".join(systems),
        "best row": best,
    }


def unusual(settings: Mapping[str, Any]) -> list[str]:
    """Return the rules of a pool that differ from the protocol's."""
    own, usual = flat(settings), flat(canonical(PoolConfig()))
    told = [
        _rule(name, own[name]) for name in (*_RULES, "drop_identical_id") if name in own and own[name] != usual[name]
    ]
    return told + [f"without {name} ({digest[:6]})" for name, digest in own.get("exclude", ())]


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a pool that apply, without nesting: those of the prefilter beside the others."""
    if is_given(settings):
        return {name: settings[name] for name in ("drop_identical_id",) if name in settings}
    own = {name: value for name, value in settings.items() if name != "prefilter"}
    return own | (settings.get("prefilter") or {})


def _rule(name: str, value: Any) -> str:
    return f"{name.replace('_', ' ')} {str(value).lower() if isinstance(value, bool) else value}"


def provenance(report: Report, scored: Sequence[Scored]) -> str:
    """Return what figures were made from, and with which settings."""
    settings = report.settings
    pools = sorted({each.pool.name: each.pool for each in scored}.values(), key=_place)
    config = flat(pools[0].settings)
    kinds = " or ".join(sorted({interval_kind(len(each.queries)) for each in scored}))
    rules = [_rule(name, config[name]) for name in ("year", "split", *_RULES) if name in config]
    seeds = sorted({own["seed"] for each in pools if "seed" in (own := flat(each.settings))})
    drawn = f", drawn with seed {', '.join(map(str, seeds))}" if seeds else ""
    stated = f" and the rules {', '.join(rules)}" if drawn and rules else ""
    return (
        f"Provenance: corpus {report.corpus}; pools {', '.join(each.name for each in pools)}{drawn}{stated}; ties: "
        f"score descending, then paper id descending; bootstrap over queries: {settings.resamples:,} resamples, "
        f"{settings.level:.0%} {kinds} interval, seed {settings.seed}."
    )


def _place(pool: PoolFacts) -> tuple[str, int, int]:
    return pool.setup.field or "", pool.setup.size, pool.sample
