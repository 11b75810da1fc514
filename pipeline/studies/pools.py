"""Pools whose queries, candidates and judgements a study gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.pools import write_pool as write_pool


@dataclass(frozen=True)
class ExternalPoolConfig(PoolConfig):
    """Settings of a pool that is given. Inherited settings that draw queries and candidates have no effect."""

    year: int | None = None
    size: int | Literal["all"] = "all"
    queries: int | Literal["all"] = "all"

    def __post_init__(self) -> None:
        """Accept any setting."""
