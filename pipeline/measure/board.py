"""Boards of any systems on any items: means, ranks, which systems differ, what the first place hangs on, and plans.

An item is a query or a task. Items of one unit (a family of tasks) are resampled and flipped together, and groups (a
collection of queries each) are averaged with equal weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.errors import InputError
from pipeline.core.rng import generator
from pipeline.measure.design import Design, Draws, estimate
from pipeline.measure.estimates import queries_needed
from pipeline.measure.ranks import letters, pairs_and_bounds, ranks, ranks_with_ends
from pipeline.measure.statistics import RESAMPLES, Floats, by_unit

ALPHA = 0.05

_FEW = 10
"""Units below which a remark says that there are few."""

_NEAR = 0.3
"""Relative distance of a p-value from the level, in logarithms, within which 10,000 patterns may decide otherwise."""

_TOLERANCE = 1e-9
_ENDS, _VALUES = ("", "_low", "_high"), ("value", "low", "high")
_TURNED = {"": "", "_low": "_high", "_high": "_low"}
_DRAWS = Draws(RESAMPLES)
_TRIALS = 500
"""Simulated experiments of a plan."""

_SIMULATED = 20_000
"""Maximum number of items of a simulated experiment."""


@dataclass(frozen=True, eq=False)
class Board:
    """Systems on the items that all of them have, best first.

    Attributes:
        items: columns ``item``, ``group``, ``unit``, in the order of ``values``.
        values: fractions, float64 ``[systems, items]``.
        samples: mean number of samples of a value.
        estimates: columns :data:`pipeline.measure.design.ESTIMATE` and, against the first system,
            :data:`pipeline.measure.design.DIFFERENCE`, a row a system; ``mean_ranks`` has those of ranks on each item.
        p_values: corrected p-values of all pairs, float64 ``[systems, systems]``; those ``bounded`` are bounds
            (:func:`pipeline.measure.ranks.all_pairs`); None if none is of drawn patterns.
        sign: 1 if higher is better, else -1.
    """

    systems: Sequence[str]
    items: pl.DataFrame
    values: Floats
    samples: float
    estimates: pl.DataFrame
    mean_ranks: pl.DataFrame
    p_values: Floats
    sign: int
    bounded: npt.NDArray[np.bool_] | None

    @cached_property
    def weights(self) -> Floats:
        """Weight of each item, float64 ``[items]``, with sum 1: groups weigh the same."""
        weights = self.items.select(1 / (pl.len().over("group") * pl.col("group").n_unique())).to_series()
        return np.asarray(weights.to_numpy(), np.float64)

    @property
    def apart(self) -> npt.NDArray[np.bool_]:
        """Whether pairs of systems differ significantly, bool ``[systems, systems]``."""
        return self.p_values < ALPHA

    @property
    def ranks(self) -> Floats:
        """Ranks by the mean and the ends of their intervals, float64 ``[3, systems]``."""
        return ranks_with_ends((self.sign * self.estimates["value"]).round(12).to_numpy(), self.apart)

    @property
    def pairs(self) -> int:
        """Number of pairs, the tests of the family."""
        return math.comb(len(self.systems), 2)

    @property
    def units(self) -> int:
        """Number of resampling units."""
        return int(self.items["unit"].n_unique())

    @property
    def least_p(self) -> float:
        """The smallest p-value that a pair can have after the correction, at most 1."""
        return min(math.ldexp(2.0, -self.units) * self.pairs, 1.0)

    def remarks(self) -> Iterator[str]:
        """Yield what limits the verdicts: too few units, bounds in place of p-values, verdicts near the level."""
        if self.units < _FEW:
            yield f"Few units ({self.units}): {'wide' if self.units > 2 else 'no'} intervals, tests of little power."
        if self.least_p >= ALPHA:
            units = "1 unit" if self.units == 1 else f"{self.units:,} units"
            yield f"{units} cannot show any difference: the least corrected p-value is {self.least_p:.2g}."
        if self.bounded is None:
            return
        if self.bounded.any():
            yield (
                f"{self.bounded.sum():,} of {self.pairs:,} p-values are Chernoff bounds, never below the value of all "
                "sign patterns, as permutations of so many pairs are too few for values so small. Intervals of ranks "
                "may be wider than they need be, never narrower."
            )
        near = np.triu(np.abs(np.log(np.maximum(self.p_values, 1e-300) / ALPHA)) < _NEAR, 1) & ~self.bounded
        if near.any():
            yield f"{near.sum():,} of {self.pairs:,} corrected p-values are within a third of {ALPHA:g}: " + (
                "whether these pairs share a letter depends on the draw of sign patterns (the seed)."
            )

    def standing(self) -> pl.DataFrame:
        """Return a row for each system, best first; each figure with its ends ``_low`` and ``_high``.

        Columns: ``mean``; ``rank``, ``letters``; over items ``mean_rank`` and ``borda``, the share of other systems
        that it is above; ``behind``, the difference from the first, and its ``p_adjusted``; ``left_out``, the fewest
        items without which its mean reaches that of the first (weights of items stay); and ``needed``, the items that
        show the difference with power .8 at the level of the first step of Holm's correction over all pairs, if
        further items are like these.
        """
        ranked, count, level = self.ranks, len(self.systems), ALPHA / self.pairs
        gains = self.sign * self.weights * (self.values[0] - self.values)
        total, falling = gains.sum(axis=1, keepdims=True), np.cumsum(-np.sort(-gains, axis=1), axis=1)
        left_out = np.where(total[:, 0] > _TOLERANCE, (total - falling > _TOLERANCE).sum(axis=1) + 1, 0)
        items = self.values.shape[1]
        needed = [
            math.ceil(queries_needed(items * error**2, difference, level)) if error and difference else None
            for difference, error in self.estimates.select("difference", "error").iter_rows()
        ]
        means = {f"mean{end}": self.estimates[name] for end, name in zip(_ENDS, _VALUES, strict=True)}
        of_rank = {f"mean_rank{end}": self.mean_ranks[name] for end, name in zip(_ENDS, _VALUES, strict=True)}
        shares = {f"borda{end}": (count - of_rank[f"mean_rank{other}"]) / (count - 1) for end, other in _TURNED.items()}
        behind = {f"behind{end}": self.estimates[f"difference{end}"] for end in _ENDS}
        return pl.DataFrame({
            "system": self.systems, **means,
            **{f"rank{end}": of for end, of in zip(_ENDS, ranked, strict=True)}, "letters": letters(self.apart),
            **of_rank, **shares, **behind, "p_adjusted": [None, *self.p_values[0, 1:].tolist()],
            "left_out": [None, *left_out[1:].tolist()], "needed": needed,
        })  # fmt: skip

    def deciding(self) -> pl.DataFrame:
        """Return the items by what they give to the first system over the second, greatest first.

        Columns: ``item``, ``group``, ``difference``, ``share`` of the difference of means, and ``leader``, the first
        system without the item.
        """
        gains = self.sign * self.weights * (self.values[0] - self.values[1])
        means = self.sign * (self.values @ self.weights)
        without = (means[:, None] - self.sign * self.values * self.weights) / (1 - self.weights + 1e-300)
        leaders = [self.systems[system] for system in without.argmax(axis=0)]
        order = np.argsort(-gains, kind="stable")
        frame = self.items.select("item", "group").with_columns(
            difference=self.values[0] - self.values[1],
            share=gains / gains.sum() if gains.sum() else np.full_like(gains, np.nan),
            leader=pl.Series(leaders),
        )
        return frame[order]


def board(values: pl.DataFrame, *, seed: int, sign: int = 1) -> Board:
    """Return the board of values.

    Args:
        values: columns ``system``, ``item``, ``group``, ``unit``, ``value``. Several values of a system and item are
            samples (repeats), whose mean counts. Items that some system lacks are left out.
        seed: the user's seed.
        sign: 1 if higher is better, else -1.

    Raises:
        InputError: as :func:`shared`.
    """
    names, items, matrix, samples = shared(values)
    by_families = items["unit"].n_unique() < len(items)
    design = Design(row=("system",), group="group", item="item", unit="unit" if by_families else None)

    def estimated(of_items: Floats, systems: Sequence[str], baseline: tuple[str] | None = None) -> pl.DataFrame:
        rows = pl.DataFrame({"system": systems}).join(items, how="cross")
        return estimate(rows.with_columns(value=pl.Series(of_items.ravel())), design, seed, baseline, _DRAWS)

    found = estimated(matrix, names).sort(-sign * pl.col("value").round(12), "system")
    best = found["system"].to_list()
    order = [names.index(name) for name in best]
    matrix = np.ascontiguousarray(matrix[order])
    mean_ranks = estimated(ranks((sign * matrix).round(12)), best)
    weighted = matrix * items.select(pl.len() / (pl.len().over("group") * pl.col("group").n_unique())).to_numpy().T
    groups = items["group"].unique(maintain_order=True).to_list()
    name = str(groups[0]) if len(groups) == 1 else "fields"
    flipped = by_unit({name: weighted}, {name: items["unit"].to_list()})[0][0]
    pairs, bounded = pairs_and_bounds(flipped, seed=seed, item=name)
    against = estimated(matrix, best, (best[0],))
    return Board(best, items, matrix, samples, against, mean_ranks, pairs, sign, bounded)


def check_distinct(values: pl.DataFrame) -> None:
    """Raise InputError if a system has two values of a sample of an item."""
    doubled = values.filter(pl.struct("system", "group", "item", "sample").is_duplicated())
    if len(doubled):
        problem = f"{doubled['system'][0]} has two values of {doubled['item'][0]!r}"
        raise InputError(problem, "Keep one of them, or tell repetitions apart by a column sample")


def shared(values: pl.DataFrame) -> tuple[list[str], pl.DataFrame, Floats, float]:
    """Return systems and what all have: items, values, and the mean samples of a value (:class:`Board`).

    Raises:
        InputError: fewer than two systems, or fewer than two items that all have.
    """
    index = ["group", "item", "unit"]
    cells = values.group_by("system", *index, maintain_order=True).agg(pl.mean("value"), samples=pl.len())
    table = cells.sort("group", "item").pivot("system", index=index, values="value")
    names, matrix = table.columns[3:], table[:, 3:].to_numpy().T.astype(np.float64)
    if len(names) < 2:
        raise InputError(f"two systems or more must be compared, got {', '.join(names) or 'none'}", "Give more results")
    kept = ~np.isnan(matrix).any(axis=0)
    if kept.sum() < 2:
        what = f"two items or more must have values of all {len(names)} systems, got {kept.sum()} of {len(kept)}"
        raise InputError(what, "Give results of more items")
    items = table[:, :3].filter(kept)
    if items["unit"].n_unique() < 2:
        what = f"items must be of two families or more, got {len(items)} of {items['unit'][0]!r} alone"
        raise InputError(what, "Give results of other families")
    return names, items, np.ascontiguousarray(matrix[:, kept]), float(cells["samples"].mean())


def plan(pilot: Board, difference: float, seed: int) -> pl.DataFrame:
    """Return what shows a mean difference between systems like those of a pilot: of the median and the widest pair.

    The level is that of the first step of Holm's correction over all pairs. Simulated experiments draw the pilot's
    differences, shifted to the mean that is planned for.

    Args:
        pilot: the pilot, with values from -1 to 1.
        difference: the difference, a fraction.
        seed: the user's seed.

    Returns:
        ``pair``; ``deviation`` of its differences; ``needed``, the items that show the difference with power .8;
        ``power``, the share of simulated experiments with so many items whose test is significant; NaN if there are too
        many items to simulate.
    """
    first, second = np.triu_indices(len(pilot.systems), 1)
    scale = pilot.weights * pilot.values.shape[1]
    differences = (pilot.values[first] - pilot.values[second]) * scale
    deviations = differences.std(axis=1, ddof=1)
    order = np.argsort(deviations, kind="stable")
    rows = {"first and second": 0, "median pair": int(order[(len(order) - 1) // 2]), "widest pair": int(order[-1])}
    planned = [
        _planned(name, differences[row] - differences[row].mean(), difference, ALPHA / pilot.pairs, seed)
        for name, row in rows.items()
    ]
    return pl.DataFrame(planned, ["pair", "deviation", "needed", "power"], orient="row")


def _planned(pair: str, centred: Floats, target: float, level: float, seed: int) -> tuple[object, ...]:
    """Return what a pair needs, from the centred differences of items."""
    from scipy.special import stdtr

    variance = float(centred.var(ddof=1))
    needed = max(2, math.ceil(queries_needed(variance, target, level)))
    if needed > _SIMULATED:
        return pair, math.sqrt(variance), needed, math.nan
    drawn = generator(seed, "plan", pair).choice(centred, (_TRIALS, needed)) + target
    means, spread = drawn.mean(axis=1), drawn.std(axis=1, ddof=1)
    with np.errstate(divide="ignore"):
        p_values = 2 * stdtr(needed - 1, -np.abs(means) / spread * math.sqrt(needed))
    return pair, math.sqrt(variance), needed, float((p_values < level).mean())
