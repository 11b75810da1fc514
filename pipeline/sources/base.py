"""Interface of releases to corpus building: independent parts, read in batches of papers."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from pipeline.core import files
from pipeline.core.errors import InputError
from pipeline.core.text import Keys

RAW_PAPERS = pa.schema(
    [
        pa.field("paper_id", pa.large_string(), nullable=False),
        pa.field("title", pa.large_string(), nullable=False),
        pa.field("abstract", pa.large_string(), nullable=False),
        pa.field("year", pa.int16(), nullable=False),
        pa.field("fields", pa.uint32(), nullable=False),
        pa.field("outbound", pa.large_list(pa.field("item", pa.uint64(), nullable=False)), nullable=False),
        pa.field("n_inbound", pa.int32(), nullable=False),
        pa.field("doi_key", pa.uint64(), nullable=False),
    ]
)
"""Papers as a source gives them. Title and abstract are normalised (:func:`pipeline.core.text.normalise`), empty where
missing; sentences that are given stand one a line (:func:`pipeline.core.text.one_a_line`). ``year`` is
:data:`pipeline.core.schema.NO_YEAR` where missing; ``fields`` is a mask of :data:`pipeline.core.fields.FIELD_BIT`;
``outbound`` holds the distinct :func:`pipeline.core.text.id_keys` of the cited ids, self removed; ``n_inbound`` counts
the distinct citing ids, self removed; ``doi_key`` is the :func:`pipeline.core.text.doi_key` of the paper's DOI, 0 where
missing."""

BATCH_ROWS = 8_192
"""Papers of one batch, about."""

BATCH_CHARS = 2**24
"""Characters of one batch, about: a batch ends with the paper that exceeds this, or :data:`BATCH_ROWS`."""

BATCH_EDGES = 262_144
"""Citations of one batch, about."""

MAX_TEXT = 1_000_000
"""Characters of a title, an abstract or a query, as the release writes it, that are kept; the rest is cut off."""

UNFINISHED = ".fetching"
"""A file in a release's folder for as long as it is being fetched."""


@dataclass(kw_only=True)
class Batch:
    """Records of a release, with what was counted in reading them.

    Attributes:
        read: records read, kept or not.
        dropped: records dropped, by reason; ``read`` is the number of records kept and dropped.
        noted: other things worth counting (a field name that is none of the 19, an impossible year), by name.
        examples: the first bad records, each as ``reason: file:line: excerpt``.
    """

    read: int
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add_counts(self, other: Batch) -> None:
        """Add what another batch counted."""
        self.read += other.read
        self.dropped += other.dropped
        self.noted += other.noted
        self.examples += other.examples


@dataclass
class PaperBatch(Batch):
    """Papers of schema :data:`RAW_PAPERS`, in any order."""

    papers: pa.RecordBatch


@dataclass
class Abstracts(Batch):
    """Normalised abstracts, none empty; ``keys`` are the :func:`pipeline.core.text.id_keys` of their papers."""

    keys: Keys
    texts: pa.LargeStringArray


@dataclass
class Citations(Batch):
    """Citations, by uint64 :func:`pipeline.core.text.id_keys`; an edge may come more than once, and counts once."""

    citing: Keys
    cited: Keys


@dataclass(frozen=True)
class QuerySet:
    """Queries that are not papers, with their judgements, from a BEIR or TREC folder.

    Attributes:
        query_ids: ids, sorted.
        texts: their texts, normalised; sentences that are given one a line.
        judgements: ``(query id, paper id, grade)`` of each judgement; no pair comes twice.
        noted: queries and judgements that are left out, by reason.
        examples: the first of them, each as ``reason: file:line: excerpt``.
        exclusions: ``(query id, paper id)`` that a query's ranking leaves out; None: the release names none.
        ranked: each query's id and those of the only papers it ranks; a query without an entry ranks all of them.
    """

    query_ids: Sequence[str]
    texts: Sequence[str]
    judgements: Sequence[tuple[str, str, int]]
    noted: Counter[str] = field(default_factory=Counter)
    examples: Sequence[str] = ()
    exclusions: Sequence[tuple[str, str]] | None = None
    ranked: Sequence[tuple[str, Sequence[str]]] = ()


@dataclass(frozen=True, kw_only=True)
class Release(ABC):
    """A release on disk, or a generated one. Instances travel to worker processes by pickling.

    Attributes:
        source: name of the source, such as ``s2orc2020``.
        allow_empty: accept files without data and a release of which no paper is kept.
        max_text: longer texts are cut after this many characters, and counted.
        contexts: file of citation contexts (:mod:`pipeline.sources.contexts`), which are the queries; None: none.
    """

    source: ClassVar[str]
    allow_empty: bool = False
    max_text: int = MAX_TEXT
    contexts: str | None = None

    def __post_init__(self) -> None:
        if self.max_text < 1:
            raise InputError(f"--max-text must be at least 1, got {self.max_text}", f"The default is {MAX_TEXT:,}")

    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """Return what decides the content, as plain data: checksums of the files, or the generator's settings."""

    @abstractmethod
    def parts(self) -> Sequence[str]:
        """Return the names of the parts, in the release's order; each is read on its own, in any process."""

    @abstractmethod
    def read(self, part: str) -> Iterator[Any]:
        """Yield what one part holds, in its order: :class:`PaperBatch` es, of a :class:`JoinedRelease` tables."""

    def queries(self) -> QuerySet | None:
        """Return the queries the release brings; most bring none."""
        return None

    def stated(self) -> Mapping[str, int]:
        """Return about how many rows its publisher says that each table has; empty where that is not known."""
        return {}


class JoinedRelease(Release):
    """A release in several tables, which are joined by id while a corpus is built; its parts are those of all tables.

    ``read`` yields papers (with what abstracts and references they bring), :class:`Abstracts` and :class:`Citations`.
    Of several abstracts of one paper the first counts, in the order of the parts.
    """

    @abstractmethod
    def joined_bytes(self) -> int:
        """Return roughly the bytes of memory of all tables together; it decides the number of partitions."""


def find_files(folder: Path, patterns: Sequence[str], what: str) -> list[Path]:
    """Return the files of a release below ``folder``, sorted by name with numbers as numbers.

    Raises:
        InputError: the folder is missing, holds no such file, or is not fetched to its end; a match is not a file.
    """
    if not folder.is_dir():
        raise InputError(f"the input folder {folder} does not exist", "Give the release's folder with --input")
    check_finished(folder)
    paths = {path for pattern in patterns for path in folder.glob(pattern) if not path.name.startswith(".")}
    check_files(paths)
    if not paths:
        raise InputError(
            f"{folder} holds no {what} ({', '.join(patterns)})", "Give the folder that holds the release's files"
        )
    return sorted(paths, key=_natural)


def check_files(paths: Iterable[Path]) -> None:
    """Refuse folders, devices and broken links among paths that have the name of a file."""
    for path in paths:
        if not path.is_file():
            kind = "a broken link" if path.is_symlink() else "a folder or a device"
            raise InputError(f"{path} is not a file ({kind})", "Remove it from the input, or put the file in its place")


def check_finished(folder: Path) -> None:
    """Refuse the folder of a release that is being fetched, or was when the fetch was killed."""
    if (folder / UNFINISHED).is_file():
        raise InputError(
            f"{folder} is not fetched to its end",
            f"Run mdcr fetch again, or remove {UNFINISHED} to use the files that are there",
        )


def fingerprint(paths: Sequence[Path], folder: Path) -> dict[str, str]:
    """Return a checksum for each file of a release, by its path below ``folder``.

    Every file is hashed whole, except gzip files over 16 MiB. Of those the size, both ends and 64 blocks between are
    hashed: the end holds the checksum of the content, so any change shows. In a file of several gzip members, a change
    that keeps the size shows only in the last member and in the blocks.
    """
    with ThreadPoolExecutor() as threads:
        checksums = threads.map(_fingerprint, paths)
        return {path.relative_to(folder).as_posix(): checksum for path, checksum in zip(paths, checksums, strict=True)}


_WHOLE = 16 * 2**20
_BLOCK = 64 * 2**10


def _fingerprint(path: Path) -> str:
    size = path.stat().st_size
    if path.suffix != ".gz" or size <= _WHOLE:
        return files.sha256(path)
    hashed = hashlib.sha256(str(size).encode())
    with path.open("rb") as handle:
        for block in range(66):
            handle.seek(min(block * (size // 65), size - _BLOCK))
            hashed.update(handle.read(_BLOCK))
    return "sampled:" + hashed.hexdigest()


def _natural(path: Path) -> tuple[list[tuple[int, str]], str]:
    pieces = re.findall(r"(\d+)|(\D)", path.as_posix() + "/")
    return [(int(digits) if digits else -1, character) for digits, character in pieces], path.as_posix()
