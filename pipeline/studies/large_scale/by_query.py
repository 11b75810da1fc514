"""Tables of values query by query: tests, variance, curves over pool size, fusion."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from pipeline.core.config import format_count
from pipeline.measure.statistics import Floats, interval
from pipeline.scores.average import AVERAGE, Average, Key, Setup
from pipeline.scores.tables import Column, Table, TableRow, frame_table
from pipeline.stages.systems import fused_names
from pipeline.studies.base import StudyTable
from pipeline.studies.large_scale import curve
from pipeline.studies.large_scale.published import published
from pipeline.studies.large_scale.recipe import DATASET
from pipeline.studies.large_scale.variance import ENOUGH, components, share_interval
from pipeline.studies.tables import Measurement, interval_table, points

_SIZES = (200_000, 500_000, 1_000_000, 2_000_000)
_PUBLISHED = ("bm25:tuned", "scibert", "specter", "scincl", "aspire-bm")
"""Rows of the paper's table 1."""


class Curve(NamedTuple):
    """MAP of one system by rising pool size.

    Attributes:
        group: field, ``dataset`` or ``paper``.
        system: label.
        sizes: numbers of candidates.
        values: of the same queries at each size, float64 ``[sizes, queries]``; one column of published means.
    """

    group: str
    system: str
    sizes: list[int]
    values: Floats


def tests(summaries: Sequence[pl.DataFrame], averages: Mapping[Key, Average], seed: int) -> StudyTable:
    """Return the differences of MAP to the baseline with intervals, p-values, wins and losses."""
    rows: dict[tuple[str, str], dict[str, object]] = {}
    tested = (pl.col("measure") == "map", pl.col("p_value").is_not_null(), pl.col("size").is_not_null())
    for row in pl.concat(summaries).filter(*tested, pl.col("field").ne_missing(AVERAGE)).iter_rows(named=True):
        setup = (row["field"], row["size"])
        change = averages[setup, row["label"], "map"].values - averages[setup, row["baseline"], "map"].values
        value, low, high = interval(change, seed, row["field"] or "")
        rows[_name(setup), row["label"]] = {
            "pool": _name(setup), "system": row["label"], "baseline": row["baseline"],
            "difference": value, "low": low, "high": high, "p": row["p_value"], "p_adjusted": row["p_adjusted"],
            "wins": int((change > 0).sum()), "losses": int((change < 0).sum()),
        }  # fmt: skip
    frame = pl.DataFrame(list(rows.values()), infer_schema_length=None)
    lines = [
        TableRow(
            f"{row['pool']} {row['system']}",
            (points(row), f"{row['p']:.4f}", f"{row['p_adjusted']:.4f}", f"{row['wins']} : {row['losses']}"),
        )
        for row in frame.iter_rows(named=True)
    ]
    columns = tuple(Column("", name) for name in ("MAP difference", "p", "p, Holm", "wins : losses"))
    notes = ("Paired permutation tests. Holm's correction is over fields, or sizes of one field, system by system.",)
    return StudyTable("tests", Table("Difference to the baseline", "pool, system", columns, tuple(lines), notes), frame)


def variances(scores: pl.DataFrame, seed: int) -> Iterator[StudyTable]:
    """Yield the variance of MAP between samples beside that between queries, where there are several samples."""
    rows = []
    by_setup = scores.filter(measure="map").partition_by("field", "size", "label", maintain_order=True)
    for part in by_setup:
        setup, system = (part["field"][0], part["size"][0]), part["label"][0]
        if part["sample"].n_unique() < 2:
            continue
        wide = part.pivot("query", index="sample", values="value").sort("sample").drop("sample")
        values = np.ascontiguousarray(wide.to_numpy())
        samples = range(len(values))
        queries = values.shape[1]
        found = components(values)
        low, high = share_interval(values, seed, setup[0] or "")
        rows.append({
            "pool, system": f"{_name(setup)} {system}",
            "sd between queries": 100 * found.queries**0.5,
            "sd between samples": 100 * (found.samples + found.rest / queries) ** 0.5,
            "share, one sample": 100 * found.share(1, queries),
            "samples": len(samples), "share": 100 * found.share(len(samples), queries),
            "low": 100 * low, "high": 100 * high,
            "samples needed": found.needed(queries),
        })  # fmt: skip
    if rows:
        frame = pl.DataFrame(rows, infer_schema_length=None)
        notes = (
            "Standard deviations in points of MAP, of queries and of means over the queries. Shares in percent: of the "
            "draw of candidates in the variance of a mean, with one sample and with all.",
            "low and high bound the share with all samples: 95% interval over queries, given these samples.",
            f"Samples needed: from which on that share is at most {ENOUGH:.0%}.",
        )
        yield StudyTable(
            "variance", frame_table("Variance between samples and between queries", frame, notes, 2), frame
        )


def measured(averages: Mapping[Key, Average]) -> list[Curve]:
    """Return MAP by pool size where there are three sizes; then the published figures."""
    groups: dict[tuple[str | None, str], dict[int, Average]] = {}
    for ((field, size), system, measure), average in averages.items():
        if measure == "map":
            groups.setdefault((field, system), {})[size] = average
    found = []
    for (field, system), by_size in groups.items():
        sizes = curve.apart(list(by_size))
        if len(sizes) > 2 and len({len(by_size[size].values) for size in sizes}) == 1:
            found.append(Curve(field or DATASET, system, sizes, np.stack([by_size[size].values for size in sizes])))
    for system in _PUBLISHED if found else ():
        figures = [published(system, None, size, "map") for size in _SIZES]
        if None not in figures:
            found.append(Curve("paper", system, list(_SIZES), np.array(figures, np.float64)[:, None]))
    return found


def curves(found: Sequence[Curve], seed: int) -> Iterator[StudyTable]:
    """Yield predictions of the largest size from the smaller ones, and extrapolations, by both forms."""
    rows = []
    for each, form in itertools.product(found, curve.FORMS):
        *smaller, largest = each.sizes
        label = f"{each.group} {each.system} {format_count(largest)}, {form}"
        predicted = curve.extrapolate(smaller, each.values[:-1], [largest], form, seed, "curve")
        beyond = curve.extrapolate(each.sizes, each.values, curve.SIZES, form, seed, "curve")
        points = [interval(each.values[-1], seed, "curve"), *predicted, *beyond]
        columns = ("measured", "predicted", *map(format_count, curve.SIZES))
        known = each.values.shape[1] > 1
        rows += [
            Measurement(label, column, value, *((low, high) if known else (np.nan, np.nan)))
            for column, (value, low, high) in zip(columns, points, strict=True)
        ]
    if rows:
        notes = (
            "The curve is fitted to the smaller sizes for the largest, and to all for larger ones. logit: log odds of "
            "MAP against the log of the size; power: log of MAP. Pools of nearly one size are one point.",
            "paper: the published figures. Intervals are over queries; they do not hold the error of the form.",
        )
        yield interval_table("curves", "MAP against pool size", "system, largest size, form", rows, notes)


def fusions(averages: Mapping[Key, Average], seed: int) -> Iterator[StudyTable]:
    """Yield what each fused system gains over its parts in MAP."""
    rows = []
    for (setup, system, measure), each in averages.items():
        names = fused_names(system)
        parts = [averages[key] for name in names if (key := (setup, name, measure)) in averages]
        if measure != "map" or len(parts) < 2 or len(parts) < len(names):
            continue
        best = max(parts, key=lambda part: part.values.mean())
        label, item = f"{_name(setup)} {system}", setup[0] or ""
        rows.append(Measurement(label, "MAP", *interval(each.values, seed, item)))
        rows.append(Measurement(label, "gain over the best part", *interval(each.values - best.values, seed, item)))
        ideal = np.max([part.values for part in parts], axis=0)
        rows.append(Measurement(label, "best part of each query", *interval(ideal - best.values, seed, item)))
    if rows:
        notes = ("The best part of each query: the gain of a choice that knows the relevant papers.",)
        yield interval_table("fusion", "What fusion gains", "pool, system", rows, notes)


def _name(setup: Setup) -> str:
    return f"{setup[0] or DATASET} {format_count(setup[1])}"
