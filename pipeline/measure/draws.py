"""Settings of intervals and significance tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import polars as pl

from pipeline.core.errors import InputError, require_known
from pipeline.core.settings import convert_fields
from pipeline.measure.permutation import PERMUTATIONS
from pipeline.measure.statistics import LEVEL

RESAMPLED = {
    "queries": "queries",
    "papers": "samples of candidates",
    "both": "queries and samples of candidates (where several)",
}
"""Names of the units that :attr:`Draws.resample` resamples, for notes."""


@dataclass(frozen=True)
class Draws:
    """Settings of intervals and significance tests.

    Attributes:
        resamples: bootstrap resamples; 0: 1,000, but 10,000 where few units have long tails: if repetitions are
            resampled, and of values without a table of scores for BCa and for levels above 95%.
        level: confidence level of intervals, a fraction.
        permutations: sign flips of the test in a small family (:func:`pipeline.measure.permutation.permutations_of`).
        alpha: significance level of marks and of ``detectable``, a fraction.
        resample: what the bootstrap draws: ``queries`` (items), ``papers`` (repetitions: the samples of a pool), or
            ``both``. Tests are over items.
        tests: number of tests of a family that spans several calls; None: those of this call.
        seed: seed of the bootstrap and the permutation test; None: that of the pools.
    """

    resamples: int = 0
    level: float = LEVEL
    permutations: int = PERMUTATIONS
    alpha: float = 0.05
    resample: Literal["queries", "papers", "both"] = "queries"
    tests: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        require_known(self.resample, [*RESAMPLED], f"--resample={self.resample!r} is unknown")
        convert_fields(self)
        bounds = {"resamples": (-1, math.inf), "permutations": (0, math.inf), "level": (0, 1), "alpha": (0, 1)}
        for name, (least, most) in bounds.items():
            if not least < (value := getattr(self, name)) < most:
                raise InputError(f"{name} must be above {least} and below {most:g}, got {value!r}")

    def seed_of(self, runs: pl.DataFrame) -> int:
        """Return the seed of the draws for some rankings; 13 where their pools have none."""
        if self.seed is not None:
            return self.seed
        seed = runs["seed"].first()
        return 13 if seed is None else int(seed)


USUAL = Draws()
