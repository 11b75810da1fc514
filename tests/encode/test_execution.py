"""Batches, memory that runs out, GPUs and slow processors: nothing of it changes a vector."""

from __future__ import annotations

import weakref
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import StageError
from pipeline.encode import registry
from pipeline.encode.network import torch_devices
from pipeline.encode.tokenise import shape_of, token_batches
from pipeline.encode.transformer import BATCH_TOKENS, TransformerEncoder, open_modules
from tests.encode.test_transformer import TEXTS
from tests.encode.tiny import load


@given(st.lists(st.lists(st.integers(0, 3), max_size=90), max_size=40), st.integers(1, 400), st.randoms())
def test_every_text_is_in_one_batch_and_its_length_decides_the_shape(
    tokens: list[list[int]], budget: int, chance: Random
) -> None:
    assert token_batches([[1], [1, 2], [1, 2, 3]], 24, 8, [0, 2]) == [([2, 0], 3, 8)]
    batches = token_batches(tokens, budget, 100)
    ordered = [position for batch in batches for position in batch.texts]
    assert sorted(ordered) == list(range(len(tokens)))
    lengths = [len(tokens[position]) for position in ordered]
    assert lengths == sorted(lengths, reverse=True)
    for texts, rows, width in batches:
        assert {shape_of(len(tokens[position]), budget, 100) for position in texts} == {(rows, width)}
        assert len(tokens[texts[0]]) <= width <= 100
        assert len(texts) == rows == 1 or rows * width <= budget
        assert rows == 1 or sum(len(tokens[position]) for position in texts) < rows * width
    shuffled = tokens.copy()
    chance.shuffle(shuffled)
    others = token_batches(shuffled, budget, 100)
    assert [[tokens[p] for p in batch.texts] for batch in batches] == [
        [shuffled[p] for p in batch.texts] for batch in others
    ]


class Small(torch.nn.Module):
    """A network with memory for ``most`` tokens; ``taken`` shows whether tensors of failed batches were freed."""

    def __init__(self, network: Any, most: int, error: RuntimeError) -> None:
        super().__init__()
        self.network, self.model, self.most, self.error = network, network.model, most, error
        self.taken: list[weakref.ref[torch.Tensor]] = []

    def get_embedding_dimension(self) -> int:
        return int(self.network.get_embedding_dimension())

    def _apply(self, fn: Any, recurse: bool = True) -> Small:
        return self

    def forward(self, features: dict[str, Any]) -> Any:
        if features["input_ids"].numel() > self.most:
            states = torch.zeros(9)
            self.taken.append(weakref.ref(states))
            raise type(self.error)(*self.error.args)
        return self.network(features)


def small(folder: Path, most: int, error: RuntimeError, device: str = "cpu", workers: int = 1) -> tuple[Small, Any]:
    """Return such a network and its encoder."""
    model: Any = registry.resolve(str(folder))
    first, pooling = open_modules(folder, model)
    limited = Small(first, most, error)
    return limited, TransformerEncoder(model, [limited, pooling], first.tokenizer, torch.device(device), workers)


ERRORS = (torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling"))


@pytest.mark.parametrize(("error", "workers"), zip(ERRORS, (1, 3), strict=True))
def test_out_of_memory_halves_the_batch(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: RuntimeError, workers: int
) -> None:
    monkeypatch.setitem(BATCH_TOKENS, "cpu", 2_048)
    limited, encoder = small(folder, 1_000, error, workers=workers)
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append([states() for states in limited.taken]))
    np.testing.assert_allclose(encoder.encode(TEXTS), load(folder)[1].encode(TEXTS), atol=1e-5)
    assert encoder.describe()["batch_tokens"] <= 1_024
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("out of memory")]
    assert len(lines) == len(emptied) >= 1
    assert all(line.startswith("out of memory on cpu: going on with batches of ") for line in lines)
    if workers == 1:
        assert emptied[0] == [None] * len(emptied[0])
    with pytest.raises(StageError, match="one text of 512 tokens does not fit"):
        small(folder, 100, error)[1].encode(TEXTS)


def test_every_gpu_is_used_by_threads_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert torch_devices("auto") == torch_devices("cuda") == ["cuda:0", "cuda:1", "cuda:2"]
    assert torch_devices("cuda:2") == ["cuda:2"]
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    _, encoder = small(folder, 0, RuntimeError("never computed"), "cuda:99", workers=0)
    with pytest.raises(RuntimeError):  # there is no such GPU
        encoder.encode(TEXTS[:1])
    assert chosen == [torch.device("cuda:99")]
