"""TF-IDF similarity of texts: LSA's term weights, not projected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.sparse import csr_matrix

from pipeline.corpus.reader import Text
from pipeline.encode.lsa import counter_of, joined, tfidf_weights


def similarities(queries: Sequence[Text], papers: Iterable[Text]) -> csr_matrix:
    """Return the cosine of each query with each paper, float32 CSR ``[queries, papers]``.

    Terms and document frequencies are those of the papers.
    """
    counter = counter_of()
    counts = counter.fit_transform(joined(papers))
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log((1 + counts.shape[0]) / (1 + frequency)).astype(np.float32)
    return tfidf_weights(counter.transform(joined(queries)), idf) @ tfidf_weights(counts, idf).T
