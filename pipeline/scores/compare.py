"""Comparison of two systems on the same pools: differences of means, and the queries that differ most."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.errors import InputError, nearest
from pipeline.corpus.pool import Pool
from pipeline.measure.measures import sign_of
from pipeline.measure.statistics import equivalence, permutation_of_means, standardised_effect
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
from pipeline.scores.choose import is_called
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
    "margin": pl.Float64,
    "p_equivalent": pl.Float64,
    "finding": pl.String,
    "wins": pl.Int64,
    "ties": pl.Int64,
    "losses": pl.Int64,
    "changes": pl.List(pl.Float64),
}
"""Columns of differences, a row for each field, size and measure, and for the mean over fields (``AVG``) of one size.

``first`` and ``second`` are labels; ``scope`` is what the pools are of (:func:`pipeline.scores.caption.scope`);
``difference`` is the second less the first, ``low`` and ``high`` bound its bootstrap interval over
what ``resample`` names (``interval`` is its kind);
``p_value`` is of the paired permutation test, ``p_adjusted`` by Holm's correction over the
``tests`` of its measure (the mean over fields is a test apart); ``effect`` is the standardised difference
(:func:`pipeline.measure.statistics.standardised_effect`); ``p_equivalent`` is of equivalence within the ``margin``,
null without one; ``finding`` is one of :data:`FINDINGS`; ``wins`` counts the queries on which the second is better;
``changes`` are the differences of the queries, mean over samples.
"""

FINDINGS = ("better", "worse", "equivalent", "no difference shown")
"""What a difference shows of the second system: ``equivalent`` is tested too, a large p-value alone shows nothing."""

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
"""Columns of queries that differ: the value of both systems on one pool, and the relevant papers with their ranks,
those that either ranks best first; a null rank was not retrieved."""


def compare(
    scores: pl.DataFrame, first: str, second: str, measures: Sequence[str] | None = None, draws: Draws = PROTOCOL
) -> pl.DataFrame:
    """Return how two systems differ on each field and size that both were scored on, columns :data:`DIFFERENCES`.

    Args:
        scores: of one kind of pool; other systems are left out.
        first: name or label of a row.
        second: of another row.
        measures: canonical names; None: all that both have.
        draws: seed and numbers of the bootstrap and of the tests.

    Raises:
        InputError: a name means no row or several, the two have no pool in common, or one of them lacks a measure.
    """
    return compare_pairs(scores, (first, second), measures, draws)


def compare_pairs(
    scores: pl.DataFrame, systems: Sequence[str], measures: Sequence[str] | None = None, draws: Draws = PROTOCOL
) -> pl.DataFrame:
    """Return how each two of some systems differ, as :func:`compare`; Holm's correction is over pools and pairs."""
    pairs = itertools.combinations(systems, 2)
    return _tested(pl.concat([_compared(scores, *pair, measures, draws) for pair in pairs]), draws)


def _compared(
    scores: pl.DataFrame, first: str, second: str, measures: Sequence[str] | None, draws: Draws
) -> pl.DataFrame:
    both, labels = paired(scores, first, second)
    common = in_order(both.filter((pl.col("label").n_unique() == 2).over("measure"))["measure"].unique())
    for name in measures or ():
        if name not in common:
            raise InputError(f"{name} must be scored for both rows", f"Choose from {', '.join(common)}")
    names = list(measures or common)
    averages = average(both.filter(pl.col("measure").is_in(names)), draws)
    scope_of = {(run["field"], run["size"]): scope(run) for run in load_runs(both).iter_rows(named=True)}
    setups = list(dict.fromkeys(setup for setup, *_ in averages))
    groups = [([setup], scope_of[setup]) for setup in setups]
    groups += [(fields, "mean over fields") for over, fields in families(setups) if over == "fields"]
    seed = draws.seed_of(scores)
    return pl.concat([_differences(averages, group, where, labels, names, seed, draws) for group, where in groups])


def _differences(
    averages: Mapping[Key, Average],
    setups: Sequence[Setup],
    where: str,
    labels: tuple[str, str],
    names: Sequence[str],
    seed: int,
    draws: Draws,
) -> pl.DataFrame:
    """Return the differences of some measures on one pool, or of the mean over the fields of several."""
    first, second = (
        {setup[0] or "": np.stack([averages[setup, label, name].values for name in names]) for setup in setups}
        for label in labels
    )
    changes = {field: second[field] - values for field, values in first.items()}
    drawn_first, drawn_second = (
        np.stack([[averages[setup, label, name].draws for setup in setups] for name in names]) for label in labels
    )
    low, high = draws.interval(np.mean(drawn_second - drawn_first, axis=1), *changes.values())
    every, sizes = np.concatenate(list(changes.values()), axis=1), {size for _, size in setups}
    gains = every * np.array([[sign_of(name)] for name in names])
    value, first_value, second_value = (
        np.mean([values.mean(axis=1) for values in groups.values()], axis=0) for groups in (changes, first, second)
    )
    pools = [pool for setup in setups for pool in averages[setup, labels[0], names[0]].pools]
    return pl.DataFrame({
        "first": labels[0], "second": labels[1], "field": setups[0][0] if len(setups) == 1 else AVERAGE,
        "scope": where, "size": sizes.pop() if len(sizes) == 1 else None, "pools": [pools] * len(names),
        "queries": every.shape[1], "interval": draws.kind(every.shape[1], len(setups)), "level": draws.level,
        "resample": draws.resample, "measure": names, "first_value": first_value, "second_value": second_value,
        "difference": value, "low": low, "high": high,
        "p_value": permutation_of_means(changes, seed, permutations=draws.permutations),
        "p_adjusted": None, "tests": None, "effect": standardised_effect(changes),
        "margin": draws.margin,
        "p_equivalent": equivalence(changes, draws.margin) if draws.margin else None, "finding": None,
        "wins": (gains > 0).sum(axis=1), "ties": (gains == 0).sum(axis=1), "losses": (gains < 0).sum(axis=1),
        "changes": list(every),
    }, schema_overrides=DIFFERENCES).with_columns(pl.col("effect").fill_nan(None))  # fmt: skip


def _tested(differences: pl.DataFrame, draws: Draws) -> pl.DataFrame:
    """Correct the p-values over the pools (and pairs) of each measure, and say what each difference shows."""
    signs = {name: sign_of(name) for name in differences["measure"].unique()}
    gain = pl.col("difference") * pl.col("measure").replace_strict(signs, return_dtype=pl.Int8)
    better, worse, equivalent, unknown = map(pl.lit, FINDINGS)
    return corrected(differences, ["measure"]).with_columns(
        pl.when(pl.col("p_adjusted") < draws.alpha)
        .then(pl.when(gain > 0).then(better).otherwise(worse))
        .when(pl.col("p_equivalent") < draws.alpha)
        .then(equivalent)
        .otherwise(unknown)
        .alias("finding")
    )


def paired(scores: pl.DataFrame, first: str, second: str) -> tuple[pl.DataFrame, tuple[str, str]]:
    """Return the scores of two systems on the pools that both were scored on, and the labels of their rows.

    Raises:
        InputError: a name means no row or several, or the two have no pool in common.
    """
    runs = load_runs(scores)
    labels = _label(runs, first), _label(runs, second)
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


def _label(runs: pl.DataFrame, name: str) -> str:
    """Return the label of the one row that a name or label means."""
    labels = list(runs["label"].unique(maintain_order=True))
    named = [run["label"] for run in runs.iter_rows(named=True) if is_called(run, name)]
    matching = [name] if name in labels else list(dict.fromkeys(named))
    if not matching:
        raise InputError(f"{name!r} must be a system that was scored on these pools", nearest(name, labels))
    if len(matching) > 1:
        raise InputError(
            f"{name!r} must mean one row, got {'; '.join(matching)}", "Give its label, or choose with --depth"
        )
    return matching[0]


def most_different(
    scores: pl.DataFrame, stored: pl.DataFrame, labels: Sequence[str], measure: str, most: int
) -> pl.DataFrame:
    """Return the queries of each field and size that differ most, each on the sample where it does.

    Args:
        scores: of both systems on the same pools (:func:`paired`).
        stored: where their pools and rankings lie (:func:`pipeline.scores.store.stored`).
        labels: of both rows.
        measure: what differs.
        most: number of queries.

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
    opened = {pool: open_rankings(both.filter(pool=pool)) for pool in ranked["pool"].unique(maintain_order=True)}
    rows = []
    for row in ranked.iter_rows(named=True):
        rankings = opened[row["pool"]]
        pool, qrels, ranks = rankings.pool, rankings.qrels, rankings.ranks
        start, end = qrels.offsets[row["query"] : row["query"] + 2]
        papers = start + np.argsort(qrels.rows[start:end])
        relevant = pool.corpus.take(qrels.rows[papers], ["paper_id", "title", "year"]).to_pylist()
        both_ranks = zip(*(ranks[label][papers].tolist() for label in labels), strict=True)
        for paper, (first, second) in zip(relevant, both_ranks, strict=True):
            paper |= {"first_rank": first or None, "second_rank": second or None}
        relevant.sort(key=lambda paper: min(paper["first_rank"] or np.inf, paper["second_rank"] or np.inf))
        figures = {"first": row[labels[0]], "second": row[labels[1]], **{k: row[k] for k in ("field", "size", "pool")}}
        rows.append({**_query(pool, row["query"]), **figures, "positives": relevant})
    return pl.DataFrame(rows, schema=QUERIES, orient="row")


def _query(pool: Pool, query: int) -> dict[str, Any]:
    row = pool.query_rows[query : query + 1]
    if pool.queries_are_papers:
        (paper,) = pool.corpus.take(row, ["title", "year"]).to_pylist()
    else:
        paper = {"title": pool.corpus.query_texts.column("text")[int(row[0])].as_py(), "year": None}
    return {"query_id": pool.query_ids()[query], **paper}
