"""Modules of sentence-transformers on a device: texts of like length share a batch; one that does not fit is halved.

The transformer computes in the precision that is asked for, the modules after it in float32.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from pipeline.core.errors import InputError, MdcrError, StageError
from pipeline.core.progress import say
from pipeline.core.resources import keep_freed_memory
from pipeline.corpus.reader import Text
from pipeline.encode import hub, shape
from pipeline.encode.base import Encoded
from pipeline.encode.spec import Precision
from pipeline.encode.tokenise import Tokens

BATCH_TOKENS = {"cpu": 2_048, "cuda": 65_536}
"""Tokens of a batch, padding included. Vectors may differ in their last bits with it, so provenance records it."""

_UNUSED = ("pooler.",)
"""Weights that do not affect the last layer's states: a checkpoint may lack them."""

_NO_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
SAMPLE = Text("A title", "An abstract with a word that no vocabulary has: \ue000.")
"""What a network is tried out on."""

_LONGEST = 300
"""Characters of a library's message that are shown."""

_FREE = "Free its memory or use another --device"

_INSTRUCTIONS = {"bfloat16": ("avx512_bf16", "amx_bf16", "bf16"), "float16": ("avx512_fp16", "amx_fp16", "fphp")}
"""Processor flags of Linux, any of which makes products in that precision faster than in float32."""


class _Launched(NamedTuple):
    """Vectors that are computed, or on their way from the device; ``arrived`` is the CUDA event of the copy."""

    vectors: torch.Tensor
    padded: int
    arrived: Any


class Network(ABC):
    """Modules on one device, which compute texts in batches.

    Args:
        modules: a transformer and what follows it, in float32 on the CPU.
        tokenizer: a fast tokenizer.
        device: where to compute.
        compute: data type of weights and activations.
        longest: tokens of the longest text that may come.
        workers: threads on a CPU, each with a batch of its own.

    Raises:
        InputError: the tokenizer is a slow one, or the model takes fewer tokens than ``longest``.
        StageError: the device has no memory for the weights.
    """

    output = "sentence_embedding"
    """What the last module calls its result."""

    def __init__(
        self,
        modules: Iterable[nn.Module],
        tokenizer: Any,
        device: torch.device,
        *,
        compute: Precision,
        longest: int,
        workers: int,
    ) -> None:
        first, *after = modules
        network: Any = first.model
        if not tokenizer.is_fast:
            raise InputError("the model has no fast tokenizer", "Convert it to a tokenizer.json")
        limit = min(tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", None) or 2**31)
        if longest > limit:
            raise InputError(f"max_length {longest} is more than the model's {limit}", f"Set it to {limit}")
        self._pad = tokenizer.pad_token_id or 0
        try:
            self._modules = nn.Sequential(first.to(dtype=getattr(torch, compute)), *after).to(device).eval()
        except torch.OutOfMemoryError as error:
            raise StageError(f"the model does not fit on {device}", _FREE) from error
        self._device, self._batch_tokens = device, BATCH_TOKENS[device.type]
        self._workers = workers if device.type == "cpu" else 1
        self._threads = ThreadPoolExecutor(self._workers, "encode", _start_thread, (device,))
        if device.type == "cpu":
            keep_freed_memory()
            if slow_on_cpu(compute):
                say(f"this processor has no {compute} instructions: float32 is several times faster")

    def describe(self) -> Mapping[str, Any]:
        """Return device, precision, attention, batch size, bytes of the weights and threads."""
        name = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu"
        return {
            "device": name,
            "compute": str(self._modules[0].model.dtype).removeprefix("torch."),
            "attention": self._modules[0].model.config._attn_implementation,
            "batch_tokens": self._batch_tokens,
            "weight_bytes": sum(weight.nbytes for weight in self._modules.parameters()),
            "threads": self._workers,
        }

    def try_out(self, prepared: Tokens) -> None:
        """Compute a text, so that what does not fit together, or is not finite, shows before the corpus is read."""
        if not all(np.isfinite(batch.vectors).all() for batch in self.finish(prepared)):
            raise InputError("the weights of the model give NaN or infinity", "Download it again or use float32")

    def finish(self, prepared: Tokens) -> Iterator[Encoded]:
        """Yield vectors, longest texts first; a batch that does not fit in memory is halved, and so are the next ones.

        While a batch is yielded the next ones are computed: one a thread on a CPU, one on a GPU.
        """
        waiting = deque(token_batches(prepared.ids, self._batch_tokens))
        running = deque[tuple[list[int], Future[_Launched | None]]]()
        while waiting or running:
            while waiting and len(running) <= self._workers:
                batch = waiting.popleft()
                running.append((batch, self._threads.submit(self._try, batch, prepared)))
            batch, future = running.popleft()
            launched = future.result()
            if launched is not None:
                yield _encoded(batch, launched, prepared)
                continue
            self._halve(batch, prepared)
            left = [position for positions in (batch, *waiting) for position in positions]
            waiting = deque(token_batches(prepared.ids, self._batch_tokens, left))

    def _try(self, batch: list[int], tokens: Tokens) -> _Launched | None:
        """Launch a batch; return None where the device has no memory for it, after its tensors are freed."""
        try:
            return self._launch(batch, tokens)
        except RuntimeError as error:
            if not _no_memory(error):
                raise
        return None

    def _launch(self, batch: list[int], tokens: Tokens) -> _Launched:
        width = len(tokens.ids[batch[0]])
        ids = np.full((len(batch), width), self._pad, np.int64)
        mask = np.zeros((len(batch), width), np.int64)
        for row, position in enumerate(batch):
            row_ids = tokens.ids[position]
            ids[row, : len(row_ids)] = row_ids
            mask[row, : len(row_ids)] = 1
        with torch.inference_mode():
            read = {"input_ids": self.send(ids), "attention_mask": self.send(mask)}
            pooled = self.compute({**read, **self.more(batch, tokens, width)})
            if self._device.type == "cpu":
                return _Launched(pooled, ids.size, None)
            host = torch.empty(pooled.shape, dtype=pooled.dtype, pin_memory=True).copy_(pooled, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(torch.cuda.current_stream(self._device))
            return _Launched(host, ids.size, arrived)

    @abstractmethod
    def more(self, batch: list[int], tokens: Tokens, width: int) -> dict[str, Any]:
        """Return what the modules read beside ids and mask ``[batch, width]``; ``batch`` is positions in ``tokens``."""

    def compute(self, features: dict[str, Any]) -> torch.Tensor:
        """Return the vectors of a batch, float32 ``[vectors, dimension]``; states go on in float32."""
        first, *after = self._modules
        features = {
            name: value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for name, value in first(features).items()
        }
        for module in after:
            features = module(features)
        vectors: torch.Tensor = features[self.output]
        return vectors

    def send(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        """Return an array on the device."""
        tensor = torch.from_numpy(array)
        return tensor if self._device.type == "cpu" else tensor.pin_memory().to(self._device, non_blocking=True)

    def _halve(self, batch: list[int], tokens: Tokens) -> None:
        width = len(tokens.ids[batch[0]])
        if len(batch) == 1:
            raise StageError(f"one text of {width} tokens does not fit on {self._device}", _FREE)
        torch.cuda.empty_cache()
        self._batch_tokens = min(self._batch_tokens, max(width, len(batch) * width // 2))
        say(f"out of memory on {self._device}: going on with batches of {self._batch_tokens:,} tokens")


def token_batches(tokens: Sequence[Sequence[int]], budget: int, among: Iterable[int] | None = None) -> list[list[int]]:
    """Split texts into batches, longest first, each of at most ``budget`` tokens with padding, or of one text.

    Which texts share a batch depends on the set of texts alone, not on their order, so that the vectors do not either.

    Args:
        tokens: token ids of each text.
        budget: tokens of a batch; each text counts as long as the longest of its batch.
        among: positions of the texts to be split; all by default.

    Returns:
        Positions in ``tokens``, batch by batch.
    """
    chosen = range(len(tokens)) if among is None else among
    batches: list[list[int]] = []
    room = 0
    for position in sorted(chosen, key=lambda p: (-len(tokens[p]), tokens[p])):
        if room == 0:
            batches.append([])
            room = max(1, budget // max(1, len(tokens[position])))
        batches[-1].append(position)
        room -= 1
    return batches


def slow_on_cpu(compute: Precision) -> bool:
    """Return whether Linux says that the processor has no instructions for this precision."""
    flags = Path("/proc/cpuinfo")
    if compute == "float32" or not flags.is_file():
        return False
    return not re.search(rf"\b({'|'.join(_INSTRUCTIONS[compute])})\b", flags.read_text())


def _start_thread(device: torch.device) -> None:
    """Give a thread its device: on a CPU one core, on a GPU the current device, which events and copies refer to."""
    if device.type == "cpu":
        torch.set_num_threads(1)
    elif device.index is not None:
        torch.cuda.set_device(device)


def _no_memory(error: RuntimeError) -> bool:
    """Return whether an error means that memory is exhausted; not all libraries raise PyTorch's own."""
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in _NO_MEMORY)


def _encoded(batch: list[int], launched: _Launched, tokens: Tokens) -> Encoded:
    if launched.arrived is not None:
        launched.arrived.synchronize()
    return Encoded(
        positions=np.repeat(np.array(batch, np.int64), [len(tokens.spans[position]) for position in batch]),
        vectors=launched.vectors.numpy(),
        texts=len(batch),
        tokens=sum(len(tokens.ids[position]) for position in batch),
        padded=launched.padded,
        truncated=sum(tokens.cut[position] for position in batch),
    )


@contextmanager
def loading(folder: Path, place: Path | None = None, remedy: str = shape.AGAIN) -> Iterator[None]:
    """Turn whatever libraries raise at the files of a model or an adapter into one error; their warnings are not shown.

    Messages name the folder of the model instead of the place where its files are read.
    """
    silent, bars = logging.root.manager.disable, transformers_logging.is_progress_bar_enabled()
    logging.disable(logging.WARNING)
    transformers_logging.disable_progress_bar()
    try:
        yield
    except (MdcrError, MemoryError):
        raise
    except Exception as error:  # malformed files make these libraries raise errors of every class
        message = " ".join(str(error).replace(str(place or folder), str(folder)).split())
        what = f"{type(error).__name__}: {message:.{_LONGEST}}"
        raise InputError(f"{folder} cannot be loaded ({what})", remedy) from error
    finally:
        logging.disable(silent)
        if bars:
            transformers_logging.enable_progress_bar()


OPTIONS: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


@contextmanager
def opening(folder: Path) -> Iterator[Path]:
    """Give the files of a model to be loaded; missing weights, of which transformers only warns, are an error.

    Only files that identify the model are there to be loaded, and no code of its folder runs.

    Raises:
        InputError: a file is damaged or malformed, or weights are missing or left over.
    """
    loaded: list[tuple[Any, dict[str, Any]]] = []
    plain = PreTrainedModel.__dict__["from_pretrained"]

    def from_pretrained(cls: Any, *args: Any, **options: Any) -> Any:
        loaded.append(plain.__get__(None, cls)(*args, **options, output_loading_info=True))
        return loaded[-1][0]

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)
    try:
        with hub.covered(folder) as place, loading(folder, place):
            yield place
    finally:
        PreTrainedModel.from_pretrained = plain
    for network, report in loaded:
        missing = sorted(key for key in report["missing_keys"] if not key.startswith(_UNUSED))
        spare = _spare_layers(network, report["unexpected_keys"])
        if missing or report["mismatched_keys"]:
            raise InputError(
                f"{folder} lacks weights of its own architecture: {', '.join(missing[:3]) or 'wrong shapes'}",
                "Download it again, or save it with save_pretrained",
            )
        if spare:
            raise InputError(
                f"{folder} has weights of layers that its config.json does not count: {spare[0]}", shape.AGAIN
            )


def saved_by(cls: Callable[..., Any], folder: Path, task: str = "feature-extraction") -> Any:
    """Load a model of a class of sentence-transformers from its folder, in float32, on the CPU.

    Raises:
        InputError: as :func:`opening` and :func:`check_transformer`.
    """
    with opening(folder) as place:
        loaded = cls(str(place), device="cpu", model_kwargs={"dtype": torch.float32}, **OPTIONS)
        check_transformer(folder, loaded[0], task)
    return loaded


def check_transformer(folder: Path, first: Any, task: str = "feature-extraction") -> None:
    """Check that a transformer module has an embedding for each token, reads plain text and is of a task.

    Raises:
        InputError: the tokenizer has more tokens than the network, or the model reads messages, or does another task.
    """
    if first.transformer_task != task:
        raise InputError(f"transformer_task of {folder} must be {task}, got {first.transformer_task}", shape.AGAIN)
    if "text" not in first.modality_config or "message" in first.modality_config:
        raise InputError(f"{folder} must read plain text, got {[*first.modality_config]}", "Use another model")
    tokens = max(first.tokenizer.get_vocab().values()) + 1
    embedded = first.model.get_input_embeddings().num_embeddings
    if tokens > embedded:
        raise InputError(
            f"the tokenizer of {folder} must have at most the {embedded:,} tokens of its network, got {tokens:,}",
            "Save both together, after network.resize_token_embeddings(len(tokenizer))",
        )


def _spare_layers(network: Any, unexpected: Iterable[str]) -> list[str]:
    """Return weights that were left over of layers beyond those that the configuration counts."""
    lists = {name for name, module in network.named_modules() if isinstance(module, nn.ModuleList)}
    plain = (key.removeprefix(f"{network.base_model_prefix}.") for key in unexpected)
    return sorted(key for key in plain if (match := re.match(r"(.+?)\.\d+\.", key)) and match[1] in lists)


def torch_device(name: str) -> torch.device:
    """Return the device of that name; ``auto`` is the first GPU, or the CPU where there is none.

    Raises:
        InputError: the device does not exist.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"there is no device {name!r}", "Choose auto, cpu, cuda or cuda:0") from error
    if device.type not in BATCH_TOKENS:
        raise InputError(f"device {name!r} is not supported", "Choose auto, cpu, cuda or cuda:0")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {name!r} is not there: {torch.cuda.device_count()} CUDA devices", "Choose cpu")
    return device


def torch_devices(name: str) -> list[str]:
    """Return every device that a name means: all GPUs for ``auto`` and ``cuda``, else the one of that name.

    Raises:
        InputError: the device does not exist.
    """
    device = torch_device(name)
    if device.type == "cuda" and device.index is None and torch.cuda.device_count() > 1:
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [name]
