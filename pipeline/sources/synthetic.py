"""A release that is computed, not read: papers in the likeness of S2ORC, any number of them, from a seed.

What is decided for a paper depends on the seed, the number of papers and the paper alone, so parts, batches and
processes can be cut in any way. Numba is loaded when the first part is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.core.errors import InputError
from pipeline.sources.base import BATCH_ROWS, PaperBatch, QuerySet

VERSION = 2
"""Raised when the generator's code changes what it writes."""

LEAST, MOST = 200, 500_000_000
"""Papers a synthetic release may have."""

_PARTS = 16
_PART_ROWS = 65_536


@dataclass(frozen=True)
class Synthetic:
    """A synthetic release.

    Attributes:
        papers: how many, from :data:`LEAST` to :data:`MOST`.
        seed: any whole number.
    """

    papers: int
    seed: int = 13
    source: str = field(default="synthetic", init=False)

    def __post_init__(self) -> None:
        if not LEAST <= self.papers <= MOST:
            raise InputError(
                f"a synthetic release cannot have {self.papers:,} papers", f"Ask for {LEAST} to {MOST:,} papers"
            )

    def identity(self) -> Mapping[str, Any]:
        """Return the generator's version and settings."""
        return {"version": VERSION, "papers": self.papers, "seed": self.seed}

    def parts(self) -> Sequence[str]:
        """Return the parts: about 65,536 papers each, fewer in a small release so that several processes have work."""
        count = min(-(-self.papers // BATCH_ROWS), max(_PARTS, -(-self.papers // _PART_ROWS)))
        return [f"{number:05d}-of-{count:05d}" for number in range(count)]

    def read(self, part: str) -> Iterator[PaperBatch]:
        """Yield the papers of one part.

        The first call in a process also counts who is cited how often, for the whole release: about 6 seconds a million
        papers.

        Raises:
            InputError: there is no such part.
        """
        parts = self.parts()
        if part not in parts:
            raise InputError(f"a synthetic release of {self.papers:,} papers has no part {part!r}")
        from pipeline.sources.synthetic_papers import read_range

        number = parts.index(part)
        start, end = (self.papers * edge // len(parts) for edge in (number, number + 1))
        return read_range(self.papers, self.seed, start, end)

    def queries(self) -> QuerySet | None:
        """A synthetic release brings no queries."""
        return None
