"""Word and sentence vectors, and TF-IDF, against the same computation written plainly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode import registry
from pipeline.encode.base import in_order
from pipeline.encode.lsa import WordsEncoder, tfidf_similarities
from pipeline.stages.embed import store_folder
from tests.builders import make_corpus
from tests.encode.test_lsa import fitted, plain_terms, plain_weights
from tests.encode.tiny import load


@pytest.mark.parametrize("weights", ["uniform", "tfidf"])
def test_word_vectors_are_weighted_sums(tmp_path: Path, weights: str) -> None:
    corpus = make_corpus(tmp_path, 50)
    name = f"word2vec:dimension=8,weights={weights}"
    fit = fitted(tmp_path, corpus, name)
    encoder = WordsEncoder.open(fit)
    texts = [text for block in Corpus(corpus).texts(np.arange(50)) for text in block]
    frequency = Counter(term for text in texts for term in set(plain_terms(text)))
    terms = {term: row for row, term in enumerate(fit.arrow("terms.arrow").column("term").to_pylist())}
    assert set(terms) == {term for term, count in frequency.items() if count > 1}
    word = np.array(fit.arrow("components.arrow").column("vector").to_pylist())
    asked = [Text("word1of2 word1of2", "word1of3 unheard-of"), Text("unheard", ""), *texts[:3]]
    for text, vector in zip(asked, encoder.encode(asked), strict=True):
        expected = np.zeros(8)
        for term in filter(terms.__contains__, plain_terms(text)):
            weight = np.log(51 / (1 + frequency[term])) if weights == "tfidf" else 1.0
            expected += weight * word[terms[term]]
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    again = fitted(tmp_path / "again", make_corpus(tmp_path / "again", 50), name)
    assert again.manifest.outputs == fit.manifest.outputs


def test_word_vectors_of_another_corpus(tmp_path: Path) -> None:
    corpus, name = make_corpus(tmp_path, 20), "word2vec:dimension=8,corpus=other"
    folders = []
    for count in (50, 51):
        other = make_corpus(tmp_path, count, name="other")
        fit = fitted(tmp_path, corpus, name)
        assert fit.manifest.inputs["corpus"] == other.id
        own = fitted(tmp_path, other, "word2vec:dimension=8")
        assert fit.arrow("components.arrow") == own.arrow("components.arrow")
        folders.append(store_folder(corpus, registry.resolve(name)))
    assert len({*folders, store_folder(corpus, registry.resolve("word2vec:dimension=8"))}) == 3
    with pytest.raises(InputError, match="gone"):
        fitted(tmp_path, corpus, "word2vec:corpus=gone")


def test_tfidf_is_the_cosine_of_plain_weights(tmp_path: Path) -> None:
    papers = [Text("a b", "b c"), Text("c d", ""), Text("", ""), Text("e", "a a a")]
    queries = [Text("a c c", ""), Text("unheard", "")]
    frequency = Counter(term for text in papers for term in set(plain_terms(text)))
    vocabulary = sorted(frequency)
    idf = {term: float(np.log(5 / (1 + frequency[term]))) for term in vocabulary}
    expected = plain_weights(queries, vocabulary, idf) @ plain_weights(papers, vocabulary, idf).T
    np.testing.assert_allclose(tfidf_similarities(queries, iter(papers)).toarray(), expected, atol=1e-6)


def test_sentences_are_encoded_one_by_one(folder: Path) -> None:
    plain, (model, encoder) = load(folder)[1], load(f"sentences:encoder={folder}")
    assert model.multi_vector
    papers = [Text("w1 w2", "W3 w4. W5 w6. W7."), Text("w8", ""), Text("", ""), Text("w1", "W9 w1.")]
    split = [["W3 w4.", "W5 w6.", "W7."], ["w8"], [""], ["W9 w1."]]
    positions, vectors = in_order(encoder.encode_batches(papers), encoder.dimension)
    assert positions.tolist() == [0, 0, 0, 1, 2, 3]
    expected = plain.encode([Text(sentence, "") for sentences in split for sentence in sentences])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    query = encoder.encode([Text("W3 w4. W5 w6. W7.", "")], "query")
    np.testing.assert_allclose(query, vectors[:3], atol=1e-5)


def test_sentences_need_an_encoder_of_texts() -> None:
    with pytest.raises(InputError, match="encoder of"):
        registry.resolve("sentences:encoder=lsa")
