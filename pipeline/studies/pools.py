"""Pools whose queries, candidates and judgements a study gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.core.schema import CANDIDATES, EXCLUSIONS, JUDGEMENTS, POOL_QUERIES
from pipeline.core.workdir import Workdir
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.pools import table


@dataclass(frozen=True)
class ExternalPoolConfig(PoolConfig):
    """Settings of a pool that is given. Inherited settings that draw queries and candidates have no effect."""

    year: int | None = None
    size: int | Literal["all"] = "all"
    queries: int | Literal["all"] = "all"

    def __post_init__(self) -> None:
        """Accept any setting."""


def write_pool(
    out: Workdir, queries: Sequence[Any], candidates: Any, judged: Sequence[Any], excluded: Sequence[Any]
) -> None:
    """Write the tables of a pool.

    Args:
        out: where they go.
        queries: row and field of each query, rising rows.
        candidates: rows, rising.
        judged: query, row and grade of each judgement.
        excluded: query and row of each candidate that a query does not rank.
    """
    for name, schema, columns in (
        ("queries", POOL_QUERIES, queries),
        ("candidates", CANDIDATES, [candidates]),
        ("qrels", JUDGEMENTS, judged),
        ("exclusions", EXCLUSIONS, excluded),
    ):
        out.arrow(f"{name}.arrow", table(schema, *columns), schema)
