"""Everything that decides the content of a pool."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as default
from typing import Literal

from pipeline.core.config import format_count
from pipeline.core.errors import InputError
from pipeline.corpus.prefilter import PrefilterConfig


@dataclass(frozen=True)
class PoolConfig:
    """Settings of one pool (protocols 2 and 3).

    Attributes:
        field: one of the 19 fields, or None for a dataset-level pool.
        year: publication year of the queries; drawn candidates are of that year or earlier.
        size: candidates, or ``all``.
        queries: number of queries, or ``all``.
        sample: which of the samples this is, from 1: queries are the same in all, drawn candidates differ.
        seed: the user's seed.
        split: ``test``, or ``validation``: other queries, for tuning.
        nested: a sample's smaller pools are subsets of its larger ones.
        positives: ``corpus`` (every cited paper with a title) or ``prefiltered``.
        drop_same_title: remove candidates that have the query's own normalised title.
        exclude: name and SHA-256 of each list of ids that may not be queries.
        prefilter: which papers take part.
        queries_are: ``papers`` of the corpus, or ``texts`` the release brought (BEIR): then candidates are all
            papers, and only ``drop_identical_id`` applies of the rest.
        drop_identical_id: with ``texts``, remove the candidate whose id is the query's own.
    """

    field: str | None = None
    year: int | None = 2019
    size: int | Literal["all"] = 200_000
    queries: int | Literal["all"] = 3_800
    sample: int = 1
    seed: int = 13
    split: Literal["test", "validation"] = "test"
    nested: bool = False
    positives: Literal["corpus", "prefiltered"] = "corpus"
    drop_same_title: bool = True
    exclude: tuple[tuple[str, str], ...] = ()
    prefilter: PrefilterConfig = default(default_factory=PrefilterConfig)
    queries_are: Literal["papers", "texts"] = "papers"
    drop_identical_id: bool = True

    def __post_init__(self) -> None:
        for name, known in (
            ("split", ("test", "validation")),
            ("positives", ("corpus", "prefiltered")),
            ("queries_are", ("papers", "texts")),
        ):
            if getattr(self, name) not in known:
                raise InputError(f"{name} {getattr(self, name)!r} is unknown", f"Choose {' or '.join(known)}")
        if self.queries_are == "papers" and self.year is None:
            raise InputError("a pool needs a query year", "Give --year")

    @property
    def slug(self) -> str:
        """Readable name: ``medicine-2019-2M-s1``."""
        if self.queries_are == "texts":
            return "given"
        size = self.size if self.size == "all" else format_count(int(self.size))
        parts = [(self.field or "dataset").lower().replace(" ", "-"), str(self.year), str(size), f"s{self.sample}"]
        return "-".join(parts + (["validation"] if self.split == "validation" else []))
