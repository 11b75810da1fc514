"""Releases whose papers, abstracts and citations are tables of their own, joined by id while a corpus is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from pipeline.core.text import Keys
from pipeline.sources.base import AnyRelease, PaperBatch

BATCH_EDGES = 262_144
"""Citations of one batch, about."""


@dataclass
class Abstracts:
    """Abstracts, and counts of the records read for them.

    Attributes:
        keys: uint64 ``[n]``, :func:`pipeline.core.text.id_key` of each abstract's paper.
        texts: normalised, not empty.
        read: records read, kept or not.
        dropped: records dropped, by reason; ``read == n + sum(dropped)``.
        noted: other things worth counting, by name.
        examples: the first bad records, each as ``reason: file:line: excerpt``.
    """

    keys: Keys
    texts: pa.LargeStringArray
    read: int
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


@dataclass
class Citations:
    """Citations, and counts of the records read for them.

    Attributes:
        citing: uint64 ``[n]``, :func:`pipeline.core.text.id_key` of the citing papers.
        cited: uint64 ``[n]``, of the cited ones. An edge may come more than once, in any batch; it counts once.
        read: records read, kept or not.
        dropped: records dropped, by reason; ``read == n + sum(dropped)``.
        noted: other things worth counting, by name.
        examples: the first bad records, each as ``reason: file:line: excerpt``.
    """

    citing: Keys
    cited: Keys
    read: int
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


@runtime_checkable
class JoinedRelease(AnyRelease, Protocol):
    """A release in several tables; its parts are those of all tables.

    Of several abstracts of one paper the first counts, in the order of the parts.
    """

    def read_table(self, part: str) -> Iterator[PaperBatch | Abstracts | Citations]:
        """Yield what one part holds: papers (with what abstracts and references they bring), abstracts, citations."""

    def joined_bytes(self) -> int:
        """Return roughly the bytes of memory of all tables together; it decides the number of partitions."""
