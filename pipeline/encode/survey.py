"""What the vectors of a store look like, and whether the encoder still gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core.rng import generator
from pipeline.corpus.reader import Rows, Text
from pipeline.encode.base import Encoder, Matrix, in_order
from pipeline.encode.spec import Role
from pipeline.encode.store import VectorStore

_LOOKED_AT = 10_000
"""Papers whose vectors are looked at."""
_AT_ONCE = 1_024


class Survey(NamedTuple):
    """Figures of a sample of a store's vectors.

    Attributes:
        papers: papers in the store.
        sampled: papers looked at.
        vectors: vectors a paper, on average.
        dimension: components of a vector.
        shortest: smallest Euclidean norm.
        mean: mean norm.
        longest: largest norm.
        zeros: zero vectors in the sample.
        similarity: mean cosine of two vectors of the sample: 0 where directions are spread evenly, near 1 where all
            point the same way (anisotropy: Ethayarajh 2019).
    """

    papers: int
    sampled: int
    vectors: float
    dimension: int
    shortest: float
    mean: float
    longest: float
    zeros: int
    similarity: float


class Spot(NamedTuple):
    """Some papers encoded again.

    Attributes:
        papers: how many.
        cosine: smallest cosine of a stored vector and its new one.
        difference: largest difference of two components.
    """

    papers: int
    cosine: float
    difference: float


def stored_rows(store: VectorStore) -> Rows:
    """Return every paper of a store, rising."""
    found: Rows = np.unique(np.concatenate([np.empty(0, np.uint32), *(each.rows for each in store.segments)]))
    return found


def survey(store: VectorStore, rows: Rows, seed: int = 13) -> Survey:
    """Return figures of a random sample of the papers at ``rows``, all of the store's.

    Raises:
        CorruptError: a shard differs from its manifest; it is named.
    """
    chosen = _sample(rows, _LOOKED_AT, seed)
    norms: list[npt.NDArray[np.float64]] = []
    total = np.zeros(store.dimension)
    for block in store.blocks(chosen, _AT_ONCE):
        vectors = block.vectors.astype(np.float64)
        length = np.linalg.norm(vectors, axis=1)
        norms.append(length)
        total += (vectors[length > 0] / length[length > 0, None]).sum(0)
    lengths = np.concatenate(norms)
    count = np.count_nonzero(lengths)
    pairs = count * (count - 1)
    return Survey(
        papers=len(rows),
        sampled=len(chosen),
        vectors=len(lengths) / len(chosen),
        dimension=store.dimension,
        shortest=float(lengths.min()),
        mean=float(lengths.mean()),
        longest=float(lengths.max()),
        zeros=int(len(lengths) - count),
        similarity=float((total @ total - count) / pairs) if pairs else 0.0,
    )


def spot_rows(rows: Rows, count: int, seed: int = 13) -> Rows:
    """Return the papers of a spot check, rising."""
    return _sample(rows, count, seed)


def spot_check(store: VectorStore, rows: Rows, texts: Sequence[Text], encoder: Encoder, role: Role) -> Spot:
    """Encode the papers at ``rows``, whose texts are given, and compare with what is stored."""
    stored = store.grouped(rows)
    positions, vectors = in_order(encoder.encode_batches(texts, role), encoder.dimension)
    if not np.array_equal(np.bincount(positions, minlength=len(rows)), np.diff(stored.offsets)):
        return Spot(len(rows), -1.0, float("inf"))
    return Spot(len(rows), _smallest_cosine(stored.vectors, vectors), float(np.abs(stored.vectors - vectors).max()))


def _smallest_cosine(one: Matrix, other: Matrix) -> float:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    products = np.einsum("ij,ij->i", one, other)
    same = np.where(lengths > 0, products / np.maximum(lengths, 1e-30), np.all(one == other, axis=1))
    return float(same.min())


def _sample(rows: Rows, count: int, seed: int) -> Rows:
    if len(rows) <= count:
        return rows
    return np.sort(generator(seed, "vectors looked at").choice(rows, count, replace=False))
