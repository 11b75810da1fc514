"""How scores are averaged: settings of intervals and tests, and which pools stand in one table (protocols 2 to 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from pipeline.core.config import counted
from pipeline.core.errors import InputError, require_known
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.settings import convert_fields
from pipeline.measure import design
from pipeline.measure.measures import parse_measures, sign_of
from pipeline.measure.statistics import RESAMPLES, TAIL_RESAMPLES

RESAMPLED = {
    "queries": "queries",
    "papers": "samples of candidates",
    "both": "queries and samples of candidates (where several)",
}
"""Names of the units that :attr:`Draws.resample` resamples, for notes."""

AVERAGE = "AVG"
"""In place of a field's name: the macro average over fields."""


@dataclass(frozen=True)
class Draws(design.Draws):
    """Settings of intervals and significance tests of scores.

    Attributes:
        resamples: bootstrap resamples; 0: 1,000, or 10,000 if samples are resampled, since few have long tails.
        level: confidence level of intervals, a fraction.
        permutations: drawn sign patterns of the permutation test; a large family takes more.
        alpha: significance level of marks and of ``detectable``, a fraction.
        margin: largest negligible difference in points (hundredths of a value), for tests of equivalence; None: none.
        resample: what the bootstrap draws: ``queries``, ``papers`` (the samples of a pool) or ``both``.
        tests: number of tests of a family that spans several calls; None: those of this call.
        seed: seed of the bootstrap and the permutation test; None: that of the pools.
    """

    resamples: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        require_known(self.resample, [*RESAMPLED], f"--resample={self.resample!r} is unknown")
        convert_fields(self)
        bounds = {"resamples": (-1, math.inf), "permutations": (0, math.inf), "level": (0, 1), "alpha": (0, 1)}
        for name, (least, most) in bounds.items():
            if not least < (value := getattr(self, name)) < most:
                raise InputError(f"{name} must be above {least} and below {most:g}, got {value!r}")
        if self.resamples == 0:
            object.__setattr__(self, "resamples", RESAMPLES if self.resample == "queries" else TAIL_RESAMPLES)
        if self.margin is not None and not 0 < self.margin < 100:
            raise InputError(
                f"--margin must be above 0 and below 100 points, got {self.margin:g}",
                "Write --margin=1.0, in points",
            )

    def seed_of(self, runs: pl.DataFrame) -> int:
        """Return the seed of the draws for some rankings; 13 where their pools have none."""
        if self.seed is not None:
            return self.seed
        seed = runs["seed"].first()
        return 13 if seed is None else int(seed)


PROTOCOL = Draws()
"""The draws of the protocol, seeded as the pools."""

BY_SAMPLE = design.Design(row=("label",), of=("field", "size"), group="field", over="sample")
"""Scores of one kind of pools: queries are drawn field by field, and a query's samples are averaged first."""


FINDINGS = ("better", "worse", "equivalent", "no difference shown")
"""Conclusions about a row and its baseline. ``equivalent`` has its own test: a large p-value alone shows nothing."""


def with_findings(differences: pl.DataFrame, draws: Draws) -> pl.DataFrame:
    """Add the ``finding`` of each tested row, one of :data:`FINDINGS` by the direction of its measure."""
    signs = {name: sign_of(name) for name in differences["measure"].unique()}
    gain = pl.col("difference") * pl.col("measure").replace_strict(signs, return_dtype=pl.Int8)
    better, worse, equivalent, unknown = map(pl.lit, FINDINGS)
    finding = (
        pl.when(pl.col("p_adjusted").is_null())
        .then(None)
        .when(pl.col("p_adjusted") < draws.alpha)
        .then(pl.when(gain > 0).then(better).otherwise(worse))
        .when(pl.col("p_equivalent") < draws.alpha)
        .then(equivalent)
        .otherwise(unknown)
    )
    return differences.with_columns(finding=finding)


def in_order(measures: Sequence[str]) -> list[str]:
    """Return names of measures in canonical order."""
    return sorted(measures, key=lambda name: parse_measures(name)[0].order)


def require_same_queries(scores: pl.DataFrame) -> None:
    """Raise InputError if samples of one pool have other queries or positives."""
    for of_setup in scores.partition_by("field", "size"):
        runs = of_setup.sort("sample", maintain_order=True).partition_by("label", "sample", maintain_order=True)
        found = [(set(run["query"].unique()), run["positives"][0]) for run in runs]
        other = next((number for number, each in enumerate(found) if each != found[0]), 0)
        if other:
            one, two = (
                f"{runs[number]['pool'][0]} ({counted(len(found[number][0]), 'query')}, "
                f"{counted(found[number][1], 'positive')})"
                for number in (0, other)
            )
            raise InputError(
                f"{one} and {two} are samples of one pool, but have other queries",
                "Build them with one seed and one version",
            )


def families(setups: Sequence[tuple[str | None, int]]) -> list[tuple[str, list[tuple[str | None, int]]]]:
    """Return the tables of pools by (field, size): each with ``sizes`` or ``fields``, and its setups in order.

    Fields with one setup each form one table, whatever their sizes: a field with few papers has a smaller pool. Fields
    at several sizes form a table for each size that all of them have. The rest, and the dataset-level pools, form
    tables of rising sizes.
    """
    by_field: dict[str | None, list[tuple[str | None, int]]] = {}
    for setup in sorted(set(setups), key=lambda setup: (_field_order(setup[0]), setup[1])):
        by_field.setdefault(setup[0], []).append(setup)
    dataset = by_field.pop(None, [])
    tables = [("sizes", dataset)] if dataset else []
    if len(by_field) > 1:
        if all(len(of_field) == 1 for of_field in by_field.values()):
            return [*tables, ("fields", [of_field[0] for of_field in by_field.values()])]
        for size in sorted({size for _, size in setups}):
            at_size = [setup for of_field in by_field.values() for setup in of_field if setup[1] == size]
            if len(at_size) == len(by_field):
                tables.append(("fields", at_size))
                by_field = {name: [s for s in of_field if s[1] != size] for name, of_field in by_field.items()}
    return [*tables, *(("sizes", of_field) for of_field in by_field.values() if of_field)]


def _field_order(name: str | None) -> tuple[int, str]:
    """Sort key: the dataset, the 19 fields, other names."""
    if name is None:
        return -1, ""
    return (MAG_FIELDS.index(name), name) if name in MAG_FIELDS else (len(MAG_FIELDS), name)
