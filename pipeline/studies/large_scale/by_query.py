"""Tables of values query by query: tests, variance, curves over pool size, fusion."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from pipeline.core.config import format_count
from pipeline.encode import registry
from pipeline.measure.statistics import bootstrap_means, confidence_interval
from pipeline.report.averaging import Averaged, Key
from pipeline.report.model import AVERAGE, Report, Scored, Setup
from pipeline.report.tables import Column, Line, Table
from pipeline.studies.base import StudyTable
from pipeline.studies.common import table_of
from pipeline.studies.large_scale import curve
from pipeline.studies.large_scale.data import Floats, Interval, interval
from pipeline.studies.large_scale.published import published
from pipeline.studies.large_scale.rows import Row, table
from pipeline.studies.large_scale.study import DATASET
from pipeline.studies.large_scale.variance import ENOUGH, components, share_interval

_SIZES = {"200k": 200_000, "500k": 500_000, "1M": 1_000_000, "2M": 2_000_000}
_BOUNDS = ("value", "low", "high")
_PUBLISHED = ("bm25:tuned", "scibert", "specter", "scincl", "aspire-bm")
"""Rows of the paper's table 1."""


def tests(reports: Sequence[Report], averaged: Mapping[Key, Averaged]) -> StudyTable:
    """Return the differences of MAP to the baseline with intervals, p-values, wins and losses."""
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for report in reports:
        for each in report.summaries:
            if each.measure != "map" or each.p_value is None or each.field == AVERAGE or each.size is None:
                continue
            setup = Setup(each.field, each.size)
            base = averaged[setup, report.baselines[each.system], "map"].values
            change = averaged[setup, each.system, "map"].values - base
            value, low, high = interval(change, report.settings.seed, each.field or "")
            rows[_name(setup), each.system] = {
                "pool": _name(setup), "system": each.system, "baseline": report.baselines[each.system],
                "difference": value, "low": low, "high": high, "p": each.p_value, "p_adjusted": each.p_adjusted,
                "wins": int((change > 0).sum()), "losses": int((change < 0).sum()),
            }  # fmt: skip
    frame = pl.DataFrame(list(rows.values()), infer_schema_length=None)
    lines = [
        Line(
            f"{row['pool']} {row['system']}",
            (
                f"{100 * row['difference']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]",
                f"{row['p']:.4f}",
                f"{row['p_adjusted']:.4f}",
                f"{row['wins']} : {row['losses']}",
            ),
        )
        for row in frame.iter_rows(named=True)
    ]
    columns = tuple(Column("", name) for name in ("MAP difference", "p", "p, Holm", "wins : losses"))
    notes = ("Paired permutation tests. Holm's correction is over fields, or sizes of one field, system by system.",)
    return StudyTable("tests", Table("Difference to the baseline", "pool, system", columns, tuple(lines), notes), frame)


def variances(scored: Sequence[Scored], seed: int) -> Iterator[StudyTable]:
    """Yield the variance of MAP between samples beside that between queries, where there are several samples."""
    groups: dict[tuple[Setup, str], list[Scored]] = {}
    for each in scored:
        groups.setdefault((each.pool.setup, each.system), []).append(each)
    rows = []
    for (setup, system), samples in groups.items():
        if len(samples) < 2:
            continue
        values = np.stack([each.values[each.measures.index("map")] for each in samples])
        queries = values.shape[1]
        found = components(values)
        low, high = share_interval(values, seed, setup.field or "")
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
        yield StudyTable("variance", table_of("Variance between samples and between queries", frame, notes, 2), frame)


def curves(averaged: Mapping[Key, Averaged], seed: int) -> Iterator[StudyTable]:
    """Yield measured and fitted MAP by pool size, also of the published figures; nothing without three sizes."""
    groups: dict[tuple[str | None, str], dict[int, Averaged]] = {}
    for (setup, system, measure), each in averaged.items():
        if measure == "map":
            groups.setdefault((setup.field, system), {})[setup.size] = each
    rows: list[dict[str, object]] = []
    for (field, system), by_size in groups.items():
        sizes = curve.apart(list(by_size))
        if len(sizes) > 2 and len({len(by_size[size].values) for size in sizes}) == 1:
            values = np.stack([by_size[size].values for size in sizes])
            rows += _curve(field or DATASET, system, sizes, values, seed)
    for system in _PUBLISHED if rows else ():
        figures = [published(system, None, size, "map") for size in _SIZES.values()]
        if None not in figures:
            known = np.array(figures, np.float64)[:, None]
            rows += _curve("paper", system, list(_SIZES.values()), known, seed)
    if rows:
        frame = pl.DataFrame(rows, infer_schema_length=None)
        notes = (
            "The curve is fitted to the smaller sizes for the largest, and to all for larger ones. logit: log odds of "
            "MAP against the log of the size; power: log of MAP. Pools of nearly one size are one point.",
            "Brackets: 95% interval over queries. It does not hold the error of the form: compare the two.",
        )
        yield StudyTable("curves", _curve_table(frame, notes), frame)


def _curve(group: str, system: str, sizes: list[int], values: Floats, seed: int) -> Iterator[dict[str, object]]:
    """Yield measured points, the prediction of the largest size, and the extrapolations of each form."""
    means = bootstrap_means(values, seed=seed, item="curve")
    low, high = confidence_interval(means, values)

    def point(kind: str, size: int, found: Interval) -> dict[str, object]:
        own = found if values.shape[1] > 1 else (found[0], None, None)
        return {
            "group": group, "system": system, "kind": kind, "size": size, **dict(zip(_BOUNDS, own, strict=True))
        }  # fmt: skip

    measured = zip(values.mean(axis=1).tolist(), low.tolist(), high.tolist(), strict=True)
    yield from (point("measured", size, found) for size, found in zip(sizes, measured, strict=True))
    for form in curve.FORMS:
        left_out = curve.extrapolate(sizes[:-1], values[:-1], sizes[-1:], form, seed, "curve")
        beyond = curve.extrapolate(sizes, values, curve.SIZES, form, seed, "curve")
        yield point(f"{form}, left out", sizes[-1], left_out[0])
        yield from (point(form, size, found) for size, found in zip(curve.SIZES, beyond, strict=True))


def _curve_table(frame: pl.DataFrame, notes: tuple[str, ...]) -> Table:
    lines = []
    for (group, system), own in frame.group_by("group", "system", maintain_order=True):
        largest = own.filter(pl.col("kind") == "measured")["size"].max()
        for form in curve.FORMS:
            cells = [
                own.filter((pl.col("kind") == kind) & (pl.col("size") == size)).row(0, named=True)
                for kind, size in (
                    ("measured", largest),
                    (f"{form}, left out", largest),
                    *((form, each) for each in curve.SIZES),
                )
            ]
            lines.append(Line(f"{group} {system}, {form}", (f"{format_count(cells[0]['size'])}", *map(_cell, cells))))
    labels = ("largest", "measured", "predicted", *(format_count(size) for size in curve.SIZES))
    return Table(
        "MAP against pool size", "system, form", tuple(Column("", each) for each in labels), tuple(lines), notes
    )


def _cell(point: Mapping[str, float | None]) -> str:
    value, low, high = (point[name] for name in _BOUNDS)
    own = "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{100 * (value or 0.0):.1f}{own}"


def fusions(averaged: Mapping[Key, Averaged], seed: int) -> Iterator[StudyTable]:
    """Yield what each fused system gains over its parts in MAP."""
    rows = []
    for (setup, system, measure), each in averaged.items():
        inside = re.fullmatch(r"(?:rrf|wsum)\((.*)\)", system)
        names = registry.split_names(inside[1]) if inside else []
        parts = [averaged[key] for name in names if (key := (setup, name.strip(), measure)) in averaged]
        if measure != "map" or len(parts) < 2 or len(parts) < len(names):
            continue
        best = max(parts, key=lambda part: part.values.mean())
        label, item = f"{_name(setup)} {system}", setup.field or ""
        rows.append(Row(label, "MAP", *interval(each.values, seed, item)))
        rows.append(Row(label, "gain over the best part", *interval(each.values - best.values, seed, item)))
        ideal = np.max([part.values for part in parts], axis=0)
        rows.append(Row(label, "best part of each query", *interval(ideal - best.values, seed, item)))
    if rows:
        notes = ("The best part of each query: the gain of a choice that knows the relevant papers.",)
        yield table("fusion", "What fusion gains", "pool, system", rows, notes)


def _name(setup: Setup) -> str:
    return f"{setup.field or DATASET} {format_count(setup.size)}"
