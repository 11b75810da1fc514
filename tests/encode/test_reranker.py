"""Scores of cross-encoders are those of sentence-transformers, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers
import torch

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.encode import registry
from pipeline.encode.base import Pair, in_order
from pipeline.encode.model import Model
from tests.encode.tiny import CPU, change, keep_case, save_bert, save_cross_encoder, words

PAIRS = [
    Pair(words(n + 1, n), paper) for n in range(8) for paper in ("", words(3, n), words(90 * n, 5), "W7 W8 😀 " * n)
]


def resaved(folder: Path) -> Path:
    """Save it again as the installed sentence-transformers does, with another activation."""
    peer = sentence_transformers.CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())
    peer.save_pretrained(str(folder.with_name("resaved")))
    return folder.with_name("resaved")


def with_activation(folder: Path) -> Path:
    change(folder / "config.json", sbert_ce_default_activation_function="torch.nn.modules.activation.Tanh")
    return folder


def prompted(folder: Path) -> Path:
    folder = resaved(folder)
    change(folder / "config_sentence_transformers.json", prompts={"web": "w1 w2 "}, default_prompt_name="web")
    return folder


def lowered(folder: Path) -> Path:
    return keep_case(resaved(folder))


def scores(model: Model, resources: Resources = CPU) -> np.ndarray[Any, Any]:
    return in_order(model.load(None, resources).scores(PAIRS), 1)[1].ravel()


@pytest.mark.parametrize("change_folder", [with_activation, lowered, prompted])
def test_scores_are_those_of_sentence_transformers(tmp_path: Path, change_folder: Callable[[Path], Path]) -> None:
    folder = change_folder(save_cross_encoder(tmp_path / "model"))
    model = registry.resolve(f"cross:{folder}", reranker=True)
    peer = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    assert model.max_length == peer.max_seq_length
    expected = peer.predict([tuple(pair) for pair in PAIRS])
    assert expected.std() > 0.01
    np.testing.assert_allclose(scores(model), expected, atol=1e-5)
    np.testing.assert_array_equal(scores(model), scores(model, Resources(workers=3, device="cpu")))


def test_options_and_identity(tmp_path: Path) -> None:
    folder = save_cross_encoder(tmp_path / "model")
    plain = registry.resolve(f"cross:{folder}", "float32", reranker=True)
    reduced = registry.resolve(f"cross:{folder}:max_length=64", "bfloat16", reranker=True)
    assert (plain.name, reduced.name) == (f"cross:{folder}", f"cross:{folder}:compute=bfloat16,max_length=64")
    assert (reduced.compute, reduced.max_length) == ("bfloat16", 64)
    assert registry.resolve(reduced.name, reranker=True) == reduced
    peer = sentence_transformers.CrossEncoder(str(folder), device="cpu", max_length=64)
    rounded, exact = scores(reduced), peer.predict([tuple(pair) for pair in PAIRS])
    assert not np.array_equal(rounded, exact)
    np.testing.assert_allclose(rounded, exact, atol=0.05)


def without_head(folder: Path) -> None:
    save_bert(folder)
    change(folder / "config.json", architectures=["BertForSequenceClassification"], id2label={"0": "LABEL_0"})


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: save_cross_encoder(folder, labels=2), "must have one label, got 2"),
        (without_head, "lacks weights of its own architecture"),
        (
            lambda folder: change(folder / "config.json", sbert_ce_default_activation_function="mine.Act"),
            "activation of .* must be of torch.nn, got mine.Act",
        ),
    ],
)
def test_a_model_that_cannot_rank_is_refused(tmp_path: Path, break_it: Callable[[Path], Any], message: str) -> None:
    folder = save_cross_encoder(tmp_path / "model")
    break_it(folder)
    with pytest.raises(InputError, match=message):
        registry.resolve(f"cross:{folder}", reranker=True).load(None, CPU)
