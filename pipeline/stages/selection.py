"""From the fields, sizes and samples a user selects to the tasks of the pools."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pipeline.core.artifact import Artifact
from pipeline.core.config import parse_count
from pipeline.core.errors import InputError
from pipeline.core.fields import MAG_FIELDS, parse_field
from pipeline.core.task import Task
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.prefilter import PrefilterConfig
from pipeline.corpus.reader import Corpus
from pipeline.stages.pool import pool_task

DEFAULT_YEAR = 2019
DEFAULT_SAMPLES = 3
DEFAULT_QUERIES = {False: 3_800, True: 200}
"""Queries of a dataset-level pool, and of a field-level one (protocols 2 and 3)."""
DEFAULT_SIZE = {False: "200k", True: "100k"}

Count = int | Literal["all"]


@dataclass(frozen=True)
class Selection:
    """Pools as a user names them; None means the protocol's default.

    Attributes:
        fields: of field-level pools; empty for dataset-level ones.
        sizes: numbers of candidates.
        queries: number of queries.
        samples: samples of each size; always one of size ``all``.
        exclude: files of paper ids that may not be queries.
    """

    fields: tuple[str, ...] = ()
    year: int | None = None
    sizes: tuple[Count, ...] = ()
    queries: Count | None = None
    samples: int | None = None
    seed: int = 13
    split: Literal["test", "validation"] = "test"
    nested: bool = False
    positives: Literal["corpus", "prefiltered"] = "corpus"
    drop_same_title: bool = True
    prefilter: PrefilterConfig = field(default_factory=PrefilterConfig)
    exclude: tuple[Path, ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether no setting of a citation pool is given."""
        return not (self.fields or self.sizes) and self.year is None and self.queries is None

    def pools(self, corpus: Artifact) -> list[Task]:
        """Return the tasks of the selected pools: by field, then size, then sample."""
        given = [(config, self.exclude if config.queries_are == "papers" else ()) for config in self.configs(corpus)]
        return [pool_task(corpus, config, exclude) for config, exclude in given]

    def configs(self, corpus: Artifact | None) -> list[PoolConfig]:
        """Return the settings of the selected pools; without a corpus, of citation pools.

        A corpus that brings its own queries is one pool of all its papers, unless a citation pool is asked for.
        """
        if corpus is not None and Corpus(corpus).has_query_texts() and self.is_default:
            return [PoolConfig(queries_are="texts", year=None, size="all", queries="all", seed=self.seed)]
        samples = DEFAULT_SAMPLES if self.samples is None else self.samples
        if not 0 < samples < 10_000:
            raise InputError(f"--samples {samples} is out of range", "Ask for one or more")
        by_field = bool(self.fields)
        common = PoolConfig(
            year=DEFAULT_YEAR if self.year is None else self.year,
            queries=DEFAULT_QUERIES[by_field] if self.queries is None else self.queries,
            seed=self.seed,
            split=self.split,
            nested=self.nested,
            positives=self.positives,
            drop_same_title=self.drop_same_title,
            prefilter=self.prefilter,
        )
        return [
            dataclasses.replace(common, field=name, size=size, sample=sample)
            for name in self.fields or (None,)
            for size in self.sizes or parse_sizes(DEFAULT_SIZE[by_field])
            for sample in range(1, 2 if size == "all" else samples + 1)
        ]


def parse_fields(text: str | None) -> tuple[str, ...]:
    """Read ``--field``: one, several with commas, ``all``, or None."""
    if text is None:
        return ()
    if text.strip().casefold() == "all":
        return MAG_FIELDS
    return tuple(dict.fromkeys(parse_field(name) for name in text.split(",") if name.strip()))


def parse_count_or_all(text: str, name: str) -> Count:
    """Read a count, or ``all``."""
    return "all" if text.strip().casefold() == "all" else parse_count(text, name)


def parse_sizes(text: str | None) -> tuple[Count, ...]:
    """Read ``--size``: one or several with commas."""
    parts = [part for part in (text or "").split(",") if part.strip()]
    return tuple(dict.fromkeys(parse_count_or_all(part, "--size") for part in parts))


Names = str | Sequence[str]
"""One name, several separated by commas, or a list of them."""


def joined(names: int | Names) -> str:
    """Return names as one text, separated by commas."""
    return str(names) if isinstance(names, str | int) else ",".join(names)
