"""Transformers: tokens to the pooled states of the last layer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

from pipeline.core.errors import InputError, StageError
from pipeline.core.progress import say
from pipeline.core.resources import Resources, keep_freed_memory
from pipeline.corpus.reader import Text
from pipeline.encode.adapter import activate
from pipeline.encode.aspire import SentenceReader
from pipeline.encode.base import Encoded, Encoder
from pipeline.encode.batching import token_batches
from pipeline.encode.packed import PackedBert
from pipeline.encode.reading import PlainReader, Reader, ReaderPool, Tokens
from pipeline.encode.spec import AspireSpec, Model, Role, TransformerSpec

BATCH_TOKENS = {"cpu": 2_048, "cuda": 65_536}
"""Tokens of a batch, padding included. Vectors may differ in their last bits with it, so provenance records it."""

_BATCHES, _LEAST_TOKENS = 16, 512
"""Few texts are split into that many batches for the threads of a processor, if each has that many tokens."""

_UNUSED = ("pooler.",)
"""Weights that do not move the last layer's states: a checkpoint may lack them."""

_NO_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
_FREE = "Free its memory or use another --device"

_FRAME = 2
"""Special tokens around ASPIRE's text."""


class _Launched(NamedTuple):
    """A batch whose vectors are computed, or still on their way from the device."""

    batch: list[int]
    padded: int
    vectors: torch.Tensor
    arrived: Any


class TransformerEncoder(Encoder):
    """A transformer on one device.

    A network that :class:`pipeline.encode.packed.PackedBert` reproduces is computed without padding, any other in
    padded batches of texts of like length.

    Args:
        spec: precision, length and what is pooled.
        network: the transformer in float32 on the CPU, with its adapter, in evaluation mode.
        tokenizer: its fast tokenizer.
        device: where to compute.
        workers: on a processor, threads, each with a batch of its own; with a GPU, processes that tokenise, or 0: it
            is done in this one.

    Raises:
        InputError: the tokenizer is a slow one, or the model takes fewer tokens than the specification asks for.
        StageError: the device has no memory for the weights.
    """

    def __init__(
        self, spec: TransformerSpec | AspireSpec, network: Any, tokenizer: Any, device: torch.device, workers: int = 1
    ) -> None:
        if not tokenizer.is_fast:
            raise InputError("the model has no fast tokenizer", "Convert it to a tokenizer.json")
        limit = min(tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", None) or 2**31)
        longest = spec.max_length if isinstance(spec, TransformerSpec) else spec.max_tokens + _FRAME
        if longest > limit:
            raise InputError(f"max_length {longest} is more than the model's {limit}", f"Set it to {limit}")
        reader: Reader = (
            PlainReader(spec, tokenizer) if isinstance(spec, TransformerSpec) else SentenceReader(spec, tokenizer)
        )
        cpu = device.type == "cpu"
        self._reader: Reader = reader if cpu or not workers else ReaderPool(reader, workers)
        self._pad = tokenizer.pad_token_id or 0
        self._normalise = isinstance(spec, TransformerSpec) and spec.normalise
        packs = PackedBert.fits(network)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # pinned memory and events belong to the current one
        try:
            self._network = network.to(device, getattr(torch, spec.compute))
            self._packed = PackedBert(self._network) if packs else None
        except torch.OutOfMemoryError as error:
            raise StageError(f"the model does not fit on {device}", _FREE) from error
        self._device, self._batch_tokens = device, BATCH_TOKENS[device.type]
        self._workers = workers if cpu else 1
        self._threads = ThreadPoolExecutor(workers, "encode", torch.set_num_threads, (1,)) if cpu else None
        if cpu:
            keep_freed_memory()

    @classmethod
    def load(cls, model: Model, resources: Resources) -> TransformerEncoder:
        """Load a model's weights and tokenizer.

        Raises:
            InputError: the device is not there, or the checkpoint cannot be loaded.
            StageError: the weights are not on this machine, and the hub cannot be reached.
        """
        if not isinstance(model.spec, TransformerSpec | AspireSpec) or model.checkpoint is None:
            raise TypeError(f"{model.name} is no transformer")
        device = torch_device(resources.device)
        folder = model.checkpoint.ready()
        network, tokenizer = _open(folder)
        if model.adapter is not None:
            activate(network, model.adapter.ready())
        return cls(model.spec, network.eval(), tokenizer, device, resources.workers)

    @property
    def dimension(self) -> int:
        """Width of the last layer."""
        return int(self._network.config.hidden_size)

    def describe(self) -> Mapping[str, Any]:
        """Return device, precision, attention and batch size; a packed network has its weights twice."""
        name = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu"
        return {
            "device": name,
            "compute": str(self._network.dtype).removeprefix("torch."),
            "attention": "packed" if self._packed else self._network.config._attn_implementation,
            "batch_tokens": self._batch_tokens,
            "weight_bytes": (2 if self._packed else 1) * sum(weight.nbytes for weight in self._network.parameters()),
            "threads": self._workers,
        }

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> Tokens:
        """Return texts as tokens."""
        return self._reader(texts, role)

    def finish(self, prepared: Tokens) -> Iterator[Encoded]:
        """Yield vectors longest texts first; a batch the device has no memory for is halved, and so are the next.

        While a batch is yielded the next ones are under way: one a thread on a processor, one on a GPU, which so does
        not wait for this process.
        """
        queue = deque(self._batches(prepared, range(len(prepared.ids))))
        under_way = deque[tuple[list[int], Callable[[], _Launched | None]]]()
        while queue or under_way:
            while queue and len(under_way) <= self._workers:
                batch = queue.popleft()
                under_way.append((batch, self._start(batch, prepared)))
            batch, result = under_way.popleft()
            launched = result()
            if launched is not None:
                yield _encoded(launched, prepared)
                continue
            self._halve(batch, prepared)
            left = [position for each in (batch, *queue) for position in each]
            queue = deque(self._batches(prepared, left))

    def _start(self, batch: list[int], tokens: Tokens) -> Callable[[], _Launched | None]:
        """Launch a batch, on a processor in a thread; return what waits for it."""
        if self._threads is not None:
            return self._threads.submit(self._tried, batch, tokens).result
        launched = self._tried(batch, tokens)
        return lambda: launched

    def _tried(self, batch: list[int], tokens: Tokens) -> _Launched | None:
        """Launch a batch; None where the device has no memory for it. What it did take is free again on return."""
        try:
            return self._launch(batch, tokens)
        except RuntimeError as error:
            if not _no_memory(error):
                raise
        return None

    def _batches(self, tokens: Tokens, among: Sequence[int]) -> list[list[int]]:
        budget = self._batch_tokens
        if self._threads is not None:
            share = sum(len(tokens.ids[position]) for position in among) // _BATCHES
            budget = min(budget, max(_LEAST_TOKENS, share))
        return token_batches(tokens.ids, budget, among, padded=self._packed is None)

    def _launch(self, batch: list[int], tokens: Tokens) -> _Launched:
        """Start computing the vectors of one batch."""
        ids = [tokens.ids[position] for position in batch]
        lengths = [len(each) for each in ids]
        step = max(lengths)
        starts = [0, *accumulate(lengths)][:-1] if self._packed else range(0, step * len(ids), step)
        spans = [
            (start + first, start + end)
            for start, position in zip(starts, batch, strict=True)
            for first, end in tokens.spans[position]
        ]
        with torch.inference_mode():
            wanted = self._one_token_each(spans, len(batch)) if self._packed else None
            if self._packed:
                padded = sum(lengths)
                states = self._packed(self._send(np.concatenate(ids)), lengths, wanted)
            else:
                padded = step * len(ids)
                states = self._padded(ids, step)
            pooled = states.float() if wanted is not None else pool(states, *map(self._send, span_tokens(spans)))
            if self._normalise:
                pooled = torch.nn.functional.normalize(pooled, dim=1)
            return _Launched(batch, padded, *self._fetch(pooled))

    def _one_token_each(self, spans: Sequence[tuple[int, int]], texts: int) -> torch.Tensor | None:
        if len(spans) != texts or any(end - first != 1 for first, end in spans):
            return None
        return self._send(np.array([first for first, _ in spans], np.int64))

    def _padded(self, ids: Sequence[Sequence[int]], width: int) -> torch.Tensor:
        """Return the network's own states of a padded batch, ``[texts * width, dimension]``."""
        matrix = np.full((len(ids), width), self._pad, np.int64)
        mask = np.zeros((len(ids), width), np.int64)
        for row, each in enumerate(ids):
            matrix[row, : len(each)] = each
            mask[row, : len(each)] = 1
        states: torch.Tensor = self._network(
            input_ids=self._send(matrix), attention_mask=self._send(mask)
        ).last_hidden_state
        return states.flatten(0, 1)

    def _send(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array.astype(np.int64, copy=False))
        return tensor.pin_memory().to(self._device, non_blocking=True) if self._device.type == "cuda" else tensor

    def _fetch(self, pooled: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor a batch's vectors arrive in, and what tells that they have."""
        if self._device.type != "cuda":
            return pooled, None
        host = torch.empty(pooled.shape, dtype=pooled.dtype, pin_memory=True).copy_(pooled, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(self._device))
        return host, arrived

    def _halve(self, batch: list[int], tokens: Tokens) -> None:
        """Halve the batch size after a batch did not fit."""
        width = len(tokens.ids[batch[0]])
        if len(batch) == 1:
            raise StageError(f"one text of {width} tokens does not fit on {self._device}", _FREE)
        torch.cuda.empty_cache()
        half = max(width, sum(len(tokens.ids[position]) for position in batch) // 2)
        self._batch_tokens = min(self._batch_tokens, half)
        say(f"out of memory on {self._device}: going on with batches of {self._batch_tokens:,} tokens")


def pool(states: torch.Tensor, places: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the mean of the states of each span of tokens, float32 ``[spans, dimension]``.

    Args:
        states: last layer, ``[tokens, dimension]``.
        places: the tokens of all spans, one span after another, int64 ``[tokens of spans]``.
        lengths: tokens of each span, at least one, int64 ``[spans]``.
    """
    return torch.segment_reduce(states[places].float(), "mean", lengths=lengths, axis=0, unsafe=True)


def span_tokens(spans: Sequence[tuple[int, int]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the tokens of all spans, one span after another, and how many each has, as :func:`pool` takes them."""
    bounds = np.array(spans, np.int64)
    lengths = bounds[:, 1] - bounds[:, 0]
    ends = np.cumsum(lengths)
    return np.arange(ends[-1]) + np.repeat(bounds[:, 0] - ends + lengths, lengths), lengths


def _no_memory(error: RuntimeError) -> bool:
    """Whether an error says that a device has no memory left; not all libraries raise PyTorch's own."""
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in _NO_MEMORY)


def _encoded(launched: _Launched, tokens: Tokens) -> Encoded:
    if launched.arrived is not None:
        launched.arrived.synchronize()
    batch = launched.batch
    return Encoded(
        positions=np.repeat(np.array(batch, np.int64), [len(tokens.spans[position]) for position in batch]),
        vectors=launched.vectors.numpy(),
        texts=len(batch),
        tokens=sum(len(tokens.ids[position]) for position in batch),
        padded=launched.padded,
        truncated=sum(tokens.cut[position] for position in batch),
    )


def _open(folder: Path) -> tuple[Any, Any]:
    """Load network, in float32, and tokenizer; what transformers only warns of is an error where it moves vectors."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        network, report = AutoModel.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{folder} cannot be loaded as a transformer ({error})", "Download it again") from error
    finally:
        transformers_logging.set_verbosity(verbosity)
    missing = sorted(key for key in report["missing_keys"] if not key.startswith(_UNUSED))
    if missing or report["mismatched_keys"]:
        raise InputError(
            f"{folder} lacks weights of its own architecture: {', '.join(missing[:3]) or 'wrong shapes'}",
            "Download it again, or save it with save_pretrained",
        )
    return network, tokenizer


def torch_device(name: str) -> torch.device:
    """Return the device of that name, ``auto``: the first GPU or else the processor.

    Raises:
        InputError: there is none.
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
        InputError: there is none.
    """
    device = torch_device(name)
    if device.type == "cuda" and device.index is None and torch.cuda.device_count() > 1:
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [name]
