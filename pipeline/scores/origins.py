"""Where the queries of pools come from: fields, years, and the kind of their ids."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from pipeline.scores.caption import DATASET, is_given
from pipeline.scores.store import opened_pool

_KINDS = {"OpenAlex": r"W\d+", "arXiv": r"(\d{4}\.\d{4,5}|[a-z-]+(\.[A-Z]{2})?/\d{7})(v\d+)?", "number": r"\d+"}
"""Ids that tell where a record comes from; a joined corpus has several kinds."""

ORIGINS = {"field": pl.String, "year": pl.Int64, "ids": pl.String, "queries": pl.Int64}
"""Columns of :func:`origins`."""


def origins(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the number of queries by field, year and kind of id, columns :data:`ORIGINS`.

    Queries of one field and year count once, whatever number of pools they are in. Pools whose corpus is gone, and
    queries that are no papers, are left out.
    """
    found: set[tuple[str, int, str, str]] = set()
    for run in runs.unique(["field", "year", "pool"], keep="first", maintain_order=True).iter_rows(named=True):
        pool = opened_pool(run)
        if pool is not None and pool.queries_are_papers:
            ids = pool.query_ids()
            years = pool.corpus.attributes["year"][pool.query_rows].tolist()
            found |= {(run["field"] or DATASET, year, kind_of(one), one) for one, year in zip(ids, years, strict=True)}
    frame = pl.DataFrame(sorted(found), schema=["field", "year", "ids", "id"], orient="row")
    counted = frame.group_by("field", "year", "ids", maintain_order=True).agg(pl.len().alias("queries"))
    return counted.cast(ORIGINS)


def kind_of(paper_id: str) -> str:
    """Return which of the known kinds an id is of, else ``other``."""
    return next((name for name, pattern in _KINDS.items() if re.fullmatch(pattern, paper_id)), "other")


def sentences(runs: pl.DataFrame, given: Any) -> str:
    """Return the note of a table: kinds of ids by field, and which fields have one kind alone.

    Empty for queries that a release brought, and where all ids are of one kind.
    """
    if "pool_path" not in runs.columns or is_given(given):
        return ""
    frame = origins(runs)
    if frame["ids"].n_unique() < 2:
        return ""
    parts, alone = [], []
    for of_field in frame.partition_by("field", maintain_order=True):
        field, kinds = of_field["field"][0], of_field.group_by("ids", maintain_order=True).agg(pl.col("queries").sum())
        parts.append(f"{field} {', '.join(f'{kind} {count:,}' for kind, count in kinds.iter_rows())}")
        alone += [field] if len(kinds) == 1 and frame["field"].n_unique() > 1 else []
    warning = f" Of one source alone: {', '.join(alone)}; a difference between fields may be one between sources."
    return f"Queries by kind of id: {'; '.join(parts)}.{warning if alone else ''}"
