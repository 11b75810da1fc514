"""Neighbours in a citation embedding (SciNCL: Ostendorff et al. 2022).

The embedding is scikit-learn's truncated SVD of the normalised, symmetric citation matrix. The authors train theirs
with PyTorch-BigGraph.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import threadpoolctl

from pipeline.core.files import replacing
from pipeline.core.order import best
from pipeline.core.rng import generator
from pipeline.corpus.reader import Corpus, Rows
from pipeline.train.draws import Lists

Matrix = npt.NDArray[np.float32]

_BLOCK = 256


class Neighbours:
    """Citation embedding of papers, and their neighbours by cosine.

    Args:
        corpus: gives the citation graph.
        candidates: rows of the papers, rising; other papers are left out of the graph.
        path: file of the embedding; written if it is missing.
        dimension: components.
        seed: seed of the SVD.
    """

    def __init__(self, corpus: Corpus, candidates: Rows, path: Path, *, dimension: int, seed: int) -> None:
        if not path.is_file():
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.save(file, _embedding(corpus, candidates, dimension, seed))
        vectors: Matrix = np.load(path, mmap_mode="r")
        connected = np.flatnonzero(vectors.any(axis=1))
        self._rows, self._vectors = candidates[connected], vectors[connected]

    def bands(self, queries: Rows, bands: Sequence[tuple[int, int]]) -> list[Lists]:
        """Return the neighbours of queries in bands of ranks: first and last rank, from 1, without the query itself.

        Queries must have a citation in the graph.
        """
        depth = max(high for _, high in bands) + 1
        positions = np.searchsorted(self._rows, queries)
        by_band: list[list[Rows]] = [[] for _ in bands]
        for start in range(0, len(queries), _BLOCK):
            scores = self._vectors[positions[start : start + _BLOCK]] @ self._vectors.T
            for row, values in zip(queries[start : start + _BLOCK], scores, strict=True):
                nearest = self._rows[best(values, self._rows, depth)]
                nearest = nearest[nearest != row]
                for neighbours, (low, high) in zip(by_band, bands, strict=True):
                    neighbours.append(nearest[low - 1 : high])
        return [
            Lists(np.repeat(np.arange(len(lists)), list(map(len, lists))), np.concatenate([queries[:0], *lists]))
            for lists in by_band
        ]


def _embedding(corpus: Corpus, candidates: Rows, dimension: int, seed: int) -> Matrix:
    """Return vectors of length 1, float32 ``[candidates, dimension]``; 0 for papers without citations."""
    from scipy.sparse import csr_matrix, diags
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import normalize

    owner, cited = corpus.outgoing.of_many(candidates)
    position = np.searchsorted(candidates, cited)
    position[position == len(candidates)] = 0
    known = candidates[position] == cited
    shape = (len(candidates), len(candidates))
    links = csr_matrix((np.ones(np.count_nonzero(known), np.float32), (owner[known], position[known])), shape)
    links = (links + links.T).tocsr()
    links.data[:] = 1
    scale = diags(1 / np.sqrt(np.maximum(np.asarray(links.sum(axis=1)).ravel(), 1)).astype(np.float32))
    svd = TruncatedSVD(
        min(dimension, len(candidates) - 1), random_state=int(generator(seed, "citation embedding").integers(2**31))
    )
    with threadpoolctl.threadpool_limits(1):
        return np.asarray(normalize(svd.fit_transform(scale @ links @ scale)), np.float32)
