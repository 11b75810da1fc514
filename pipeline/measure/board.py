"""Boards of any systems on any items: means, ranks, which systems differ, what the first place hangs on, and plans.

An item is a query or a task. Items of one unit (a family of tasks) are resampled and flipped together, and groups (a
collection of queries each) are averaged with equal weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.errors import InputError
from pipeline.core.rng import generator
from pipeline.measure.design import Design, Draws, estimate
from pipeline.measure.estimates import queries_needed
from pipeline.measure.ranks import letters, pairs_and_bounds, ranks, ranks_with_ends
from pipeline.measure.statistics import RESAMPLES, Floats, benjamini_hochberg, by_unit, holm

CORRECTIONS: dict[str, Callable[[Floats], Floats]] = {"holm": holm, "bh": benjamini_hochberg}
ALPHA = 0.05

_FEW = 10
"""Units below which a remark says that there are few."""

_NEAR = 0.3
"""Relative distance of a p-value from the level, in logarithms, within which 10,000 patterns may decide otherwise."""

_ROUNDS, _TOLERANCE = 500, 1e-9
_ENDS, _VALUES = ("", "_low", "_high"), ("value", "low", "high")
_TURNED = {"": "", "_low": "_high", "_high": "_low"}
_DRAWS = Draws(RESAMPLES)
_LONGEST = 8
_TRIALS = 500
"""Simulated experiments of a plan."""

_SIMULATED = 20_000
"""Maximum number of items of a simulated experiment."""


@dataclass(frozen=True, eq=False)
class Board:
    """Systems on the items that all of them have, best first.

    Attributes:
        systems: names.
        items: columns ``item``, ``group``, ``unit``, in the order of ``values``.
        values: fractions, float64 ``[systems, items]``.
        samples: mean number of samples of a value.
        estimates: columns :data:`pipeline.measure.design.ESTIMATE` and, against the first system,
            :data:`pipeline.measure.design.DIFFERENCE`, a row a system.
        mean_ranks: the same for the ranks of systems on each item.
        p_values: corrected p-values of all pairs, float64 ``[systems, systems]``.
        sign: 1 if higher is better, else -1.
        correction: a key of :data:`CORRECTIONS`.
        bounded: which p-values of pairs are bounds (:func:`pipeline.measure.ranks.all_pairs`), bool
            ``[systems, systems]``; None if none is of drawn patterns.
    """

    systems: Sequence[str]
    items: pl.DataFrame
    values: Floats
    samples: float
    estimates: pl.DataFrame
    mean_ranks: pl.DataFrame
    p_values: Floats
    sign: int
    correction: str
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
        return min(math.ldexp(2.0, -self.units) * (self.pairs if self.correction == "holm" else 1), 1.0)

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


def board(
    values: pl.DataFrame, *, seed: int, missing: Literal["complete", "impute"] = "complete", correction: str = "holm",
    sign: int = 1,
) -> Board:  # fmt: skip
    """Return the board of values.

    Args:
        values: columns ``system``, ``item``, ``group``, ``unit``, ``value``. Several values of a system and item are
            samples (repeats), whose mean counts.
        seed: the user's seed.
        missing: ``complete``: items that some system lacks are left out; ``impute``: what a system lacks is the mean of
            the item plus the system's mean difference from others on what it has.
        correction: a key of :data:`CORRECTIONS`.
        sign: 1 if higher is better, else -1.

    Raises:
        InputError: as :func:`shared`.
    """
    names, items, matrix, samples = shared(values, missing)
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
    pairs, bounded = pairs_and_bounds(flipped, seed=seed, item=name, correct=CORRECTIONS[correction])
    against = estimated(matrix, best, (best[0],))
    return Board(best, items, matrix, samples, against, mean_ranks, pairs, sign, correction, bounded)


def check_distinct(values: pl.DataFrame) -> None:
    """Raise InputError if a system has two values of a sample of an item."""
    doubled = values.filter(pl.struct("system", "group", "item", "sample").is_duplicated())
    if len(doubled):
        problem = f"{doubled['system'][0]} has two values of {doubled['item'][0]!r}"
        raise InputError(problem, "Keep one of them, or tell repetitions apart by a column sample")


def shared(values: pl.DataFrame, missing: str) -> tuple[list[str], pl.DataFrame, Floats, float]:
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
    if missing == "impute":
        matrix = _imputed(matrix, names)
    kept = ~np.isnan(matrix).any(axis=0)
    if kept.sum() < 2:
        what = f"two items or more must have values of all {len(names)} systems, got {kept.sum()} of {len(kept)}"
        raise InputError(what, "Give results of more items")
    items = table[:, :3].filter(kept)
    if items["unit"].n_unique() < 2:
        what = f"items must be of two families or more, got {len(items)} of {items['unit'][0]!r} alone"
        raise InputError(what, "Give results of other families")
    return names, items, np.ascontiguousarray(matrix[:, kept]), float(cells["samples"].mean())


def _imputed(matrix: Floats, names: Sequence[str]) -> Floats:
    """Return values ``[systems, items]`` with what is missing by an additive fit of systems and items.

    Raises:
        InputError: the fit does not settle, as some systems share no item with others.
    """
    known = ~np.isnan(matrix)
    if not (known.any(axis=0).all() and known.any(axis=1).all()):
        raise InputError("every system and item must have a value", f"Leave out one of {', '.join(names)}")
    of_system, of_item = np.zeros((len(matrix), 1)), np.zeros((1, matrix.shape[1]))
    for _ in range(_ROUNDS):
        previous = of_system
        of_item = np.nanmean(matrix - of_system, axis=0, keepdims=True)
        of_system = np.nanmean(matrix - of_item, axis=1, keepdims=True)
        if np.abs(of_system - previous).max() < _TOLERANCE:
            break
    else:
        raise InputError("systems must share enough items for values to be imputed", "Write --missing=complete")
    return np.where(known, matrix, of_system + of_item)


def plan(pilot: Board, difference: float, seed: int) -> pl.DataFrame:
    """Return what shows a mean difference between systems like those of a pilot: of the median and the widest pair.

    The level is that of the first step of Holm's correction over all pairs. Simulated experiments draw the pilot's
    differences, shifted to the mean that is planned for, or to 0.

    Args:
        pilot: the pilot, with values from -1 to 1.
        difference: the difference, a fraction.
        seed: the user's seed.

    Returns:
        ``pair``; ``deviation`` of its differences; ``needed``, the items that show the difference with power .8;
        ``power``, the share of simulated
        experiments with so many items whose test is significant; ``stopped`` and ``stopped_most``, the median and the
        90% point of the items after which a sequential test stops; ``false``, the share of sequential tests that stop
        where there is no difference. The last four are NaN if there are too many items to simulate.
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
    names = ["pair", "deviation", "needed", "power", "stopped", "stopped_most", "false"]
    return pl.DataFrame(planned, names, orient="row")


def _planned(pair: str, centred: Floats, target: float, level: float, seed: int) -> tuple[object, ...]:
    """Return what a pair needs, from the centred differences of items."""
    from scipy.special import stdtr

    variance = float(centred.var(ddof=1))
    needed = max(2, math.ceil(queries_needed(variance, target, level)))
    power, stops, false = 0, [], 0
    random, longest = generator(seed, "plan", pair), _LONGEST * needed
    for _ in range(_TRIALS if needed <= _SIMULATED else 0):
        drawn = random.choice(centred, longest)
        sample = drawn[:needed] + target
        spread = sample.std(ddof=1)
        power += spread == 0 or 2 * stdtr(needed - 1, -abs(sample.mean()) / spread * math.sqrt(needed)) < level
        for mean in (target, 0.0):
            low, high = confidence_sequence(np.clip(drawn + mean, -1, 1), level)
            apart = (low > 0) | (high < 0)
            if mean:
                stops.append(int(apart.argmax()) + 1 if apart.any() else math.inf)
            else:
                false += bool(apart.any())
    if not stops:
        return pair, math.sqrt(variance), needed, *[math.nan] * 4
    median, most = np.quantile(stops, [0.5, 0.9], method="higher")
    rates = power / _TRIALS, float(median), float(most), false / _TRIALS
    return pair, math.sqrt(variance), needed, *rates


def confidence_sequence(differences: Floats, alpha: float = ALPHA) -> tuple[Floats, Floats]:
    """Return intervals of a mean after each item that hold together, whenever one looks, float64 ``[items]`` each.

    The empirical-Bernstein confidence sequence with predictable plug-in (Waudby-Smith & Ramdas 2024, theorem 2), for
    differences from -1 to 1 in random order.

    Args:
        differences: differences of two systems in the order of their evaluation, float64 ``[items]``.
        alpha: probability that any interval misses the mean.
    """
    values, count = (np.asarray(differences) + 1) / 2, np.arange(1, len(differences) + 1)
    means = (0.5 + np.cumsum(values)) / (count + 1)
    before = np.concatenate([[0.5], means[:-1]])
    variances = (0.25 + np.cumsum((values - means) ** 2)) / (count + 1)
    known = np.concatenate([[0.25], variances[:-1]])
    bets = np.minimum(np.sqrt(2 * np.log(2 / alpha) / (known * count * np.log1p(count))), 0.5)
    total = np.cumsum(bets)
    centre = np.cumsum(bets * values) / total
    spent = np.cumsum(4 * (values - before) ** 2 * (-np.log1p(-bets) - bets) / 4)
    width = (np.log(2 / alpha) + spent) / total
    low, high = np.maximum.accumulate(centre - width), np.minimum.accumulate(centre + width)
    return 2 * low - 1, 2 * high - 1
