"""The forward index of a corpus: terms and term frequencies of papers, analysed once for all pools.

It is a store in segments (:mod:`pipeline.core.segments`). Each block of a segment's papers (:func:`blocks`) has
``terms-00012.arrow`` (terms and frequencies) and ``vocabulary-00012.arrow`` (the spelling of the block's term numbers).
Search inverts the papers of a pool on the fly, so a pool of a hundredth of the corpus reads a hundredth of the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.csr import Ints, slices
from pipeline.core.errors import CorruptError
from pipeline.core.order import Rows
from pipeline.core.schema import CANDIDATES, schema_of
from pipeline.core.segments import AGAIN, SegmentStore
from pipeline.core.workdir import Workdir

BLOCK_PAPERS = 65_536
"""Maximum papers of a block."""

BLOCK_CHARACTERS = 2**26
"""Maximum characters of a block of several papers, which bounds the memory of analysis."""

VOCABULARY = schema_of(term=pa.large_string())


class TermsBlock(NamedTuple):
    """The terms of texts: entries of each text start at ``offsets``, int64 ``[texts + 1]``.

    An entry is a term, uint32, distinct within a text, and its frequency. ``lengths``, uint32 ``[texts]``, are numbers
    of tokens; ``vocabulary`` has the terms by number, as large strings.
    """

    offsets: npt.NDArray[np.int64]
    terms: npt.NDArray[np.uint32]
    frequencies: npt.NDArray[np.unsignedinteger]
    lengths: npt.NDArray[np.uint32]
    vocabulary: pa.Array


class Part(NamedTuple):
    """Papers of one block: rising rows and their positions in it, int64 ``[n]``, and the block, memory-mapped."""

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
    lists = {"terms": block.terms, "frequencies": block.frequencies.astype(frequency)}
    columns = {}
    for name, values in lists.items():
        kind = pa.large_list(pa.field("item", pa.from_numpy_dtype(values.dtype), nullable=False))
        columns[name] = pa.LargeListArray.from_arrays(pa.array(block.offsets), pa.array(values), type=kind)
    columns["tokens"] = pa.array(block.lengths)
    schema = schema_of(**{name: column.type for name, column in columns.items()})
    out.arrow(_terms_name(number), pa.table(columns, schema=schema), schema, tokens=int(block.lengths.sum()))


def _terms_name(number: int) -> str:
    return f"terms-{number:05d}.arrow"


def _vocabulary_name(number: int) -> str:
    return f"vocabulary-{number:05d}.arrow"


class ForwardIndex(SegmentStore):
    """Reads the terms of papers."""

    absent = "terms"
    remedy = "Index their pool: mdcr index"

    def parts(self, rows: Rows) -> Iterator[Part]:
        """Yield the terms of the papers at ``rows``, block by block.

        Raises:
            StageError: papers are in no segment.
            CorruptError: a file differs from its manifest, or its contents do not fit together.
        """
        self.check(rows)
        for place in self.places(rows):
            yield Part(place.rows, place.positions, self._block(place.segment, place.number))

    def _files(self, artifact: Artifact, table: pa.Table) -> tuple[Ints, Ints]:  # noqa: ARG002
        papers = np.array([output.rows or 0 for output in artifact.outputs("terms-*.arrow")], np.int64)
        return np.arange(len(papers)), papers

    def _block(self, segment: int, number: int) -> TermsBlock:
        artifact, edges = self._segments[segment].artifact, self._segments[segment].edges
        name = _terms_name(number)
        terms, frequencies, lengths = (column.chunk(0) for column in artifact.arrow(name).columns)
        vocabulary = artifact.arrow(_vocabulary_name(number)).column("term").chunk(0)
        offsets, term_numbers = terms.offsets.to_numpy(), terms.values.to_numpy()
        papers = int(edges[number + 1] - edges[number])
        fits = (
            len(terms) == papers
            and len(frequencies.values) == len(term_numbers) == offsets[-1]
            and offsets[0] == 0
            and bool(np.all(offsets[1:] >= offsets[:-1]))
            and term_numbers.max(initial=0) < max(len(vocabulary), 1)
        )
        if not fits:  # compiled kernels do not check bounds
            raise CorruptError(f"{name} of {artifact.path} does not hold the terms of its {papers:,} papers", AGAIN)
        return TermsBlock(offsets, term_numbers, frequencies.values.to_numpy(), lengths.to_numpy(), vocabulary)
