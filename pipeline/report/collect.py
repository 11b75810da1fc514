"""Reading what was chosen: which scores stand in one table, what their rows are called, and their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.core.config import changed_fields, format_count
from pipeline.core.errors import CorruptError, InputError
from pipeline.report.frame import frame as frame
from pipeline.report.frame import identity, values_of
from pipeline.report.identity import Chosen
from pipeline.report.model import PoolFacts, Scored, Setup, unique

_SPELLED = {"compute": "precision", "search": "engine"}
"""What labels call a setting, where users know it by another name."""


def tables(chosen: Sequence[Chosen]) -> list[list[Chosen]]:
    """Return what stands in one table: scores on pools of one corpus that differ in field, size and sample alone.

    Pools of all candidates have a table of their own where another pool of the field happens to be as large.
    """
    counted = {(_place(each), each.pool.manifest.config.get("size") == "all") for each in chosen}
    groups: dict[tuple[str, bool], list[Chosen]] = {}
    for each in chosen:
        twin = each.pool.manifest.config.get("size") == "all" and (_place(each), False) in counted
        groups.setdefault((each.kind, twin), []).append(each)
    return list(groups.values())


def load(chosen: Sequence[Chosen]) -> list[Scored]:
    """Read the scores of one table, in the order given; those of one ranking have all measures of its artifacts.

    Raises:
        InputError: there are none, or the pools do not fit in one table (several corpora, or several settings with one
            field and size).
        CorruptError: a table does not have one value for each query and measure.
    """
    if not chosen:
        raise InputError("there are no scores to report", "Run mdcr eval first")
    facts = {each.pool.id: _facts(each) for each in chosen}
    _refuse_mixtures(list(facts.values()))
    label_of = _labels(chosen)
    return [_read(each, facts[each.pool.id], label_of[each.row]) for each in chosen]


def _place(chosen: Chosen) -> tuple[Any, ...]:
    return chosen.kind, chosen.pool.manifest.config.get("field"), chosen.pool.manifest.counts["candidates"]


def _facts(chosen: Chosen) -> PoolFacts:
    manifest = chosen.pool.manifest
    config, counts = manifest.config, manifest.counts
    return PoolFacts(
        name=chosen.pool.name,
        setup=Setup(config.get("field"), int(counts["candidates"])),
        sample=int(config.get("sample", 1)),
        positives=int(counts["positives"]),
        corpus=manifest.inputs["corpus"],
        settings={key: value for key, value in config.items() if key != "sample"},
        absent=int(counts.get("positives_not_in_collection", 0)),
        marks=counts.get("marks", {}),
    )


def _labels(chosen: Sequence[Chosen]) -> dict[str, str]:
    """Return the label of each row: the name of its system, and the settings that tell it from others of that name.

    The depth is named in every row where depths differ.
    """
    row_of = {each.row: each for each in chosen}
    depths = len({each.depth for each in row_of.values()}) > 1
    labels = {}
    for row, each in row_of.items():
        own, namesakes = _flat(each), [_flat(one) for one in row_of.values() if one.system == each.system]
        names = unique([name for one in namesakes for name in one if any(o.get(name) != one[name] for o in namesakes)])
        told = [f"{_short(name)} {_text(own.get(name))}" for name in sorted(names) if name != "depth"]
        told += [f"depth {each.depth}"] if depths else []
        labels[row] = f"{each.system} ({', '.join(told)})" if told else each.system
    return labels


def _flat(chosen: Chosen) -> dict[str, Any]:
    """Return the settings that identify a row, nested ones by dotted names."""
    found: dict[str, Any] = {}

    def add(prefix: str, settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            if isinstance(value, Mapping) and name != "search":
                add(f"{prefix}{name}.", value)
            else:
                found[prefix + name] = chosen.engine if name == "search" else value

    add("", chosen.row_settings)
    return found


def _short(name: str) -> str:
    last = name.rpartition(".")[2]
    return _SPELLED.get(last, last)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).removeprefix("sha256:")[:12] if isinstance(value, str) else str(value)


def _read(chosen: Chosen, pool: PoolFacts, label: str) -> Scored:
    measures = chosen.measures
    long = values_of(chosen)
    wide = long.pivot(on="measure", index="query", values="value", aggregate_function="first").sort("query")
    if set(wide.columns) != {"query", *measures} or sum(wide.null_count().row(0)):
        raise CorruptError(f"the artifacts of {chosen.ranking.name} have other queries", "Score it again with --repair")
    return Scored(
        system=label,
        pool=pool,
        measures=measures,
        queries=wide["query"].to_numpy().astype(np.int64),
        values=np.ascontiguousarray(wide.select(measures).to_numpy().T),
        counts=chosen.scores[0].manifest.counts,
        corpus=chosen.corpus_name,
        parameters=_parameters(chosen),
        identity=identity(chosen),
        scores=tuple(each.name for each in chosen.scores),
        replaced=chosen.replaced,
    )


def _parameters(chosen: Chosen) -> str:
    """Return the settings that a system's name may not say."""
    settings, known = chosen.settings, identity(chosen)
    told = [f"{name}={settings[name]:g}" for name in ("k1", "b") if name in settings]
    told += [f"{weight:g} {name}" for name, weight in (settings.get("weights") or {}).items()]
    told += [f"{name} {known[name]}" for name in ("precision",) if known[name]]
    told += [f"revision {_text(known['revision'])}"] if known["revision"] else []
    return ", ".join(told)


def _refuse_mixtures(pools: Sequence[PoolFacts]) -> None:
    first_of: dict[Setup, PoolFacts] = {}
    sampled: dict[tuple[Setup, int], PoolFacts] = {}
    for pool in pools:
        if pool.corpus != pools[0].corpus:
            raise InputError(f"{pools[0].name} and {pool.name} are pools of two corpora", "Report them apart")
        first = first_of.setdefault(pool.setup, pool)
        if pool.settings != first.settings:
            changed = "; ".join(changed_fields(first.settings, pool.settings))
            raise InputError(
                f"{first.name} and {pool.name} have one field and size but other settings ({changed})",
                "Report them apart",
            )
        twin = sampled.setdefault((pool.setup, pool.sample), pool)
        if twin.name != pool.name:
            size = format_count(pool.setup.size)
            raise InputError(
                f"{twin.name} and {pool.name} are both sample {pool.sample} of {size}", "Report them apart"
            )
