"""Draws positives and negatives for a block of training queries, by array operations on the citation graph.

A draw depends on the seed and the keys of papers alone, not on blocks, workers or other queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.csr import Ints, Keys, find_sorted, offsets_of, pack, ranges
from pipeline.core.fields import FIELD_BIT
from pipeline.core.rng import priorities
from pipeline.corpus.prefilter import Mask
from pipeline.corpus.reader import Corpus, Rows

KINDS = ("hard", "ranked", "same_field", "other_field", "easy", "pair")
"""Kinds of negatives, in drawing order: cited by a cited paper; from a ranking; random of the query's field, of another
field, of all papers. ``pair`` is drawn no more; files keep its place."""

_TRIES = 64
"""Maximum number of random papers that are tried for a negative."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Mix:
    """Number of negatives of each kind of a query."""

    hard: int = 0
    ranked: int = 0
    same_field: int = 0
    other_field: int = 0
    easy: int = 0
    pair: Literal[0] = 0

    @property
    def kinds(self) -> list[str]:
        """The kinds of the negatives of a query, in order."""
        return [kind for kind in KINDS for _ in range(getattr(self, kind))]


class Lists(NamedTuple):
    """Papers of the queries of a block: ``owner`` (position of the query, rising) and ``rows``."""

    owner: Ints
    rows: Rows

    def first(self, order: Keys, count: int, queries: int) -> npt.NDArray[np.int64]:
        """Return the first ``count`` papers of each query by ``order``, int64 ``[queries, count]``, or -1."""
        by_order = np.lexsort((order, self.owner))
        owner, rows = self.owner[by_order], self.rows[by_order]
        rank = np.arange(len(owner)) - offsets_of(owner, queries)[owner]
        chosen = np.full((queries, count), -1, np.int64)
        chosen[owner[rank < count], rank[rank < count]] = rows[rank < count]
        return chosen


class QueryBlock(NamedTuple):
    """Queries of one draw.

    Attributes:
        rows: uint32 ``[queries]``.
        positives: possible positives of the queries.
        ranked: possible negatives from a ranking, or empty.
    """

    rows: Rows
    positives: Lists
    ranked: Lists


class Drawing:
    """Draws the triplets of blocks.

    Args:
        corpus: papers and citations.
        candidates: rows of possible negatives, rising.
        mix: number of negatives of each kind.
        seed: seed of all draws.
    """

    def __init__(self, corpus: Corpus, candidates: Rows, mix: Mix, seed: int) -> None:
        self._corpus, self._candidates, self._mix, self._seed = corpus, candidates, mix, seed
        self._keys, self._fields = corpus.attributes["key"], corpus.attributes["fields"]
        self._kept: Mask = np.zeros(len(corpus), bool)
        self._kept[candidates] = True
        self._of_field = {
            bit: candidates[self._fields[candidates] >> np.uint32(bit) & 1 == 1]
            for bit in (FIELD_BIT.values() if mix.same_field else ())
        }

    def work(self, owner: Ints, positives: Rows, queries: int) -> Ints:
        """Return the number of citations that a draw reads for each query, int64 ``[queries]``."""
        degrees = np.diff(self._corpus.outgoing.indptr)[positives] if self._mix.hard else 1
        return np.bincount(owner, weights=degrees + np.ones(len(owner)), minlength=queries).astype(np.int64)

    def draw(self, block: QueryBlock) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return positives and negatives of triplets, int64 ``[queries, triplets of a query]``, or -1.

        The columns are those of :attr:`Mix.kinds`. Positives repeat in random order.
        """
        kinds, queries = self._mix.kinds, len(block.rows)
        distinct = np.minimum(np.bincount(block.positives.owner, minlength=queries), len(kinds))
        ordered = block.positives.first(self._order(block, block.positives, "positives"), len(kinds), queries)
        columns = np.arange(len(kinds)) % np.maximum(distinct, 1)[:, None]
        positives = np.take_along_axis(ordered, columns, 1)
        cited = self._cited(block)
        negatives = np.full(positives.shape, -1, np.int64)
        for kind in dict.fromkeys(kinds):
            positions = [column for column, negative_kind in enumerate(kinds) if negative_kind == kind]
            if kind in ("hard", "ranked"):
                lists = self._hard(block, cited) if kind == "hard" else self._ranked(block, cited)
                negatives[:, positions] = lists.first(self._order(block, lists, kind), len(positions), queries)
            else:
                for column in positions:
                    self._fill(negatives, column, kind, block, cited)
        return positives, negatives

    def _order(self, block: QueryBlock, lists: Lists, purpose: str) -> Keys:
        """Return random priorities of the pairs of a query and a paper."""
        with np.errstate(over="ignore"):
            pairs = self._keys[block.rows][lists.owner] * _SPREAD + self._keys[lists.rows]
        return priorities(pairs, self._seed, f"triplets {purpose}")

    def _cited(self, block: QueryBlock) -> Keys:
        """Return the pairs of queries with themselves and with all papers that they cite, as rising keys."""
        owner, rows = self._corpus.outgoing.of_many(block.rows)
        positions = np.arange(len(block.rows))
        keys = np.concatenate([pack(owner, rows), pack(positions, block.rows), pack(*block.positives)])
        return np.unique(keys)

    def _hard(self, block: QueryBlock, cited: Keys) -> Lists:
        """Return the papers that cited papers cite but the query does not."""
        owner, rows = block.positives
        through, second = self._corpus.outgoing.of_many(rows)
        owner = owner[through]
        allowed = self._kept[second] & ~find_sorted(cited, pack(owner, second))[1]
        keys = np.unique(pack(owner[allowed], second[allowed]))
        return Lists((keys >> np.uint64(32)).astype(np.int64), keys.astype(np.uint32))

    @staticmethod
    def _ranked(block: QueryBlock, cited: Keys) -> Lists:
        allowed = ~find_sorted(cited, pack(*block.ranked))[1]
        return Lists(block.ranked.owner[allowed], block.ranked.rows[allowed])

    def _fill(self, negatives: npt.NDArray[np.int64], column: int, kind: str, block: QueryBlock, cited: Keys) -> None:
        """Draw one random negative for each query; repeat until the paper is allowed."""
        keys, masks = self._keys[block.rows], self._fields[block.rows]
        remaining = np.arange(len(block.rows))
        if kind == "same_field":
            remaining = remaining[masks != 0]
        for attempt in range(_TRIES):
            if not len(remaining):
                return
            drawn = priorities(keys[remaining], self._seed, "triplets", f"{kind} {column} {attempt}")
            rows = self._of_query(masks[remaining], drawn) if kind == "same_field" else _pick(self._candidates, drawn)
            allowed = ~find_sorted(cited, pack(remaining, rows))[1] & ~(negatives[remaining] == rows[:, None]).any(
                axis=1
            )
            if kind == "other_field":
                allowed &= self._fields[rows] & masks[remaining] == 0
            negatives[remaining[allowed], column] = rows[allowed]
            remaining = remaining[~allowed]

    def _of_query(self, masks: npt.NDArray[np.uint32], keys: Keys) -> Rows:
        """Return a random paper of a random field of each query; its fields are equally likely."""
        in_field = (masks[:, None] >> np.arange(len(FIELD_BIT), dtype=np.uint32) & 1).astype(np.int64)
        choice = (keys >> np.uint64(40)) % in_field.sum(axis=1).astype(np.uint64)
        bits = np.argmax(np.cumsum(in_field, axis=1) == choice[:, None].astype(np.int64) + 1, axis=1)
        rows = np.zeros(len(masks), np.uint32)
        for bit in np.unique(bits):
            rows[bits == bit] = _pick(self._of_field[int(bit)], keys[bits == bit])
        return rows


def _pick(rows: Rows, keys: Keys) -> Rows:
    """Return a random row for each key."""
    return rows[(keys % np.uint64(len(rows))).astype(np.int64)]


def part(offsets: Ints, rows: Rows, start: int, stop: int) -> Lists:
    """Return the lists of the queries from ``start`` to ``stop``, from lists in CSR form."""
    lengths = np.diff(offsets[start : stop + 1])
    return Lists(np.repeat(np.arange(stop - start), lengths), rows[ranges(offsets[start:stop], lengths)])
