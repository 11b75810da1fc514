"""Scores of multi-vector encoders are sentence-transformers' own MaxSim, whatever the layout and the batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers
import torch
from sentence_transformers.base.modules import Dense, Transformer

from pipeline.core.errors import InputError
from pipeline.encode import registry, reranker
from pipeline.encode.base import Pair, in_order
from tests.encode.tiny import CPU, change, save_bert, words

OLD = not hasattr(sentence_transformers, "MultiVectorEncoder")
needs_multi_vector = pytest.mark.skipif(OLD, reason="multi-vector encoders need sentence-transformers 6 or newer")
PAIRS = [
    Pair(words(n % 3 + 1, n), paper) for n in range(8) for paper in ("", words(3, n), words(90 * n, 5), "w7, w8. " * n)
]


def native(folder: Path) -> Path:
    """Save a small random model as the installed sentence-transformers does: prompts, query expansion, a skiplist."""
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Normalize

    torch.manual_seed(4)
    first = Transformer(
        str(save_bert(folder)),
        document_length=64,
        query_expansion={"strategy": "fixed", "attend": False, "length": 16},
    )
    dense = Dense(32, 8, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings")
    last = [MultiVectorMask(skiplist_words=[",", "."]), Normalize(module_input_name="token_embeddings")]
    sentence_transformers.MultiVectorEncoder(
        modules=[first, dense, *last], device="cpu", prompts={"query": "[QRY] ", "document": "[PRX] "}
    ).save_pretrained(str(folder))
    return folder


def pylate(folder: Path) -> Path:
    """Save it as PyLate did, before it wrote a type: its own Dense, and settings at the top."""
    native(folder)
    modules = json.loads((folder / "modules.json").read_text())[:2]
    modules[1]["type"] = "pylate.models.Dense.Dense"
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 63, "do_lower_case": False}))
    inner = folder / modules[1]["path"] / "config.json"
    kept = ("in_features", "out_features", "bias", "activation_function")
    inner.write_text(json.dumps({key: value for key, value in json.loads(inner.read_text()).items() if key in kept}))
    (folder / "config_sentence_transformers.json").unlink()
    settings = {"query_prefix": "[QRY] ", "document_prefix": "[PRX] ", "query_length": 16, "document_length": 64}
    change(folder / "config_sentence_transformers.json", **settings, skiplist_words=[","])
    return folder


def scores(name: str, precision: str | None = None) -> np.ndarray[Any, Any]:
    model = registry.resolve(name, precision, reranker=True)
    encoder = model.load(None, CPU)
    return in_order(encoder.scores(PAIRS), 1)[1].ravel()


@needs_multi_vector
@pytest.mark.parametrize("save", [native, pylate])
def test_scores_are_those_of_sentence_transformers(
    tmp_path: Path, save: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(tmp_path / "model")
    peer = sentence_transformers.MultiVectorEncoder(str(folder), device="cpu")
    vectors = peer.encode_query([pair.query for pair in PAIRS]), peer.encode_document([pair.paper for pair in PAIRS])
    assert {len(query) for query in vectors[0]} == {16}  # expanded
    expected = peer.similarity(*vectors).diagonal().numpy()
    assert expected.std() > 0.1
    monkeypatch.setattr(reranker.MaxSim, "block", 7)
    np.testing.assert_allclose(scores(f"maxsim:{folder}"), expected, atol=1e-5)
    rounded = scores(f"maxsim:{folder}", "bfloat16")
    assert 1e-4 < np.abs(rounded - expected).max() < 0.5


def test_a_model_of_one_vector_and_an_older_library_are_refused(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "model")
    said = "needs sentence-transformers 6 or newer" if OLD else "must hold a multi-vector encoder .* with .* none"
    with pytest.raises(InputError, match=said):
        registry.resolve(f"maxsim:{folder}", reranker=True)
