"""Neighbours in a citation embedding (SciNCL: Ostendorff et al. 2022).

The embedding is scikit-learn's truncated SVD of the normalised citation matrix, in which a citation counts both ways.
The authors train theirs with PyTorch-BigGraph.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import threadpoolctl  # type: ignore[import-untyped]

from pipeline.core.csr import Ints
from pipeline.core.files import replacing
from pipeline.core.order import best
from pipeline.core.rng import generator
from pipeline.corpus.reader import Corpus, Rows
from pipeline.train.draws import Lists

Matrix = npt.NDArray[np.float32]

_BLOCK = 256


class Neighbours:
    """Citation embedding of some papers, and the neighbours of each by cosine.

    Args:
        corpus: the graph.
        candidates: the papers, rising; citations of others do not count.
        path: file of the embedding, which is made where it is missing.
        dimension: components.
        seed: of the decomposition.
    """

    def __init__(self, corpus: Corpus, candidates: Rows, path: Path, *, dimension: int, seed: int) -> None:
        if not path.is_file():
            with replacing(path) as place, place.open("wb") as file:
                np.save(file, _embedding(corpus, candidates, dimension, seed))
        vectors: Matrix = np.load(path, mmap_mode="r")
        connected = np.flatnonzero(vectors.any(axis=1))
        self._rows, self._vectors = candidates[connected], vectors[connected]

    def bands(self, queries: Rows, bands: Sequence[tuple[int, int]]) -> list[Lists]:
        """Return the neighbours at some ranks of each query, which must cite or be cited, for each band of ranks.

        A band is its first and its last rank, from 1; the query itself has none.
        """
        most = max(last for _, last in bands) + 1
        places = np.searchsorted(self._rows, queries)
        found: list[list[Rows]] = [[] for _ in bands]
        for start in range(0, len(queries), _BLOCK):
            scores = self._vectors[places[start : start + _BLOCK]] @ self._vectors.T
            for row, values in zip(queries[start : start + _BLOCK], scores, strict=True):
                nearest = self._rows[best(values, self._rows, most)]
                nearest = nearest[nearest != row]
                for band, (first, last) in zip(found, bands, strict=True):
                    band.append(nearest[first - 1 : last])
        return [Lists(_owners(band), np.concatenate([queries[:0], *band])) for band in found]


def _owners(lists: Sequence[Rows]) -> Ints:
    return np.repeat(np.arange(len(lists)), [len(rows) for rows in lists])


def _embedding(corpus: Corpus, candidates: Rows, dimension: int, seed: int) -> Matrix:
    """Return vectors of length 1, float32 ``[candidates, dimension]``; those of papers without citations are 0."""
    from scipy.sparse import csr_matrix, diags
    from sklearn.decomposition import TruncatedSVD
    from sklearn.preprocessing import normalize

    owner, cited = corpus.outgoing.of_many(candidates)
    place = np.searchsorted(candidates, cited)
    place[place == len(candidates)] = 0
    inside = candidates[place] == cited
    shape = (len(candidates), len(candidates))
    links = csr_matrix((np.ones(np.count_nonzero(inside), np.float32), (owner[inside], place[inside])), shape)
    links = (links + links.T).tocsr()
    links.data[:] = 1
    scale = diags(1 / np.sqrt(np.maximum(np.asarray(links.sum(axis=1)).ravel(), 1)).astype(np.float32))
    svd = TruncatedSVD(
        min(dimension, len(candidates) - 1), random_state=int(generator(seed, "citation embedding").integers(2**31))
    )
    with threadpoolctl.threadpool_limits(1):
        return np.asarray(normalize(svd.fit_transform(scale @ links @ scale)), np.float32)
