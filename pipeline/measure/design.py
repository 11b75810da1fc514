"""Means with intervals, and paired differences with tests: a frame of values in, a frame of estimates out.

A :class:`Design` says what the columns of the values mean. What a seed draws depends on the following alone, so it is
part of the contract:

- The items of a group are drawn in rising order (numbers by size, texts by code point), whatever the frame's order, and
  all rows of a set share the draws. Units are in order of their first item, groups in order of their first row.
- The bootstrap of a group is seeded by its name (empty if there are no groups), and groups are drawn independently.
  Units of several items are drawn from all groups at once, seeded by the name of the only group or ``fields``.
- The permutation test is seeded by the name of the only group, or ``fields``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from pipeline.core.errors import InputError
from pipeline.measure.draws import RESAMPLED as RESAMPLED
from pipeline.measure.draws import USUAL as USUAL
from pipeline.measure.draws import Draws as Draws
from pipeline.measure.estimates import smallest_shown
from pipeline.measure.measures import sign_of
from pipeline.measure.permutation import least_p_value, permutations_of
from pipeline.measure.resampling import sample_weights
from pipeline.measure.statistics import (
    TAIL_RESAMPLES,
    Floats,
    Groups,
    Means,
    Units,
    bootstrap_means,
    confidence_interval,
    holm,
    interval_kind,
    mean_of_means,
    permutation_of_means,
    standard_error,
    standardised_effect,
)

Row = tuple[Any, ...]
"""Values of the columns ``row`` of a :class:`Design`."""

_MEASURE = "measure"

_TIE = 1e-9
"""Differences up to it are ties: means of samples are rounded."""


@dataclass(frozen=True)
class Design:
    """The meaning of the columns of a frame of values, which has the ``value`` of an item in each row.

    A column ``measure``, if there is one, separates measures: those with values of the same items share draws, a row is
    compared with its baseline within each, and the measure says whether higher is better. Without it, or if it is null,
    higher is better.

    Attributes:
        row: what is estimated and compared, such as a system.
        of: sets of items, such as a pool; the rows of a set have the same items.
        item: what is drawn, such as a query.
        group: groups of items whose means are averaged with equal weights, such as fields; None: one group.
        unit: items of one unit, such as a paper, are drawn and flipped together. If each unit has one item, items are.
        over: repetitions of an item, such as samples of candidates, of which the mean is taken first.
        resampled: resamples of each value, list<float64>, null if unknown. The items are then fixed, and their mean has
            the percentile interval of these. None: items are resampled.
        family: tests with equal values form a family of Holm's correction; None: those of a set and measure.
    """

    row: Sequence[str]
    of: Sequence[str] = ()
    item: str = "query"
    group: str | None = None
    unit: str | None = None
    over: str | None = None
    resampled: str | None = None
    family: Sequence[str] | None = None


ESTIMATE = {
    "value": pl.Float64, "low": pl.Float64, "high": pl.Float64, "items": pl.Int64, "units": pl.Int64,
    "interval": pl.String,
}  # fmt: skip
"""Columns of an estimate: the mean with its interval, the numbers of items and of drawn units, the kind of interval.

``low`` and ``high`` are null where the kind is ``none``: one item has no interval."""

DIFFERENCE = {
    "difference": pl.Float64, "difference_low": pl.Float64, "difference_high": pl.Float64, "p": pl.Float64,
    "p_adjusted": pl.Float64, "tests": pl.Int64, "permutations": pl.Int64, "effect": pl.Float64,
    "error": pl.Float64, "detectable": pl.Float64, "wins": pl.Int64, "ties": pl.Int64, "losses": pl.Int64,
}  # fmt: skip
"""Columns of a difference, the row less its baseline; null for rows that are not compared.

``p`` is of the paired permutation test with so many ``permutations``, ``p_adjusted`` by Holm's correction over the
``tests`` of the family. ``effect`` is :func:`pipeline.measure.statistics.standardised_effect`, ``error`` the standard
error of the difference, and ``detectable`` the smallest difference that these items show with power .8 at the level of
Holm's first step, null if no test of the family can be significant. ``wins`` counts the items on which the row is
better.
"""


def estimate(
    values: pl.DataFrame,
    design: Design,
    seed: int,
    baseline: Row | Mapping[Row, Row] | None = None,
    draws: Draws = USUAL,
    *,
    keep_draws: bool = False,
) -> pl.DataFrame:
    """Return the means of values with intervals and, against a baseline, differences with tests.

    Args:
        values: a value for each item of each row, with the columns that ``design`` names.
        design: the meaning of the columns.
        seed: the user's seed.
        baseline: the row that the others are compared with, or that of each compared row. There is no comparison in a
            set without it, nor if the two rows have other repetitions (:attr:`Design.over`).
        draws: settings of intervals and tests.
        keep_draws: whether to add the column ``draws``, the resampled means, list<float64>.

    Returns:
        The columns ``of``, ``row`` and ``measure`` with :data:`ESTIMATE` and, with a baseline, :data:`DIFFERENCE`: a
        row for each row of each set, in order of first appearance; nothing without values (NaN and null are none).

    Raises:
        InputError: a row lacks items that others of its set have, or has two values of one; or repetitions are
            resampled and a row has one alone.
    """
    measure = [_MEASURE] if _MEASURE in values.columns else []
    keys = list(dict.fromkeys([*design.of, *design.row, *measure]))
    values = values.filter(pl.col("value").cast(pl.Float64).is_not_nan())
    if values.is_empty():
        return values.select(keys).hstack(pl.DataFrame(schema=ESTIMATE | (DIFFERENCE if baseline is not None else {})))
    sets = [_read(part, keys, design) for part in _sets(values, design, measure)]
    frame = pl.concat([items.rows.hstack(_estimates(items, seed, draws, keep_draws)) for items in sets])
    frame = (
        values.select(keys).unique(maintain_order=True).join(frame, on=keys, nulls_equal=True, maintain_order="left")
    )
    if baseline is None:
        return frame
    pairs = [_pairs(items.rows, design.row, baseline, items) for items in sets]
    compared = pl.concat([items.rows[first] for items, (first, _) in zip(sets, pairs, strict=True)])
    family = [*(design.of if design.family is None else design.family), *measure]
    counted = compared.select(pl.len().over(family)).to_series() if family else np.full(len(compared), len(compared))
    if draws.tests is not None:
        counted = np.full(len(compared), draws.tests)
    parts_of = np.split(np.asarray(counted), np.cumsum([len(first) for first, _ in pairs])[:-1])
    differences = compared.hstack(
        pl.concat([
            _differences(items, *pair, of_set, seed, draws)
            for items, pair, of_set in zip(sets, pairs, parts_of, strict=True)
        ])
    )  # fmt: skip
    frame = _with_ends(frame.join(differences, on=keys, how="left", nulls_equal=True, maintain_order="left"))
    return corrected(frame, family)


def corrected(estimates: pl.DataFrame, family: Sequence[str] = ()) -> pl.DataFrame:
    """Return estimates with ``p_adjusted`` by Holm's correction over the tests with equal values of ``family``.

    It makes one family of the estimates of several calls, each with their number of tests (:attr:`Draws.tests`).
    """
    is_tested = pl.col("p").is_not_null()
    adjusted = pl.col("p").map_batches(lambda p_values: pl.Series(holm(p_values.to_numpy())), pl.Float64)
    return estimates.with_columns(p_adjusted=pl.when(is_tested).then(adjusted.over([*family, is_tested])))


def _sets(values: pl.DataFrame, design: Design, measure: Sequence[str]) -> list[pl.DataFrame]:
    """Return the values of each set; measures that rate other items than the rest of the set are sets of their own."""
    keys = list(design.of)
    if measure:
        place = pl.struct(pl.lit(0) if design.group is None else design.group, design.item)
        values = values.with_columns(_items=place.hash().unique().sum().over(*design.of, *measure))
        keys.append("_items")
    return values.partition_by(keys, maintain_order=True) if keys else [values]


class _Items(NamedTuple):
    """The values of a set of items.

    Attributes:
        rows: the keys of the rows.
        groups: values of each group, float64 ``[rows, repetitions, items]``, NaN where there is none.
        units: units of the items; None: each item is one.
        resampled: resamples of the mean of each row, or NaN; None: items are resampled.
    """

    rows: pl.DataFrame
    groups: Groups
    units: Units | None
    resampled: list[Floats] | None

    @property
    def means(self) -> Groups:
        """The mean over the repetitions of each item, float64 ``[rows, items]``."""
        return {
            name: np.ascontiguousarray(values[:, 0] if values.shape[1] == 1 else np.nanmean(values, axis=1))
            for name, values in self.groups.items()
        }

    def minus(self, first: Sequence[int], second: Sequence[int]) -> _Items:
        """Return the differences of rows."""
        groups = {name: values[first] - values[second] for name, values in self.groups.items()}
        resampled = self.resampled and [
            self.resampled[one] - self.resampled[other] for one, other in zip(first, second, strict=True)
        ]
        return self._replace(rows=self.rows[first], groups=groups, resampled=resampled)


def _read(values: pl.DataFrame, keys: Sequence[str], design: Design) -> _Items:
    """Return the values of a set; rows and groups are in order of first appearance, items and repetitions rise."""
    rows = values.select(keys).unique(maintain_order=True)
    numbered = values.join(rows.with_row_index("_row"), on=keys, nulls_equal=True, maintain_order="left").select(
        "_row",
        _value=pl.col("value").cast(pl.Float64),
        _group=pl.lit("") if design.group is None else pl.col(design.group).cast(pl.String).fill_null(""),
        _item=design.item,
        _unit=design.unit or design.item,
        _repetition=pl.lit(0) if design.over is None else pl.col(design.over),
        _resampled=pl.lit(None) if design.resampled is None else pl.col(design.resampled),
    )
    groups, units = dict[str, Floats](), dict[str, list[Any]]()
    for (name,), of_group in numbered.group_by("_group", maintain_order=True):
        items = of_group.select("_item", "_unit").unique("_item").sort("_item").with_row_index("_column")
        layers = of_group.select("_repetition").unique().sort("_repetition").with_row_index("_layer")
        cells = of_group.join(items, on="_item").join(layers, on="_repetition")
        array = np.full((len(rows), len(layers), len(items)), np.nan)
        array[tuple(cells[axis].to_numpy() for axis in ("_row", "_layer", "_column"))] = cells["_value"].to_numpy()
        lacking = np.isnan(array)
        complete = lacking.any(axis=2) == lacking.all(axis=2)  # all items of a repetition, or none
        if lacking.all(axis=(1, 2)).any() or not complete.all():
            raise InputError(f"the rows of {name or 'a pool'} must have values of the same items", "Score all on all")
        if np.count_nonzero(~lacking) < len(cells):
            raise InputError(f"the rows of {name or 'a pool'} must have one value of an item, got several", "Leave one")
        groups[str(name)], units[str(name)] = array, items["_unit"].to_list()
    together = list(chain(*units.values()))
    by_unit = design.unit is not None and len({*together}) < len(together)
    resampled = None if design.resampled is None else [
        _mean_resamples(of_row["_resampled"]) for of_row in numbered.partition_by("_row", maintain_order=True)
    ]  # fmt: skip
    return _Items(rows, groups, units if by_unit else None, resampled)


def _mean_resamples(resampled: pl.Series) -> Floats:
    """Return the mean of the resamples of several values, as many as all have; NaN if one has none."""
    if resampled.null_count():
        return np.array([np.nan])
    arrays = [of_value.to_numpy() for of_value in resampled]
    count = min(map(len, arrays))
    return np.asarray(np.mean([array[:count] for array in arrays], axis=0))


def _mean(items: _Items, seed: int, draws: Draws) -> Means:
    """Return the mean of each row with its interval and resamples."""
    means, tails = items.means, [(1 - draws.level) / 2, (1 + draws.level) / 2]
    if items.resampled is None and draws.resample == "queries":
        return mean_of_means(means, seed, units=items.units, resamples=draws.resamples or None, level=draws.level)
    value = np.mean([values.mean(axis=1) for values in means.values()], axis=0)
    if items.resampled is not None:
        low, high = np.transpose([np.quantile(of_row, tails) for of_row in items.resampled])
        return Means(value, low, high, items.resampled)
    resampled = np.mean([_over_repetitions(name, values, seed, draws) for name, values in items.groups.items()], axis=0)
    if draws.resample == "papers":
        low, high = np.quantile(resampled, tails, axis=1)
        return Means(value, low, high, resampled)
    return Means(value, *confidence_interval(resampled, *means.values(), level=draws.level), resampled)


def _over_repetitions(name: str, values: Floats, seed: int, draws: Draws) -> Floats:
    """Return means over resampled repetitions, of all items or of resampled ones, float64 ``[rows, resamples]``."""
    rows = [of_row[~np.isnan(of_row).all(axis=1)] for of_row in values]
    counts, resamples = [len(of_row) for of_row in rows], draws.resamples or TAIL_RESAMPLES
    stacked = np.concatenate(rows)
    if draws.resample == "papers" and min(counts) == 1:
        raise InputError(
            f"--resample=papers needs 2 samples or more of each pool, got 1 of {name or 'the dataset'}",
            "Score more with --samples=3, or write --resample=both",
        )
    means = np.broadcast_to(stacked.mean(axis=1, keepdims=True), (len(stacked), resamples))
    if draws.resample == "both":
        means = bootstrap_means(stacked, seed=seed, item=name, resamples=resamples)
    weights = {count: sample_weights(count, seed=seed, item=name, resamples=resamples) for count in set(counts)}
    of_rows = np.split(means, np.cumsum(counts)[:-1])
    return np.stack([(of_row * weights[len(of_row)]).sum(axis=0) for of_row in of_rows])


def _estimates(items: _Items, seed: int, draws: Draws, keep_draws: bool) -> pl.DataFrame:
    """Return the columns :data:`ESTIMATE` of the rows of a set."""
    mean = _mean(items, seed, draws)
    count, groups = sum(values.shape[2] for values in items.groups.values()), len(items.groups)
    drawn = count if items.units is None else len({*chain(*items.units.values())})
    kind = interval_kind(drawn, groups if items.units is None else 1)
    if items.resampled is not None or draws.resample == "papers":
        kind = "percentile"
    facts = {"items": [count] * len(items.rows), "units": drawn, "interval": kind}
    ends = {"value": mean.value, "low": mean.low, "high": mean.high}
    frame = _with_ends(pl.DataFrame(ends | facts, ESTIMATE).with_columns(pl.col("low", "high").fill_nan(None)))
    return frame.with_columns(draws=pl.Series(list(map(pl.Series, mean.draws)))) if keep_draws else frame


def _with_ends(estimates: pl.DataFrame) -> pl.DataFrame:
    """Return estimates with null ends of intervals, also of differences, where there is no interval."""
    ends = pl.col("^(difference_)?(low|high)$")
    return estimates.with_columns(pl.when(pl.col("interval") != "none").then(ends))


def _pairs(
    rows: pl.DataFrame, row: Sequence[str], baseline: Row | Mapping[Row, Row], items: _Items
) -> tuple[list[int], list[int]]:
    """Return the positions of the compared rows of a set, and of their baselines."""
    keys = rows.select(row).rows()
    within = rows[_MEASURE].to_list() if _MEASURE in rows.columns else [None] * len(keys)
    position = {key: number for number, key in enumerate(zip(keys, within, strict=True))}
    repetitions = np.concatenate([~np.isnan(values).all(axis=2) for values in items.groups.values()], axis=1)
    first, second = [], []
    for number, (key, measure) in enumerate(position):
        base = baseline.get(key) if isinstance(baseline, Mapping) else baseline
        other = None if base is None else position.get((base, measure))
        if other not in (None, number) and (repetitions[number] == repetitions[other]).all():
            first.append(number)
            second.append(other)
    return first, second


def _differences(
    items: _Items, first: Sequence[int], second: Sequence[int], tests: Floats, seed: int, draws: Draws
) -> pl.DataFrame:
    """Return the columns :data:`DIFFERENCE` of the compared rows of a set, without correction."""
    if not first:
        return pl.DataFrame(schema=DIFFERENCE)
    changes = items.minus(first, second)
    mean, values, units = _mean(changes, seed, draws), changes.means, items.units
    names = changes.rows[_MEASURE] if _MEASURE in changes.rows.columns else [None] * len(first)
    signs = np.array([[1 if name is None else sign_of(name)] for name in names])
    gains = np.concatenate(list(values.values()), axis=1) * signs
    permutations = [permutations_of(count, draws.permutations) for count in tests.tolist()]
    p_values = np.empty(len(first))
    for count in {*tests.tolist()}:
        of_count = {name: of_group[tests == count] for name, of_group in values.items()}
        flips = {"permutations": draws.permutations, "tests": count}
        p_values[tests == count] = permutation_of_means(of_count, seed, units=units, **flips)
    error = standard_error(values, units)
    drawn = sum(of.shape[1] for of in values.values()) if units is None else len({*chain(*units.values())})
    shown = [
        smallest_shown(of_row, draws.alpha / count)
        if least_p_value(drawn, permutations) * count < draws.alpha
        else np.nan
        for of_row, count, permutations in zip(error, tests.tolist(), permutations, strict=True)
    ]
    columns = {
        "difference": mean.value, "difference_low": mean.low, "difference_high": mean.high, "p": p_values,
        "p_adjusted": p_values, "tests": tests, "permutations": permutations,
        "effect": standardised_effect(values, units), "error": error, "detectable": shown,
        "wins": (gains > _TIE).sum(axis=1), "ties": (np.abs(gains) <= _TIE).sum(axis=1),
        "losses": (gains < -_TIE).sum(axis=1),
    }  # fmt: skip
    return pl.DataFrame(columns, DIFFERENCE).with_columns(pl.col(pl.Float64).fill_nan(None))
