"""Scores of cross-encoders are those of sentence-transformers, whatever the batch."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers
import torch
from transformers import AutoTokenizer

from pipeline.core.errors import InputError
from pipeline.encode import registry
from pipeline.encode.base import Pair, in_order
from pipeline.encode.model import Model
from pipeline.encode.network import BATCH_TOKENS
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


def short(folder: Path) -> Path:
    change(folder / "tokenizer_config.json", model_max_length=48)
    return folder


def prompted(folder: Path) -> Path:
    folder = resaved(folder)
    change(folder / "config_sentence_transformers.json", prompts={"web": "w1 w2 "}, default_prompt_name="web")
    return folder


def lowered(folder: Path) -> Path:
    return keep_case(resaved(folder))


def scores(model: Model) -> np.ndarray[Any, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BATCH_TOKENS, "cpu", 700)  # several batches
        encoder = model.load(None, CPU)
    return in_order(encoder.scores(PAIRS), 1)[1].ravel()


@pytest.mark.parametrize("change_folder", [Path, resaved, with_activation, short, lowered, prompted])
def test_scores_are_those_of_sentence_transformers(tmp_path: Path, change_folder: Callable[[Path], Path]) -> None:
    folder = change_folder(save_cross_encoder(tmp_path / "model"))
    model = registry.resolve(f"cross:{folder}", reranker=True)
    peer = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    assert model.max_length == peer.max_seq_length
    expected = peer.predict([tuple(pair) for pair in PAIRS])
    assert expected.std() > 0.01
    np.testing.assert_allclose(scores(model), expected, atol=1e-5)


def test_options_and_identity(tmp_path: Path) -> None:
    folder = save_cross_encoder(tmp_path / "model")
    plain = registry.resolve(f"cross:{folder}", "float32", reranker=True)
    reduced = registry.resolve(f"cross:{folder}:max_length=64", "bfloat16", reranker=True)
    assert (plain.name, reduced.name) == (f"cross:{folder}", f"cross:{folder}:compute=bfloat16,max_length=64")
    assert (reduced.compute, reduced.max_length) == ("bfloat16", 64)
    assert registry.resolve(reduced.name, reranker=True) == reduced
    half = registry.resolve(f"cross:{folder}", "bfloat16", reranker=True)
    rounded, exact = scores(half), scores(plain)
    assert not np.array_equal(rounded, exact)
    np.testing.assert_allclose(rounded, exact, atol=0.05)


def two_labels(folder: Path) -> None:
    save_cross_encoder(folder, labels=2)


def without_head(folder: Path) -> None:
    save_bert(folder)
    change(folder / "config.json", architectures=["BertForSequenceClassification"], id2label={"0": "LABEL_0"})


def setting(name: str, **values: Any) -> Callable[[Path], None]:
    return lambda folder: change(folder / name, **values)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (two_labels, "must have one label, got 2"),
        (without_head, "lacks weights of its own architecture"),
        (setting("config.json", architectures=["BertModel"]), "sequence classification"),
        (
            setting("config.json", sbert_ce_default_activation_function="mine.Act"),
            "activation of .* must be of torch.nn, got mine.Act",
        ),
    ],
)
def test_a_model_that_cannot_rank_is_refused(tmp_path: Path, break_it: Callable[[Path], None], message: str) -> None:
    folder = save_cross_encoder(tmp_path / "model")
    break_it(folder)
    with pytest.raises(InputError, match=message):
        registry.resolve(f"cross:{folder}", reranker=True).load(None, CPU)


@pytest.mark.parametrize("length", [16, 17])
def test_pairs_are_cut_as_the_tokenizer_cuts_them(tmp_path: Path, length: int) -> None:
    folder = short(save_cross_encoder(tmp_path / "model"))
    encoder = registry.resolve(f"cross:{folder}:max_length={length}", reranker=True).load(None, CPU)
    sizes = (0, 1, 5, 6, 7, 8, 9, 14, 40)
    pairs = [Pair(words(first, 1), words(second, 2)) for first in sizes for second in sizes]
    queries, papers = zip(*pairs, strict=True)
    expected = AutoTokenizer.from_pretrained(folder)(
        list(queries), list(papers), truncation="longest_first", max_length=length, return_attention_mask=False
    )
    prepared = encoder.prepare(pairs)
    assert prepared.ids == expected["input_ids"]
    assert prepared.types == expected["token_type_ids"]


def test_long_pairs_take_memory_by_their_length_alone(tmp_path: Path) -> None:
    """A tokenizer that cuts pairs keeps every part of one text with every part of the other."""
    model = registry.resolve(f"cross:{save_cross_encoder(tmp_path / 'model')}:max_length=16", reranker=True)
    encoder = model.load(None, CPU)

    def measure(taken: Any) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        encoder.prepare([Pair("w7 " * 4_000, "w8 " * 4_000)] * 4)
        taken.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

    forks = multiprocessing.get_context("fork")
    taken = forks.SimpleQueue()
    process = forks.Process(target=measure, args=(taken,))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert taken.get() < 100_000  # kB
