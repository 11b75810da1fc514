"""Views of stored vectors: cut and normalised again, rounded, and refused where they do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.errors import InputError
from pipeline.encode import registry
from pipeline.encode.views import WHOLE, VectorTransform, whole
from tests.cli.run import flags, mdcr, mdcr_json

VECTORS = np.random.default_rng(5).normal(size=(40, 32)).astype(np.float32)
UNIT = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
ZERO = np.zeros((1, 32), np.float32)


def test_first_components_are_kept_and_unit_vectors_stay_so() -> None:
    np.testing.assert_array_equal(VectorTransform(8)(VECTORS), VECTORS[:, :8])
    expected = UNIT[:, :8] / np.linalg.norm(UNIT[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(VectorTransform(8)(UNIT), expected, atol=1e-6)
    np.testing.assert_allclose(VectorTransform(8)(UNIT.astype(np.float16)), expected, atol=2e-3)
    assert VectorTransform(32)(VECTORS) is VECTORS
    assert WHOLE(VECTORS) is VECTORS
    with pytest.raises(InputError, match="dimension must be at most 32, got 33"):
        VectorTransform(33).components(32)


def test_rounded_vectors_are_close_and_zero_stays_zero() -> None:
    coarse = VectorTransform(quantise="int8")(VECTORS)
    assert np.abs(coarse - VECTORS).max() <= np.abs(VECTORS).max() / 127 / 2 * 1.0001
    assert max(len(np.unique(row)) for row in coarse) <= 255
    np.testing.assert_array_equal(VectorTransform(quantise="binary")(VECTORS), np.where(VECTORS > 0, 1, -1))
    for quantise in ("int8", "binary"):
        assert not VectorTransform(4, quantise)(ZERO).any()


def test_a_view_shares_the_store_and_not_the_name() -> None:
    plain, cut = registry.resolve("word2vec"), registry.resolve("word2vec:quantise=binary")
    assert (cut.spec, cut.name) == (plain.spec, "word2vec:quantise=binary")
    assert whole(plain) == plain
    with pytest.raises(InputError, match="must be compared by whole vectors"):
        whole(cut)
    assert registry.resolve("lsa:dimension=64").view == VectorTransform()  # LSA has a dimension of its own
    for text, message in (
        ("word2vec-tfidf:quantise=int4", "quantise must be int8 or binary, got 'int4'"),
        ("minilm:dimension=0", "dimension must be a whole number from 1"),
    ):
        with pytest.raises(InputError, match=message):
            registry.resolve(text)


def test_views_rank_as_their_plain_computation_and_prompts_are_in_the_note(folder: Path, tmp_path: Path) -> None:
    mdcr_json(tmp_path, *flags("corpus --source synthetic --papers 300 --seed 5 --corpus tiny --workers 1"))
    model = f"{folder}:pooling=mean,distance=cosine,paper_prefix=w1,query_paper_prefix=w2"
    options = {"whole": "", "short": ",dimension=8", "levels": ",quantise=int8", "signs": ",quantise=binary"}
    asked = f"{folder}:pooling=mean,distance=cosine,paper_prefix=w2"
    named = ",".join([f"{label}={model}{option}" for label, option in options.items()] + [f"asked={asked}"])
    result = mdcr(tmp_path, *flags("eval --size all --queries 5 --samples 1 --device cpu --workers 1 --model"), named)
    noted = " ".join(result.stdout.split())
    assert "Put before the text: whole papers 'w1', queries 'w2'; short papers" in noted, result.stderr
    workspace = pipeline.open(tmp_path)
    pool = workspace.pool(size="all", queries=5)
    papers, queries = (dict(zip(*workspace.vectors(pool, name), strict=True)) for name in (model, asked))
    steps: dict[str, Callable[[Any], Any]] = {
        "whole": lambda v: v,
        "short": lambda v: v[:8],
        "levels": lambda v: np.rint(v / (np.abs(v).max() / 127)),
        "signs": lambda v: np.where(v > 0, 1, -1),
    }
    for label, step in steps.items():
        frame = workspace.ranking(pool, f"{model}{options[label]}").frame
        pairs = frame["query_id", "paper_id"].rows()
        expected = [cosine(step(queries[query]), step(papers[paper])) for query, paper in pairs]
        np.testing.assert_allclose(frame["score"], expected, atol=1e-5)


def cosine(a: Any, b: Any) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
