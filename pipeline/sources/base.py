"""Interface between releases and corpus building: independent parts, read in batches of papers."""

from __future__ import annotations

import functools
import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from pipeline.core import files
from pipeline.core.config import pairs
from pipeline.core.errors import InputError, nearest, require_known
from pipeline.core.schema import schema_of
from pipeline.sources.authors import Authored
from pipeline.sources.options import MAX_TEXT, Options

RAW_PAPERS = schema_of(
    paper_id=pa.large_string(),
    title=pa.large_string(),
    abstract=pa.large_string(),
    year=pa.int16(),
    fields=pa.uint32(),
    outbound=pa.large_list(pa.field("item", pa.uint64(), nullable=False)),
    n_inbound=pa.int32(),
    doi_key=pa.uint64(),
)
"""Papers of a source.

- ``title``, ``abstract``: normalised (:func:`pipeline.core.text.normalise`), empty if missing; given sentences are
  separated by line ends (:func:`pipeline.core.text.one_a_line`).
- ``year``: :data:`pipeline.core.schema.NO_YEAR` if missing; :data:`WITHDRAWN` in a row that only says that the release
  withdraws the paper, and so its later records.
- ``fields``: bit mask of :data:`pipeline.core.fields.FIELD_BIT`.
- ``outbound``: distinct :func:`pipeline.core.text.id_keys` of the cited papers, without the paper itself.
- ``n_inbound``: number of distinct citing papers, without the paper itself.
- ``doi_key``: :func:`pipeline.core.text.doi_key` of the DOI, 0 if missing.
"""

WITHDRAWN = -2
"""Year of a row that withdraws a paper; it counts neither as read nor as dropped."""

BATCH_ROWS = 8_192
"""Approximate number of papers in a batch."""

BATCH_CHARS = 2**24
"""Approximate number of characters in a batch: it ends with the paper that exceeds this, or :data:`BATCH_ROWS`."""

BATCH_EDGES = 262_144
"""Approximate number of citations in a batch."""

MARKUP = ("keep", "strip")

LINK_COLUMNS = ("citing", "cited", "context", "query_id")
"""Columns of citations and citation contexts."""

UNFINISHED = ".fetching"
"""Name of a folder that is in a release's folder while it is being fetched."""


_T = TypeVar("_T")


@dataclass(kw_only=True)
class Batch:
    """Records of a release and their counts.

    Attributes:
        read: number of records, kept or dropped.
        dropped: number of dropped records by reason.
        noted: other counts by name, such as unknown field names and impossible years.
        examples: the first bad records, as ``reason: file:line: excerpt``.
    """

    read: int
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add_counts(self, batch: Batch) -> None:
        """Add the counts of another batch."""
        self.read += batch.read
        self.dropped += batch.dropped
        self.noted += batch.noted
        self.examples += batch.examples


@dataclass
class PaperBatch(Batch):
    """Papers of schema :data:`RAW_PAPERS`, in any order."""

    papers: pa.RecordBatch


@dataclass
class TableBatch(Batch):
    """Rows of another table of a release, as columns by name; papers are :func:`pipeline.core.text.id_keys`, uint64.

    ``kind`` is ``abstracts`` (``key``, and normalised ``text``, not empty) or ``citations`` (``citing``, ``cited``).
    """

    kind: str
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class QuerySet:
    """Queries that are not papers, with their judgements.

    Attributes:
        texts: normalised texts by id; given sentences are one a line.
        judgements: ``(query id, paper id, grade)``, distinct pairs.
        noted: number of dropped queries and judgements by reason.
        examples: the first of these, as ``reason: file:line: excerpt``.
        exclusions: ``(query id, paper id)`` that rankings exclude; None: the release has no such list.
        ranked: candidate ids by query with a candidate list; other queries rank all papers.
        origins: id, empty if unknown, and year, None if unknown, of the citing paper of each citation context.
    """

    texts: Mapping[str, str]
    judgements: Sequence[tuple[str, str, int]]
    noted: Counter[str] = field(default_factory=Counter)
    examples: Sequence[str] = ()
    exclusions: Sequence[tuple[str, str]] | None = None
    ranked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    origins: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)

    @functools.cached_property
    def query_ids(self) -> list[str]:
        """The ids, sorted."""
        return sorted(self.texts)


@dataclass(frozen=True, kw_only=True)
class Release(Options, ABC):
    """A release on disk, or a generated one, and its options. Instances are pickled for worker processes."""

    source: ClassVar[str]
    """Name of the source, such as ``s2orc2020``."""
    own_columns: ClassVar[Sequence[str]] = ()
    """Columns of a paper that the release may name otherwise, as it may :data:`LINK_COLUMNS`."""

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """The files' name of each column; InputError if :attr:`columns` is malformed, or has an unknown column."""
        names = {name: name for name in (*self.own_columns, *LINK_COLUMNS)}
        for entry, ours, theirs in pairs(self.columns or ""):
            if not entry:
                continue
            if ours not in names:
                remedy = f"Write it like paper_id=id, our name first. {nearest(ours, names)}"
                raise InputError(f"--columns maps {ours!r}, which is not a column of ours", remedy)
            if not theirs:
                raise InputError(f"--columns gives {ours!r} no name", "Write it like paper_id=id,title=headline")
            names[ours] = theirs
        return names

    def is_joined(self) -> bool:
        """Return whether the papers have to be joined with other tables."""
        return self.citations is not None

    def __post_init__(self) -> None:
        require_known(self.markup, MARKUP, f"--markup must be keep or strip, got {self.markup!r}")
        _ = self.names  # refuses a bad mapping before files are searched
        if self.max_text < 1:
            raise InputError(f"--max-text must be at least 1, got {self.max_text}", f"The default is {MAX_TEXT:,}")

    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """Return the identity of the content as plain data: checksums of the files, or the generator's settings."""

    @abstractmethod
    def parts(self) -> Sequence[str]:
        """Return the names of the parts, in the release's order; parts are read independently, in any process."""

    @abstractmethod
    def read(self, part: str) -> Iterator[Any]:
        """Yield the batches of one part, in order.

        Those of a joined release are :class:`PaperBatch` or :class:`TableBatch`, one kind in a part; if a paper has
        several abstracts, the first in the order of the parts is used.
        """

    def authors(self, part: str) -> Iterator[Authored]:  # noqa: ARG002
        """Yield the papers of one part with their authors; by default InputError, as no author is read."""
        remedy = "Build the corpus from s2orc2020, s2ag, openalex or arxiv"
        raise InputError(f"the source {self.source} has no authors", remedy)

    def queries(self) -> QuerySet | None:
        """Return the queries of the release, or None."""
        return None

    def refuse_untitled(self) -> None:
        """Raise InputError if a corpus in which no paper has a title is read wrongly; by default it is not."""


def grouped(
    items: Iterable[_T], size_of: Callable[[_T], int], limit: float, most: float = math.inf
) -> Iterator[list[_T]]:
    """Yield lists of consecutive items, of ``most`` items or a size of ``limit``; the last has the rest."""
    group, size = list[_T](), 0
    for item in items:
        group.append(item)
        size += size_of(item)
        if size >= limit or len(group) >= most:
            yield group
            group, size = [], 0
    yield group


def find_files(folder: Path, patterns: Sequence[str], description: str) -> list[Path]:
    """Return the files of a release below ``folder``, in natural order (``part2`` before ``part10``).

    Raises:
        InputError: the folder is missing, a file, has no such file, or was not fetched completely; a match is no file.
    """
    if folder.is_file():
        raise InputError(f"{folder} must be a folder with {description}, got a file", f"Give --input {folder.parent}")
    if not folder.is_dir():
        raise InputError(f"the input folder {folder} does not exist", "Give the release's folder with --input")
    check_finished(folder)
    paths = {path for pattern in patterns for path in folder.glob(pattern) if not path.name.startswith(".")}
    check_files(paths)
    if not paths:
        raise InputError(
            f"{folder} holds no {description} ({', '.join(patterns)})", "Give the folder that holds the release's files"
        )
    return sorted(paths, key=_natural)


def check_files(paths: Iterable[Path]) -> None:
    """Raise InputError if a path is a folder, a device or a broken link."""
    for path in paths:
        if not path.is_file():
            kind = "a broken link" if path.is_symlink() else "a folder" if path.is_dir() else "a device"
            remedy = f"Give --input {path}, or remove it" if path.is_dir() else "Put the file in its place"
            raise InputError(f"{path} is not a file ({kind})", remedy)


def check_inside(path: Path, folders: Iterable[Path]) -> None:
    """Raise InputError for a link out of folders; the cache of huggingface_hub has links into ``blobs``."""
    homes = [home for at in folders for home in (at, at.parents[1] / "blobs" if at.parent.name == "snapshots" else at)]
    target = files.resolved(path)
    if path.is_symlink() and not any(target.is_relative_to(files.resolved(home)) for home in homes):
        raise InputError(f"{path} must stay in its folder, got a link to {target}", "Copy the file into the folder")


def check_finished(folder: Path) -> None:
    """Raise InputError if the release in a folder is being fetched, or its fetch was killed."""
    if (folder / UNFINISHED).exists():
        raise InputError(
            f"{folder} is not fetched to its end",
            f"Run mdcr fetch again, or remove {UNFINISHED} to use the files that are there",
        )


def fingerprint(paths: Sequence[Path], folder: Path) -> dict[str, str]:
    """Return a checksum of each file of a release, by path below ``folder``.

    Files are hashed completely, except gzip files over 16 MiB: of these the size, both ends and 64 blocks between. The
    end of a gzip file has the checksum of its content, so any change shows. In a file with several gzip members, a
    change that keeps the size shows only in the last member and in the hashed blocks.
    """
    with ThreadPoolExecutor() as threads:
        checksums = threads.map(_fingerprint, paths)
        return {path.relative_to(folder).as_posix(): checksum for path, checksum in zip(paths, checksums, strict=True)}


_MAX_HASHED_WHOLE = 16 * 2**20
_BLOCK_BYTES = 64 * 2**10


def _fingerprint(path: Path) -> str:
    size = path.stat().st_size
    if path.suffix != ".gz" or size <= _MAX_HASHED_WHOLE:
        return files.sha256(path)
    hashed = hashlib.sha256(str(size).encode())
    with path.open("rb") as handle:
        for block in range(66):
            handle.seek(min(block * (size // 65), size - _BLOCK_BYTES))
            hashed.update(handle.read(_BLOCK_BYTES))
    return "sampled:" + hashed.hexdigest()


def _natural(path: Path) -> tuple[list[tuple[int, str]], str]:
    pieces = re.findall(r"(\d+)|(\D)", path.as_posix() + "/")
    return [(int(digits) if digits else -1, character) for digits, character in pieces], path.as_posix()
