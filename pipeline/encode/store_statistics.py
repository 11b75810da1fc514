"""Statistics of the vectors of a store, and whether the encoder still gives the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.core.rng import generator
from pipeline.corpus.reader import Rows, Text
from pipeline.encode.base import Encoder, in_order
from pipeline.encode.spec import Role
from pipeline.encode.store import VectorStore

_SAMPLE = 10_000
"""Papers whose vectors are read."""
_BLOCK = 1_024


class Statistics(NamedTuple):
    """Statistics of a sample of a store's vectors.

    Attributes:
        vectors_per_paper: mean number of vectors.
        shortest: smallest Euclidean norm.
        mean: mean norm.
        longest: largest norm.
        zeros: zero vectors in the sample.
        mean_cosine: of two vectors of the sample: 0 where directions are spread evenly, near 1 where all point the
            same way (anisotropy: Ethayarajh 2019).
    """

    vectors_per_paper: float
    shortest: float
    mean: float
    longest: float
    zeros: int
    mean_cosine: float


class SpotCheck(NamedTuple):
    """Some papers encoded again.

    Attributes:
        cosine: smallest cosine of a stored vector and its new one.
        difference: largest difference of two components.
    """

    cosine: float
    difference: float


def statistics(store: VectorStore, rows: Rows) -> Statistics:
    """Return the statistics of a random sample of the papers at ``rows``, all of the store's.

    Raises:
        CorruptError: a shard differs from its manifest; it is named.
    """
    chosen = sample(rows, _SAMPLE)
    lengths = np.empty(0)
    total = np.zeros(store.dimension)
    for block in store.blocks(chosen, _BLOCK):
        vectors = block.vectors.astype(np.float64)
        norms = np.linalg.norm(vectors, axis=1)
        lengths = np.append(lengths, norms)
        total += (vectors[norms > 0] / norms[norms > 0, None]).sum(0)
    count = np.count_nonzero(lengths)
    pairs = count * (count - 1)
    return Statistics(
        vectors_per_paper=len(lengths) / len(chosen),
        shortest=float(lengths.min()),
        mean=float(lengths.mean()),
        longest=float(lengths.max()),
        zeros=int(len(lengths) - count),
        mean_cosine=float((total @ total - count) / pairs) if pairs else 0.0,
    )


def spot_check(store: VectorStore, rows: Rows, texts: Sequence[Text], encoder: Encoder, role: Role) -> SpotCheck:
    """Encode the papers at ``rows``, whose texts are given, and compare with the stored vectors."""
    offsets, stored = store.grouped(rows)
    positions, vectors = in_order(encoder.encode_batches(texts, role), encoder.dimension)
    if not np.array_equal(np.bincount(positions, minlength=len(rows)), np.diff(offsets)):
        return SpotCheck(-1.0, float("inf"))
    lengths = np.linalg.norm(stored, axis=1) * np.linalg.norm(vectors, axis=1)
    products = np.einsum("ij,ij->i", stored, vectors)
    cosines = np.where(lengths > 0, products / np.maximum(lengths, 1e-30), np.all(stored == vectors, axis=1))
    return SpotCheck(float(cosines.min()), float(np.abs(stored - vectors).max()))


def sample(rows: Rows, count: int, seed: int = 13) -> Rows:
    """Return at most ``count`` of the rows, drawn at random, rising."""
    if len(rows) <= count:
        return rows
    return np.sort(generator(seed, "vectors looked at").choice(rows, count, replace=False))
