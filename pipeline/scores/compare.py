"""Comparison of two systems on the same pools: differences of means, and the queries that differ most."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.config import changed_fields
from pipeline.core.errors import InputError, require_known
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import SEPARATING
from pipeline.measure.design import Draws
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
from pipeline.scores.caption import scope
from pipeline.scores.choose import label_of_row, labels_of
from pipeline.scores.facts import columns, settings_of_pool
from pipeline.scores.frames import Scores, load_runs, own_runs
from pipeline.scores.layout import TABLE_MEASURES
from pipeline.scores.store import open_rankings

DIFFERENCES = {
    **columns(pl.String, "first second field scope"),
    "size": pl.Int64,
    "pools": pl.List(pl.String),
    "queries": pl.Int64,
    "interval": pl.String,
    "level": pl.Float64,
    **columns(pl.String, "resample measure"),
    **columns(pl.Float64, "first_value second_value difference low high p_value p_adjusted"),
    "tests": pl.Int64,
    **columns(pl.Float64, "effect error detectable"),
    "permutations": pl.Int64,
    "finding": pl.String,
    **AMONG,
    **columns(pl.Int64, "wins ties losses"),
}
"""Columns of differences, a row for each field, size and measure, and for the mean over fields (``AVG``) of one size.

``first`` and ``second`` are labels; ``scope`` is the scope of the pools (:func:`pipeline.scores.caption.scope`).
Values and differences are fractions. ``difference`` is the second minus the first; ``low`` and
``high`` bound its bootstrap interval. ``resample`` names the
units that are resampled, ``interval`` the kind of interval. ``p_value`` is from the paired permutation test;
``p_adjusted`` is corrected by Holm over the ``tests`` of its measure (the mean over fields is tested separately).
``effect`` is :func:`pipeline.measure.statistics.standardised_effect`; ``error`` is
the standard error of the difference, and ``detectable`` the smallest difference that these queries show with power .8
at the level of Holm's first step (:func:`pipeline.measure.estimates.smallest_shown`). ``permutations`` counts the drawn
sign patterns (:func:`pipeline.measure.permutation.permutations_of`). ``finding`` is one of
:data:`pipeline.scores.average.FINDINGS`. Columns of
:data:`pipeline.scores.average.AMONG` are the difference among the candidates with an abstract. ``wins`` counts the
queries on which the second is better.
"""

_POSITIVE = pl.Struct(
    {"paper_id": pl.String, "title": pl.String, "year": pl.Int16, "first_rank": pl.Int64, "second_rank": pl.Int64}
)

QUERIES = {
    **columns(pl.String, "query_id title"),
    "year": pl.Int16,
    "field": pl.String,
    "size": pl.Int64,
    "pool": pl.String,
    **columns(pl.Float64, "first second"),
    "positives": pl.List(_POSITIVE),
}
"""Columns of queries that differ: the values of both systems on one pool, and the relevant papers with both ranks.

Papers are sorted by the better of their two ranks. A null rank: not retrieved."""


def compare(
    scores: Scores, first: str, second: str, measures: Sequence[str] | None = None, draws: Draws = PROTOCOL
) -> pl.DataFrame:
    """Return the differences of two systems on each field and size with scores of both.

    Args:
        scores: scores on one kind of pool; other systems are ignored.
        first: name or label of a row.
        second: name or label of another row.
        measures: canonical names; None: all that both have.
        draws: settings of the bootstrap and the tests.

    Returns:
        Columns :data:`DIFFERENCES`.

    Raises:
        InputError: a name matches no row or several, the two have no pool in common, or one of them lacks a measure.
    """
    return compare_pairs(scores, load_runs(scores), (first, second), measures, draws)


def compare_pairs(
    scores: pl.DataFrame,
    runs: pl.DataFrame,
    systems: Sequence[str],
    measures: Sequence[str] | None = None,
    draws: Draws = PROTOCOL,
) -> pl.DataFrame:
    """Return the differences of all pairs of systems, columns :data:`DIFFERENCES`; Holm corrects over pools and pairs.

    Args:
        scores: values on one kind of pool, columns :data:`pipeline.scores.frames.VALUES`; other systems are ignored.
        runs: their rankings, and perhaps others.
        systems: names or labels of rows; the difference is that of the later.
        measures: canonical names; None: all that both have.
        draws: settings of the bootstrap and the tests.

    Raises:
        InputError: a name matches no row or several, two have no pool in common, or one of them lacks a measure.
    """
    draws = drawn(draws)
    parts, bases, facts = list[pl.DataFrame](), {}, list[dict[str, Any]]()
    for pair in itertools.combinations(systems, 2):
        for values, of_set in _sets(scores, runs, *pair, measures):
            number = len(facts)
            parts.append(values.with_columns(set=pl.lit(number), average=pl.lit(of_set["field"] == AVERAGE)))
            bases[number, of_set["second"]] = (number, of_set["first"])
            facts.append(of_set)
    values = pl.concat(parts)
    design = replace(BY_SAMPLE, row=("set", "label"), of=("set", "average"), family=("average",))
    found = estimated(values, design, draws.seed_of(scores), bases, draws)
    return with_findings(_table(found, pl.DataFrame(facts, infer_schema_length=None), draws), draws)


def _sets(
    scores: pl.DataFrame, runs: pl.DataFrame, first: str, second: str, measures: Sequence[str] | None
) -> Iterator[tuple[pl.DataFrame, dict[str, Any]]]:
    """Yield the scores of two systems on each pool, and on the fields of each mean, with what names them."""
    shared_scores, labels = paired(scores, runs, first, second)
    common = in_order(shared_scores.filter((pl.col("label").n_unique() == 2).over("measure"))["measure"].unique())
    for name in measures or ():
        require_known(name, common, f"{name} must be scored for both rows")
    names = list(measures or common)
    chosen = shared_scores.filter(pl.col("measure").is_in(names))
    chosen = chosen.sort(pl.col("measure").cast(pl.Enum(names)), maintain_order=True)
    require_same_queries(chosen)
    scope_of = {(run["field"], run["size"]): scope(run) for run in own_runs(shared_scores, runs).iter_rows(named=True)}
    setups = shared_scores.select("field", "size").unique(maintain_order=True).rows()
    groups = [([setup], scope_of[setup]) for setup in setups]
    groups += [(fields, "mean over fields") for over, fields in families(setups) if over == "fields"]
    for fields, where in groups:
        places = pl.DataFrame(fields, {name: scores.schema[name] for name in ("field", "size")}, orient="row")
        values = places.join(chosen, on=["field", "size"], nulls_equal=True, maintain_order="left_right")
        sizes = {size for _, size in fields}
        first_run = values.filter(label=labels[0], measure=names[0]).group_by("field", maintain_order=True)
        pools = first_run.agg(pl.col("pool").sort_by("sample").unique(maintain_order=True))
        yield values, {
            "first": labels[0], "second": labels[1], "field": fields[0][0] if len(fields) == 1 else AVERAGE,
            "scope": where, "size": sizes.pop() if len(sizes) == 1 else None,
            "pools": pools["pool"].explode().to_list(),
        }  # fmt: skip


def _table(found: pl.DataFrame, facts: pl.DataFrame, draws: Draws) -> pl.DataFrame:
    """Return the differences of the estimates of each set as a frame, without findings."""
    facts = facts.with_row_index("set").cast({"set": found.schema["set"]})
    keys = ["set", "measure"]
    firsts = found.filter(pl.col("p").is_null()).select(*keys, first_value="value")
    table = found.filter(pl.col("p").is_not_null()).join(firsts, on=keys).join(facts, on="set")
    table = table.drop("low", "high")
    renamed = {"queries": "items", "second_value": "value", "p_value": "p"}
    ends = {"low": "difference_low", "high": "difference_high"}
    settings = {"level": pl.lit(draws.level), "resample": pl.lit(draws.resample)}
    table = table.with_columns(**renamed, **ends, **settings, finding=pl.lit(None))
    return table.sort("set", maintain_order=True).select(*DIFFERENCES).cast(DIFFERENCES)


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
        settings = (settings_of_pool(of_kind.row(0, named=True)) for of_kind in kinds)
        first, *others = ({name: each[name] for name in ("corpus", *SEPARATING)} for each in settings)
        changed = "; ".join(dict.fromkeys(text for other in others for text in changed_fields(first, other))) or "size"
        raise InputError(
            f"pools of one kind must be compared, got {len(kinds)} kinds that differ ({changed})",
            "Choose one by options of these names",
        )
    return kinds[0] if kinds else runs.clear()


def usual_measures(runs: pl.DataFrame, systems: Sequence[str]) -> list[str] | None:
    """Return the measures of tables that all rankings of the systems have; None, which means all, if there are none."""
    compared = runs.filter(pl.col("label").is_in([label for name in systems for label in labels_of(runs, name)]))
    shared = set(TABLE_MEASURES).intersection(*compared["measures"].to_list())
    return [name for name in TABLE_MEASURES if name in shared] or None


def paired(scores: pl.DataFrame, runs: pl.DataFrame, first: str, second: str) -> tuple[pl.DataFrame, tuple[str, str]]:
    """Return the scores of two systems on the pools with scores of both, and the labels of their rows.

    Raises:
        InputError: a name matches no row or several, or the two have no pool in common.
    """
    runs = own_runs(scores, runs)
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
    require_known(measure, scores["measure"].unique(maintain_order=True), f"{measure!r} was not scored")
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
