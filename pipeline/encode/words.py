"""Averaged word vectors: Word2Vec trained on a corpus (Mikolov et al. 2013), plain or weighted by TF-IDF.

gensim trains a continuous bag of words on one thread, so that repeated fits on one machine give the same bytes. The
fit has the layout of LSA's: terms, their weights, a vector of each. A text without a known term has the zero vector.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_matrix

from pipeline.core.errors import InputError
from pipeline.core.install import pip_extra
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Corpus
from pipeline.encode.lsa import LsaEncoder, counter_of, joined_sample, sample_of, write_fit
from pipeline.encode.spec import WordsSpec


class WordsEncoder(LsaEncoder):
    """Sums the vectors of a text's terms, each as often as it occurs, times its weight; cosines are those of means."""

    def weighted(self, counts: csr_matrix) -> csr_matrix:
        """Return the weights of terms, float32 CSR ``[texts, terms]``."""
        counts.data = counts.data * self.idf[counts.indices]
        return counts


class _Sentences:
    """The terms of each paper of a sample; it can be read several times."""

    def __init__(self, texts: list[str]) -> None:
        self._texts, self._analyse = texts, counter_of().build_analyzer()

    def __iter__(self) -> Iterator[list[str]]:
        yield from map(self._analyse, self._texts)


def fit(spec: WordsSpec, corpus: Corpus, out: Workdir) -> Counts:
    """Train on a sample of ``corpus`` that depends on its papers' ids and the seed alone, and write it into ``out``.

    Raises:
        InputError: gensim is not installed, or no term is in two papers.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise InputError(f"word vectors need gensim ({error})", pip_extra("facets")) from error
    chosen = sample_of(corpus, spec.seed, "words sample", spec.sample)
    with Progress(len(chosen), "word vectors: terms", "papers") as progress:
        texts = list(joined_sample(corpus, chosen, progress))
    counter = counter_of(min_df=2, max_features=spec.vocabulary)
    try:
        counts = counter.fit_transform(texts)
    except ValueError as error:
        raise InputError(
            "the corpus must have a term that two papers share, got none", "Train on papers with text"
        ) from error
    terms = counter.get_feature_names_out()
    vocabulary = frozenset(terms)
    model = Word2Vec(vector_size=spec.dimension, window=spec.window, min_count=1, seed=spec.seed, workers=1)
    sentences = _Sentences(texts)
    model.build_vocab(sentences, trim_rule=lambda word, *_: 2 if word in vocabulary else 1)  # gensim's keep and discard
    model.train(sentences, total_examples=len(texts), epochs=spec.epochs)
    frequency = np.bincount(counts.indices, minlength=len(terms))
    idf = np.log((1 + len(texts)) / (1 + frequency)) if spec.weights == "tfidf" else np.ones(len(terms))
    write_fit(out, terms, frequency, idf, np.stack([model.wv[term] for term in terms]))
    return {"papers": len(texts), "terms": len(terms), "dimension": spec.dimension}
