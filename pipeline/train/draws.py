"""Drawing positives and negatives for a block of training queries, by arrays over the citation graph.

A draw depends on the seed and on the keys of the papers alone: not on blocks, workers or other queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.csr import Ints, Keys, offsets_of, places, ranges
from pipeline.core.fields import FIELD_BIT
from pipeline.core.rng import priorities
from pipeline.corpus.prefilter import Mask
from pipeline.corpus.reader import Corpus, Rows

KINDS = ("hard", "ranked", "same_field", "other_field", "easy", "pair")
"""How a negative was drawn: cited by a cited paper; from a ranking; at random of the query's field, of another field,
of all papers; a pair has none. They are drawn in this order."""

_TRIES = 64
"""Random papers that are tried for one negative."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Mix:
    """How many negatives of each kind a query has; ``pair`` is the number of positives without any."""

    hard: int = 0
    ranked: int = 0
    same_field: int = 0
    other_field: int = 0
    easy: int = 0
    pair: int = 0

    @property
    def kinds(self) -> list[str]:
        """The kind of each negative of a query, in order."""
        return [kind for kind in KINDS for _ in range(getattr(self, kind))]


class Lists(NamedTuple):
    """Papers of each query of a block: ``owner`` (position in the block, rising) and ``rows``."""

    owner: Ints
    rows: Rows

    def first(self, order: Keys, most: int, queries: int) -> npt.NDArray[np.int64]:
        """Return the ``most`` papers of each query that come first by ``order``, int64 ``[queries, most]``, or -1."""
        by_order = np.lexsort((order, self.owner))
        owner, rows = self.owner[by_order], self.rows[by_order]
        place = np.arange(len(owner)) - offsets_of(owner, queries)[owner]
        chosen = np.full((queries, most), -1, np.int64)
        chosen[owner[place < most], place[place < most]] = rows[place < most]
        return chosen


class Block(NamedTuple):
    """Queries that are drawn for together.

    Attributes:
        rows: uint32 ``[queries]``.
        positives: what may be a positive of each query.
        ranked: what may be a negative from a ranking or from a citation embedding; empty for none.
    """

    rows: Rows
    positives: Lists
    ranked: Lists


class Drawing:
    """Draws the triplets of blocks.

    Args:
        corpus: its papers and citations.
        candidates: papers that may be negatives, rising.
        mix: how many negatives of each kind.
        seed: of every draw.
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
        """Return how many citations a draw reads for each of some queries, int64 ``[queries]``."""
        degrees = np.diff(self._corpus.outgoing.indptr)[positives] if self._mix.hard else 1
        return np.bincount(owner, weights=degrees + np.ones(len(owner)), minlength=queries).astype(np.int64)

    def draw(self, block: Block) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the positive and the negative of each triplet, int64 ``[queries, triplets of a query]``.

        The columns are those of :attr:`Mix.kinds`. Positives take turns, in random order; in pairs each comes once.
        -1: there is no such paper.
        """
        kinds, queries = self._mix.kinds, len(block.rows)
        turns = np.minimum(np.bincount(block.positives.owner, minlength=queries), len(kinds))
        ordered = block.positives.first(self._order(block, block.positives, "positives"), len(kinds), queries)
        columns = np.arange(len(kinds)) % np.maximum(turns, 1)[:, None]
        positives = np.take_along_axis(ordered, columns, 1)
        if self._mix.pair:
            positives[np.arange(len(kinds)) >= turns[:, None]] = -1

        cited = self._cited(block)
        negatives = np.full(positives.shape, -1, np.int64)
        for kind in dict.fromkeys(kinds):
            at = [column for column, other in enumerate(kinds) if other == kind]
            if kind in ("hard", "ranked"):
                lists = self._hard(block, cited) if kind == "hard" else self._ranked(block, cited)
                negatives[:, at] = lists.first(self._order(block, lists, kind), len(at), queries)
            elif kind != "pair":
                for column in at:
                    self._fill(negatives, column, kind, block, cited)
        return positives, negatives

    def _order(self, block: Block, lists: Lists, purpose: str) -> Keys:
        """Return a random priority of each pair of a query and a paper."""
        with np.errstate(over="ignore"):
            pairs = self._keys[block.rows][lists.owner] * _SPREAD + self._keys[lists.rows]
        return priorities(pairs, self._seed, f"triplets {purpose}")

    def _cited(self, block: Block) -> Keys:
        """Return what the queries cite, kept or not, and themselves, as rising keys."""
        owner, rows = self._corpus.outgoing.of_many(block.rows)
        own = np.arange(len(block.rows))
        keys = np.concatenate([_keys(owner, rows), _keys(own, block.rows), _keys(*block.positives)])
        return np.unique(keys)

    def _hard(self, block: Block, cited: Keys) -> Lists:
        """Return the papers that cited papers cite and the query does not."""
        owner, rows = block.positives
        through, second = self._corpus.outgoing.of_many(rows)
        owner = owner[through]
        allowed = self._kept[second] & ~places(cited, _keys(owner, second))[1]
        keys = np.unique(_keys(owner[allowed], second[allowed]))
        return Lists((keys >> np.uint64(32)).astype(np.int64), keys.astype(np.uint32))

    @staticmethod
    def _ranked(block: Block, cited: Keys) -> Lists:
        allowed = ~places(cited, _keys(*block.ranked))[1]
        return Lists(block.ranked.owner[allowed], block.ranked.rows[allowed])

    def _fill(self, negatives: npt.NDArray[np.int64], column: int, kind: str, block: Block, cited: Keys) -> None:
        """Draw one random negative of each query, again where the paper is not allowed."""
        keys, masks = self._keys[block.rows], self._fields[block.rows]
        left = np.arange(len(block.rows))
        if kind == "same_field":
            left = left[masks != 0]
        for attempt in range(_TRIES):
            if not len(left):
                return
            drawn = priorities(keys[left], self._seed, "triplets", f"{kind} {column} {attempt}")
            rows = self._of_query(masks[left], drawn) if kind == "same_field" else self._at(self._candidates, drawn)
            allowed = ~places(cited, _keys(left, rows))[1] & ~(negatives[left] == rows[:, None]).any(axis=1)
            if kind == "other_field":
                allowed &= self._fields[rows] & masks[left] == 0
            negatives[left[allowed], column] = rows[allowed]
            left = left[~allowed]

    @staticmethod
    def _at(rows: Rows, drawn: Keys) -> Rows:
        return rows[(drawn % np.uint64(len(rows))).astype(np.int64)]

    def _of_query(self, masks: npt.NDArray[np.uint32], drawn: Keys) -> Rows:
        """Return a random paper of one of the fields of each query, of which every one is as likely."""
        bits = (masks[:, None] >> np.arange(len(FIELD_BIT), dtype=np.uint32) & 1).astype(np.int64)
        turn = (drawn >> np.uint64(40)) % bits.sum(axis=1).astype(np.uint64)
        bit = np.argmax(np.cumsum(bits, axis=1) == turn[:, None].astype(np.int64) + 1, axis=1)
        rows = np.zeros(len(masks), np.uint32)
        for value in np.unique(bit):
            rows[bit == value] = self._at(self._of_field[int(value)], drawn[bit == value])
        return rows


def _keys(owner: npt.NDArray[np.integer], rows: npt.NDArray[np.integer]) -> Keys:
    return owner.astype(np.uint64) << np.uint64(32) | rows.astype(np.uint64)


def part(offsets: Ints, rows: Rows, start: int, stop: int) -> Lists:
    """Return the lists of the queries from ``start`` to ``stop`` of lists in CSR form."""
    lengths = np.diff(offsets[start : stop + 1])
    return Lists(np.repeat(np.arange(stop - start), lengths), rows[ranges(offsets[start:stop], lengths)])
