"""Settings as users write them: which pools, and which of what was scored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pipeline.corpus.prefilter import PrefilterConfig
from pipeline.stages.selection import Names, Selection, joined, parse_count_or_all, parse_fields, parse_sizes


def selection(
    *,
    field: Names | None = None,
    size: int | Names | None = None,
    year: int | None = None,
    queries: int | str | None = None,
    samples: int | None = None,
    seed: int = 13,
    split: Literal["test", "validation"] = "test",
    nested: bool = False,
    positives: Literal["corpus", "prefiltered"] = "corpus",
    drop_same_title: bool = True,
    min_abstract_chars: int = 30,
    min_citations: int = 3,
    citation_direction: Literal["outbound", "inbound", "total"] = "outbound",
    exclude: Sequence[str | Path] = (),
) -> Selection:
    """Return which pools some settings select; None means the protocol's default.

    Args:
        field: one of the 19 fields, several, or ``all``; None: dataset-level pools.
        size: candidates, such as ``"200k"`` or 200_000, several, or ``all``.
        year: publication year of the queries.
        queries: number of queries, or ``all``.
        samples: samples of each size.
        seed: of every draw.
        split: ``test`` or ``validation``.
        nested: whether smaller pools are subsets of larger ones.
        positives: ``corpus`` or ``prefiltered``.
        drop_same_title: whether candidates with the query's own title are removed.
        min_abstract_chars: of a paper that takes part.
        min_citations: likewise.
        citation_direction: which citations count.
        exclude: files of paper ids that may not be queries.

    Raises:
        InputError: a field, size or count is unknown.
    """
    return Selection(
        fields=parse_fields(joined(field) if field else None),
        year=year,
        sizes=parse_sizes(joined(size) if size else None),
        queries=None if queries is None else parse_count_or_all(str(queries), "--queries"),
        samples=samples,
        seed=seed,
        split=split,
        nested=nested,
        positives=positives,
        drop_same_title=drop_same_title,
        prefilter=PrefilterConfig(min_abstract_chars, min_citations, citation_direction),
        exclude=tuple(Path(file) for file in exclude),
    )
