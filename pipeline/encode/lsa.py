"""Encoders that are fitted on the corpus and need no download: LSA and averaged word vectors.

LSA (Deerwester et al. 1990): term weights are (1 + ln tf) * ln((1 + n) / (1 + df)), scaled to length 1. They are
projected on the first right singular vectors of a sample of the corpus (randomised SVD: Halko et al. 2011).
scikit-learn counts the terms and computes the SVD. A fit on 20,000 papers, the default sample, takes about 5 seconds.

Word vectors (Mikolov et al. 2013): gensim trains a continuous bag of words. A text is the sum of its terms' vectors,
plain or weighted by IDF.

A text without a known term has the zero vector. Fits use one thread, so repeated fits on one machine are identical.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import threadpoolctl
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from pipeline.core.artifact import Artifact
from pipeline.core.csr import slices
from pipeline.core.errors import InputError
from pipeline.core.install import optional
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.rng import generator, priorities, smallest
from pipeline.core.schema import schema_of
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import TEXT_CHARS, Corpus, Text
from pipeline.encode.base import Encoded, Encoder, Matrix
from pipeline.encode.kinds import Fitted, Lsa, Words
from pipeline.encode.model import Role

_BLOCK = 4_096
"""Maximum texts of a block, which has at most :data:`TEXT_CHARS` characters."""
_SAMPLE_CHARS = 2**26
"""Maximum characters of a sample of more than one paper; 20,000 abstracts have fewer."""
_TERM = r"[^\W_]+"

_TERMS = schema_of(term=pa.large_string(), df=pa.int64(), idf=pa.float32())
"""Vocabulary of a fit, ``terms.arrow``, sorted by term; ``components.arrow`` holds the component vector of each."""


class LsaEncoder(Encoder):
    """Projects texts on the components of a fit.

    Args:
        terms: vocabulary ``[terms]``.
        idf: inverse document frequencies, float32 ``[terms]``.
        components: float32 ``[terms, dimension]``.
    """

    def __init__(self, terms: Sequence[str], idf: npt.NDArray[np.float32], components: Matrix) -> None:
        self._counter, self.idf, self._components = _counter(vocabulary=terms), idf, components

    @classmethod
    def open(cls, fit: Artifact) -> Self:
        """Open a published fit."""
        terms = fit.arrow("terms.arrow")
        components = fit.arrow("components.arrow").column("vector").chunk(0)
        matrix = components.flatten().to_numpy().reshape(len(terms), -1)
        return cls(terms.column("term").to_pylist(), terms.column("idf").to_numpy(), matrix)

    def weighted(self, counts: csr_matrix) -> csr_matrix:
        """Return the weights of terms, float32 CSR ``[texts, terms]``."""
        return _tfidf(counts, self.idf)

    @property
    def dimension(self) -> int:
        """Components kept by the fit."""
        return int(self._components.shape[1])

    def describe(self) -> Mapping[str, Any]:
        """Return the device: always the CPU."""
        return {"device": "cpu", "compute": "float32"}

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> list[csr_matrix]:
        """Return the term counts of texts in blocks; ad-hoc queries are projected like papers."""
        del role
        sizes = np.array([len(text.title) + len(text.abstract) for text in texts], np.int64)
        return [self._counter.transform(map(_joined, texts[block])) for block in slices(sizes, _BLOCK, TEXT_CHARS)]

    def finish(self, prepared: Sequence[csr_matrix]) -> Iterator[Encoded]:
        """Yield vectors block by block."""
        start = 0
        for counts in prepared:
            tokens, texts = int(counts.sum()), counts.shape[0]
            vectors = np.asarray(self.weighted(counts) @ self._components, np.float32)
            yield Encoded(np.arange(start, start + texts), vectors, texts, tokens, padded=tokens)
            start += texts


class WordsEncoder(LsaEncoder):
    """Sums the weighted vectors of all term occurrences of a text; cosines are those of means."""

    def weighted(self, counts: csr_matrix) -> csr_matrix:
        """Return the weights of terms, float32 CSR ``[texts, terms]``."""
        counts.data = counts.data * self.idf[counts.indices]
        return counts


def load(model: Fitted, fit: Artifact | None, _resources: Resources) -> LsaEncoder:
    """Open the encoder of a published fit."""
    if fit is None:
        raise TypeError(f"{model.name} is loaded from the artifact of its fit")
    return (WordsEncoder if isinstance(model, Words) else LsaEncoder).open(fit)


def fit(model: Lsa | Words, corpus: Corpus, out: Workdir) -> Counts:
    """Fit an encoder on a sample of ``corpus`` and write it into ``out``. The sample depends on ids and seed alone.

    Raises:
        InputError: the corpus has no two papers that share a term, or gensim, which trains word vectors, is not there.
    """
    if isinstance(model, Words):
        optional("gensim", "words", "facets")
    texts = _sample(corpus, model)
    terms, counts = _frequent_terms(texts, model)
    frequency = np.bincount(counts.indices, minlength=len(terms))
    idf = _idf(len(texts), frequency).astype(np.float32)
    if isinstance(model, Words):
        idf = idf if model.weights == "tfidf" else np.ones_like(idf)
        vectors = _word_vectors(model, texts, terms)
    else:
        dimension, seed = min(model.dimension, *counts.shape), int(generator(model.seed, "lsa svd").integers(2**31))
        with threadpoolctl.threadpool_limits(1):
            vectors = randomized_svd(_tfidf(counts, idf), dimension, n_iter=2, random_state=seed)[2].T
    out.arrow("terms.arrow", pa.table([pa.array(terms), frequency, idf], _TERMS), _TERMS)
    schema = schema_of(vector=pa.list_(pa.float32(), vectors.shape[1]))
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    out.arrow("components.arrow", pa.table([column], schema), schema)
    return {"papers": len(texts), "terms": len(terms), "dimension": vectors.shape[1]}


def _word_vectors(model: Words, texts: Sequence[str], terms: npt.NDArray[Any]) -> Matrix:
    """Return the vectors of terms, ``[terms, dimension]``, trained on texts."""
    from gensim.models import Word2Vec

    vocabulary, sentences = frozenset(terms), _Sentences(texts)
    trained = Word2Vec(vector_size=model.dimension, window=model.window, min_count=1, seed=model.seed, workers=1)
    trained.build_vocab(sentences, trim_rule=lambda word, *_: 2 if word in vocabulary else 1)  # keep, discard
    trained.train(sentences, total_examples=len(texts), epochs=model.epochs)
    return np.stack([trained.wv[term] for term in terms])


class _Sentences:
    """The terms of each text, found again in every pass: as lists they take ten times the memory of the texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts, self._analyse = texts, _counter().build_analyzer()

    def __iter__(self) -> Iterator[list[str]]:
        return map(self._analyse, self._texts)


def _sample(corpus: Corpus, model: Fitted) -> list[str]:
    """Return the texts of a random sample of at most ``model.sample`` papers and :data:`_SAMPLE_CHARS` characters."""
    chosen = smallest(priorities(corpus.attributes["key"], model.seed, f"{model.kind} sample"), model.sample)
    rows = np.sort(chosen[next(slices(corpus.characters(chosen), model.sample, _SAMPLE_CHARS), slice(0))])
    texts = list[str]()
    with Progress(len(rows), f"{model.kind}: terms", "papers") as progress:
        for block in corpus.texts(rows, _BLOCK):
            texts += map(_joined, block)
            progress.add(len(block))
    return texts


def _frequent_terms(texts: Sequence[str], model: Fitted) -> tuple[npt.NDArray[Any], csr_matrix]:
    """Return the terms that occur in at least two texts, and their counts, CSR ``[texts, terms]``."""
    counter = _counter(min_df=2, max_features=model.vocabulary)
    try:
        counts = counter.fit_transform(texts)
    except ValueError as error:
        raise InputError(
            "the corpus must have a term that two papers share, got none", "Use a corpus with titles or abstracts"
        ) from error
    return counter.get_feature_names_out(), counts


def _counter(**options: Any) -> CountVectorizer:
    """Return a counter of terms: runs of letters and digits in lower case."""
    return CountVectorizer(token_pattern=_TERM, dtype=np.float32, **options)


def _joined(text: Text) -> str:
    return f"{text.title} {text.abstract}"


def _idf(papers: int, frequency: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    idf: npt.NDArray[np.float64] = np.log((1 + papers) / (1 + frequency))
    return idf


def _tfidf(counts: csr_matrix, idf: npt.NDArray[np.float32]) -> csr_matrix:
    """Return TF-IDF weights of length 1."""
    counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
    return normalize(counts, copy=False)


def tfidf_similarities(queries: Iterable[Text], papers: Iterable[Text]) -> csr_matrix:
    """Return the cosine of TF-IDF weights of each query with each paper, float32 CSR ``[queries, papers]``.

    Terms and document frequencies are those of the papers.
    """
    counter = _counter()
    counts = counter.fit_transform(map(_joined, papers))
    idf = _idf(counts.shape[0], np.bincount(counts.indices, minlength=counts.shape[1])).astype(np.float32)
    return _tfidf(counter.transform(map(_joined, queries)), idf) @ _tfidf(counts, idf).T
