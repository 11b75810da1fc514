"""Truncated vectors: the first components, normalised again, without a store of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.errors import InputError
from pipeline.encode import registry
from pipeline.encode.store import truncated
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

VECTORS = np.random.default_rng(5).normal(size=(40, 32)).astype(np.float32)
UNIT = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)


def test_first_components_are_kept_and_unit_vectors_stay_so() -> None:
    np.testing.assert_array_equal(truncated(VECTORS, 8), VECTORS[:, :8])
    expected = UNIT[:, :8] / np.linalg.norm(UNIT[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(truncated(UNIT, 8), expected, atol=1e-6)
    np.testing.assert_allclose(truncated(UNIT.astype(np.float16), 8), expected, atol=2e-3)
    assert truncated(VECTORS, 32) is VECTORS
    assert not truncated(np.zeros((1, 32), np.float32), 4).any()


def test_a_truncated_model_shares_the_store_and_not_the_name() -> None:
    plain, cut = registry.resolve("minilm"), registry.resolve("minilm:dimension=64")
    assert (cut.identity, cut.name, cut.truncate_dim) == (plain.identity, "minilm:dimension=64", 64)
    with pytest.raises(InputError, match="must be compared by whole vectors"):
        cut.whole()
    assert registry.resolve("lsa:dimension=64").truncate_dim == 0  # LSA has a dimension of its own


def test_truncated_vectors_rank_as_their_plain_computation(folder: Path, tmp_path: Path) -> None:
    mdcr_json(tmp_path, *flags("corpus --source synthetic --papers 300 --seed 5 --corpus tiny --workers 1"))
    model = f"{folder}:pooling=mean,distance=cosine,paper_prefix=w1,query_paper_prefix=w2"
    asked = f"{folder}:pooling=mean,distance=cosine,paper_prefix=w2"
    named, command = f"whole={model},short={model},dimension=8,asked={asked}", "eval --size all --queries 5 --samples 1"
    mdcr(tmp_path, *flags(f"{command} --device cpu --workers 1 --model"), named)
    workspace = pipeline.open(tmp_path)
    pool = workspace.pool(size="all", queries=5)
    papers, queries = (dict(zip(*workspace.vectors(pool, name), strict=True)) for name in (model, asked))
    for option, size in (("", 32), (",dimension=8", 8)):
        frame = workspace.ranking(pool, model + option)
        pairs = frame["query_id", "paper_id"].rows()
        expected = [cosine(queries[query][:size], papers[paper][:size]) for query, paper in pairs]
        np.testing.assert_allclose(frame["score"], expected, atol=1e-5)
    too_many = mdcr(tmp_path, *flags(f"{command} --device cpu --workers 1 --model"), f"{model},dimension=33")
    assert "dimension must be at most 32, got 33" in one_line_error(too_many)


def cosine(a: Any, b: Any) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
