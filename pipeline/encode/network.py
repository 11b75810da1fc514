"""Modules of sentence-transformers on a device, in batches of fixed shapes; one too large is halved.

The last bits of a product depend on the shape of its batch. The length of a text alone decides the shape, so a text has
the same vector whatever else is encoded. The transformer computes in the requested precision, later modules in float32.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from pipeline.core.errors import InputError, MdcrError, StageError
from pipeline.core.progress import say
from pipeline.core.resources import gpu_number, keep_freed_memory
from pipeline.corpus.reader import Text
from pipeline.encode import hub, shape
from pipeline.encode.base import Encoded
from pipeline.encode.model import Precision
from pipeline.encode.tokenise import Batch, Tokens, token_batches

BATCH_TOKENS = {"cpu": 1, "cuda": 12_288}
"""Tokens of a batch, padding included, or one text. On a CPU a batch is one text: its products have rows enough, and
nothing is padded. The last bits of vectors may depend on it, so provenance records it."""

_STATIC_TOKENS = 65_536
"""As :data:`BATCH_TOKENS`, for static embeddings: their vectors do not depend on the batch."""

_UNUSED = ("pooler.",)
"""Prefixes of weights that a checkpoint may lack, since the last layer's states do not depend on them."""

_NO_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
PROBE = (Text("A title", "An abstract with a word that no vocabulary has: \ue000."), Text("Long", "a word " * 300))
"""Texts that a loaded network is tried out on; the second is longer than most networks read."""

_LONGEST = 300
"""Maximum characters of a library's message in ours."""

_FREE = "Free its memory or use another --device"

_INSTRUCTIONS = {"bfloat16": ("avx512_bf16", "amx_bf16", "bf16"), "float16": ("avx512_fp16", "amx_fp16", "fphp")}
"""Linux processor flags; with any of them, products in that precision are faster than in float32."""


_Result = Callable[[], Encoded]
"""Function that waits for the vectors of a batch to arrive from the device."""


class Network(ABC):
    """Modules on one device that compute texts in batches.

    Args:
        modules: a transformer and later modules, in float32 on the CPU.
        tokenizer: a fast tokenizer.
        device: where to compute.
        compute: data type of weights and activations.
        longest: maximum tokens of a text.
        workers: threads on a CPU, one batch each.

    Raises:
        InputError: the tokenizer is slow, or the model takes fewer tokens than ``longest``.
        StageError: the device has no memory for the weights.
    """

    output = "sentence_embedding"
    """Key of the result of the last module."""

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
        transformer, *later = modules
        positions = getattr(getattr(transformer.model, "config", None), "max_position_embeddings", None)
        if not tokenizer.is_fast:
            raise InputError("the model has no fast tokenizer", "Convert it to a tokenizer.json")
        limit = min(tokenizer.model_max_length, positions or 2**31)
        if longest > limit:
            raise InputError(f"max_length {longest} is more than the model's {limit}", f"Set it to {limit}")
        self._pad = tokenizer.pad_token_id or 0
        try:
            self._modules = nn.Sequential(transformer.to(dtype=getattr(torch, compute)), *later).to(device).eval()
        except torch.OutOfMemoryError as error:
            raise StageError(f"the model does not fit on {device}", _FREE) from error
        self._device, self._longest = device, longest
        self._batch_tokens = BATCH_TOKENS[device.type] if hasattr(transformer.model, "config") else _STATIC_TOKENS
        self._workers = workers if device.type == "cpu" else 1
        self._threads = ThreadPoolExecutor(self._workers, "encode", _start_thread, (device,))
        if device.type == "cpu":
            keep_freed_memory()
            if slow_on_cpu(compute):
                say(f"this processor has no {compute} instructions; use float32, which is several times faster here")

    def describe(self) -> Mapping[str, Any]:
        """Return device, precision, attention, batch size, bytes of the weights and threads."""
        name = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu"
        network = self._modules[0].model
        return {
            "device": name,
            "compute": str(next(network.parameters()).dtype).removeprefix("torch."),
            "attention": network.config._attn_implementation if hasattr(network, "config") else "none",
            "batch_tokens": max(self._batch_tokens, self._longest),
            "weight_bytes": sum(weight.nbytes for weight in self._modules.parameters()),
            "threads": self._workers,
        }

    def try_out(self, prepared: Tokens) -> None:
        """Compute some texts to find mismatched parts or non-finite values before the corpus is read."""
        vectors = np.concatenate([batch.vectors for batch in self.finish(prepared)])
        if vectors.size < len(prepared.ids) or not np.isfinite(vectors).all():
            raise InputError("the weights of the model give no numbers, NaN or infinity", "Download it again")

    def finish(self, prepared: Tokens) -> Iterator[Encoded]:
        """Yield vectors, longest texts first; if a batch does not fit in memory, it and later batches are halved.

        Meanwhile later batches are computed: one a thread on a CPU, one on a GPU.
        """
        waiting = deque(token_batches(prepared.ids, self._batch_tokens, self._longest))
        running = deque[tuple[Batch, Future[_Result | None]]]()
        while waiting or running:
            while waiting and len(running) <= self._workers:
                batch = waiting.popleft()
                running.append((batch, self._threads.submit(self._try, batch, prepared)))
            batch, future = running.popleft()
            if (result := future.result()) is not None:
                yield result()
                continue
            if batch.rows == 1:
                raise StageError(f"one text of {batch.width} tokens does not fit on {self._device}", _FREE)
            torch.cuda.empty_cache()
            self._batch_tokens = min(self._batch_tokens, max(batch.width, batch.rows * batch.width // 2))
            say(f"out of memory on {self._device}: going on with batches of {self._batch_tokens:,} tokens")
            remaining = [position for failed in (batch, *waiting) for position in failed.texts]
            waiting = deque(token_batches(prepared.ids, self._batch_tokens, self._longest, remaining))

    def _try(self, batch: Batch, tokens: Tokens) -> _Result | None:
        """Launch a batch; return None, after freeing its tensors, if the device has no memory for it."""
        try:
            return self._launch(batch, tokens)
        except RuntimeError as error:  # some libraries do not raise PyTorch's error
            if not isinstance(error, torch.OutOfMemoryError) and not any(text in str(error) for text in _NO_MEMORY):
                raise
        return None

    def _launch(self, batch: Batch, tokens: Tokens) -> _Result:
        texts, shape, arrived = batch.texts, batch[1:], None
        ids, mask = np.full(shape, self._pad, np.int64), np.zeros(shape, np.int64)
        mask[len(texts) :, 0] = 1  # texts that fill up the batch are one padding token
        for row, position in enumerate(texts):
            row_ids = tokens.ids[position]
            ids[row, : len(row_ids)] = row_ids
            mask[row, : len(row_ids)] = 1
        with torch.inference_mode():
            inputs = {"input_ids": self.send(ids), "attention_mask": self.send(mask)}
            pooled = self.compute({**inputs, **self.extra_inputs(batch, tokens)})
            vectors = pooled[: sum(len(tokens.spans[position]) for position in texts)]
            if self._device.type == "cuda":
                vectors = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True).copy_(
                    vectors, non_blocking=True
                )
                arrived = torch.cuda.Event()
                arrived.record(torch.cuda.current_stream(self._device))

        def result() -> Encoded:
            if arrived is not None:
                arrived.synchronize()
            return Encoded(
                positions=np.repeat(np.array(texts, np.int64), [len(tokens.spans[position]) for position in texts]),
                vectors=vectors.numpy(),
                texts=len(texts),
                tokens=sum(len(tokens.ids[position]) for position in texts),
                padded=ids.size,
                truncated=sum(tokens.cut[position] for position in texts),
            )

        return result

    @abstractmethod
    def extra_inputs(self, batch: Batch, tokens: Tokens) -> dict[str, Any]:
        """Return inputs beside ids and mask ``[rows, width]``; the texts of ``batch`` are the first rows."""

    def compute(self, features: dict[str, Any]) -> torch.Tensor:
        """Return the vectors of a batch, float32 ``[vectors, dimension]``."""
        transformer, *later = self._modules
        features = {
            name: value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for name, value in transformer(features).items()
        }
        for module in later:
            features = module(features)
        vectors: torch.Tensor = features[self.output]
        return vectors

    def send(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        """Copy an array to the device."""
        tensor = torch.from_numpy(array)
        return tensor if self._device.type == "cpu" else tensor.pin_memory().to(self._device, non_blocking=True)


def slow_on_cpu(compute: Precision) -> bool:
    """Return whether the processor lacks instructions for a precision, as far as Linux reports them."""
    flags = Path("/proc/cpuinfo")
    if compute == "float32" or not flags.is_file():
        return False
    return not re.search(rf"\b({'|'.join(_INSTRUCTIONS[compute])})\b", flags.read_text())


def _start_thread(device: torch.device) -> None:
    """Set up a thread: one core on a CPU; on a GPU the current device, to which events and copies refer."""
    if device.type == "cpu":
        torch.set_num_threads(1)
    elif device.index is not None:
        torch.cuda.set_device(device)


_LIBRARY = "sentence-transformers " + ".".join(version("sentence-transformers").split(".")[:2])


@contextmanager
def loading(folder: Path, setting: str = "--model", temporary: Path | None = None) -> Iterator[None]:
    """Raise InputError for whatever libraries raise while they load the folder of a setting; hide their warnings.

    Messages name the ``folder`` instead of the ``temporary`` one that libraries read.
    """
    disabled_level, progress_bars = logging.root.manager.disable, transformers_logging.is_progress_bar_enabled()
    logging.disable(logging.WARNING)
    transformers_logging.disable_progress_bar()
    try:
        yield
    except (MdcrError, MemoryError):
        raise
    except Exception as error:  # malformed files make these libraries raise errors of every class
        message = " ".join(str(error).replace(str(temporary or folder), str(folder)).split()).rstrip(".")
        cause = f"{type(error).__name__}: {message:.{_LONGEST}}"
        raise InputError(f"{setting}={folder} cannot be loaded by {_LIBRARY}: {cause}", shape.AGAIN) from error
    finally:
        logging.disable(disabled_level)
        if progress_bars:
            transformers_logging.enable_progress_bar()


OPTIONS: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


@contextmanager
def opening(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to load a model from; missing weights, of which transformers only warns, are an error.

    It holds only the files that identify the model, and no code.

    Raises:
        InputError: a file is damaged or malformed, or weights are missing or left over.
    """
    loaded: list[tuple[Any, dict[str, Any]]] = []
    original = PreTrainedModel.__dict__["from_pretrained"]

    def from_pretrained(cls: Any, *args: Any, **options: Any) -> Any:
        loaded.append(original.__get__(None, cls)(*args, **options, output_loading_info=True))
        return loaded[-1][0]

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)
    try:
        with hub.identity_files_only(folder) as temporary, loading(folder, temporary=temporary):
            yield temporary
    finally:
        PreTrainedModel.from_pretrained = original
    for network, report in loaded:
        missing = sorted(key for key in report["missing_keys"] if not key.startswith(_UNUSED))
        if missing or report["mismatched_keys"]:
            raise InputError(
                f"{folder} lacks weights of its own architecture: {', '.join(missing[:3]) or 'wrong shapes'}",
                "Download it again, or save it with save_pretrained",
            )
        if spare := _spare_layers(network, report["unexpected_keys"]):
            raise InputError(
                f"{folder} has weights of layers that its config.json does not count: {spare[0]}", shape.AGAIN
            )


def _spare_layers(network: Any, unexpected: Iterable[str]) -> list[str]:
    """Return the unexpected weights of layers beyond the configuration's number of layers."""
    lists = {name for name, module in network.named_modules() if isinstance(module, nn.ModuleList)}
    keys = (key.removeprefix(f"{network.base_model_prefix}.") for key in unexpected)
    return sorted(key for key in keys if (match := re.match(r"(.+?)\.\d+\.", key)) and match[1] in lists)


def load_saved(cls: Callable[..., Any], folder: Path, task: str = "feature-extraction") -> Any:
    """Return a model of a class of sentence-transformers from its folder, in float32, on the CPU.

    Raises:
        InputError: as in :func:`opening` and :func:`check_transformer`.
    """
    with opening(folder) as temporary:
        loaded = cls(str(temporary), device="cpu", model_kwargs={"dtype": torch.float32}, **OPTIONS)
        if not isinstance(loaded[0], StaticEmbedding):
            check_transformer(folder, loaded[0], task)
    return loaded


def check_transformer(folder: Path, module: Any, task: str = "feature-extraction") -> None:
    """Check a transformer module.

    Raises:
        InputError: it lacks embeddings of tokens, reads messages instead of plain text, or is for another task.
    """
    if module.transformer_task != task:
        raise InputError(f"transformer_task of {folder} must be {task}, got {module.transformer_task}", shape.AGAIN)
    if "text" not in module.modality_config or "message" in module.modality_config:
        raise InputError(f"{folder} must read plain text, got {[*module.modality_config]}", "Use another model")
    check_vocabulary(folder, module.tokenizer, module.model.get_input_embeddings().num_embeddings)


def check_vocabulary(folder: Path, tokenizer: Any, embedded: int) -> None:
    """Raise InputError if a tokenizer has more tokens than its network has embeddings."""
    tokens = max(tokenizer.get_vocab().values()) + 1
    if tokens > embedded:
        raise InputError(
            f"the tokenizer of {folder} must have at most the {embedded:,} tokens of its network, got {tokens:,}",
            "Save both together, after network.resize_token_embeddings(len(tokenizer))",
        )


def torch_device(name: str) -> torch.device:
    """Return the device of that name; ``auto`` is the first GPU, or the CPU if there is no GPU.

    Raises:
        InputError: the device does not exist.
    """
    gpu = gpu_number(name, torch.cuda.device_count(), "torch", "Choose --device=cpu, or install torch for CUDA")
    return torch.device("cpu") if gpu is None else torch.device("cuda", gpu)


def torch_devices(name: str) -> list[str]:
    """Return the devices of a name: all GPUs for ``auto`` and ``cuda``, else the named one; raises the same."""
    device, count = torch_device(name), torch.cuda.device_count()
    return [f"cuda:{index}" for index in range(count)] if device.type == "cuda" and ":" not in name else [str(device)]
