"""Look-ups in joined tables: the abstracts, the references and the citing papers of given papers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.csr import ranges
from pipeline.core.text import Keys
from pipeline.sources.base import RAW_PAPERS


def abstracts_of(inline: pa.LargeStringArray, keys: Keys, table: pa.Table, noted: Counter[str]) -> pa.LargeStringArray:
    """Return the abstract of each paper: the first of the table, else the paper's own."""
    theirs = table.column("key").combine_chunks().to_numpy()
    first, place = np.unique(theirs, return_index=True)
    unknown = int(np.count_nonzero(~np.isin(theirs, keys)))
    noted["abstracts: dropped, of_no_paper"] += unknown
    known = np.isin(first, keys)
    texts = table.column("text").combine_chunks()
    again = np.flatnonzero(np.isin(theirs, keys))
    again = again[place[np.searchsorted(first, theirs[again])] != again]
    same = pc.equal(texts.take(again), texts.take(place[np.searchsorted(first, theirs[again])]))
    noted["abstracts: dropped, repeated"] += same.true_count
    noted["abstracts: dropped, repeated_other_text"] += same.false_count
    noted["abstracts: kept"] += int(np.count_nonzero(known))
    if not len(first):
        return inline
    at = np.minimum(np.searchsorted(first, keys), len(first) - 1)
    rows = pa.array(place[at], mask=first[at] != keys)
    return pc.coalesce(texts.take(rows), inline)


@dataclass(frozen=True)
class References:
    """References in CSR form over distinct papers, and the place of each paper's among them."""

    offsets: npt.NDArray[np.int64]
    cited: Keys
    place: npt.NDArray[np.int64]

    def lists(self, rows: slice) -> pa.LargeListArray:
        """Return what some papers cite."""
        starts, ends = self.offsets[self.place[rows]], self.offsets[self.place[rows] + 1]
        lengths = ends - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        cited = self.cited[ranges(starts, lengths)]
        return pa.LargeListArray.from_arrays(offsets, cited, type=RAW_PAPERS.field("outbound").type)


def references_of(keys: Keys, table: pa.Table, noted: Counter[str]) -> References:
    """Return the distinct papers that each paper cites, without itself."""
    distinct, place = np.unique(keys, return_inverse=True)
    citing, cited = (table.column(name).combine_chunks().to_numpy() for name in ("key", "other"))
    apart = citing != cited
    noted["citations: dropped, self"] += len(citing) - int(np.count_nonzero(apart))
    owner, known = _places(distinct, citing[apart])
    noted["citations: dropped, citing_paper_unknown"] += len(owner) - int(np.count_nonzero(known))
    owner, cited = _pairs(owner[known], cited[apart][known])
    noted["citations: dropped, repeated"] += int(np.count_nonzero(known)) - len(owner)
    noted["citations: kept"] += len(owner)
    return References(np.searchsorted(owner, np.arange(len(distinct) + 1)), cited, place)


def inbound_of(keys: Keys, table: pa.Table) -> npt.NDArray[np.int32]:
    """Return how many distinct papers cite each paper, int32 ``[n]``."""
    distinct, place = np.unique(keys, return_inverse=True)
    cited, citing = (table.column(name).combine_chunks().to_numpy() for name in ("key", "other"))
    owner, known = _places(distinct, cited)
    owner, _ = _pairs(owner[known], citing[known])
    return np.bincount(owner, minlength=len(distinct))[place].astype(np.int32)


def _places(distinct: Keys, keys: Keys) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the place of each key in ``distinct``, and whether it is there."""
    if not len(distinct):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
    place = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
    return place, distinct[place] == keys


def _pairs(owner: npt.NDArray[np.int64], other: Keys) -> tuple[npt.NDArray[np.int64], Keys]:
    """Return the distinct pairs, sorted."""
    order = np.lexsort((other, owner))
    owner, other = owner[order], other[order]
    if len(owner):
        first = np.concatenate([[True], (owner[1:] != owner[:-1]) | (other[1:] != other[:-1])])
        owner, other = owner[first], other[first]
    return owner, other
