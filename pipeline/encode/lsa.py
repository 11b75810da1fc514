"""Latent semantic analysis: TF-IDF and truncated SVD fitted on a corpus (Deerwester et al. 1990).

The dense system that needs no download. Term weights are (1 + ln tf) * ln((1 + n) / (1 + df)), scaled to length 1; a
vector is their projection on the first right singular vectors of a sample of the corpus (randomised SVD: Halko et al.
2011). A text without a known term has the zero vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import threadpoolctl  # type: ignore[import-untyped]
from scipy.sparse import csr_matrix, vstack
from sklearn.utils.extmath import randomized_svd

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.rng import generator, priorities, smallest
from pipeline.core.workdir import Workdir
from pipeline.corpus.reader import Corpus, Rows, Text
from pipeline.encode.base import Encoded, Encoder, Matrix
from pipeline.encode.spec import LsaSpec, Role

_BLOCK = 4_096
"""Texts looked at together."""
_MIN_DF = 2
"""Papers a term must occur in."""
_OVERSAMPLES, _ITERATIONS = 32, 2
"""Of the randomised SVD: more moved MAP on real papers by less than 0.001."""

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
        terms: vocabulary, large_string ``[terms]``.
        idf: weight of each term, float32 ``[terms]``.
        components: float32 ``[terms, dimension]``.
    """

    def __init__(self, terms: pa.Array, idf: npt.NDArray[np.float32], components: Matrix) -> None:
        self._terms, self._idf, self._components = terms, idf, components

    @classmethod
    def open(cls, fit: Artifact) -> LsaEncoder:
        """Open a published fit."""
        terms = fit.arrow("terms.arrow").combine_chunks()
        components = fit.arrow("components.arrow").column("vector").chunk(0)
        matrix = components.flatten().to_numpy().reshape(len(terms), -1)
        return cls(terms.column("term").chunk(0), terms.column("idf").chunk(0).to_numpy(), matrix)

    @property
    def dimension(self) -> int:
        """Components kept by the fit."""
        return int(self._components.shape[1])

    def describe(self) -> Mapping[str, Any]:
        """Return the device: always the processor."""
        return {"device": "cpu", "compute": "float32"}

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> list[pa.LargeListArray]:
        """Return the terms of texts block by block; ad-hoc queries are projected like papers."""
        del role
        return [tokenise(texts[start : start + _BLOCK]) for start in range(0, len(texts), _BLOCK)]

    def finish(self, prepared: Sequence[pa.LargeListArray]) -> Iterator[Encoded]:
        """Yield vectors block by block."""
        start = 0
        for lists in prepared:
            weights = _weights(lists, self._terms, self._idf)
            yield Encoded(
                positions=np.arange(start, start + len(lists)),
                vectors=np.asarray(weights @ self._components, np.float32),
                texts=len(lists),
                tokens=len(lists.flatten()),
                padded=len(lists.flatten()),
            )
            start += len(lists)


def fit(spec: LsaSpec, corpus: Corpus, out: Workdir) -> Counts:
    """Fit on a sample of ``corpus`` that depends on its papers' ids and the seed alone, and write it into ``out``.

    Raises:
        InputError: the corpus has no two papers that share a term.
    """
    chosen = smallest(priorities(corpus.attributes["key"], spec.seed, "lsa sample"), spec.sample)
    rows = np.sort(chosen).astype(np.uint32)
    with Progress(2 * len(rows), "lsa: terms", "papers") as progress:
        terms, frequency = _vocabulary(corpus, rows, spec.vocabulary, progress)
        if len(terms) < 2:
            raise InputError("no two papers of the corpus share a term", "lsa needs a corpus with titles or abstracts")
        idf = np.log((1 + len(rows)) / (1 + frequency)).astype(np.float32)
        weights = vstack([_weights(lists, terms, idf) for lists in _blocks(corpus, rows, progress)], format="csr")
    dimension = min(spec.dimension, *weights.shape)
    seed = int(generator(spec.seed, "lsa svd").integers(2**31))
    with threadpoolctl.threadpool_limits(1):  # sums in another order would be other bytes
        components = randomized_svd(
            weights, dimension, n_oversamples=_OVERSAMPLES, n_iter=_ITERATIONS, random_state=seed
        )[2]
    out.arrow("terms.arrow", pa.table([terms, frequency, idf], _TERMS), _TERMS)
    flat = pa.array(np.ascontiguousarray(components.T, np.float32).reshape(-1))
    schema = pa.schema([pa.field("vector", pa.list_(pa.float32(), dimension), nullable=False)])
    out.arrow("components.arrow", pa.table([pa.FixedSizeListArray.from_arrays(flat, dimension)], schema), schema)
    return {"papers": len(rows), "terms": len(terms), "dimension": dimension}


def tokenise(texts: Sequence[Text]) -> pa.LargeListArray:
    """Return the terms of each text: its runs of letters and digits in lower case."""
    joined = pa.array([f"{text.title} {text.abstract}" for text in texts], pa.large_string())
    spaced = pc.replace_substring_regex(pc.utf8_lower(joined), r"[^\p{L}\p{N}]+", " ")
    return pc.split_pattern(pc.utf8_trim_whitespace(spaced), " ").cast(pa.large_list(pa.large_string()))


def _blocks(corpus: Corpus, rows: Rows, progress: Progress) -> Iterator[pa.LargeListArray]:
    for texts in corpus.texts(rows, _BLOCK):
        yield tokenise(texts)
        progress.add(len(texts))


def _vocabulary(corpus: Corpus, rows: Rows, size: int, progress: Progress) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the ``size`` terms in the most papers, sorted, and in how many papers each is."""
    total = pa.table({"term": pa.array([], pa.large_string()), "df": pa.array([], pa.int64())})
    for lists in _blocks(corpus, rows, progress):
        encoded = pc.dictionary_encode(lists.flatten())
        counts = _incidence(lists, encoded.indices.to_numpy(), len(encoded.dictionary))
        seen = np.bincount(counts.indices, minlength=len(encoded.dictionary))
        part = pa.table({"term": encoded.dictionary, "df": pa.array(seen, pa.int64())})
        total = pa.concat_tables([total, part]).group_by("term").aggregate([("df", "sum")])
        total = total.rename_columns(["term", "df"])
    total = total.filter(pc.and_(pc.greater_equal(total["df"], _MIN_DF), pc.not_equal(total["term"], "")))
    kept = total.sort_by([("df", "descending"), ("term", "ascending")]).slice(0, size).sort_by("term")
    return kept["term"].combine_chunks(), kept["df"].to_numpy()


def _incidence(lists: pa.LargeListArray, codes: npt.NDArray[np.integer], terms: int) -> csr_matrix:
    """Return term counts, float32 CSR ``[texts, terms]``."""
    owner = np.repeat(np.arange(len(lists)), np.diff(lists.offsets.to_numpy()))
    counts = csr_matrix((np.ones(len(codes), np.float32), (owner, codes)), shape=(len(lists), terms))
    counts.sum_duplicates()
    return counts


def _weights(lists: pa.LargeListArray, terms: pa.Array, idf: npt.NDArray[np.float32]) -> csr_matrix:
    """Return TF-IDF weights of length 1, float32 CSR ``[texts, terms]``; unknown terms are left out."""
    codes = pc.index_in(lists.flatten(), terms).fill_null(len(terms)).to_numpy()
    counts = _incidence(lists, codes, len(terms) + 1)[:, : len(terms)]
    counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
    norms = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1), np.float32)).reshape(-1)
    counts.data /= np.repeat(np.maximum(norms, np.finfo(np.float32).tiny), np.diff(counts.indptr))
    return counts
