"""Tests against the baseline: paired permutation tests with Holm's correction (protocol 3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.core.errors import InputError
from pipeline.measure.statistics import holm, paired_permutation
from pipeline.report.averaging import Averaged, Key
from pipeline.report.model import Family, ReportSettings, Scored, Setup, Summary, unique


def baselines(scored: Sequence[Scored], wanted: str | None) -> dict[str, str]:
    """Return the row each row is tested against: that of the baseline with the same depth.

    ``wanted`` is a name or label; None: no tests.
    """
    depth_of = {each.system: each.depth for each in scored}
    called = unique([each.system for each in scored if wanted in (each.system, each.name)])
    if wanted is not None and not called:
        listed = ", ".join(depth_of)
        raise InputError(
            f"the baseline must be one of {listed} on these pools, got {wanted!r}",
            f"Name it with --model, or score it first: mdcr eval --model {wanted}",
        )
    base_of: dict[int, str] = {}
    for label in called:
        other = base_of.setdefault(depth_of[label], label)
        if other != label:
            raise InputError(
                f"the baseline {wanted!r} must be one row, got {other} and {label}", "Give its whole label"
            )
    return {
        label: base_of[depth] for label, depth in depth_of.items() if depth in base_of and label not in base_of.values()
    }


def with_p_values(
    summaries: Mapping[Key, Summary],
    averaged: Mapping[Key, Averaged],
    family: Family,
    settings: ReportSettings,
    base_of: Mapping[str, str],
) -> dict[Key, Summary]:
    """Return the summaries of a family with p-values against the baseline.

    A system is tested if it and the baseline were ranked to one depth and scored on the same samples. Holm's correction
    is over the setups of the family (fields, or pool sizes), separately for each system and measure.
    """
    found = dict(summaries)
    raw: dict[Key, float] = {}
    for setup in family.setups:
        raw.update(_tests(setup, [key for key in summaries if key[0] == setup], averaged, settings, base_of))
    for system, measure in dict.fromkeys((key[1], key[2]) for key in raw):
        keys = [key for key in raw if key[1:] == (system, measure)]
        for key, adjusted in zip(keys, holm([raw[key] for key in keys]), strict=True):
            found[key] = dataclasses.replace(found[key], p_value=raw[key], p_adjusted=float(adjusted))
    return found


def _tests(
    setup: Setup,
    keys: list[Key],
    averaged: Mapping[Key, Averaged],
    settings: ReportSettings,
    base_of: Mapping[str, str],
) -> dict[Key, float]:
    pairs = {}
    for key in keys:
        base = averaged.get((setup, base_of.get(key[1], ""), key[2]))
        if base is not None and averaged[key].samples == base.samples:
            pairs[key] = averaged[key].values - base.values
    if not pairs:
        return {}
    p_values = paired_permutation(
        np.stack(list(pairs.values())), seed=settings.seed, item=setup.field or "", permutations=settings.permutations
    )
    return dict(zip(pairs, p_values.tolist(), strict=True))
