"""Latent semantic analysis: TF-IDF and truncated SVD fitted on a corpus (Deerwester et al. 1990).

The dense system that needs no download. Term weights are (1 + ln tf) * ln((1 + n) / (1 + df)), scaled to length 1; a
vector is their projection on the first right singular vectors of a sample of the corpus (randomised SVD: Halko et al.
2011). A text without a known term has the zero vector. scikit-learn counts the terms and computes the SVD.

A fit on 20,000 papers (the default sample) takes about 5 seconds. Its SVD runs on one thread, so that repeated fits on
one machine give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import threadpoolctl  # type: ignore[import-untyped]
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.rng import generator, priorities, smallest
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode.base import Encoded, Encoder, Matrix
from pipeline.encode.spec import LsaSpec, Role

_BLOCK = 4_096
"""Texts projected together."""
_TERM = r"[^\W_]+"

_TERMS = pa.schema(
    [
        pa.field("term", pa.large_string(), nullable=False),
        pa.field("df", pa.int64(), nullable=False),
        pa.field("idf", pa.float32(), nullable=False),
    ]
)
"""Vocabulary of a fit, ``terms.arrow``, sorted by term; ``components.arrow`` holds the component vector of each."""


class LsaEncoder(Encoder):
    """Projects texts on the components of a fit.

    Args:
        terms: vocabulary ``[terms]``.
        idf: weight of each term, float32 ``[terms]``.
        components: float32 ``[terms, dimension]``.
    """

    def __init__(self, terms: Sequence[str], idf: npt.NDArray[np.float32], components: Matrix) -> None:
        self._counter, self._idf, self._components = _counter(vocabulary=terms), idf, components

    @classmethod
    def open(cls, fit: Artifact) -> LsaEncoder:
        """Open a published fit."""
        terms = fit.arrow("terms.arrow")
        components = fit.arrow("components.arrow").column("vector").chunk(0)
        matrix = components.flatten().to_numpy().reshape(len(terms), -1)
        return cls(terms.column("term").to_pylist(), terms.column("idf").to_numpy(), matrix)

    @property
    def dimension(self) -> int:
        """Components kept by the fit."""
        return int(self._components.shape[1])

    def describe(self) -> Mapping[str, Any]:
        """Return the device: always the CPU."""
        return {"device": "cpu", "compute": "float32"}

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> list[csr_matrix]:
        """Return the term counts of texts block by block; ad-hoc queries are projected like papers."""
        del role
        blocks = (texts[start : start + _BLOCK] for start in range(0, len(texts), _BLOCK))
        return [self._counter.transform(_joined(block)) for block in blocks]

    def finish(self, prepared: Sequence[csr_matrix]) -> Iterator[Encoded]:
        """Yield vectors block by block."""
        start = 0
        for counts in prepared:
            tokens, texts = int(counts.sum()), counts.shape[0]
            vectors = np.asarray(_weights(counts, self._idf) @ self._components, np.float32)
            yield Encoded(np.arange(start, start + texts), vectors, texts, tokens, padded=tokens)
            start += texts


def fit(spec: LsaSpec, corpus: Corpus, out: Workdir) -> Counts:
    """Fit on a sample of ``corpus`` that depends on its papers' ids and the seed alone, and write it into ``out``.

    Raises:
        InputError: the corpus has no two papers that share a term.
    """
    chosen = smallest(priorities(corpus.attributes["key"], spec.seed, "lsa sample"), spec.sample)
    counter = _counter(min_df=2, max_features=spec.vocabulary)
    with Progress(len(chosen), "lsa: terms", "papers") as progress:
        try:
            counts = counter.fit_transform(_sample(corpus, np.sort(chosen), progress))
        except ValueError as error:
            raise InputError(
                "no two papers of the corpus share a term", "lsa needs a corpus with titles or abstracts"
            ) from error
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log((1 + len(chosen)) / (1 + frequency)).astype(np.float32)
    dimension = min(spec.dimension, *counts.shape)
    seed = int(generator(spec.seed, "lsa svd").integers(2**31))
    with threadpoolctl.threadpool_limits(1):
        components = randomized_svd(_weights(counts, idf), dimension, n_iter=2, random_state=seed)[2]
    out.arrow("terms.arrow", pa.table([pa.array(counter.get_feature_names_out()), frequency, idf], _TERMS), _TERMS)
    flat = pa.array(np.ascontiguousarray(components.T, np.float32).reshape(-1))
    schema = pa.schema([pa.field("vector", pa.list_(pa.float32(), dimension), nullable=False)])
    out.arrow("components.arrow", pa.table([pa.FixedSizeListArray.from_arrays(flat, dimension)], schema), schema)
    return {"papers": len(chosen), "terms": len(idf), "dimension": dimension}


def _counter(**options: Any) -> CountVectorizer:
    """Return a counter of terms: runs of letters and digits in lower case."""
    return CountVectorizer(token_pattern=_TERM, dtype=np.float32, **options)


def _joined(texts: Iterable[Text]) -> Iterator[str]:
    return (f"{text.title} {text.abstract}" for text in texts)


def _sample(corpus: Corpus, rows: npt.NDArray[np.int64], progress: Progress) -> Iterator[str]:
    for texts in corpus.texts(rows, _BLOCK):
        yield from _joined(texts)
        progress.add(len(texts))


def _weights(counts: csr_matrix, idf: npt.NDArray[np.float32]) -> csr_matrix:
    """Return TF-IDF weights of length 1, float32 CSR ``[texts, terms]``."""
    counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
    return normalize(counts, copy=False)
