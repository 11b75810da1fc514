"""Means over samples, macro averages over fields, and significance against a baseline (protocols 2 to 4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from pipeline.core.errors import InputError
from pipeline.measure.design import Design, Draws
from pipeline.measure.measures import sign_of
from pipeline.scores.average import (
    AMONG,
    AVERAGE,
    BY_SAMPLE,
    PROTOCOL,
    drawn,
    estimated,
    families,
    in_order,
    require_same_queries,
    with_findings,
)
from pipeline.scores.choose import labels_of
from pipeline.scores.facts import REQUESTED, columns
from pipeline.scores.frames import IDENTITY, Scores, load_runs, own_runs
from pipeline.scores.sources import trained_on
from pipeline.stages.systems import UNTUNED

USUAL = "usual"
"""In place of a baseline: the row of tuned BM25, else of BM25, if exactly one row has that name."""

EQUAL = 1e-12
"""Means that differ by less are equal but for rounding."""

_SHARED = (
    *("year", "split", "seed", "depth", "k1", "b", "precision", "engine", "revision", "missing_positives", "settings"),
    *REQUESTED,
)
"""Columns that a figure takes from its rankings."""

SUMMARY = {
    "table": pl.Int32,
    **columns(pl.String, "over requested_baseline"),
    "alpha": pl.Float64,
    **columns(pl.String, "system label corpus pool field"),
    "size": pl.Int64,
    "sample": pl.Int32,
    "samples": pl.List(pl.Int32),
    "measure": pl.String,
    **columns(pl.Float64, "value deviation low high level"),
    "interval": pl.String,
    **columns(pl.Float64, "difference difference_low difference_high p_value p_adjusted"),
    **columns(pl.Int64, "tests queries_without_results positives_not_in_collection"),
    "detectable": pl.Float64,
    "finding": pl.String,
    **AMONG,
    "baseline": pl.String,
    **columns(pl.Boolean, "best marked"),
    **columns(pl.Int64, "queries positives"),
    **{name: IDENTITY[name] for name in _SHARED},
    **columns(pl.String, "trained_on ties"),
    "bootstrap_seed": pl.Int64,
    "resample": pl.String,
    **columns(pl.Int64, "resamples permutations"),
    **columns(pl.List(pl.String), "pools rankings scores"),
}
"""Columns of a summary, a row for each figure.

``table`` numbers the tables in order; ``over`` is ``sizes`` (a table of one field, or the dataset level, at rising
sizes) or ``fields``. ``requested_baseline`` is the one asked for, null without tests; adjusted p-values below ``alpha``
are ``marked``. ``field`` may be :data:`AVERAGE`; ``size`` is null for an average over pools of different sizes.
``value`` is the mean over ``samples`` of the mean over queries, a fraction, ``deviation`` the standard deviation over
samples (null for one).
``low`` and ``high`` bound the bootstrap interval, ``interval`` is its kind; ``resample`` and others are
those of :class:`pipeline.measure.design.Draws`. ``difference`` is that to the ``baseline`` with its interval, and
``finding`` one of :data:`pipeline.scores.average.FINDINGS`, by the corrected test. ``p_value`` is from the paired
permutation test, ``p_adjusted`` corrected over the ``tests`` of one system and measure in a table, and
``detectable`` the smallest difference that the queries show (:data:`pipeline.measure.design.DIFFERENCE`).
``trained_on`` is the training data of the encoders, such as ``citations to 2021``. ``best`` marks the best system of
one depth on one pool. Columns that differ between the rankings of a figure are null.
"""


def summarise(
    scores: Scores,
    runs: pl.DataFrame | None = None,
    *,
    baseline: str | None = USUAL,
    draws: Draws = PROTOCOL,
) -> pl.DataFrame:
    """Return the figures of all measures: table by table, pools in the order shown.

    Args:
        scores: columns :data:`pipeline.scores.frames.SCORES_SCHEMA`, or with ``runs`` those of
            :data:`pipeline.scores.frames.VALUES`; systems keep their order.
        runs: the rankings of the scores, and perhaps others; None: the scores have their columns.
        baseline: name or label of the row that the others are tested against; ``usual``: BM25's if any; None: no tests.
        draws: settings of the bootstrap and the tests.

    Returns:
        Columns :data:`SUMMARY`.

    Raises:
        InputError: there are no scores; the baseline was not scored; samples of one pool have other queries.
    """
    if scores.is_empty():
        raise InputError("there are no scores to report", "Run mdcr eval first")
    numbers, draws = itertools.count(1), drawn(draws)
    runs = load_runs(scores) if runs is None else runs
    of_kinds = scores.partition_by("kind", maintain_order=True)
    return pl.concat(
        [_summarise_kind(of_kind, own_runs(of_kind, runs), numbers, baseline, draws) for of_kind in of_kinds]
    )


def summarise_samples(values: pl.DataFrame, runs: pl.DataFrame, draws: Draws = PROTOCOL) -> pl.DataFrame:
    """Return the figures of each single sample of pools with several, without tests, columns :data:`SUMMARY`.

    Intervals are over queries.
    """
    draws = replace(drawn(draws), resample="queries")
    parts = [pl.DataFrame(schema=SUMMARY)]
    for of_kind in values.partition_by("kind", maintain_order=True):
        of_runs = own_runs(of_kind, runs)
        sampled = of_kind.filter((pl.col("sample").n_unique() > 1).over("field", "size", "label"))
        for sample in sorted(sampled["sample"].unique()):
            figures = _figures(sampled.filter(sample=sample), BY_SAMPLE, {}, draws, draws.seed_of(of_runs))
            order = {"measure": in_order(figures["measure"].unique())}
            parts.append(_frame(_sorted(figures, ["field", "size", "label"], order), of_runs, draws))
    return pl.concat(parts)


def _summarise_kind(
    scores: pl.DataFrame,
    runs: pl.DataFrame,
    numbers: Iterator[int],
    baseline: str | None,
    draws: Draws,
) -> pl.DataFrame:
    requested_baseline = _default_baseline(runs) if baseline == USUAL else baseline
    base_of = baselines(runs, requested_baseline)
    measures = in_order(scores["measure"].unique())
    require_same_queries(scores)
    placed = [
        {"table": number, "over": over, "place": place, "field": field, "size": size}
        for (over, setups), number in zip(
            families(scores.select("field", "size").unique().rows()), numbers, strict=False
        )
        for place, (field, size) in enumerate(setups)
    ]
    places = pl.DataFrame(placed, schema_overrides={"field": pl.String, "size": scores.schema["size"]})
    values = places.join(scores, on=["field", "size"], nulls_equal=True, maintain_order="left_right")
    seed, family = draws.seed_of(runs), ("table", "label")
    of_pools = replace(BY_SAMPLE, of=("table", "over", "place", "field", "size"), family=family)
    figures = _figures(values, of_pools, base_of, draws, seed)
    fields = values.filter(over="fields")
    complete = pl.col("field").n_unique().over("table", "label", "measure") == pl.col("field").n_unique().over("table")
    macro = _figures(
        fields.filter(complete), replace(BY_SAMPLE, of=("table", "over"), family=family), base_of, draws, seed
    )
    sizes = fields.group_by("table").agg(size=pl.when(pl.col("size").n_unique() == 1).then(pl.col("size").first()))
    macro = macro.join(sizes, on="table", maintain_order="left").with_columns(field=pl.lit(AVERAGE))
    labels = list(runs["label"].unique(maintain_order=True))
    every = pl.concat([figures, macro], how="diagonal_relaxed")
    every = _sorted(
        every.sort("table", "place", nulls_last=True, maintain_order=True),
        ["table", "place"],
        {"label": labels, "measure": measures},
    )
    summary = with_findings(_mark_best(_frame(every, runs, draws)), draws)
    marked = (pl.col("p_adjusted") < draws.alpha).fill_null(value=False)
    return summary.with_columns(pl.lit(requested_baseline, pl.String).alias("requested_baseline"), marked=marked)


def _sorted(figures: pl.DataFrame, first: Sequence[str], orders: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Sort figures by columns in order of appearance, then by given orders of values."""
    appearance = [pl.struct(first).rle_id()]
    return figures.sort(*appearance, *(pl.col(name).cast(pl.Enum(order)) for name, order in orders.items()))


def _default_baseline(runs: pl.DataFrame) -> str | None:
    systems = list(runs.unique("label")["system"])
    return next((name for name in ("bm25", UNTUNED) if systems.count(name) == 1 < len(systems)), None)


def _figures(scores: pl.DataFrame, of: Design, base_of: Mapping[str, str], draws: Draws, seed: int) -> pl.DataFrame:
    """Return the estimates of each label and measure on each set of pools, with the facts of its samples.

    Added columns: ``positives`` of one sample, ``pools``, ``deviation`` over samples, and ``baseline`` of tested rows.
    """
    keys = [*of.of, "label", "measure"]
    levels = list(dict.fromkeys([*keys, "field", "size"]))
    samples = (
        scores.sort("query", maintain_order=True)
        .group_by(*levels, "sample", maintain_order=True)
        .agg(pl.col("value").drop_nans().mean(), pl.col("positives").first(), pl.col("pool").first())
    )
    of_pools = (
        samples.sort("sample", maintain_order=True)
        .group_by(levels)
        .agg("pool", "sample", "value", pl.first("positives"))
    )
    order = scores.select(levels).unique(maintain_order=True)
    facts = order.join(of_pools, on=levels, nulls_equal=True, maintain_order="left").group_by(keys, maintain_order=True)
    facts = facts.agg(
        pl.col("positives").sum(),
        "sample",
        "value",
        pools=pl.col("pool").list.explode(keep_nulls=False, empty_as_null=False),
    )
    deviations = [_deviation(*figures) for figures in facts.select("sample", "value").iter_rows()]
    facts = facts.drop("sample", "value").with_columns(deviation=pl.Series(deviations, dtype=pl.Float64))
    found = estimated(scores, of, seed, {(label,): (base,) for label, base in base_of.items()}, draws)
    tested = pl.when(pl.col("p").is_not_null())
    return found.join(facts, on=keys, nulls_equal=True, maintain_order="left").with_columns(
        baseline=tested.then(pl.col("label").replace_strict(base_of, default=None, return_dtype=pl.String)),
        permutations=pl.col("permutations").fill_null(draws.permutations),
    )


def _deviation(samples: Sequence[Sequence[int]], figures: Sequence[Sequence[float]]) -> float | None:
    """Return the standard deviation over samples of the mean over fields; None for one sample.

    The one pool of a field with ``--size all`` counts in every sample. If fields have different samples, none is
    defined.
    """
    repeated = {tuple(of_field) for of_field in samples if len(of_field) > 1}
    if len(repeated) != 1:
        return None
    count = len(repeated.pop())
    return float(np.mean([np.broadcast_to(of_field, count) for of_field in figures], axis=0).std(ddof=1))


def baselines(runs: pl.DataFrame, requested_baseline: str | None) -> dict[str, str]:
    """Return the label of the row that each row is tested against: the baseline of the same depth.

    ``requested_baseline`` is a name or label; None: no tests.
    """
    depth_of = {run["label"]: run["depth"] for run in runs.iter_rows(named=True)}
    matches = [] if requested_baseline is None else labels_of(runs, requested_baseline)
    if requested_baseline is not None and not matches:
        raise InputError(
            f"the baseline must be one of {', '.join(depth_of)} on these pools, got {requested_baseline!r}",
            f"Name it with --model, or score it first: mdcr eval --model {requested_baseline}",
        )
    base_of: dict[int, str] = {}
    for label in matches:
        other = base_of.setdefault(depth_of[label], label)
        if other != label:
            raise InputError(
                f"the baseline {requested_baseline!r} must be one row, got {other} and {label}", "Give its whole label"
            )
    bases = base_of.values()
    return {label: base_of[depth] for label, depth in depth_of.items() if depth in base_of and label not in bases}


def _frame(figures: pl.DataFrame, runs: pl.DataFrame, draws: Draws) -> pl.DataFrame:
    """Return figures as a frame, columns :data:`SUMMARY`, with the facts of their rankings."""
    run_of = {(run["label"], run["pool"]): run for run in runs.iter_rows(named=True)}
    seed, records = draws.seed_of(runs), []
    figures = figures.rename({"items": "queries", "p": "p_value"}, strict=False)
    figures = figures.select(name for name in SUMMARY if name in figures.columns)
    for row in figures.iter_rows(named=True):
        rankings = [run_of[row["label"], pool] for pool in row["pools"]]
        samples = sorted({run["sample"] for run in rankings})
        shared = {name: [run[name] for run in rankings] for name in _SHARED}
        records.append({
            **row,
            "system": rankings[0]["system"], "corpus": rankings[0]["corpus"],
            "pool": row["pools"][0] if len(row["pools"]) == 1 else None,
            "sample": samples[0] if len(samples) == 1 and row["field"] != AVERAGE else None,
            "samples": samples, "level": draws.level, "alpha": draws.alpha,
            "best": False, "marked": False,
            "queries_without_results": sum(run["queries_without_results"] for run in rankings),
            "positives_not_in_collection": sum(run["positives_not_in_collection"] for run in rankings),
            **{name: of[0] if all(value == of[0] for value in of) else None for name, of in shared.items()},
            "trained_on": trained_on(rankings[0]),
            "ties": "score descending, then paper id descending",
            "bootstrap_seed": seed, "resample": draws.resample, "resamples": draws.resamples,
            "rankings": list(dict.fromkeys(run["ranking"] for run in rankings)),
            "scores": list(dict.fromkeys(name for run in rankings for name in run["scores"])),
        })  # fmt: skip
    return pl.DataFrame(records, schema=SUMMARY, orient="row")


def _mark_best(summary: pl.DataFrame) -> pl.DataFrame:
    """Mark the best figures of each pool and measure, among two or more systems of one depth and of all samples."""
    rivals = [*COLUMN, "depth", pl.col("samples").list.len()]
    signs = {name: sign_of(name) for name in summary["measure"].unique()}
    value = pl.col("value") * pl.col("measure").replace_strict(signs, return_dtype=pl.Int8)
    return summary.with_columns(
        best=(value >= value.max().over(rivals) - EQUAL) & (pl.len().over(rivals) > 1) & ~of_fewer_samples()
    )


COLUMN = ("table", "field", "size", "measure")
"""Figures that agree in these are compared with each other."""


def of_fewer_samples() -> pl.Expr:
    """Return whether a figure is a mean over fewer samples than another one it would be compared with."""
    samples = pl.col("samples").list.len()
    return samples < samples.max().over(COLUMN)


_LEFT_OUT = (
    *("table", "over", "requested_baseline", "alpha", "best", "marked"),
    *("difference", "difference_low", "difference_high", "finding", *AMONG),
)
"""Columns of a summary that concern only its display and the sentences of its page."""

_FIGURES = (
    *("field", "size", "measure", "value", "deviation", "low", "high", "samples", "queries", "positives", "pools"),
    *("p_value", "p_adjusted"),
)


def exported(summary: pl.DataFrame) -> pl.DataFrame:
    """Return all figures without the columns of display, for CSV, JSON and provenance."""
    return summary.drop(_LEFT_OUT)


def flat(summary: pl.DataFrame) -> pl.DataFrame:
    """Return the figures of a summary in full precision, without facts of their rankings: the CSV file of a study."""
    lists = [pl.col("samples").list.len(), pl.col("pools").list.join(";")]
    return summary.select("label", *_FIGURES).with_columns(lists).rename({"label": "system"})
