"""Means over samples, macro averages over fields, and significance against a baseline (protocols 2 to 4)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pipeline.core.errors import InputError, nearest
from pipeline.measure.measures import parse_measures
from pipeline.measure.statistics import confidence_interval, mean_and_deviation
from pipeline.report.averaging import Averaged, Floats, Key, average
from pipeline.report.model import (
    AVERAGE,
    Family,
    PoolFacts,
    Report,
    ReportSettings,
    Scored,
    Setup,
    Summary,
    families,
    unique,
)
from pipeline.report.significance import with_p_values


def summarise(scored: Sequence[Scored], settings: ReportSettings, measures: Sequence[str] | None = None) -> Report:
    """Return the report of some scores.

    Args:
        scored: what :func:`pipeline.report.collect.load` read; systems are shown in this order.
        settings: seed, bootstrap, baseline.
        measures: canonical names of the measures to show, in order; None: all, in canonical order.

    Raises:
        InputError: there are no scores, the baseline or a measure was not scored, or samples of one pool have different
            queries.
    """
    if not scored:
        raise InputError("there are no scores to report", "Run mdcr eval first")
    systems = unique([each.system for each in scored])
    if settings.baseline is not None and settings.baseline not in systems:
        raise InputError(
            f"there are no scores of the baseline {settings.baseline!r}", nearest(settings.baseline, systems)
        )
    shown = _measures(scored, measures)
    averaged = average(scored, shown, settings)
    grouped = families(each.pool.setup for each in scored)
    summaries: list[Summary] = []
    for family in grouped:
        single = {key: _summary(key, each, settings) for key, each in averaged.items() if key[0] in family.setups}
        summaries += with_p_values(single, averaged, family, settings).values()
        if family.kind == "fields":
            summaries += _macro_averages(family, systems, shown, averaged, settings)
    return Report(
        summaries=tuple(summaries),
        families=grouped,
        systems=systems,
        measures=shown,
        settings=settings,
        corpus=scored[0].corpus,
        pools=unique([pool.name for pool in sorted((each.pool for each in scored), key=_place)]),
        pool_seeds=tuple(sorted({each.pool.settings["seed"] for each in scored if "seed" in each.pool.settings})),
        depth=max(each.counts["depth"] for each in scored),
        tied={system: _tied([each for each in scored if each.system == system]) for system in systems},
        without_results={
            system: sum(each.counts["queries_without_results"] for each in scored if each.system == system)
            for system in systems
        },
        without_positive=sum({each.pool.name: each.counts["queries_without_positive"] for each in scored}.values()),
        parameters={system: text for system in systems if (text := _parameters(scored, system))},
    )


def _place(pool: PoolFacts) -> tuple[str, int, int]:
    return pool.setup.field or "", pool.setup.size, pool.sample


def _measures(scored: Sequence[Scored], wanted: Sequence[str] | None) -> tuple[str, ...]:
    known = sorted({name for each in scored for name in each.measures}, key=lambda name: parse_measures(name)[0].order)
    for name in wanted or ():
        if name not in known:
            raise InputError(f"{name} was not scored", f"Score it with --measures, or choose from {', '.join(known)}")
    return tuple(known if wanted is None else wanted)


def _parameters(scored: Sequence[Scored], system: str) -> str:
    """Return a system's parameters as text, followed by their fields if they differ between fields."""
    fields_of: dict[str, list[str]] = {}
    for each in scored:
        if each.system == system and each.parameters:
            fields_of.setdefault(each.parameters, []).append(each.pool.setup.field or "dataset level")
    if len(fields_of) < 2:
        return "".join(fields_of)
    return ", ".join(f"{text} ({', '.join(unique(fields))})" for text, fields in fields_of.items())


def _tied(scored: Sequence[Scored]) -> float:
    entries = sum(each.counts["retrieved"] for each in scored)
    tied = sum(each.counts["tied_share"] * each.counts["retrieved"] for each in scored)
    return tied / entries if entries else 0.0


def _summary(
    key: Key, averaged: Averaged, settings: ReportSettings, parts: Sequence[Averaged] | None = None
) -> Summary:
    setup, system, measure = key
    values = [each.values[None, :] for each in parts or [averaged]]
    low, high = confidence_interval(averaged.resampled[None, :], *values, level=settings.level)
    mean, deviation = mean_and_deviation(averaged.figures)
    return Summary(
        system=system,
        field=setup.field,
        size=setup.size,
        measure=measure,
        value=mean,
        deviation=deviation,
        low=float(low[0]),
        high=float(high[0]),
        samples=len(averaged.samples),
        queries=len(averaged.values),
        positives=averaged.positives,
        pools=averaged.pools,
    )


def _macro_averages(
    family: Family,
    systems: Sequence[str],
    measures: Sequence[str],
    averaged: Mapping[Key, Averaged],
    settings: ReportSettings,
) -> Iterator[Summary]:
    """Yield the macro average over the fields of a family, for each system that was measured on all of them."""
    for system, measure in itertools.product(systems, measures):
        parts = [averaged[key] for setup in family.setups if (key := (setup, system, measure)) in averaged]
        if len(parts) < len(family.setups):
            continue
        whole = Averaged(
            values=np.concatenate([part.values for part in parts]),
            figures=_figures_of_samples(parts),
            samples=max((part.samples for part in parts), key=len),
            resampled=np.mean([part.resampled for part in parts], axis=0),
            positives=sum(part.positives for part in parts),
            pools=tuple(name for part in parts for name in part.pools),
        )
        value = float(np.mean([part.figures.mean() for part in parts]))
        summary = _summary((Setup(AVERAGE, 0), system, measure), whole, settings, parts)
        yield dataclasses.replace(summary, size=family.size, value=value)


def _figures_of_samples(parts: Sequence[Averaged]) -> Floats:
    """Return the macro average of each sample; a field with one pool (``SIZE=all``) counts in each of them.

    If fields have different samples, no deviation over samples is defined, and one figure is returned.
    """
    repeated = [part for part in parts if len(part.samples) > 1]
    if len({part.samples for part in repeated}) != 1:
        return np.array([np.mean([part.figures.mean() for part in parts])])
    count = len(repeated[0].samples)
    figures: Floats = np.mean([np.broadcast_to(part.figures, count) for part in parts], axis=0)
    return figures
