"""Tests against the baseline: paired permutation tests with Holm's correction (protocol 3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from pipeline.measure.statistics import holm, paired_permutation
from pipeline.report.averaging import Averaged, Key
from pipeline.report.model import Family, ReportSettings, Setup, Summary


def with_p_values(
    summaries: Mapping[Key, Summary], averaged: Mapping[Key, Averaged], family: Family, settings: ReportSettings
) -> dict[Key, Summary]:
    """Return the summaries of a family with p-values against the baseline.

    A system is tested if it and the baseline were scored on the same samples. Holm's correction is over the setups of
    the family (fields, or pool sizes), separately for each system and measure.
    """
    found = dict(summaries)
    raw: dict[Key, float] = {}
    for setup in family.setups:
        raw.update(_tests(setup, [key for key in summaries if key[0] == setup], averaged, settings))
    for system, measure in dict.fromkeys((key[1], key[2]) for key in raw):
        keys = [key for key in raw if key[1:] == (system, measure)]
        for key, adjusted in zip(keys, holm([raw[key] for key in keys]), strict=True):
            found[key] = dataclasses.replace(found[key], p_value=raw[key], p_adjusted=float(adjusted))
    return found


def _tests(
    setup: Setup, keys: list[Key], averaged: Mapping[Key, Averaged], settings: ReportSettings
) -> dict[Key, float]:
    pairs = {}
    for key in keys:
        base = averaged.get((setup, settings.baseline or "", key[2]))
        if base is not None and key[1] != settings.baseline and averaged[key].samples == base.samples:
            pairs[key] = averaged[key].values - base.values
    if not pairs:
        return {}
    p_values = paired_permutation(
        np.stack(list(pairs.values())), seed=settings.seed, item=setup.field or "", permutations=settings.permutations
    )
    return dict(zip(pairs, p_values.tolist(), strict=True))
