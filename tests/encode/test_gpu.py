"""Encoders on a GPU: the vectors of the CPU but for rounding, also where its memory runs out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.core.resources import Resources
from pipeline.encode import registry
from pipeline.encode.transformer import BATCH_TOKENS, TransformerEncoder
from tests.encode.test_transformer import TEXTS
from tests.encode.tiny import save_bert, smallest_cosine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]


def encoder(folder: Path, device: str, compute: str = "float32") -> TransformerEncoder:
    options = f"template=title-sep-abstract,pooling=cls,max_length=128,compute={compute}"
    return registry.resolve(f"{folder}:{options}").load(None, Resources(workers=2, device=device))


@pytest.mark.parametrize(("compute", "cosine"), [("float32", 1 - 1e-6), ("bfloat16", 0.999), ("float16", 0.999)])
def test_vectors_are_those_of_the_cpu(tmp_path: Path, compute: str, cosine: float) -> None:
    folder = save_bert(tmp_path / "bert")
    expected = encoder(folder, "cpu").encode(TEXTS)
    assert smallest_cosine(encoder(folder, "cuda", compute).encode(TEXTS), expected) > cosine


def test_a_text_has_the_same_bytes_whatever_is_encoded_beside_it(tmp_path: Path) -> None:
    there = encoder(save_bert(tmp_path / "bert"), "cuda", "bfloat16")
    alone = np.concatenate([there.encode([text]) for text in TEXTS])
    assert (alone == there.encode(TEXTS)).all()


def test_memory_that_runs_out_halves_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_bert(tmp_path / "bert")
    monkeypatch.setitem(BATCH_TOKENS, "cuda", 1 << 20)
    there, texts = encoder(folder, "cuda"), TEXTS * (1 + 60_000 // len(TEXTS))
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (96 << 20)) / total)
    try:
        vectors = there.encode(texts)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "out of memory on cuda" in capsys.readouterr().err
    assert smallest_cosine(vectors[: len(TEXTS)], encoder(folder, "cpu").encode(TEXTS)) > 1 - 1e-6
