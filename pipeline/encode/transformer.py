"""Text encoders: modules of sentence-transformers, listed in a model folder or built from its settings.

The last bits of a product depend on the shape of its batch. The length of a text alone decides the shape, so a text has
the same vector whatever else is encoded. The transformer computes in the requested precision, later modules in float32.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base import modules as base_modules
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, StaticEmbedding
from torch import nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from pipeline.core.csr import ranges
from pipeline.core.errors import InputError, StageError
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode import bottleneck, shape
from pipeline.encode.aspire import SentenceTokeniser
from pipeline.encode.base import Encoded, Encoder
from pipeline.encode.kinds import Aspire, Transformer
from pipeline.encode.model import MODULES, Role
from pipeline.encode.network import (
    FREE,
    OPTIONS,
    PROBE,
    check_transformer,
    check_vocabulary,
    load_saved,
    loading,
    opening,
    torch_device,
)
from pipeline.encode.pals import choose_pals, name_pals
from pipeline.encode.tokenise import Batch, TextTokeniser, Tokeniser, Tokens, token_batches

BATCH_TOKENS = {"cpu": 1, "cuda": 12_288}
"""Tokens of a batch, padding included, or one text. On a CPU a batch is one text: its products have rows enough, and
nothing is padded. The last bits of vectors may depend on it, so provenance records it."""

_STATIC_TOKENS = 65_536
"""As :data:`BATCH_TOKENS`, for static embeddings: their vectors do not depend on the batch."""

_ASPIRE_SPECIAL = 2
"""Special tokens around ASPIRE's text."""

_NO_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")

_Result = Callable[[], Encoded]
"""Function that waits for the vectors of a batch to arrive from the device."""


class TransformerEncoder(Encoder):
    """Modules on one device that encode texts in batches of fixed shapes.

    Args:
        model: how texts are read.
        modules: a transformer and later modules, in float32 on the CPU.
        tokenizer: a fast tokenizer.
        device: where to compute.
        workers: threads on a CPU, one batch each.

    Raises:
        InputError: the tokenizer is slow, the model takes fewer tokens than its longest text, or vectors have no
            components.
        StageError: the device has no memory for the weights.
    """

    def __init__(
        self,
        model: Transformer | Aspire,
        modules: Sequence[nn.Module],
        tokenizer: Any,
        device: torch.device,
        workers: int = 1,
    ) -> None:
        network = modules[0].model
        longest = model.max_length if isinstance(model, Transformer) else model.max_tokens + _ASPIRE_SPECIAL
        positions = getattr(getattr(network, "config", None), "max_position_embeddings", None)
        if not tokenizer.is_fast:
            raise InputError("the model has no fast tokenizer", "Convert it to a tokenizer.json")
        limit = min(tokenizer.model_max_length, positions or 2**31)
        if longest > limit:
            raise InputError(f"max_length {longest} is more than the model's {limit}", f"Set it to {limit}")
        self._tokenise: Tokeniser = (
            TextTokeniser(model, tokenizer) if isinstance(model, Transformer) else SentenceTokeniser(model, tokenizer)
        )
        self._spans = any(isinstance(module, SpanPooling) for module in modules)
        sized = (module for module in reversed(modules) if hasattr(module, "get_embedding_dimension"))
        self._dimension = int(next(sized).get_embedding_dimension())
        if self._dimension < 1:  # torch divides by it
            raise InputError(f"vectors must have a dimension above 0, got {self._dimension}", shape.AGAIN)
        self._pad, self._longest, self._device = tokenizer.pad_token_id or 0, longest, device
        try:
            modules[0].to(dtype=getattr(torch, model.compute))
            self._modules = nn.Sequential(*modules).to(device).eval()
        except torch.OutOfMemoryError as error:
            raise StageError(f"the model does not fit on {device}", FREE) from error
        self._batch_tokens = BATCH_TOKENS[device.type] if hasattr(network, "config") else _STATIC_TOKENS
        self._workers = workers if device.type == "cpu" else 1
        self._threads = ThreadPoolExecutor(self._workers, "encode", _start_thread, (device,))

    @property
    def dimension(self) -> int:
        """Components of a vector."""
        return self._dimension

    def prepare(self, texts: Sequence[Text], role: Role = "paper") -> Tokens:
        """Return texts as tokens."""
        return self._tokenise(texts, role)

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

    def try_out(self) -> None:
        """Compute some texts to find mismatched parts or non-finite values before the corpus is read."""
        vectors = np.concatenate([batch.vectors for batch in self.encode_batches(PROBE)])
        if len(vectors) < len(PROBE) or not np.isfinite(vectors).all():
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
                raise StageError(f"one text of {batch.width} tokens does not fit on {self._device}", FREE)
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
        vectors_of = [len(tokens.spans[position]) for position in texts]
        with torch.inference_mode():
            inputs = {"input_ids": self._send(ids), "attention_mask": self._send(mask)}
            vectors = self._compute({**inputs, **self._further_inputs(batch, tokens)})[: sum(vectors_of)]
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
                positions=np.repeat(np.array(texts, np.int64), vectors_of),
                vectors=vectors.numpy(),
                texts=len(texts),
                tokens=sum(len(tokens.ids[position]) for position in texts),
                padded=ids.size,
                truncated=sum(tokens.cut[position] for position in texts),
            )

        return result

    def _further_inputs(self, batch: Batch, tokens: Tokens) -> dict[str, Any]:
        """Return the spans to pool if a module pools spans, else the length of the prompt."""
        if not self._spans:
            return {"prompt_length": tokens.prompt} if tokens.prompt else {}
        spans = [
            (row * batch.width + start, row * batch.width + end)
            for row, position in enumerate(batch.texts)
            for start, end in tokens.spans[position]
        ]
        start, end = np.array(spans).T
        starts = np.cumsum(end - start) - (end - start)
        return {"token_positions": self._send(ranges(start, end - start)), "offsets": self._send(starts)}

    def _compute(self, features: dict[str, Any]) -> torch.Tensor:
        """Return the vectors of a batch, float32 ``[vectors, dimension]``."""
        transformer, *later = self._modules
        features = {
            name: value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for name, value in transformer(features).items()
        }
        for module in later:
            features = module(features)
        vectors: torch.Tensor = features["sentence_embedding"]
        return vectors

    def _send(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        """Copy an array to the device."""
        tensor = torch.from_numpy(array)
        return tensor if self._device.type == "cpu" else tensor.pin_memory().to(self._device, non_blocking=True)


def _start_thread(device: torch.device) -> None:
    """Set up a thread: one core on a CPU; on a GPU the current device, to which events and copies refer."""
    if device.type == "cpu":
        torch.set_num_threads(1)
    elif device.index is not None:
        torch.cuda.set_device(device)


def load(model: Transformer | Aspire, _fit: None, resources: Resources) -> TransformerEncoder:
    """Load a model's weights and tokenizer.

    Raises:
        InputError: the device does not exist, or the checkpoint cannot be loaded.
        StageError: the weights are not on this machine, and the hub cannot be reached.
    """
    device, folder = torch_device(resources.device), model.ready()
    modules = open_modules(folder, model)
    if model.adapter_files is not None:
        bottleneck.activate(modules[0].model.eval(), model.adapter_files.ready())
    with loading(folder):
        encoder = TransformerEncoder(model, modules, modules[0].tokenizer, device, resources.workers)
        encoder.try_out()
    return encoder


class SpanPooling(nn.Module):  # type: ignore[misc]
    """Pools spans of tokens by the mean of their states: ASPIRE's sentences, and control codes.

    ``token_positions`` has the token positions of all spans in turn, ``offsets`` where each span starts in it.
    """

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add ``sentence_embedding``, float32 ``[spans, dimension]``."""
        states = features["token_embeddings"].flatten(0, 1)
        pooled = functional.embedding_bag(features["token_positions"], states, features["offsets"], mode="mean")
        return {**features, "sentence_embedding": pooled}


class Static(nn.Module):  # type: ignore[misc]
    """A static embedding that reads padded batches, as a transformer does; its vectors do not depend on padding."""

    def __init__(self, module: StaticEmbedding, folder: Path) -> None:
        super().__init__()
        self.model = module.embedding
        module.tokenizer.post_processor = None  # it adds special tokens, which sentence-transformers leaves out
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=module.tokenizer)
        check_vocabulary(folder, self.tokenizer, module.num_embeddings)

    def get_embedding_dimension(self) -> int:
        """Return the components of a vector."""
        return int(self.model.embedding_dim)

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add ``sentence_embedding``, ``[texts, dimension]``: the mean over a text's tokens, zero without any."""
        is_token = features["attention_mask"].bool()
        starts = is_token.sum(dim=1).cumsum(dim=0).roll(1)
        starts[0] = 0
        return {**features, "sentence_embedding": self.model(features["input_ids"][is_token], starts)}


def open_modules(folder: Path, model: Transformer | Aspire) -> list[Any]:
    """Return the modules of a model, in float32; raise InputError if a file or the weights do not fit."""
    pooling, pals = getattr(model, "pooling", ""), getattr(model, "pals", "")
    options = {**OPTIONS, "dtype": torch.float32}
    if pooling == MODULES:
        first, *later = load_saved(SentenceTransformer, folder)
        return [Static(first, folder) if isinstance(first, StaticEmbedding) else first, *later]
    with opening(folder) as copied:
        temporary = copied / shape.first_module(folder)[1].relative_to(folder)
        name_pals(folder, temporary, pals)
        transformer = base_modules.Transformer(
            str(temporary),
            model_kwargs=options,
            processor_kwargs={**OPTIONS},
            config_kwargs={**OPTIONS},
            modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            module_output_name="token_embeddings",
        )
        check_transformer(folder, transformer)
        choose_pals(transformer.model, pals)
        spans = not pooling or pooling.startswith("position:")
        modes = pooling.split("+")
        pooled = SpanPooling() if spans else Pooling(transformer.get_embedding_dimension(), modes)
        return [transformer, pooled, *([Normalize()] if getattr(model, "normalise", False) else [])]
