"""What only GPUs use, as far as a processor can run it: workers that tokenise, compiled layers, halved batches."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from pipeline.core.errors import StageError
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import registry, transformer
from pipeline.encode.aspire import SentenceReader
from pipeline.encode.packed import compiled_mixes
from pipeline.encode.reading import PlainReader, ReaderPool, Tokens
from pipeline.encode.spec import AspireSpec, TransformerSpec
from pipeline.encode.transformer import TransformerEncoder, torch_devices
from tests.encode.test_transformer import TEXTS, load
from tests.encode.tiny import save_bert, save_mpnet


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("models") / "tiny")


class _Small:
    """A network on a device with memory for a given number of tokens; what it took is seen to be free again."""

    taken: list[weakref.ref[torch.Tensor]]

    def __init__(self, network: Any, most: int, error: RuntimeError) -> None:
        self.network, self.most, self.error = network, most, error
        self.taken = []
        for name in ("config", "dtype", "parameters"):
            setattr(self, name, getattr(network, name, None))

    def __call__(self, *given: Any, **named: Any) -> Any:
        if (named["input_ids"] if named else given[0]).numel() > self.most:
            states = torch.zeros(9)
            self.taken.append(weakref.ref(states))
            raise type(self.error)(*self.error.args)
        return self.network(*given, **named)


NO_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
]


@pytest.mark.parametrize("error", NO_MEMORY)
@pytest.mark.parametrize("packed", [True, False])
def test_out_of_memory_halves_the_batch(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    packed: bool,
    error: RuntimeError,
) -> None:
    encoder = load(folder if packed else save_mpnet(tmp_path / "mpnet"))
    encoder._threads = None  # as on a GPU, where one batch is launched after another
    monkeypatch.setattr(transformer, "_BATCHES", 1)
    vectors = encoder.encode(TEXTS)
    attribute = "_packed" if packed else "_network"
    whole = getattr(encoder, attribute)
    small = _Small(whole, 1_000, error)
    setattr(encoder, attribute, small)
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append([each() for each in small.taken]))
    np.testing.assert_allclose(encoder.encode(TEXTS), vectors, atol=1e-5)
    assert encoder.describe()["batch_tokens"] <= 1_024
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(emptied) >= 2
    assert all(line.startswith("out of memory on cpu: going on with batches of ") for line in said)
    assert not any(each for states in emptied for each in states)
    setattr(encoder, attribute, _Small(whole, 100, error))
    with pytest.raises(StageError, match="one text of 512 tokens does not fit"):
        encoder.encode(TEXTS)


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_that_run_out_of_memory_go_on_with_less(
    folder: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(transformer, "_BATCHES", 1)
    encoder = TransformerEncoder.load(registry.resolve(str(folder)), Resources(device="cpu", workers=workers))
    vectors = encoder.encode(TEXTS)
    np.testing.assert_array_equal(vectors, load(folder).encode(TEXTS))
    encoder._packed = _Small(encoder._packed, 1_000, NO_MEMORY[1])  # type: ignore[assignment]
    np.testing.assert_allclose(encoder.encode(TEXTS), vectors, atol=1e-5)
    assert encoder.describe()["batch_tokens"] <= 1_024


def test_other_errors_of_the_device_are_no_lack_of_memory(folder: Path) -> None:
    encoder = load(folder)
    encoder._packed = _Small(encoder._packed, 0, RuntimeError("CUDA error: device-side assert triggered"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        encoder.encode(TEXTS)


def mixed(network: Any, mixes: list[Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield what each layer gives behind its attention, and what its mix gives, for several numbers of tokens."""
    chance = torch.Generator().manual_seed(3)
    for tokens in (30, 7, 1, 300):
        with torch.inference_mode():
            context, states = (torch.randn(tokens, 32, generator=chance) for _ in range(2))
        for layer, mix in zip(network.encoder.layer, mixes, strict=True):
            with torch.inference_mode():
                attended = layer.attention.output(context, states)
                yield layer.output(layer.intermediate(attended), attended), mix(context, states)


def test_one_compiled_function_serves_all_layers_and_lengths(folder: Path) -> None:
    network = AutoModel.from_pretrained(folder).eval()
    compiled = []

    def backend(graph: Any, _inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    mixes = compiled_mixes(network.encoder.layer, network.config.layer_norm_eps, backend)
    for expected, found in mixed(network, mixes):
        torch.testing.assert_close(found, expected)
    assert len(compiled) == 1
    given = [node.meta["example_value"] for node in compiled[0].graph.nodes if node.op == "placeholder"]
    sizes = [each.shape for each in given if isinstance(each, torch.Tensor)]
    dynamic = [shape for shape in sizes if not all(isinstance(size, int) for size in shape)]
    assert len(dynamic) == 2, "context and states have any number of tokens, weights one shape"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")
def test_the_function_compiled_for_gpus_is_the_layer(folder: Path) -> None:
    network = AutoModel.from_pretrained(folder).eval()
    mixes = compiled_mixes(network.encoder.layer, network.config.layer_norm_eps)
    assert len(mixes) == 2
    for expected, found in mixed(network, mixes):
        torch.testing.assert_close(found, expected)


def test_without_a_compiler_it_goes_on_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = AutoModel.from_pretrained(folder).eval()

    def backend(_graph: Any, _inputs: Any) -> Any:
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.")

    assert compiled_mixes(network.encoder.layer, network.config.layer_norm_eps, backend) == []
    said = capsys.readouterr().err
    assert "going on without compiled layers" in said
    assert "C compiler" in said
    assert said.count("\n") == 1


def test_tokens_from_worker_processes_are_the_same(folder: Path) -> None:
    spec = registry.resolve(str(folder)).spec
    assert isinstance(spec, TransformerSpec)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    reader = PlainReader(spec, tokenizer)
    pool = ReaderPool(reader, 2)
    for role in ("paper", "query"):
        assert pool(TEXTS, role) == reader(TEXTS, role)  # type: ignore[arg-type]
    assert pool([], "paper") == reader([], "paper")
    sentences = SentenceReader(AspireSpec("", ""), tokenizer)
    assert ReaderPool(sentences, 2)(TEXTS, "paper") == sentences(TEXTS, "paper")


class Fatal:
    """A reader whose process is killed, as by a machine without memory."""

    def __call__(self, texts: Sequence[Text], role: str) -> Tokens:
        os.kill(os.getpid(), signal.SIGKILL)
        return Tokens([], [], [])


def test_a_process_that_tokenises_and_dies_is_told() -> None:
    with pytest.raises(StageError, match="a process that tokenises was ended"):
        ReaderPool(Fatal(), 1)(TEXTS, "paper")


class Slow:
    """A reader that leaves its process's number behind and never ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, texts: Sequence[Text], role: str) -> Tokens:
        (self.folder / str(os.getpid())).touch()
        time.sleep(60)
        return Tokens([], [], [])


def test_processes_that_tokenise_end_with_a_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    script = tmp_path / "parent.py"
    script.write_text(
        "from pathlib import Path\n"
        "from pipeline.encode.reading import ReaderPool\n"
        "from tests.encode.test_gpu_path import TEXTS, Slow\n"
        f"if __name__ == '__main__': ReaderPool(Slow(Path({str(tmp_path / 'seen')!r})), 2)(TEXTS, 'paper')"
    )
    parent = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": os.getcwd()})
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "seen").iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    processes = [Path("/proc", path.name) for path in (tmp_path / "seen").iterdir()]
    assert len(processes) == 2
    parent.kill()
    parent.wait()
    while any(process.is_dir() for process in processes) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(process.is_dir() for process in processes)


def test_vectors_are_awaited_on_their_own_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current device may be another one, whose stream says nothing of the copy."""
    encoder = load(folder)
    waited = []

    class Event:
        def record(self, stream: str) -> None:
            waited.append(stream)

    pinned = torch.empty
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory, **options: pinned(*shape, **options))
    encoder._device = torch.device("cuda:1")
    host, arrived = encoder._fetch(torch.ones(2, 3))
    assert host.tolist() == [[1.0] * 3] * 2
    assert isinstance(arrived, Event)
    assert waited == ["stream of cuda:1"]


def test_every_gpu_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert torch_devices("auto") == torch_devices("cuda") == ["cuda:0", "cuda:1", "cuda:2"]
    assert torch_devices("cuda:2") == ["cuda:2"]
    assert torch_devices("cpu") == ["cpu"]
