"""Settings that decide the content of a pool.

Command-line options, ``make`` variables, Python keywords, recipe settings, score filters, captions and folder names
derive from :data:`SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as default
from pathlib import Path
from typing import Annotated, Any, Literal

from pipeline.core.config import format_count
from pipeline.core.errors import InputError
from pipeline.core.fields import MAG_FIELDS, parse_field
from pipeline.core.settings import Count, Several, convert_fields, marked, setting, settings_of

Direction = Literal["outbound", "inbound", "total"]


@dataclass(frozen=True)
class PrefilterConfig:
    """Which papers enter pools (Medić & Šnajder 2022, section 3).

    Citations are distinct ones in the release, without self-citations; the other paper need not be in the corpus.
    """

    citation_direction: Direction = setting("outbound", "outbound, inbound or total", rule=True)
    min_citations: int = setting(3, "citations a paper must have to enter pools", rule=True)
    min_abstract_chars: int = setting(30, "characters its abstract must have", rule=True)

    def __post_init__(self) -> None:
        convert_fields(self)


@dataclass(frozen=True)
class PoolConfig:
    """Settings of one pool (protocols 2 and 3).

    Attributes:
        year: drawn candidates are of that year or earlier.
        sample: number of the sample, from 1: samples have the same queries and differ in the drawn candidates.
        validation_queries: number of queries of a validation pool, which leaves out the ``queries`` of the test pool.
            None: as many as those. Test pools do not differ in it.
        exclude: (name, SHA-256) of the lists of ids that may not be queries.
        positives: ``corpus`` (every cited paper with a title); ``prefiltered``; or ``strangers`` (those of this class
            of :meth:`pipeline.corpus.authors.Authors.classes`; other cited papers are neither relevant nor negative).
        trained_until: queries, positives and all candidates are later than this year. None: no condition.
        earlier_only: only candidates from earlier years than the query; other positives are removed.
        queries_are: ``papers`` of the corpus, or ``texts`` of the release. Texts without a year (BEIR) all become
            queries, every paper is a candidate, and no setting applies but ``drop_identical_id``. Texts with a year are
            citation contexts, which are drawn like queries that are papers.
    """

    field: str | None = setting(
        None,
        "one of the 19 fields, several with commas, or all (default: dataset-level pools)",
        kind=Annotated[tuple[Annotated[str | None, parse_field], ...], Several(MAG_FIELDS)],
    )
    year: int | None = setting(2019, "publication year of the queries")
    size: Count = setting(
        200_000,
        "candidates: 200k, 2M, all; several with commas (default: 200k; by field 100k)",
        kind=Annotated[tuple[Count, ...], Several()],
        by_field=100_000,
    )
    queries: Count = setting(3_800, "number of queries, or all (default: 3.8k; by field 200)", by_field=200)
    sample: int = setting(1, "samples of the candidates", name="samples", default=3)
    split: Literal["test", "validation"] = setting("test", "test, or validation: other queries, for tuning")
    validation_queries: int | None = setting(
        None,
        "queries kept for tuning, where fewer than twice --queries have a positive (default: as many as --queries)",
        omit_default=True,
    )
    seed: int = setting(13, "seed of every draw")
    exclude: tuple[tuple[str, str], ...] = setting(
        (),
        "FILE with ids that may not be queries; may be repeated (default: none)",
        kind=tuple[Path, ...],
        metavar="FILE",
    )
    positives: Literal["corpus", "prefiltered", "strangers"] = setting(
        "corpus",
        "corpus (every cited paper with a title), prefiltered, or strangers (not by the authors of the query or their "
        "co-authors; their papers are left out)",
        rule=True,
    )
    drop_same_title: bool = setting(
        True,
        "candidates with the query's title are removed; the option keeps them",
        option="keep-same-title",
        rule=True,
    )
    nested: bool = setting(False, "smaller pools are subsets of larger ones", rule=True)
    after_cutoff: int | None = setting(
        None,
        "last year of encoders' training data: queries are later (default: none)",
        rule=True,
        omit_default=True,
    )
    trained_until: int | None = setting(
        None,
        "last year of encoders' training data: queries and all candidates are later (default: none)",
        rule=True,
        omit_default=True,
    )
    earlier_only: bool = setting(
        False, "only candidates from earlier years than the query", rule=True, omit_default=True
    )
    drop_near_duplicates: bool = setting(
        False, "candidates with nearly the query's title and abstract are removed", rule=True, omit_default=True
    )
    prefilter: PrefilterConfig = default(default_factory=PrefilterConfig)
    queries_are: Literal["papers", "texts"] = "papers"
    drop_identical_id: bool = setting(
        True,
        "for queries that are texts: the candidate with the query's id is removed; the option keeps it",
        option="keep-identical-id",
    )

    def __post_init__(self) -> None:
        convert_fields(self)
        if self.validation_queries is not None and self.validation_queries < 1:
            raise InputError(f"--validation-queries must be at least 1, got {self.validation_queries}", "Leave it out")
        if self.queries_are == "papers" and self.year is None:
            raise InputError("a pool must have a query year, got none", "Give --year")
        if self.year is not None and self.year <= self.cutoff:
            raise InputError(
                f"queries must be later than {self.cutoff}, where the training data ends, got year {self.year}",
                f"Give --year={self.cutoff + 1} or later",
            )

    @property
    def cutoff(self) -> int:
        """Last year of the encoders' training data, which queries must be later than; -1: no condition."""
        return max((year for year in (self.after_cutoff, self.trained_until) if year is not None), default=-1)

    @property
    def given(self) -> bool:
        """Whether queries, judgements and candidates come from the release, and nothing is drawn."""
        return self.queries_are == "texts" and self.year is None

    @property
    def drawn(self) -> Count:
        """Number of queries to draw: of a validation pool, ``validation_queries`` if given."""
        return self.validation_queries if self.split == "validation" and self.validation_queries else self.queries

    @property
    def slug(self) -> str:
        """Readable name, such as ``medicine-2019-2M-s1``."""
        if self.given:
            return "given"
        size = self.size if self.size == "all" else format_count(int(self.size))
        parts = [(self.field or "dataset").lower().replace(" ", "-"), str(self.year), str(size), f"s{self.sample}"]
        parts += ["contexts"] if self.queries_are == "texts" else []
        return "-".join(parts + (["validation"] if self.split == "validation" else []))


SETTINGS = settings_of(PoolConfig)
"""Pool settings that users can give, by name, in the order of the help."""

BY_FIELD = marked(PoolConfig, "by_field")
"""Defaults of field-level pools that differ from those at the dataset level."""

RULES = tuple(marked(PoolConfig, "rule"))
"""Rules of the protocol; captions state unusual values."""

OMITTED = tuple(marked(PoolConfig, "omit_default"))
"""Settings that are part of the identity only if they differ from their default."""

SEPARATING = tuple(name for name, known in SETTINGS.items() if not known.several and name != "samples")
"""Settings in which pools of one table agree: not those with several values, nor the number of samples."""


def wants(name: str, value: Any, chosen: Any) -> bool:
    """Return whether a setting of a pool is among the values that a user chose; ``samples`` are 1 to this number."""
    if SETTINGS[name].several:
        return value in chosen
    return value is None or bool(value <= chosen) if name == "samples" else bool(value == chosen)


def value_in(config: Mapping[str, Any], name: str) -> Any:
    """Return the value of a setting in a configuration that is plain data; None if it has none."""
    value: Any = config
    for key in SETTINGS[name].path:
        value = (value or {}).get(key)
    return value
