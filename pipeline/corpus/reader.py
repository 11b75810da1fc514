"""Read a corpus: its attributes, texts and citation graph, all memory-mapped."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.artifact import Artifact
from pipeline.core.csr import Ints, ranges, slices
from pipeline.core.errors import InputError, require_known
from pipeline.core.schema import EXCLUSIONS
from pipeline.core.text import stored_text, stored_texts

Rows = npt.NDArray[np.uint32]
AnyRows = npt.NDArray[np.integer]

TEXT_CHARS = 2**22
"""Maximum number of characters in a list of texts, unless one text is longer."""


class Text(NamedTuple):
    """Title and abstract of a paper, the input of encoders and BM25. An ad-hoc query has its text as title.

    Texts with given sentences are :class:`pipeline.core.text.Sentences`.
    """

    title: str
    abstract: str


class Graph(NamedTuple):
    """One direction of the citation graph in CSR form: ``indptr`` int64 ``[papers + 1]``, ``indices`` uint32."""

    indptr: Ints
    indices: Rows

    def of(self, row: int) -> Rows:
        """Return the neighbours of one paper, rising."""
        return self.indices[self.indptr[row] : self.indptr[row + 1]]

    def of_many(self, rows: AnyRows) -> tuple[Ints, Rows]:
        """Return the edges of several papers: position in ``rows``, int64 ``[edges]``, and neighbour, uint32."""
        starts, ends = self.indptr[rows], self.indptr[np.asarray(rows, np.int64) + 1]
        lengths = ends - starts
        return np.repeat(np.arange(len(rows)), lengths), self.indices[ranges(starts, lengths)]


class Corpus:
    """A published corpus, with its authors if they are needed. Papers are given by row."""

    def __init__(self, artifact: Artifact, authors: Artifact | None = None) -> None:
        self.artifact, self.authors = artifact, authors
        self._shards = [output.path for output in artifact.outputs("papers-*.arrow")]
        rows = [output.rows or 0 for output in artifact.outputs("papers-*.arrow")]
        self.starts: Ints = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def shards(self) -> int:
        """Number of shards; shard ``i`` holds the rows from ``starts[i]`` to ``starts[i + 1]``."""
        return len(self._shards)

    def shard(self, index: int) -> pa.Table:
        """Return a stored shard, a table of schema :data:`pipeline.core.schema.PAPERS`."""
        return self.artifact.arrow(self._shards[index])

    @functools.cached_property
    def attributes(self) -> dict[str, npt.NDArray[Any]]:
        """Columns of :data:`pipeline.core.schema.ATTRIBUTES` as arrays in row order."""
        table = self.artifact.arrow("attributes.arrow")
        return {name: table.column(name).chunk(0).to_numpy() for name in table.column_names}

    @functools.cached_property
    def outgoing(self) -> Graph:
        """Papers of the corpus that each paper cites."""
        return self._graph("outgoing")

    @functools.cached_property
    def incoming(self) -> Graph:
        """Papers of the corpus that cite each paper."""
        return self._graph("incoming")

    @functools.cached_property
    def citations(self) -> Ints:
        """Citations of each paper as the release lists them; within the corpus, where the release lists none."""
        listed: Ints = self.attributes["n_inbound"].astype(np.int64)
        return listed if listed.any() else np.diff(self.incoming.indptr)

    def _graph(self, name: str) -> Graph:
        indptr = self.artifact.arrow(f"{name}-indptr.arrow").column(0).chunk(0).to_numpy()
        indices = self.artifact.arrow(f"{name}-indices.arrow").column(0).chunk(0).to_numpy()
        return Graph(indptr, indices)

    def _rows(self, rows: AnyRows) -> Ints:
        """Return rows of a caller as int64; InputError unless each is a row of the corpus."""
        found = np.asarray(rows)
        is_whole = found.ndim == 1 and found.dtype.kind in "iu"
        if found.size and not (is_whole and 0 <= found.min() <= found.max() < len(self)):
            raise InputError(
                f"rows must be whole numbers from 0 to {len(self) - 1:,}, got {rows!r:.60}", "Find them by rows_of(ids)"
            )
        return found.astype(np.int64, copy=False)

    def by_shard(self, rows: AnyRows) -> Iterator[tuple[int, Ints]]:
        """Group rising ``rows`` by shard; yield (shard, rows relative to the shard's start)."""
        rows = self._rows(rows)
        bounds = np.searchsorted(rows, self.starts)
        for shard in range(self.shards):
            if bounds[shard] < bounds[shard + 1]:
                yield shard, rows[bounds[shard] : bounds[shard + 1]] - self.starts[shard]

    def take(self, rows: AnyRows, columns: Sequence[str]) -> pa.Table:
        """Return columns of the papers at ``rows``, in any order, in that order."""
        rows = self._rows(rows)
        if isinstance(columns, str) or not isinstance(columns, Sequence):
            raise InputError(f"columns must be a list of names, got {columns!r:.60}", "Write them as ['title', 'year']")
        for column in columns:
            require_known(column, names := self.shard(0).column_names, f"columns must be of {', '.join(names)}")
        order = np.argsort(rows, kind="stable")
        tables = [self.shard(shard).select(columns).take(local) for shard, local in self.by_shard(rows[order])]
        taken = _as_read(pa.concat_tables(tables or [self.shard(0).select(columns).slice(0, 0)]), "abstract")
        return taken if (np.diff(rows) >= 0).all() else taken.take(pa.array(np.argsort(order)))

    def ids(self, rows: AnyRows) -> list[str]:
        """Return the paper ids at ``rows``, in any order."""
        ids: list[str] = self.take(rows, ["paper_id"]).column(0).to_pylist()
        return ids

    def rows_of(self, ids: Sequence[str]) -> Ints:
        """Return the row of each id, int64 ``[ids]``; -1 if the corpus has no such paper."""
        if (
            isinstance(ids, str)
            or not isinstance(ids, Iterable)
            or not all(isinstance(paper_id, str) for paper_id in ids)
        ):
            raise InputError(f"ids must be a list of texts, got {ids!r:.60}", "Write them as texts: ['W1', 'W2']")
        return rows_of(ids, (self.shard(shard) for shard in range(self.shards)))

    def characters(self, rows: AnyRows) -> Ints:
        """Return the number of characters of title and abstract of the papers at ``rows``, int64 ``[rows]``."""
        rows = self._rows(rows)
        titles, abstracts = (self.attributes[name][rows] for name in ("title_chars", "abstract_chars"))
        characters: Ints = np.add(titles, abstracts, dtype=np.int64)
        return characters

    def query_characters(self, rows: AnyRows) -> Ints:
        """Return the number of characters of the query texts at ``rows``, int64 ``[rows]``."""
        lengths: Ints = pc.utf8_length(self.query_texts.column("text")).to_numpy().astype(np.int64)
        characters: Ints = lengths[rows]
        return characters

    def texts(self, rows: AnyRows, block: int = 8192) -> Iterator[list[Text]]:
        """Yield lists of the texts of the papers at rising ``rows``.

        A list has at most ``block`` texts and :data:`TEXT_CHARS` characters, or one text.
        """
        for shard, local in self.by_shard(rows):
            table = self.shard(shard).select(["title", "abstract"])
            for positions in slices(self.characters(local + self.starts[shard]), block, TEXT_CHARS):
                papers = table.take(local[positions])
                abstracts = map(stored_text, papers.column("abstract").to_pylist())
                yield list(map(Text, papers.column("title").to_pylist(), abstracts))

    @functools.cached_property
    def query_texts(self) -> pa.Table:
        """Queries that are not papers, schema :data:`pipeline.core.schema.QUERY_TEXTS`."""
        return _as_read(self.artifact.arrow("queries.arrow"), "text")

    def ad_hoc(self, rows: AnyRows) -> list[Text]:
        """Return the texts of :attr:`query_texts` at ``rows``, in that order."""
        texts = self.artifact.arrow("queries.arrow").column("text").take(pa.array(rows)).to_pylist()
        return [Text(stored_text(text), "") for text in texts]

    @functools.cached_property
    def judgements(self) -> pa.Table:
        """Judgements of the query texts, schema :data:`pipeline.core.schema.JUDGEMENTS`."""
        return self.artifact.arrow("judgements.arrow")

    @functools.cached_property
    def exclusions(self) -> pa.Table:
        """Papers excluded from the rankings of query texts, schema :data:`pipeline.core.schema.EXCLUSIONS`."""
        if self._has("exclusions.arrow"):
            return self.artifact.arrow("exclusions.arrow")
        return pa.Table.from_pylist([], EXCLUSIONS)

    @functools.cached_property
    def contexts(self) -> pa.Table:
        """Years and citing papers of citation contexts, schema :data:`pipeline.core.schema.CONTEXTS`."""
        return self.artifact.arrow("contexts.arrow")

    @functools.cached_property
    def missing(self) -> pa.Table:
        """Positives of the query texts that the corpus lacks, schema :data:`pipeline.core.schema.MISSING`."""
        return self.artifact.arrow("missing.arrow")

    def has_query_texts(self) -> bool:
        """Whether the release has queries."""
        return self._has("queries.arrow")

    def has_contexts(self) -> bool:
        """Whether the query texts are citation contexts."""
        return self._has("contexts.arrow")

    def _has(self, name: str) -> bool:
        return any(output.path == name for output in self.artifact.manifest.outputs)


def rows_of(ids: Sequence[str], shards: Iterable[pa.Table]) -> Ints:
    """Return the row of each id in the shards of a corpus, int64 ``[ids]``; -1 if none has it."""
    rows, start = np.full(len(ids), -1, np.int64), 0
    id_array = pa.array(ids, pa.large_string())
    for shard in shards:
        index = pc.index_in(id_array, shard.column("paper_id").combine_chunks())
        local = index.fill_null(-1).to_numpy(zero_copy_only=False)
        rows = np.where(local >= 0, local + start, rows)
        start += len(shard)
    return rows


def _as_read(table: pa.Table, name: str) -> pa.Table:
    """Return a stored table with the texts of a column decoded; a table without that column is unchanged."""
    if name not in table.column_names:
        return table
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), stored_texts(table[name]))
