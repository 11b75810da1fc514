"""Means over the samples of a setup, query by query, and their bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.measure.statistics import bootstrap_means
from pipeline.report.model import ReportSettings, Scored, Setup

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Averaged:
    """One measure of one system on all samples of a setup.

    Attributes:
        values: float64 ``[queries]``, mean over samples.
        figures: float64 ``[samples]``, mean over queries.
        samples: their numbers.
        resampled: float64 ``[resamples]``, bootstrap means of ``values``.
        positives: relevant papers of one sample.
        pools: folder names.
    """

    values: Floats
    figures: Floats
    samples: tuple[int, ...]
    resampled: Floats
    positives: int
    pools: tuple[str, ...]


Key = tuple[Setup, str, str]
"""Setup, system, measure."""


def average(scored: Sequence[Scored], measures: Sequence[str], settings: ReportSettings) -> dict[Key, Averaged]:
    """Return some measures of each system on each setup, averaged over its samples.

    All samples of a setup have the same queries, so the interval is over queries, each with its mean over samples.
    Fields are resampled independently.
    """
    samples_of: dict[Setup, dict[str, list[Scored]]] = {}
    for each in sorted(scored, key=lambda each: each.pool.sample):
        samples_of.setdefault(each.pool.setup, {}).setdefault(each.system, []).append(each)
    averaged: dict[Key, Averaged] = {}
    for setup, by_system in samples_of.items():
        _require_one_set_of_queries([each for samples in by_system.values() for each in samples])
        keys = [
            (system, measure, measured)
            for system, samples in by_system.items()
            for measure in measures
            if (measured := [each for each in samples if measure in each.measures])
        ]
        if not keys:
            continue
        stacks = [np.stack([each.values[each.measures.index(m)] for each in samples]) for _, m, samples in keys]
        means = np.stack([stack.mean(axis=0) for stack in stacks])
        resampled = bootstrap_means(means, seed=settings.seed, item=setup.field or "", resamples=settings.resamples)
        for (system, measure, samples), stack, mean, draws in zip(keys, stacks, means, resampled, strict=True):
            averaged[setup, system, measure] = Averaged(
                values=mean,
                figures=stack.mean(axis=1),
                samples=tuple(each.pool.sample for each in samples),
                resampled=draws,
                positives=samples[0].pool.positives,
                pools=tuple(each.pool.name for each in samples),
            )
    return averaged


def _require_one_set_of_queries(samples: Sequence[Scored]) -> None:
    for each in samples[1:]:
        if not np.array_equal(each.queries, samples[0].queries) or each.pool.positives != samples[0].pool.positives:
            raise InputError(
                f"{_described(samples[0])} and {_described(each)} are samples of one pool, but have other queries",
                "Build them with one seed and one version",
            )


def _described(scored: Scored) -> str:
    return f"{scored.pool.name} ({len(scored.queries):,} queries, {scored.pool.positives:,} positives)"
