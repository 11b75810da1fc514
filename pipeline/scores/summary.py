"""Means over samples, macro averages over fields, and significance against a baseline (protocols 2 to 4)."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.errors import InputError
from pipeline.core.text import csv_cell
from pipeline.measure.measures import sign_of
from pipeline.measure.permutation import permutations_of
from pipeline.measure.statistics import equivalence, permutation_of_means
from pipeline.scores.average import (
    AVERAGE,
    PROTOCOL,
    Average,
    Draws,
    Floats,
    Key,
    Setup,
    average,
    corrected,
    families,
    in_order,
)
from pipeline.scores.choose import labels_of
from pipeline.scores.sources import trained_on
from pipeline.scores.store import IDENTITY, as_json, load_runs
from pipeline.stages.systems import UNTUNED

USUAL = "usual"
"""In place of a baseline: the row of tuned BM25, else of BM25, if exactly one row has that name."""

MACRO: Setup = (AVERAGE, 0)
"""In place of a setup: the mean over the fields of a table."""

EQUAL = 1e-12
"""Means that differ by less are equal but for rounding."""

_SHARED = ("year", "split", "seed", "depth", "k1", "b", "precision", "engine", "revision", "settings")
"""Columns that a figure takes from its rankings."""

SUMMARY = {
    "table": pl.Int32,
    "over": pl.String,
    "wanted": pl.String,
    "alpha": pl.Float64,
    "system": pl.String,
    "label": pl.String,
    "corpus": pl.String,
    "pool": pl.String,
    "field": pl.String,
    "size": pl.Int64,
    "sample": pl.Int32,
    "samples": pl.List(pl.Int32),
    "measure": pl.String,
    "value": pl.Float64,
    "deviation": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "level": pl.Float64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "tests": pl.Int64,
    "margin": pl.Float64,
    "p_equivalent": pl.Float64,
    "baseline": pl.String,
    "best": pl.Boolean,
    "marked": pl.Boolean,
    "queries": pl.Int64,
    "positives": pl.Int64,
    "queries_without_results": pl.Int64,
    "positives_not_in_collection": pl.Int64,
    **{name: IDENTITY[name] for name in _SHARED},
    "trained_on": pl.String,
    "pool_settings": pl.String,
    "ties": pl.String,
    "bootstrap_seed": pl.Int64,
    "resample": pl.String,
    "resamples": pl.Int64,
    "permutations": pl.Int64,
    "pools": pl.List(pl.String),
    "rankings": pl.List(pl.String),
    "scores": pl.List(pl.String),
}
"""Columns of a summary, a row for each figure.

``table`` numbers the tables in order; ``over`` is ``sizes`` (a table of one field, or the dataset level, at rising
sizes) or ``fields``. ``wanted`` is the requested baseline, null without tests; adjusted p-values below ``alpha`` are
``marked``. ``field`` may be :data:`AVERAGE`; ``size`` is null for an average over pools of different sizes. ``value``
is the mean over ``samples`` of the mean over queries, ``deviation`` the standard deviation over samples (null for one).
``low`` and ``high`` bound the bootstrap interval; ``resample``, ``margin`` and others are those of
:class:`pipeline.scores.average.Draws`. ``p_value`` is from the paired permutation test, ``p_adjusted`` corrected over
the ``tests`` of one system and measure in a table, ``p_equivalent`` from the test of equivalence within the
``margin``, if one is set.
``trained_on`` is the training data of the encoders, such as ``citations to 2021``. ``best`` marks the best system of
one depth on one pool. Columns that differ between the rankings of a figure are null.
"""


def summarise(
    scores: pl.DataFrame,
    *,
    baseline: str | None = None,
    sort: str | None = None,
    draws: Draws = PROTOCOL,
) -> pl.DataFrame:
    """Return the figures of all measures, columns :data:`SUMMARY`: table by table, pools in the order shown.

    Args:
        scores: columns :data:`pipeline.scores.store.SCORES_SCHEMA`; systems keep their order.
        baseline: name or label of the row that the others are tested against; :data:`USUAL`; or None: no tests.
        sort: the measure whose mean over pools orders the systems, best first.
        draws: settings of the bootstrap and the tests.

    Raises:
        InputError: there are no scores; the baseline or ``sort`` was not scored; samples of one pool have other
            queries.
    """
    if scores.is_empty():
        raise InputError("there are no scores to report", "Run mdcr eval first")
    numbers = itertools.count(1)
    of_kinds = scores.partition_by("kind", maintain_order=True)
    return pl.concat([_summarise_kind(of_kind, numbers, baseline, sort, draws) for of_kind in of_kinds])


def summarise_samples(scores: pl.DataFrame, draws: Draws = PROTOCOL) -> pl.DataFrame:
    """Return the figures of each single sample of pools with several, without tests, columns :data:`SUMMARY`.

    Intervals are over queries.
    """
    draws = replace(draws, resample="queries")
    parts = [pl.DataFrame(schema=SUMMARY)]
    for of_kind in scores.partition_by("kind", maintain_order=True):
        sampled = of_kind.filter((pl.col("sample").n_unique() > 1).over("field", "size", "label"))
        for sample in sorted(sampled["sample"].unique()):
            averages = average(sampled.filter(sample=sample), draws)
            figures = [_row(key, figure, draws) for key, figure in averages.items()]
            parts.append(_frame(figures, load_runs(of_kind), draws))
    return pl.concat(parts)


def _summarise_kind(
    scores: pl.DataFrame, numbers: Iterator[int], baseline: str | None, sort: str | None, draws: Draws
) -> pl.DataFrame:
    runs = load_runs(scores)
    wanted = _default_baseline(runs) if baseline == USUAL else baseline
    base_of = baselines(runs, wanted)
    measures = in_order(scores["measure"].unique())
    if sort is not None and sort not in measures:
        raise InputError(f"{sort} was not scored", f"Score it with --measures, or choose from {', '.join(measures)}")
    averages = average(scores, draws)
    labels = list(runs["label"].unique(maintain_order=True))
    if sort is not None:
        sign, means = -sign_of(sort), dict[str, list[float]]()
        for (_, label, measure), figure in averages.items():
            means.setdefault(label, []).extend([figure.values.mean()] * (measure == sort))
        labels.sort(key=lambda label: sign * np.mean(means[label]) if means[label] else np.inf)
    rows: list[dict[str, Any]] = []
    for (over, setups), number in zip(families([setup for setup, *_ in averages]), numbers, strict=False):
        of_table = {key: figure for key, figure in averages.items() if key[0] in setups}
        order = itertools.product(setups, labels, measures)
        figures = {key: _row(key, of_table[key], draws) for key in order if key in of_table}
        if over == "fields":
            figures |= _macro_averages(setups, labels, measures, of_table, draws)
        tests = _tests(of_table, figures, base_of, draws, draws.seed_of(runs))
        rows += [row | tests.get(key, {}) | {"table": number, "over": over} for key, row in figures.items()]
    summary = corrected(_mark_best(_frame(rows, runs, draws)), ["table", "measure", "label"])
    marked = (pl.col("p_adjusted") < draws.alpha).fill_null(value=False)
    return summary.with_columns(pl.lit(wanted, pl.String).alias("wanted"), marked=marked)


def _default_baseline(runs: pl.DataFrame) -> str | None:
    systems = list(runs.unique("label")["system"])
    return next((name for name in ("bm25", UNTUNED) if systems.count(name) == 1 < len(systems)), None)


def _row(key: Key, figure: Average, draws: Draws, fields: Sequence[Average] = ()) -> dict[str, Any]:
    """Return a figure with its interval; ``fields`` are the figures that a mean over fields averages."""
    (field, size), label, measure = key
    low, high = draws.interval(figure.draws[None, :], *(group.values[None, :] for group in fields or [figure]))
    return {
        "field": field,
        "size": size,
        "label": label,
        "measure": measure,
        "value": float(figure.figures.mean()),
        "deviation": float(figure.figures.std(ddof=1)) if len(figure.figures) > 1 else None,
        "low": float(low[0]),
        "high": float(high[0]),
        "queries": len(figure.values),
        "positives": figure.positives,
        "pools": list(figure.pools),
    }


def _macro_averages(
    setups: Sequence[Setup],
    labels: Sequence[str],
    measures: Sequence[str],
    averages: Mapping[Key, Average],
    draws: Draws,
) -> Iterator[tuple[Key, dict[str, Any]]]:
    """Yield the macro average over fields, for each system with figures on all of them."""
    sizes = {size for _, size in setups}
    for label, measure in itertools.product(labels, measures):
        fields = [averages[key] for setup in setups if (key := (setup, label, measure)) in averages]
        if len(fields) < len(setups):
            continue
        macro = Average(
            values=np.concatenate([field.values for field in fields]),
            figures=_figures_of_samples(fields),
            samples=max((field.samples for field in fields), key=len),
            draws=np.mean([field.draws for field in fields], axis=0),
            positives=sum(field.positives for field in fields),
            pools=tuple(name for field in fields for name in field.pools),
        )
        key = (MACRO, label, measure)
        value = float(np.mean([field.figures.mean() for field in fields]))
        size = next(iter(sizes)) if len(sizes) == 1 else None
        yield key, _row(key, macro, draws, fields) | {"size": size, "value": value}


def _figures_of_samples(fields: Sequence[Average]) -> Floats:
    """Return the macro average of each sample; the one pool of a field with ``--size all`` counts in every sample.

    If fields have different samples, no deviation over samples is defined, and one figure is returned.
    """
    repeated = [field for field in fields if len(field.samples) > 1]
    if len({field.samples for field in repeated}) != 1:
        return np.array([np.mean([field.figures.mean() for field in fields])])
    count = len(repeated[0].samples)
    figures: Floats = np.mean([np.broadcast_to(field.figures, count) for field in fields], axis=0)
    return figures


def baselines(runs: pl.DataFrame, wanted: str | None) -> dict[str, str]:
    """Return the label of the row that each row is tested against: the baseline of the same depth.

    ``wanted`` is a name or label; None: no tests.
    """
    depth_of = {run["label"]: run["depth"] for run in runs.iter_rows(named=True)}
    matches = [] if wanted is None else labels_of(runs, wanted)
    if wanted is not None and not matches:
        raise InputError(
            f"the baseline must be one of {', '.join(depth_of)} on these pools, got {wanted!r}",
            f"Name it with --model, or score it first: mdcr eval --model {wanted}",
        )
    base_of: dict[int, str] = {}
    for label in matches:
        other = base_of.setdefault(depth_of[label], label)
        if other != label:
            raise InputError(
                f"the baseline {wanted!r} must be one row, got {other} and {label}", "Give its whole label"
            )
    bases = base_of.values()
    return {label: base_of[depth] for label, depth in depth_of.items() if depth in base_of and label not in bases}


def _tests(
    averages: Mapping[Key, Average], figures: Iterable[Key], base_of: Mapping[str, str], draws: Draws, seed: int
) -> dict[Key, dict[str, Any]]:
    """Return baseline and p-values of each tested figure of a table.

    A system is tested if it and the baseline have the same depth and samples; a mean over fields, if that holds in each
    field.
    """
    setups = list(dict.fromkeys(key[0] for key in averages))
    changes_of: dict[Setup, dict[Key, list[Floats]]] = {}
    for setup in dict.fromkeys(key[0] for key in figures):
        fields = setups if setup == MACRO else [setup]
        for key in (key for key in figures if key[0] == setup):
            of_fields = [averages[field, *key[1:]] for field in fields]
            bases = [averages.get((field, base_of.get(key[1], ""), key[2])) for field in fields]
            pairs = [(figure, base) for figure, base in zip(of_fields, bases, strict=True) if base is not None]
            if len(pairs) == len(fields) and all(figure.samples == base.samples for figure, base in pairs):
                changes = [figure.values - base.values for figure, base in pairs]
                changes_of.setdefault(setup, {})[key] = changes
    tests = len([setup for setup in changes_of if setup != MACRO])
    tested: dict[Key, dict[str, Any]] = {}
    for setup, changes_by_key in changes_of.items():
        fields = setups if setup == MACRO else [setup]
        groups = {
            field[0] or "": np.stack([rows[position] for rows in changes_by_key.values()])
            for position, field in enumerate(fields)
        }
        p_values = permutation_of_means(groups, seed, permutations=draws.permutations, tests=tests).tolist()
        p_equivalents = equivalence(groups, draws.margin).tolist() if draws.margin else [None] * len(p_values)
        for key, p_value, p_equivalent in zip(changes_by_key, p_values, p_equivalents, strict=True):
            test = {"baseline": base_of[key[1]], "p_value": p_value, "p_equivalent": p_equivalent}
            tested[key] = test | {"permutations": permutations_of(tests, draws.permutations)}
    return tested


def _frame(rows: Sequence[dict[str, Any]], runs: pl.DataFrame, draws: Draws) -> pl.DataFrame:
    """Return figures as a frame, columns :data:`SUMMARY`, with the facts of their rankings."""
    run_of = {(run["label"], run["pool"]): run for run in runs.iter_rows(named=True)}
    seed, records = draws.seed_of(runs), []
    for row in rows:
        rankings = [run_of[row["label"], pool] for pool in row["pools"]]
        samples = sorted({run["sample"] for run in rankings})
        pools = [json.loads(run["pool_settings"]) for run in rankings]
        shared = {
            key: value for key, value in pools[0].items() if key != "sample" and all(p.get(key) == value for p in pools)
        }
        records.append({
            "system": rankings[0]["system"], "corpus": rankings[0]["corpus"],
            "pool": row["pools"][0] if len(row["pools"]) == 1 else None,
            "sample": samples[0] if len(samples) == 1 and row["field"] != AVERAGE else None,
            "samples": samples, "level": draws.level, "alpha": draws.alpha,
            "margin": draws.margin, "best": False, "marked": False,
            "queries_without_results": sum(run["queries_without_results"] for run in rankings),
            "positives_not_in_collection": sum(run["positives_not_in_collection"] for run in rankings),
            **{name: rankings[0][name] if len({run[name] for run in rankings}) == 1 else None for name in _SHARED},
            "trained_on": trained_on(rankings[0]),
            "pool_settings": as_json(shared), "ties": "score descending, then paper id descending",
            "bootstrap_seed": seed, "resample": draws.resample, "resamples": draws.resamples,
            "permutations": draws.permutations,
            "rankings": list(dict.fromkeys(run["ranking"] for run in rankings)),
            "scores": list(dict.fromkeys(name for run in rankings for name in run["scores"])),
            **row,
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


_LEFT_OUT = ("table", "over", "wanted", "alpha", "best", "marked")
"""Columns of a summary that concern only its display."""

_FIGURES = (
    *("field", "size", "measure", "value", "deviation", "low", "high", "samples", "queries", "positives", "pools"),
    *("p_value", "p_adjusted"),
)


def records(summary: pl.DataFrame) -> list[dict[str, Any]]:
    """Return all figures as records, without the columns of display."""
    rows: list[dict[str, Any]] = summary.drop(_LEFT_OUT).rows(named=True)
    return rows


def as_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return records as CSV with a header (texts: :func:`pipeline.core.text.csv_cell`).

    Lists are joined by ``;``; a missing value is empty.
    """
    lines = [{name: _cell(value) for name, value in row.items()} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    joined = ";".join(map(str, value)) if isinstance(value, list | tuple) else value
    return csv_cell(joined) if isinstance(joined, str) else joined


def flat(summary: pl.DataFrame) -> pl.DataFrame:
    """Return the figures of a summary in full precision, without facts of their rankings: the CSV file of a study."""
    lists = [pl.col("samples").list.len(), pl.col("pools").list.join(";")]
    return summary.select("label", *_FIGURES).with_columns(lists).rename({"label": "system"})
