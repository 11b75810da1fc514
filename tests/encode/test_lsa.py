"""LSA against the same computation written plainly, on dense matrices and Python dictionaries."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode import registry
from pipeline.encode.lsa import LsaEncoder
from pipeline.stages.embed import fit_task
from tests.builders import made_up_paper, make_corpus


def fitted(root: Path, corpus: Artifact, name: str = "lsa:dimension=8") -> Artifact:
    task = fit_task(corpus, registry.resolve(name))
    return Runner(root, Resources(workers=1)).make(task)


def plain_terms(text: Text) -> list[str]:
    return re.findall(r"[^\W_]+", f"{text.title} {text.abstract}".lower())


def plain_weights(texts: list[Text], vocabulary: list[str], idf: dict[str, float]) -> np.ndarray:
    weights = np.zeros((len(texts), len(vocabulary)))
    for row, text in enumerate(texts):
        for term, count in Counter(plain_terms(text)).items():
            if term in idf:
                weights[row, vocabulary.index(term)] = (1 + math.log(count)) * idf[term]
    norms = np.linalg.norm(weights, axis=1, keepdims=True)
    return weights / np.where(norms == 0, 1, norms)


def test_against_the_plain_computation(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 50, shard_rows=20)
    texts = [text for block in Corpus(corpus).texts(np.arange(50)) for text in block]
    frequency = Counter(term for text in texts for term in set(plain_terms(text)))
    vocabulary = sorted(term for term, count in frequency.items() if count >= 2)
    idf = {term: math.log(51 / (1 + frequency[term])) for term in vocabulary}
    fit = fitted(tmp_path, corpus)
    assert fit.arrow("terms.arrow").column("term").to_pylist() == vocabulary
    weights = plain_weights(texts, vocabulary, idf)
    singular = np.linalg.svd(weights, full_matrices=False)
    encoder = LsaEncoder.open(fit)
    vectors = encoder.encode(texts)
    assert encoder.dimension == 8
    # directions of equal singular values may turn: what is unique is the distances they give
    exact = weights @ singular.Vh[:8].T
    np.testing.assert_allclose(vectors @ vectors.T, exact @ exact.T, atol=1e-3)
    new = [Text("Paper on word1of2", "word1of3 word1of3 nothing known"), Text("", "")]
    matrix = fit.arrow("components.arrow").column("vector").chunk(0).flatten().to_numpy().reshape(-1, 8)
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(8), atol=1e-5)
    expected = plain_weights(new, vocabulary, idf) @ matrix
    np.testing.assert_allclose(encoder.encode(new), expected, atol=1e-5)
    np.testing.assert_array_equal(encoder.encode(new, "query"), encoder.encode(new))
    np.testing.assert_array_equal(vectors, np.concatenate([encoder.encode([text]) for text in texts]))
    assert not encoder.encode([Text("", ""), Text("zzz", "!")]).any()


def test_terms_are_runs_of_letters_and_digits_in_lower_case() -> None:
    texts = [Text("Ünï-Côde  ŁÓDŹ", "x2 _under_score_ 量子 I"), Text("", ""), Text("!?", "…"), Text("a\0b", "")]
    terms = sorted({term for text in texts for term in plain_terms(text)})
    assert terms == ["a", "b", "côde", "i", "score", "under", "x2", "ünï", "łódź", "量子"]
    encoder = LsaEncoder(terms, np.ones(len(terms), np.float32), np.eye(len(terms), dtype=np.float32))
    weights = plain_weights(texts, terms, dict.fromkeys(terms, 1.0))
    np.testing.assert_allclose(encoder.encode(texts), weights, atol=1e-6)


def test_the_fit_is_reproducible_and_sampled_by_id(tmp_path: Path) -> None:
    papers = [made_up_paper(number) for number in range(60)]
    fits = []
    for name, shard_rows in (("one", 60), ("two", 7), ("again", 7)):
        corpus = make_corpus(tmp_path / name, papers, shard_rows=shard_rows)
        fits.append(fitted(tmp_path / name, corpus, "lsa:sample=30,dimension=5"))
    assert fits[0].manifest.outputs == fits[1].manifest.outputs == fits[2].manifest.outputs
    assert fits[0].manifest.counts["papers"] == 30


def test_a_small_corpus_gives_fewer_components_and_needs_a_shared_term(tmp_path: Path) -> None:
    papers = [{"paper_id": str(number), "title": "the same title", "abstract": f"word{number}"} for number in range(2)]
    assert fitted(tmp_path, make_corpus(tmp_path, papers)).manifest.counts["dimension"] == 2
    with pytest.raises(InputError, match="must have a term that two papers share, got none"):
        fitted(tmp_path, make_corpus(tmp_path, 1))
