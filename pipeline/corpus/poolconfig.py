"""Everything that decides the content of a pool. Each setting is defined here alone.

Options of the command line, variables of ``make``, keywords of Python, settings of recipes, filters of scores,
captions and names of folders derive from :data:`SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as default
from pathlib import Path
from typing import Any, Literal

from pipeline.core.config import format_count
from pipeline.core.errors import InputError
from pipeline.core.fields import MAG_FIELDS, parse_field
from pipeline.core.settings import Count, checked, setting, settings_of

Direction = Literal["outbound", "inbound", "total"]


@dataclass(frozen=True)
class PrefilterConfig:
    """Which papers take part (Medić & Šnajder 2022, section 3).

    Attributes:
        citation_direction: which citations count: ``outbound`` (references), ``inbound``, or ``total`` of both.
        min_citations: distinct citations as the release lists them, self removed, inside the corpus or not.
        min_abstract_chars: characters of the normalised abstract.
    """

    citation_direction: Direction = setting("outbound", "outbound, inbound or total", rule=True)
    min_citations: int = setting(3, "citations a paper must have to enter pools", rule=True)
    min_abstract_chars: int = setting(30, "characters its abstract must have", rule=True)

    def __post_init__(self) -> None:
        checked(self)


@dataclass(frozen=True)
class PoolConfig:
    """Settings of one pool (protocols 2 and 3).

    Attributes:
        field: one of the 19 fields, or None for a dataset-level pool.
        year: publication year of the queries; drawn candidates are of that year or earlier.
        size: candidates, or ``all``.
        queries: number of queries, or ``all``.
        sample: which of the samples this is, from 1: queries are the same in all, drawn candidates differ.
        split: ``test``, or ``validation``: other queries, for tuning.
        seed: the user's seed.
        exclude: name and SHA-256 of each list of ids that may not be queries.
        positives: ``corpus`` (every cited paper with a title) or ``prefiltered``.
        drop_same_title: remove candidates that have the query's own normalised title.
        nested: a sample's smaller pools are subsets of its larger ones.
        after_cutoff: last year of the training data of some encoders; queries are later. None: any.
        trained_until: last year of the training data of some encoders; queries, positives and all candidates are
            later, so that an encoder can have seen none of them. None: any.
        earlier_only: candidates are of earlier years than the queries; positives that are not are removed.
        drop_near_duplicates: remove candidates with nearly the query's title and abstract.
        prefilter: which papers take part.
        queries_are: ``papers`` of the corpus, or ``texts`` the release brought. Without a year (BEIR) they are given:
            candidates are all papers, and only ``drop_identical_id`` applies of the rest. With one they are citation
            contexts, drawn as citing papers are.
        drop_identical_id: with ``texts``, remove the candidate whose id is the query's own.
    """

    field: str | None = setting(
        None,
        "one of the 19 fields, several with commas, or all",
        left_out="dataset-level pools",
        several=True,
        every=MAG_FIELDS,
        parse=parse_field,
    )
    year: int | None = setting(2019, "publication year of the queries")
    size: Count = setting(200_000, "candidates: 200k, 2M, all; several with commas", by_field=100_000, several=True)
    queries: Count = setting(3_800, "number of queries, or all", by_field=200)
    sample: int = setting(1, "samples of the candidates", name="samples", default=3, up_to=True)
    split: Literal["test", "validation"] = setting("test", "test, or validation: other queries, for tuning")
    seed: int = setting(13, "seed of every draw")
    exclude: tuple[tuple[str, str], ...] = setting(
        (), "FILE with ids that may not be queries; may be repeated", kind=tuple[Path, ...], left_out="none"
    )
    positives: Literal["corpus", "prefiltered"] = setting(
        "corpus", "corpus (every cited paper with a title) or prefiltered", rule=True
    )
    drop_same_title: bool = setting(
        True,
        "whether candidates with the query's own title are removed",
        option="keep-same-title",
        flag="keep candidates with the query's own title",
        rule=True,
    )
    nested: bool = setting(False, "smaller pools are subsets of larger ones", rule=True)
    after_cutoff: int | None = setting(
        None,
        "ENCODERS, or a year: queries are later than all their training data",
        kind=str,
        left_out="none",
        rule=True,
        omit_default=True,
    )
    trained_until: int | None = setting(
        None,
        "ENCODERS, or a year: queries and all candidates are later than all their training data",
        kind=str,
        left_out="none",
        rule=True,
        omit_default=True,
    )
    earlier_only: bool = setting(
        False, "candidates are of earlier years than the queries", rule=True, omit_default=True
    )
    drop_near_duplicates: bool = setting(
        False, "candidates with nearly the query's title and abstract are removed", rule=True, omit_default=True
    )
    prefilter: PrefilterConfig = default(default_factory=PrefilterConfig)
    queries_are: Literal["papers", "texts"] = "papers"
    drop_identical_id: bool = setting(
        True,
        "of queries that are texts: whether the candidate with the query's own id is removed",
        option="keep-identical-id",
        flag="texts as queries: keep the candidate with the query's own id (default of mteb: as the task says)",
    )

    def __post_init__(self) -> None:
        checked(self)
        if self.queries_are == "papers" and self.year is None:
            raise InputError("a pool needs a query year", "Give --year")
        cutoffs = [cutoff for cutoff in (self.after_cutoff, self.trained_until) if cutoff is not None]
        if cutoffs and self.year is not None and self.year <= (cutoff := max(cutoffs)):
            raise InputError(
                f"queries must be later than {cutoff}, where the training data ends, got year {self.year}",
                f"Give --year={cutoff + 1} or later",
            )

    @property
    def given(self) -> bool:
        """Whether a release brought the queries, and nothing is drawn."""
        return self.queries_are == "texts" and self.year is None

    @property
    def slug(self) -> str:
        """Readable name: ``medicine-2019-2M-s1``."""
        if self.given:
            return "given"
        size = self.size if self.size == "all" else format_count(int(self.size))
        parts = [(self.field or "dataset").lower().replace(" ", "-"), str(self.year), str(size), f"s{self.sample}"]
        parts += ["contexts"] if self.queries_are == "texts" else []
        return "-".join(parts + (["validation"] if self.split == "validation" else []))


SETTINGS = settings_of(PoolConfig)
"""The settings of pools that users give, by name, in the order shown."""


def pool_config(values: Mapping[str, Any]) -> PoolConfig:
    """Return a configuration from settings by name; ``samples`` is the number of its sample."""
    outer_values: dict[str, Any] = {}
    inner: dict[str, Any] = {}
    for name, value in values.items():
        *outer, last = SETTINGS[name].path
        (inner if outer else outer_values)[last] = value
    return PoolConfig(**outer_values, prefilter=PrefilterConfig(**inner))


def value_in(config: Mapping[str, Any], name: str) -> Any:
    """Return the value of a setting in a configuration as plain data; None where it has none."""
    value: Any = config
    for key in SETTINGS[name].path:
        value = (value or {}).get(key)
    return value
