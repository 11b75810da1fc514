"""Means over samples, macro averages over fields, and significance against a baseline (protocols 2 to 4)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pipeline.core.errors import InputError
from pipeline.measure.measures import parse_measures, sign_of
from pipeline.measure.statistics import confidence_interval, mean_and_deviation
from pipeline.report.averaging import Averaged, Floats, Key, average
from pipeline.report.model import (
    AVERAGE,
    Family,
    Report,
    ReportSettings,
    Scored,
    Setup,
    Summary,
    families,
    unique,
)
from pipeline.report.significance import baselines, with_p_values


def summarise(
    scored: Sequence[Scored], settings: ReportSettings, measures: Sequence[str] | None = None, sort: str | None = None
) -> Report:
    """Return the report of some scores: figures of all measures, some of which are shown.

    Args:
        scored: what :func:`pipeline.report.collect.load` read; systems are shown in this order.
        settings: seed, bootstrap, baseline.
        measures: canonical names of the measures to show, in order; None: all, in canonical order.
        sort: the measure whose mean over pools orders the systems, best first; None: the order given.
    """
    if not scored:
        raise InputError("there are no scores to report", "Run mdcr eval first")
    base_of = baselines(scored, settings.baseline)
    known = sorted({name for each in scored for name in each.measures}, key=lambda name: parse_measures(name)[0].order)
    for name in (*(measures or ()), *([sort] if sort else [])):
        if name not in known:
            raise InputError(f"{name} was not scored", f"Score it with --measures, or choose from {', '.join(known)}")
    averaged = average(scored, known, settings)
    systems = unique([each.system for each in scored])
    if sort:
        found = {key: each.values.mean() for key, each in averaged.items() if key[2] == sort}
        sign = sign_of(sort)
        means = {name: np.mean([sign * v for k, v in found.items() if k[1] == name] or [-np.inf]) for name in systems}
        systems = tuple(sorted(systems, key=lambda name: -means[name]))
    grouped = families(each.pool.setup for each in scored)
    summaries: list[Summary] = []
    for family in grouped:
        single = {key: _summary(key, each, settings) for key, each in averaged.items() if key[0] in family.setups}
        summaries += with_p_values(single, averaged, family, settings, base_of).values()
        if family.kind == "fields":
            summaries += _macro_averages(family, systems, known, averaged, settings)
    shown = tuple(known if measures is None else measures)
    return Report(tuple(summaries), grouped, systems, shown, settings, tuple(scored), base_of)


def of_sample(report: Report, sample: int) -> tuple[Summary, ...]:
    """Return the figures of one sample alone, without tests."""
    scored = [each for each in report.scored if each.pool.sample == sample]
    averaged = average(scored, unique([name for each in scored for name in each.measures]), report.settings)
    return tuple(_summary(key, each, report.settings) for key, each in averaged.items())


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
