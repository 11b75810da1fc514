"""From rows of the synthetic corpus to batches of papers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.compiled import compiled
from pipeline.core.rng import priorities
from pipeline.core.schema import NO_YEAR
from pipeline.sources.base import BATCH_ROWS, RAW_PAPERS, PaperBatch
from pipeline.sources.synthetic_graph import inbound_counts, references
from pipeline.sources.synthetic_layout import FIRST_YEAR, Graph, Ints, Keys, graph, lists_references, paper_id
from pipeline.sources.synthetic_lexicon import lexicon
from pipeline.sources.synthetic_text import SHORT_ABSTRACT, abstracts, titles
from pipeline.sources.synthetic_words import Floats

_NO_YEAR, _NO_FIELD, _TWO_FIELDS, _THREE_FIELDS = 0.015, 0.05, 0.075, 0.004
_NO_ABSTRACT, _SHORT_ABSTRACT = 0.17, 0.005
_NO_TITLE, _STOCK_TITLE, _REPEATED_TITLE = 0.001, 0.002, 0.005
_STOCK_TITLES = ("Editorial", "Introduction", "Book reviews", "Correction", "Abstracts", "Index", "Preface", "Obituary")


@dataclass(frozen=True)
class Papers:
    """Some papers with all that is known of them.

    Attributes:
        rows: int64 ``[n]``, their rows.
        ids: uint64 ``[n]``, their ids as numbers.
        years: int16 ``[n]``, :data:`pipeline.core.schema.NO_YEAR` where missing.
        fields: int64 ``[n, 3]``, the main field and further ones, -1 where there is none.
        titles: strings, empty where missing.
        abstracts: strings, empty where missing.
        indptr: int64 ``[n + 1]``, offsets into ``outbound``.
        outbound: uint64, ids of the papers each one cites, rising within a paper.
    """

    rows: Ints
    ids: Keys
    years: npt.NDArray[np.int16]
    fields: Ints
    titles: pa.LargeStringArray
    abstracts: pa.LargeStringArray
    indptr: Ints
    outbound: Keys


def blocks(papers: int, start: int, end: int) -> Iterator[Ints]:
    """Yield the rows at places ``start`` to ``end`` of the release, a batch at a time: topics and years are mixed."""
    step = int(papers * 0.6180339887) | 1
    while math.gcd(step, papers) != 1:
        step += 1
    for first in range(start, end, BATCH_ROWS):
        places = np.arange(first, min(first + BATCH_ROWS, end), dtype=np.uint64)
        yield (places * np.uint64(step) % np.uint64(papers)).astype(np.int64)


def make(papers: int, seed: int, rows: Ints) -> Papers:
    """Generate the papers at ``rows`` (int64 ``[n]``) of a release."""
    g, v = graph(papers, seed), lexicon(seed)
    topics = np.searchsorted(g.topic_start, rows, side="right") - 1
    kind = _uniform(rows, seed, "kind")
    fields = _fields(g, rows, topics, seed)

    cited_from = np.empty(len(rows) + 1, np.int64)
    cited = references(g, rows, topics, cited_from)
    words = v.abstract_words[_index(rows, seed, "length", len(v.abstract_words))].astype(np.int64)
    words[kind < _NO_ABSTRACT + _SHORT_ABSTRACT] = SHORT_ABSTRACT
    words[kind < _NO_ABSTRACT] = 0
    offsets = np.empty(len(rows) + 1, np.int64)
    text = abstracts(g, v, rows, topics, np.ascontiguousarray(fields[:, 1]), words, cited_from, cited, offsets)
    indptr = np.empty(len(rows) + 1, np.int64)
    return Papers(
        rows=rows,
        ids=ids_of(g, rows),
        years=_years(g, rows, topics, seed),
        fields=_listed(fields, rows, seed),
        titles=_titles(papers, seed, rows, topics),
        abstracts=_strings(offsets, text),
        outbound=_listed_ids(g, rows, cited_from, cited, indptr),
        indptr=indptr,
    )


def read_range(papers: int, seed: int, start: int, end: int) -> Iterator[PaperBatch]:
    """Yield the papers at places ``start`` to ``end`` of a release as batches."""
    inbound = inbound_counts(papers, seed)
    for rows in blocks(papers, start, end):
        made = make(papers, seed, rows)
        mask = np.where(made.fields >= 0, np.left_shift(1, np.maximum(made.fields, 0)), 0).sum(axis=1)
        arrays = [
            pa.array(made.ids).cast(pa.large_string()),
            made.titles,
            made.abstracts,
            pa.array(made.years),
            pa.array(mask.astype(np.uint32)),
            pa.LargeListArray.from_arrays(made.indptr, made.outbound, type=RAW_PAPERS.field("outbound").type),
            pa.array(inbound[rows]),
            pa.array(np.zeros(len(rows), np.uint64)),
        ]
        yield PaperBatch(pa.RecordBatch.from_arrays(arrays, schema=RAW_PAPERS), read=len(rows))


@compiled
def ids_of(g: Graph, rows: Ints) -> Keys:
    """Return the ids of ``rows`` (int64 ``[n]``), uint64 ``[n]``."""
    ids = np.empty(len(rows), np.uint64)
    for number in range(len(rows)):
        ids[number] = paper_id(g, rows[number])
    return ids


@compiled
def _listed_ids(g: Graph, rows: Ints, cited_from: Ints, cited: Ints, indptr: Ints) -> Keys:
    ids = np.empty(len(cited), np.uint64)
    at = 0
    indptr[0] = 0
    for number in range(len(rows)):
        if lists_references(g, rows[number]):
            first = at
            for position in range(cited_from[number], cited_from[number + 1]):
                ids[at] = paper_id(g, cited[position])
                at += 1
            ids[first:at].sort()
        indptr[number + 1] = at
    return ids[:at].copy()


def _uniform(rows: Ints, seed: int, purpose: str) -> Floats:
    random = priorities(rows.astype(np.uint64), seed, "synthetic/" + purpose)
    uniform: Floats = ((random >> np.uint64(11)) + 0.5) * 2.0**-53
    return uniform


def _index(rows: Ints, seed: int, purpose: str, size: int) -> Ints:
    return (_uniform(rows, seed, purpose) * size).astype(np.int64)


def _years(g: Graph, rows: Ints, topics: Ints, seed: int) -> npt.NDArray[np.int16]:
    """A topic's rows stand in order of time, so a paper's place among them, and a little chance, give its year."""
    start, end = g.topic_start[topics], g.topic_start[topics + 1]
    when = (rows - start + _uniform(rows, seed, "month")) / (end - start)
    years = FIRST_YEAR + np.minimum(np.searchsorted(g.year_edges, when), len(g.year_edges) - 1)
    years[_uniform(rows, seed, "year") < _NO_YEAR] = NO_YEAR
    return years.astype(np.int16)


def _fields(g: Graph, rows: Ints, topics: Ints, seed: int) -> Ints:
    fields = np.full((len(rows), 3), -1, np.int64)
    fields[:, 0] = g.topic_field[topics]
    chance = _uniform(rows, seed, "fields")
    for column, share in ((1, _TWO_FIELDS), (2, _THREE_FIELDS)):
        further = g.topic_field[_index(rows, seed, f"field {column}", len(g.topic_field))]
        taken = (chance < share) & (fields[:, :column] != further[:, None]).all(axis=1)
        fields[taken, column] = further[taken]
    return fields


def _listed(fields: Ints, rows: Ints, seed: int) -> Ints:
    """What a paper writes about and what the release says of it differ: some papers have no field there."""
    listed = fields.copy()
    listed[_uniform(rows, seed, "listed fields") < _NO_FIELD] = -1
    return listed


def _titles(papers: int, seed: int, rows: Ints, topics: Ints) -> pa.LargeStringArray:
    g, v = graph(papers, seed), lexicon(seed)
    kind = _uniform(rows, seed, "title")
    repeated = kind < _REPEATED_TITLE
    earlier = np.maximum(rows - 1 - _index(rows, seed, "repeated title", 6), g.topic_start[topics])
    offsets = np.empty(len(rows) + 1, np.int64)
    written = _strings(offsets, titles(g, v, np.where(repeated, earlier, rows), topics, offsets))
    stopped = pc.binary_join_element_wise(written, *pa.array([".", ""], pa.large_string()))
    written = pc.if_else(pa.array(repeated & (kind < _REPEATED_TITLE / 2)), stopped, written)
    stock = pa.array(_STOCK_TITLES, pa.large_string()).take(pa.array(_index(rows, seed, "stock", len(_STOCK_TITLES))))
    written = pc.if_else(pa.array(kind > 1 - _STOCK_TITLE), stock, written)
    empty = pa.scalar("", pa.large_string())
    result: pa.LargeStringArray = pc.if_else(pa.array(kind > 1 - _NO_TITLE), empty, written)
    return result


def _strings(offsets: Ints, text: npt.NDArray[np.uint8]) -> pa.LargeStringArray:
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))
