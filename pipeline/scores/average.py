"""How scores are averaged: settings of intervals and tests, and which pools stand in one table (protocols 2 to 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from pipeline.core.config import counted
from pipeline.core.errors import InputError
from pipeline.core.fields import MAG_FIELDS
from pipeline.measure.design import Design, Draws, Row, estimate
from pipeline.measure.measures import parse_measures, sign_of
from pipeline.measure.statistics import RESAMPLES, TAIL_RESAMPLES

AVERAGE = "AVG"
"""In place of a field's name: the macro average over fields."""


PROTOCOL = Draws(RESAMPLES)
"""The draws of the protocol, seeded as the pools."""


def drawn(draws: Draws) -> Draws:
    """Return draws with the number of resamples that tables of scores have by default."""
    usual = RESAMPLES if draws.resample == "queries" else TAIL_RESAMPLES
    return draws if draws.resamples else replace(draws, resamples=usual)


BY_SAMPLE = Design(row=("label",), of=("field", "size"), group="field", over="sample")
"""Scores of one kind of pools: queries are drawn field by field, and a query's samples are averaged first."""


FINDINGS = ("better", "worse", "no difference shown")
"""Conclusions about a row and its baseline. A large p-value alone shows nothing."""


def with_findings(differences: pl.DataFrame, draws: Draws) -> pl.DataFrame:
    """Add the ``finding`` of each tested row, one of :data:`FINDINGS` by the direction of its measure."""
    signs = {name: sign_of(name) for name in differences["measure"].unique()}
    gain = pl.col("difference") * pl.col("measure").replace_strict(signs, return_dtype=pl.Int8)
    better, worse, unknown = map(pl.lit, FINDINGS)
    finding = (
        pl.when(pl.col("p_adjusted").is_null())
        .then(None)
        .when(pl.col("p_adjusted") < draws.alpha)
        .then(pl.when(gain > 0).then(better).otherwise(worse))
        .otherwise(unknown)
    )
    return differences.with_columns(finding=finding)


AMONG = {
    "among_difference": pl.Float64, "among_low": pl.Float64, "among_high": pl.Float64, "among_finding": pl.String
}  # fmt: skip
"""The difference among the candidates with an abstract, its interval and its ``finding``; null unless positives and
negatives of a pool differ by much in the share without one."""


def estimated(values: pl.DataFrame, design: Design, seed: int, pairs: Mapping[Row, Row], draws: Draws) -> pl.DataFrame:
    """Return :func:`pipeline.measure.design.estimate` of values with the columns :data:`AMONG`.

    ``values`` have the columns ``pool`` and ``among_abstracts`` too. In a set with an uneven pool, the other pools keep
    their values.
    """
    found, keys = estimate(values, design, seed, pairs, draws), {*design.of, *design.row, "measure"}
    uneven = pl.col("among_abstracts").is_not_null().any()
    own = pl.when(uneven.over("pool")).then("among_abstracts").otherwise("value")
    among = values.filter(uneven.over(design.of)).with_columns(value=own).drop_nulls("value")
    if among.is_empty() or not pairs:
        return found.with_columns(pl.lit(None, kind).alias(name) for name, kind in AMONG.items())
    figures = with_findings(estimate(among, design, seed, pairs, draws), draws)
    names = ("difference", "difference_low", "difference_high", "finding")
    own_figures = figures.select(*keys, **dict(zip(AMONG, names, strict=True)))
    return found.join(own_figures, on=keys, how="left", nulls_equal=True, maintain_order="left")


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
