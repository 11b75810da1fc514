"""The forward index of a corpus: terms and term frequencies of papers, analysed once for all pools.

It consists of segments. A segment is an artifact for one pool, with the papers that earlier segments lack:
``rows.arrow`` (its papers) and, for each block of papers (:func:`blocks`), ``terms-00012.arrow`` (their terms and
frequencies) and ``vocabulary-00012.arrow`` (the spelling of the block's term numbers). Search inverts the papers of a
pool on the fly, so a pool of a hundredth of the corpus reads a hundredth of the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact, published
from pipeline.core.csr import find_sorted, slices
from pipeline.core.errors import CorruptError, StageError
from pipeline.core.order import Rows
from pipeline.core.schema import CANDIDATES
from pipeline.core.workdir import Workdir

BLOCK_PAPERS = 65_536
"""Maximum papers of a block."""

BLOCK_CHARACTERS = 2**26
"""Maximum characters of a block of several papers, which bounds the memory of analysis."""

VOCABULARY = pa.schema([pa.field("term", pa.large_string(), nullable=False)])


class TermsBlock(NamedTuple):
    """The terms of texts.

    Attributes:
        offsets: int64 ``[texts + 1]``, start of the entries of each text.
        terms: uint32 ``[entries]``, distinct within a text.
        frequencies: unsigned ``[entries]``, term frequencies.
        lengths: uint32 ``[texts]``, number of tokens.
        vocabulary: large strings, the terms by number.
    """

    offsets: npt.NDArray[np.int64]
    terms: npt.NDArray[np.uint32]
    frequencies: npt.NDArray[np.unsignedinteger]
    lengths: npt.NDArray[np.uint32]
    vocabulary: pa.Array


class Part(NamedTuple):
    """Papers of one block.

    Attributes:
        rows: uint32 ``[n]``, rising.
        positions: int64 ``[n]``, positions in the block.
        block: the whole block, memory-mapped.
    """

    rows: Rows
    positions: npt.NDArray[np.int64]
    block: TermsBlock


def blocks(characters: npt.NDArray[np.integer]) -> list[slice]:
    """Return the blocks of a segment as slices of its papers; ``characters`` has the lengths of their texts."""
    return list(slices(characters, BLOCK_PAPERS, BLOCK_CHARACTERS))


def write_rows(out: Workdir, rows: Rows) -> None:
    """Write the papers of a segment, uint32, rising."""
    out.arrow("rows.arrow", pa.table([rows], schema=CANDIDATES), CANDIDATES)


def read_rows(out: Workdir) -> Rows:
    """Return the papers of a segment under construction."""
    rows: Rows = files.read_arrow(out.path / "rows.arrow").column("row").chunk(0).to_numpy()
    return rows


def has_block(out: Workdir, number: int) -> bool:
    """Return whether both files of a block are finished."""
    return out.done(_terms_name(number)) and out.done(_vocabulary_name(number))


def block_tokens(out: Workdir, number: int) -> int:
    """Return the number of tokens of a finished block."""
    return int(out.counts(_terms_name(number))["tokens"])


def write_block(out: Workdir, number: int, block: TermsBlock) -> None:
    """Write one block of a segment, with frequencies in the smallest sufficient type."""
    out.arrow(_vocabulary_name(number), pa.table([block.vocabulary], schema=VOCABULARY), VOCABULARY)
    frequency = np.min_scalar_type(block.frequencies.max(initial=1))
    schema = _terms_schema(pa.from_numpy_dtype(frequency))
    columns = [
        pa.LargeListArray.from_arrays(pa.array(block.offsets), pa.array(values), type=schema.field(name).type)
        for name, values in (("terms", block.terms), ("frequencies", block.frequencies.astype(frequency)))
    ]
    table = pa.table([*columns, pa.array(block.lengths)], schema=schema)
    out.arrow(_terms_name(number), table, schema, tokens=int(block.lengths.sum()))


def _terms_schema(frequency: pa.DataType) -> pa.Schema:
    lists = {
        name: pa.large_list(pa.field("item", kind, nullable=False))
        for name, kind in (("terms", pa.uint32()), ("frequencies", frequency))
    }
    types = {**lists, "tokens": pa.uint32()}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def _terms_name(number: int) -> str:
    return f"terms-{number:05d}.arrow"


def _vocabulary_name(number: int) -> str:
    return f"vocabulary-{number:05d}.arrow"


class _Segment:
    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self.rows: Rows = artifact.arrow("rows.arrow").column("row").chunk(0).to_numpy()
        papers = [output.rows or 0 for output in artifact.outputs("terms-*.arrow")]
        self.edges: npt.NDArray[np.int64] = np.concatenate([[0], np.cumsum(papers, dtype=np.int64)])
        if self.edges[-1] != len(self.rows):
            raise CorruptError(
                f"{artifact.path} has blocks of {self.edges[-1]:,} papers and lists {len(self.rows):,}",
                "Remove that folder and run the same command again",
            )

    def block(self, number: int) -> TermsBlock:
        name = _terms_name(number)
        terms, frequencies, lengths = (column.chunk(0) for column in self._artifact.arrow(name).columns)
        vocabulary = self._artifact.arrow(_vocabulary_name(number)).column("term").chunk(0)
        offsets, term_numbers = terms.offsets.to_numpy(), terms.values.to_numpy()
        papers = int(self.edges[number + 1] - self.edges[number])
        fits = (
            len(terms) == papers
            and len(frequencies.values) == len(term_numbers) == offsets[-1]
            and offsets[0] == 0
            and bool(np.all(offsets[1:] >= offsets[:-1]))
            and term_numbers.max(initial=0) < max(len(vocabulary), 1)
        )
        if not fits:  # compiled kernels do not check bounds
            raise CorruptError(
                f"{name} of {self._artifact.path} does not hold the terms of its {papers:,} papers",
                "Remove that folder and run the same command again",
            )
        return TermsBlock(offsets, term_numbers, frequencies.values.to_numpy(), lengths.to_numpy(), vocabulary)


class ForwardIndex:
    """Reads the terms of papers; a paper in several segments is read from the first of them by name.

    Args:
        folder: folder of the index.
        segments: its artifacts.
    """

    def __init__(self, folder: Path, segments: Iterable[Artifact]) -> None:
        self._folder = folder
        self._segments = [_Segment(artifact) for artifact in segments]

    @classmethod
    def open(cls, folder: Path) -> ForwardIndex:
        """Open the index in ``folder`` with all segments published there."""
        return cls(folder, published(folder))

    def missing(self, rows: Rows) -> Rows:
        """Return those of ``rows`` that are in no segment."""
        return rows[self._locate(rows)[0] < 0]

    def parts(self, rows: Rows) -> Iterator[Part]:
        """Yield the terms of the papers at ``rows``, block by block.

        Raises:
            StageError: papers are in no segment.
            CorruptError: a file differs from its manifest, or its contents do not fit together.
        """
        owners, positions = self._locate(rows)
        if np.any(owners < 0):
            raise StageError(
                f"{np.count_nonzero(owners < 0):,} of {len(rows):,} papers have no terms in {self._folder} "
                f"(the first: row {rows[owners < 0][0]})",
                "Index their pool: mdcr index; if a folder was removed there by hand, remove the whole index first",
            )
        for index, segment in enumerate(self._segments):
            in_segment = owners == index
            segment_rows, segment_positions = rows[in_segment], positions[in_segment]
            bounds = np.searchsorted(segment_positions, segment.edges)
            for block in np.flatnonzero(np.diff(bounds)).tolist():
                span = slice(bounds[block], bounds[block + 1])
                yield Part(segment_rows[span], segment_positions[span] - segment.edges[block], segment.block(block))

    def _locate(self, rows: Rows) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the index of the segment of each row, or -1, and its position there."""
        owners, positions = np.full(len(rows), -1, np.int32), np.zeros(len(rows), np.int64)
        for index, segment in enumerate(self._segments):
            position, present = find_sorted(segment.rows, rows)
            found = present & (owners < 0)
            owners[found], positions[found] = index, position[found]
        return owners, positions
