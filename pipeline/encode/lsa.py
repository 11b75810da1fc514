"""Latent semantic analysis: TF-IDF and truncated SVD fitted on a corpus (Deerwester et al. 1990).

The dense system that needs no download. Term weights are (1 + ln tf) * ln((1 + n) / (1 + df)), scaled to length 1; a
vector is their projection on the first right singular vectors of a sample of the corpus (randomised SVD: Halko et al.
2011). A text without a known term has the zero vector. scikit-learn counts the terms and computes the SVD.

A fit on 20,000 papers (the default sample) takes about 5 seconds. Its SVD runs on one thread, so that repeated fits on
one machine give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import threadpoolctl  # type: ignore[import-untyped]
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from pipeline.core.artifact import Artifact
from pipeline.core.csr import slices
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.rng import generator, priorities, smallest
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import TEXT_CHARS, Corpus, Text
from pipeline.encode.base import Encoded, Encoder, Matrix
from pipeline.encode.spec import LsaSpec, Role

_BLOCK = 4_096
"""Texts projected together, at most, of at most :data:`TEXT_CHARS` characters."""
_SAMPLE_CHARS = 2**26
"""Characters of a sample, at most, unless it is one paper; more than 20,000 abstracts have."""
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
        self._counter, self.idf, self._components = counter_of(vocabulary=terms), idf, components

    @classmethod
    def open(cls, fit: Artifact) -> Self:
        """Open a published fit."""
        terms = fit.arrow("terms.arrow")
        components = fit.arrow("components.arrow").column("vector").chunk(0)
        matrix = components.flatten().to_numpy().reshape(len(terms), -1)
        return cls(terms.column("term").to_pylist(), terms.column("idf").to_numpy(), matrix)

    def weighted(self, counts: csr_matrix) -> csr_matrix:
        """Return the weights of terms, float32 CSR ``[texts, terms]``."""
        return tfidf_weights(counts, self.idf)

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
        sizes = np.array([len(text.title) + len(text.abstract) for text in texts], np.int64)
        return [self._counter.transform(joined(texts[some])) for some in slices(sizes, _BLOCK, TEXT_CHARS)]

    def finish(self, prepared: Sequence[csr_matrix]) -> Iterator[Encoded]:
        """Yield vectors block by block."""
        start = 0
        for counts in prepared:
            tokens, texts = int(counts.sum()), counts.shape[0]
            vectors = np.asarray(self.weighted(counts) @ self._components, np.float32)
            yield Encoded(np.arange(start, start + texts), vectors, texts, tokens, padded=tokens)
            start += texts


def fit(spec: LsaSpec, corpus: Corpus, out: Workdir) -> Counts:
    """Fit on a sample of ``corpus`` that depends on its papers' ids and the seed alone, and write it into ``out``.

    Raises:
        InputError: the corpus has no two papers that share a term.
    """
    chosen = sample_of(corpus, spec.seed, "lsa sample", spec.sample)
    counter = counter_of(min_df=2, max_features=spec.vocabulary)
    with Progress(len(chosen), "lsa: terms", "papers") as progress:
        try:
            counts = counter.fit_transform(joined_sample(corpus, chosen, progress))
        except ValueError as error:
            raise InputError(
                "no two papers of the corpus share a term", "lsa needs a corpus with titles or abstracts"
            ) from error
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log((1 + len(chosen)) / (1 + frequency)).astype(np.float32)
    dimension = min(spec.dimension, *counts.shape)
    seed = int(generator(spec.seed, "lsa svd").integers(2**31))
    with threadpoolctl.threadpool_limits(1):
        components = randomized_svd(tfidf_weights(counts, idf), dimension, n_iter=2, random_state=seed)[2]
    write_fit(out, counter.get_feature_names_out(), frequency, idf, components.T)
    return {"papers": len(chosen), "terms": len(idf), "dimension": dimension}


def write_fit(
    out: Workdir,
    terms: npt.NDArray[Any],
    frequency: npt.NDArray[np.int64],
    idf: npt.NDArray[Any],
    vectors: npt.NDArray[Any],
) -> None:
    """Write terms, how many papers have each, their weights and their vectors ``[terms, dimension]``."""
    out.arrow("terms.arrow", pa.table([pa.array(terms), frequency, idf.astype(np.float32)], _TERMS), _TERMS)
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    schema = pa.schema([pa.field("vector", pa.list_(pa.float32(), vectors.shape[1]), nullable=False)])
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    out.arrow("components.arrow", pa.table([column], schema), schema)


def counter_of(**options: Any) -> CountVectorizer:
    """Return a counter of terms: runs of letters and digits in lower case."""
    return CountVectorizer(token_pattern=_TERM, dtype=np.float32, **options)


def joined(texts: Iterable[Text]) -> Iterator[str]:
    """Yield each text as one string."""
    return (f"{text.title} {text.abstract}" for text in texts)


def sample_of(corpus: Corpus, seed: int, purpose: str, count: int) -> npt.NDArray[np.int64]:
    """Return the rising rows of a sample that depends on the papers' ids and the seed alone.

    It has ``count`` papers, or as many as take 64 million characters.
    """
    chosen = smallest(priorities(corpus.attributes["key"], seed, purpose), count)
    return np.sort(chosen[next(slices(corpus.characters(chosen), count, _SAMPLE_CHARS), slice(0))])


def joined_sample(corpus: Corpus, rows: npt.NDArray[np.int64], progress: Progress) -> Iterator[str]:
    """Yield the papers at rising rows, each as one string."""
    for texts in corpus.texts(rows, _BLOCK):
        yield from joined(texts)
        progress.add(len(texts))


def tfidf_weights(counts: csr_matrix, idf: npt.NDArray[np.float32]) -> csr_matrix:
    """Return TF-IDF weights of length 1, float32 CSR ``[texts, terms]``."""
    counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
    return normalize(counts, copy=False)


def tfidf_similarities(queries: Sequence[Text], papers: Iterable[Text]) -> csr_matrix:
    """Return the cosine of TF-IDF weights of each query with each paper, float32 CSR ``[queries, papers]``.

    Terms and document frequencies are those of the papers.
    """
    counter = counter_of()
    counts = counter.fit_transform(joined(papers))
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log((1 + counts.shape[0]) / (1 + frequency)).astype(np.float32)
    return tfidf_weights(counter.transform(joined(queries)), idf) @ tfidf_weights(counts, idf).T
