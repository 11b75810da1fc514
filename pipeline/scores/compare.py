"""Comparison of two systems on the same pools: differences of means, and the queries that differ most."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.errors import InputError
from pipeline.corpus.pool import Pool
from pipeline.measure.estimates import smallest_shown
from pipeline.measure.measures import sign_of
from pipeline.measure.permutation import permutations_of
from pipeline.measure.statistics import (
    equivalence,
    permutation_of_means,
    standard_error,
    standardised_effect,
)
from pipeline.scores.average import (
    AVERAGE,
    PROTOCOL,
    Average,
    Draws,
    Key,
    Setup,
    average,
    corrected,
    families,
    in_order,
)
from pipeline.scores.caption import scope
from pipeline.scores.choose import differing_settings, label_of_row, labels_of
from pipeline.scores.store import load_runs, open_rankings

DIFFERENCES = {
    "first": pl.String,
    "second": pl.String,
    "field": pl.String,
    "scope": pl.String,
    "size": pl.Int64,
    "pools": pl.List(pl.String),
    "queries": pl.Int64,
    "interval": pl.String,
    "level": pl.Float64,
    "resample": pl.String,
    "measure": pl.String,
    "first_value": pl.Float64,
    "second_value": pl.Float64,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "tests": pl.Int64,
    "effect": pl.Float64,
    "error": pl.Float64,
    "detectable": pl.Float64,
    "permutations": pl.Int64,
    "margin": pl.Float64,
    "p_equivalent": pl.Float64,
    "finding": pl.String,
    "wins": pl.Int64,
    "ties": pl.Int64,
    "losses": pl.Int64,
    "changes": pl.List(pl.Float64),
}
"""Columns of differences, a row for each field, size and measure, and for the mean over fields (``AVG``) of one size.

``first`` and ``second`` are labels; ``scope`` is the scope of the pools (:func:`pipeline.scores.caption.scope`).
``difference`` is the second less the first; ``low`` and ``high`` bound its bootstrap interval. ``resample`` names the
units that are resampled, ``interval`` the kind of interval. ``p_value`` is from the paired permutation test;
``p_adjusted`` is corrected by Holm over the ``tests`` of its measure (the mean over fields is tested separately).
``effect`` is :func:`pipeline.measure.statistics.standardised_effect`; ``error`` is
the standard error of the difference, and ``detectable`` the smallest difference that these queries show with power .8
at the level of Holm's first step (:func:`pipeline.measure.estimates.smallest_shown`). ``permutations`` counts the drawn
sign patterns (:func:`pipeline.measure.permutation.permutations_of`). ``p_equivalent`` is from the test of equivalence
within the ``margin``, null without one. ``finding`` is one of :data:`FINDINGS`. ``wins`` counts the queries on which
the second is better. ``changes`` are the differences of the queries, mean over samples.
"""

FINDINGS = ("better", "worse", "equivalent", "no difference shown")
"""Conclusions about the second system. ``equivalent`` has its own test: a large p-value alone shows nothing."""

_POSITIVE = pl.Struct(
    {"paper_id": pl.String, "title": pl.String, "year": pl.Int16, "first_rank": pl.Int64, "second_rank": pl.Int64}
)

QUERIES = {
    "query_id": pl.String,
    "title": pl.String,
    "year": pl.Int16,
    "field": pl.String,
    "size": pl.Int64,
    "pool": pl.String,
    "first": pl.Float64,
    "second": pl.Float64,
    "positives": pl.List(_POSITIVE),
}
"""Columns of queries that differ: the values of both systems on one pool, and the relevant papers with both ranks.

Papers are sorted by the better of their two ranks. A null rank: not retrieved."""


def compare(
    scores: pl.DataFrame, first: str, second: str, measures: Sequence[str] | None = None, draws: Draws = PROTOCOL
) -> pl.DataFrame:
    """Return the differences of two systems on each field and size with scores of both, columns :data:`DIFFERENCES`.

    Args:
        scores: scores on one kind of pool; other systems are ignored.
        first: name or label of a row.
        second: name or label of another row.
        measures: canonical names; None: all that both have.
        draws: settings of the bootstrap and the tests.

    Raises:
        InputError: a name matches no row or several, the two have no pool in common, or one of them lacks a measure.
    """
    return compare_pairs(scores, (first, second), measures, draws)


def compare_pairs(
    scores: pl.DataFrame, systems: Sequence[str], measures: Sequence[str] | None = None, draws: Draws = PROTOCOL
) -> pl.DataFrame:
    """Return the differences of all pairs of systems (:func:`compare`), with Holm's correction over pools and pairs."""
    pairs = list(itertools.combinations(systems, 2))
    tests = len(pairs) * scores.select("field", "size").n_unique()
    return _with_findings(pl.concat([_compare_pair(scores, *pair, measures, tests, draws) for pair in pairs]), draws)


def _compare_pair(
    scores: pl.DataFrame, first: str, second: str, measures: Sequence[str] | None, tests: int, draws: Draws
) -> pl.DataFrame:
    shared_scores, labels = paired(scores, first, second)
    common = in_order(shared_scores.filter((pl.col("label").n_unique() == 2).over("measure"))["measure"].unique())
    for name in measures or ():
        if name not in common:
            raise InputError(f"{name} must be scored for both rows", f"Choose from {', '.join(common)}")
    names = list(measures or common)
    averages = average(shared_scores.filter(pl.col("measure").is_in(names)), draws)
    scope_of = {(run["field"], run["size"]): scope(run) for run in load_runs(shared_scores).iter_rows(named=True)}
    setups = list(dict.fromkeys(setup for setup, *_ in averages))
    groups = [([setup], scope_of[setup]) for setup in setups]
    groups += [(fields, "mean over fields") for over, fields in families(setups) if over == "fields"]
    seed = draws.seed_of(scores)
    of_groups = (_differences(averages, group, where, labels, names, seed, tests, draws) for group, where in groups)
    return pl.concat(of_groups)


def _differences(
    averages: Mapping[Key, Average],
    setups: Sequence[Setup],
    scope_name: str,
    labels: tuple[str, str],
    measures: Sequence[str],
    seed: int,
    tests: int,
    draws: Draws,
) -> pl.DataFrame:
    """Return the differences of some measures on one pool, or of the mean over the fields of several."""
    first, second = (
        {setup[0] or "": np.stack([averages[setup, label, name].values for name in measures]) for setup in setups}
        for label in labels
    )
    changes = {field: second[field] - values for field, values in first.items()}
    first_draws, second_draws = (
        np.stack([[averages[setup, label, name].draws for setup in setups] for name in measures]) for label in labels
    )
    low, high = draws.interval(np.mean(second_draws - first_draws, axis=1), *changes.values())
    all_changes, sizes = np.concatenate(list(changes.values()), axis=1), {size for _, size in setups}
    gains = all_changes * np.array([[sign_of(name)] for name in measures])
    difference, first_value, second_value = (
        np.mean([values.mean(axis=1) for values in groups.values()], axis=0) for groups in (changes, first, second)
    )
    pools = [pool for setup in setups for pool in averages[setup, labels[0], measures[0]].pools]
    return pl.DataFrame({
        "first": labels[0], "second": labels[1], "field": setups[0][0] if len(setups) == 1 else AVERAGE,
        "scope": scope_name, "size": sizes.pop() if len(sizes) == 1 else None, "pools": [pools] * len(measures),
        "queries": all_changes.shape[1], "interval": draws.kind(all_changes.shape[1], len(setups)),
        "level": draws.level, "resample": draws.resample, "measure": measures,
        "first_value": first_value, "second_value": second_value, "difference": difference, "low": low, "high": high,
        "p_value": permutation_of_means(changes, seed, permutations=draws.permutations, tests=tests),
        "p_adjusted": None, "tests": None, "effect": standardised_effect(changes),
        "error": standard_error(changes), "detectable": None,
        "permutations": permutations_of(tests, draws.permutations),
        "margin": draws.margin,
        "p_equivalent": equivalence(changes, draws.margin) if draws.margin else None, "finding": None,
        "wins": (gains > 0).sum(axis=1), "ties": (gains == 0).sum(axis=1), "losses": (gains < 0).sum(axis=1),
        "changes": list(all_changes),
    }, schema_overrides=DIFFERENCES).with_columns(pl.col("effect", "error").fill_nan(None))  # fmt: skip


def _with_findings(differences: pl.DataFrame, draws: Draws) -> pl.DataFrame:
    """Correct the p-values over the pools (and pairs) of each measure, and add the findings."""
    signs = {name: sign_of(name) for name in differences["measure"].unique()}
    gain = pl.col("difference") * pl.col("measure").replace_strict(signs, return_dtype=pl.Int8)
    better, worse, equivalent, unknown = map(pl.lit, FINDINGS)
    corrected_tests = corrected(differences, ["measure"])
    errors = corrected_tests.select("error", "tests").iter_rows()
    detectable = [None if error is None else smallest_shown(error, draws.alpha / tests) for error, tests in errors]
    return corrected_tests.with_columns(
        pl.Series("detectable", detectable, pl.Float64),
        pl.when(pl.col("p_adjusted") < draws.alpha)
        .then(pl.when(gain > 0).then(better).otherwise(worse))
        .when(pl.col("p_equivalent") < draws.alpha)
        .then(equivalent)
        .otherwise(unknown)
        .alias("finding"),
    )


def on_shared_pools(runs: pl.DataFrame, systems: Sequence[str]) -> pl.DataFrame:
    """Return the labelled rankings on the pools that every system, by name or label, has ranked.

    Raises:
        InputError: these pools are of several kinds; the message names the settings in which they differ.
    """
    kinds = []
    for of_kind in runs.partition_by("kind", maintain_order=True):
        pools_of = (of_kind.filter(pl.col("label").is_in(labels_of(of_kind, name)))["pool"] for name in systems)
        kinds.append(of_kind.filter(pl.col("pool").is_in(list(set.intersection(*map(set, pools_of))))))
    kinds = [of_kind for of_kind in kinds if len(of_kind)]
    if len(kinds) > 1:
        raise InputError(
            f"pools of one kind must be compared, got {len(kinds)} kinds, told apart by {differing_settings(kinds)}",
            "Give one of these options each",
        )
    return kinds[0] if kinds else runs.clear()


def paired(scores: pl.DataFrame, first: str, second: str) -> tuple[pl.DataFrame, tuple[str, str]]:
    """Return the scores of two systems on the pools with scores of both, and the labels of their rows.

    Raises:
        InputError: a name matches no row or several, or the two have no pool in common.
    """
    runs = load_runs(scores)
    labels = label_of_row(runs, first), label_of_row(runs, second)
    if labels[0] == labels[1]:
        raise InputError(f"two rows must be compared, got {labels[0]} twice", "Name two systems")
    both = scores.filter(pl.col("label").is_in(labels))
    both = both.filter((pl.col("label").n_unique() == 2).over("pool"))
    if both.is_empty():
        raise InputError(
            f"{labels[0]} and {labels[1]} must be scored on the same pools, got none in common",
            f"Run mdcr eval --model {first},{second}",
        )
    return both, labels


def most_different(
    scores: pl.DataFrame, stored: pl.DataFrame, labels: Sequence[str], measure: str, most: int
) -> pl.DataFrame:
    """Return the queries that differ most, for each field and size; a query appears with its most different sample.

    Args:
        scores: scores of both systems on the same pools (:func:`paired`).
        stored: frame of rankings (:func:`pipeline.scores.store.stored`), which locates pools and rankings.
        labels: labels of both rows.
        measure: the measure that is compared.
        most: maximum number of queries for each field and size.

    Returns:
        Columns :data:`QUERIES`.

    Raises:
        InputError: the corpus is gone.
    """
    keys = ["field", "size", "pool", "query"]
    wide = scores.filter(measure=measure).pivot("label", index=keys, values="value", maintain_order=True)
    change = (pl.col(labels[1]) - pl.col(labels[0])).abs()
    ranked = wide.sort(change, descending=True, maintain_order=True)
    ranked = ranked.unique(["field", "size", "query"], keep="first", maintain_order=True)
    ranked = pl.concat([of_pool.head(most) for of_pool in ranked.partition_by("field", "size", maintain_order=True)])
    both = stored.filter(pl.col("label").is_in(labels))
    rankings_of = {pool: open_rankings(both.filter(pool=pool)) for pool in ranked["pool"].unique(maintain_order=True)}
    rows = []
    for row in ranked.iter_rows(named=True):
        rankings = rankings_of[row["pool"]]
        pool, qrels, ranks = rankings.pool, rankings.qrels, rankings.ranks
        start, end = qrels.offsets[row["query"] : row["query"] + 2]
        papers = start + np.argsort(qrels.rows[start:end])
        relevant = pool.corpus.take(qrels.rows[papers], ["paper_id", "title", "year"]).to_pylist()
        both_ranks = zip(*(ranks[label][papers].tolist() for label in labels), strict=True)
        for paper, (first, second) in zip(relevant, both_ranks, strict=True):
            paper |= {"first_rank": first or None, "second_rank": second or None}
        relevant.sort(key=lambda paper: min(paper["first_rank"] or np.inf, paper["second_rank"] or np.inf))
        figures = {"first": row[labels[0]], "second": row[labels[1]], **{k: row[k] for k in ("field", "size", "pool")}}
        rows.append({**_query_facts(pool, row["query"]), **figures, "positives": relevant})
    return pl.DataFrame(rows, schema=QUERIES, orient="row")


def _query_facts(pool: Pool, query: int) -> dict[str, Any]:
    row = pool.query_rows[query : query + 1]
    if pool.queries_are_papers:
        (paper,) = pool.corpus.take(row, ["title", "year"]).to_pylist()
    else:
        paper = {"title": pool.corpus.query_texts.column("text")[int(row[0])].as_py(), "year": None}
    return {"query_id": pool.query_ids()[query], **paper}
