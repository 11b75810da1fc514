"""Comparison of two systems on the same pools: differences of means, and the queries that differ most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.core.errors import InputError, nearest
from pipeline.corpus.pool import Pool
from pipeline.measure.measures import sign_of
from pipeline.measure.statistics import interval_kind, paired_differences
from pipeline.scores.average import PROTOCOL, Draws, average, in_order
from pipeline.scores.caption import scope
from pipeline.scores.choose import is_called
from pipeline.scores.store import artifact, load_runs, opened_pool

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
    "measure": pl.String,
    "first_value": pl.Float64,
    "second_value": pl.Float64,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "p_value": pl.Float64,
    "wins": pl.Int64,
    "ties": pl.Int64,
    "losses": pl.Int64,
    "changes": pl.List(pl.Float64),
}
"""Columns of differences, a row for each field, size and measure.

``first`` and ``second`` are labels; ``scope`` is what the pools are of (:func:`pipeline.scores.caption.scope`);
``difference`` is the second less the first, ``low`` and ``high`` bound its bootstrap interval over queries
(``interval`` is its kind); ``p_value`` is of the paired permutation test, not corrected for several rows; ``wins``
counts the queries on which the second is better; ``changes`` are the differences of the queries, mean over samples.
"""

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
        draws: seed and numbers of the bootstrap and of the test.

    Raises:
        InputError: a name means no row or several, the two have no pool in common, or one of them lacks a measure.
    """
    both, labels = paired(scores, first, second)
    common = in_order(both.filter((pl.col("label").n_unique() == 2).over("measure"))["measure"].unique())
    for name in measures or ():
        if name not in common:
            raise InputError(f"{name} must be scored for both rows", f"Choose from {', '.join(common)}")
    names = list(measures or common)
    averages = average(both.filter(pl.col("measure").is_in(names)), draws)
    signs = np.array([sign_of(name) for name in names])
    numbers: Any = {"resamples": draws.resamples, "permutations": draws.permutations, "level": draws.level}
    scope_of = {(run["field"], run["size"]): scope(run) for run in load_runs(both).iter_rows(named=True)}
    parts = []
    for setup in dict.fromkeys(key[0] for key in averages):
        values = [np.stack([averages[setup, label, name].values for name in names]) for label in labels]
        change = values[1] - values[0]
        differences = paired_differences({setup[0] or "": change}, draws.seed_of(scores), signs=signs, **numbers)
        parts.append(pl.DataFrame({
            "first": labels[0], "second": labels[1], "field": setup[0], "scope": scope_of[setup], "size": setup[1],
            "pools": [list(averages[setup, labels[0], names[0]].pools)] * len(names),
            "queries": change.shape[1], "interval": interval_kind(change.shape[1]), "level": draws.level,
            "measure": names, "first_value": values[0].mean(axis=1), "second_value": values[1].mean(axis=1),
            "difference": differences.value, "low": differences.low, "high": differences.high,
            "p_value": differences.p_value, "wins": differences.wins, "ties": differences.ties,
            "losses": differences.losses, "changes": list(change),
        }, schema_overrides=DIFFERENCES))  # fmt: skip
    return pl.concat(parts)


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
    known = list(runs["label"].unique(maintain_order=True))
    named = [run["label"] for run in runs.iter_rows(named=True) if is_called(run, name)]
    found = [name] if name in known else list(dict.fromkeys(named))
    if not found:
        raise InputError(f"{name!r} must be a system that was scored on these pools", nearest(name, known))
    if len(found) > 1:
        raise InputError(
            f"{name!r} must mean one row, got {'; '.join(found)}", "Give its label, or choose with --depth"
        )
    return found[0]


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
    ranked = wide.with_columns((pl.col(labels[1]) - pl.col(labels[0])).abs().alias("change"))
    ranked = ranked.sort("change", descending=True, maintain_order=True).unique(
        ["field", "size", "query"], keep="first", maintain_order=True
    )
    ranked = pl.concat(
        [
            part.head(most)
            for part in ranked.sort("change", descending=True, maintain_order=True).partition_by(
                "field", "size", maintain_order=True
            )
        ]
    )
    opened: dict[str, _Opened] = {}
    rows = []
    for row in ranked.iter_rows(named=True):
        if row["pool"] not in opened:
            opened[row["pool"]] = _Opened.of(stored.filter(pool=row["pool"]), labels)
        pool = opened[row["pool"]]
        told = {"first": row[labels[0]], "second": row[labels[1]], **{k: row[k] for k in ("field", "size", "pool")}}
        rows.append({**pool.query(row["query"]), **told, "positives": pool.positives(row["query"])})
    return pl.DataFrame(rows, schema=QUERIES, orient="row")


class _Opened(NamedTuple):
    """A pool, and where both rankings have its papers: row to rank, by query."""

    pool: Pool
    ids: Sequence[str]
    ranks: Sequence[Mapping[str, npt.NDArray[Any]]]

    @classmethod
    def of(cls, runs: pl.DataFrame, labels: Sequence[str]) -> _Opened:
        both = [runs.filter(label=label).row(0, named=True) for label in labels]
        pool = opened_pool(both[0])
        if pool is None:
            raise InputError(f"the corpus {both[0]['corpus']} must be there to name papers", "Build it again")
        tables = [artifact(run, "ranking").arrow("ranking.arrow") for run in both]
        ranks = [{name: table.column(name).to_numpy() for name in ("query", "row", "rank")} for table in tables]
        return cls(pool, pool.query_ids(), ranks)

    def query(self, query: int) -> dict[str, Any]:
        row = self.pool.query_rows[query : query + 1]
        if self.pool.queries_are_papers:
            (paper,) = self.pool.corpus.take(row, ["title", "year"]).to_pylist()
        else:
            paper = {"title": self.pool.corpus.query_texts.column("text")[int(row[0])].as_py(), "year": None}
        return {"query_id": self.ids[query], **paper}

    def positives(self, query: int) -> list[dict[str, Any]]:
        """Return the relevant papers of a query, those that either ranks best first."""
        qrels = {name: self.pool.qrels.column(name).to_numpy() for name in ("query", "row", "grade")}
        rows = qrels["row"][(qrels["query"] == query) & (qrels["grade"] >= 1)]
        papers = self.pool.corpus.take(rows, ["paper_id", "title", "year"]).to_pylist()
        for row, paper in zip(rows.tolist(), papers, strict=True):
            paper["first_rank"], paper["second_rank"] = (_rank(ranking, query, row) for ranking in self.ranks)
        return sorted(papers, key=lambda paper: min(paper["first_rank"] or np.inf, paper["second_rank"] or np.inf))


def _rank(ranking: Mapping[str, npt.NDArray[Any]], query: int, row: int) -> int | None:
    start, end = np.searchsorted(ranking["query"], [query, query + 1])
    (place,) = np.flatnonzero(ranking["row"][start:end] == row)[:1].tolist() or [None]
    return None if place is None else int(ranking["rank"][start + place])
