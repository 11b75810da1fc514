"""Transformers: texts to tokens, tokens to the pooled states of the last layer.

The text templates and poolings are those of the model cards (SPECTER: Cohan et al. 2020; SciNCL: Ostendorff et al.
2022; SPECTER2 and control codes: Singh et al. 2023; sentence-transformers: Reimers and Gurevych 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

from pipeline.core.errors import InputError, StageError
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.corpus.reader import Text
from pipeline.encode.adapter import activate
from pipeline.encode.base import Encoded, Encoder, Matrix
from pipeline.encode.batching import token_batches
from pipeline.encode.spec import Model, Role, TransformerSpec

BATCH_TOKENS = {"cpu": 4_096, "cuda": 65_536}
"""Tokens of a batch with its padding. Vectors may differ in their last bits with it, so provenance records it."""

_UNUSED = ("pooler.",)
"""Weights that do not move the last layer's states: a checkpoint may lack them."""


class _Tokens(NamedTuple):
    """Token ids of each text, and which texts were cut."""

    ids: list[list[int]]
    cut: list[bool]


class TransformerEncoder(Encoder):
    """A transformer on one device.

    Args:
        spec: template, pooling, length and precision.
        model: the transformer, on its device, in evaluation mode.
        tokenizer: its fast tokenizer.
        batch_tokens: tokens of a batch, padding included.

    Raises:
        InputError: the tokenizer is a slow one, or the model takes fewer tokens than the specification asks for.
    """

    def __init__(self, spec: TransformerSpec, model: Any, tokenizer: Any, batch_tokens: int) -> None:
        if not tokenizer.is_fast:
            raise InputError("the model has no fast tokenizer", "Convert it to a tokenizer.json")
        limit = min(tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or 2**31)
        if spec.max_length > limit:
            raise InputError(f"max_length {spec.max_length} is more than the model's {limit}", f"Set it to {limit}")
        self._spec, self._model, self._tokenizer = spec, model, tokenizer
        self._batch_tokens = batch_tokens
        self._device = torch.device(model.device)

    @classmethod
    def load(cls, model: Model, resources: Resources) -> TransformerEncoder:
        """Load a model's weights and tokenizer.

        Raises:
            InputError: the device is not there, or the checkpoint cannot be loaded.
            StageError: the weights are not on this machine, and the hub cannot be reached.
        """
        spec = model.spec
        if not isinstance(spec, TransformerSpec) or model.checkpoint is None:
            raise TypeError(f"{model.name} is no transformer")
        device = _device(resources.device)
        if device.type == "cpu":
            torch.set_num_threads(resources.workers)
        folder = model.checkpoint.ready()
        network, tokenizer = _open(folder)
        if model.adapter is not None:
            activate(network, model.adapter.ready())
        network = network.to(device, getattr(torch, spec.compute)).eval()
        return cls(spec, network, tokenizer, BATCH_TOKENS[device.type])

    @property
    def dimension(self) -> int:
        """Width of the last layer."""
        return int(self._model.config.hidden_size)

    def describe(self) -> Mapping[str, Any]:
        """Return device, precision, attention and batch size."""
        name = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu"
        return {
            "device": name,
            "compute": str(self._model.dtype).removeprefix("torch."),
            "attention": self._model.config._attn_implementation,
            "batch_tokens": self._batch_tokens,
            "threads": torch.get_num_threads(),
        }

    def encode_batches(self, texts: Sequence[Text], role: Role = "paper") -> Iterator[Encoded]:
        """Yield vectors longest texts first; a batch the device has no memory for is halved, and so are the next."""
        separator = self._tokenizer.sep_token or ""
        tokens = self._tokenise([render(text, role, self._spec, separator) for text in texts])
        queue = token_batches(tokens.ids, self._batch_tokens)
        while queue:
            batch = queue.pop(0)
            try:
                vectors = self._vectors([tokens.ids[position] for position in batch])
            except torch.OutOfMemoryError as error:
                self._halve(batch, tokens, error)
                rest = [position for each in (batch, *queue) for position in each]
                queue = token_batches(tokens.ids, self._batch_tokens, rest)
                continue
            yield Encoded(
                positions=np.array(batch, np.int64),
                vectors=vectors,
                texts=len(batch),
                tokens=sum(len(tokens.ids[position]) for position in batch),
                padded=len(batch) * len(tokens.ids[batch[0]]),
                truncated=sum(tokens.cut[position] for position in batch),
            )

    def _tokenise(self, texts: list[str]) -> _Tokens:
        if not texts:
            return _Tokens([], [])
        encoding = self._tokenizer(
            texts,
            truncation=True,
            max_length=self._spec.max_length,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        return _Tokens(encoding["input_ids"], [bool(each.overflowing) for each in encoding.encodings])

    def _vectors(self, tokens: list[list[int]]) -> Matrix:
        """Return the vectors of one batch, float32 ``[texts, dimension]``."""
        width = max(1, max(map(len, tokens)))
        ids = np.full((len(tokens), width), self._tokenizer.pad_token_id or 0, np.int64)
        mask = np.zeros((len(tokens), width), np.int64)
        for row, each in enumerate(tokens):
            ids[row, : len(each)] = each
            mask[row, : len(each)] = 1
        with torch.inference_mode():
            on_device = torch.from_numpy(mask).to(self._device)
            states = self._model(
                input_ids=torch.from_numpy(ids).to(self._device), attention_mask=on_device
            ).last_hidden_state
            pooled = pool(states, on_device, self._spec.pooling)
            if self._spec.normalise:
                pooled = torch.nn.functional.normalize(pooled, dim=1)
            vectors: Matrix = pooled.cpu().numpy()
        return vectors

    def _halve(self, batch: list[int], tokens: _Tokens, error: Exception) -> None:
        """Halve the batch size after a batch did not fit."""
        width = len(tokens.ids[batch[0]])
        if len(batch) == 1:
            raise StageError(
                f"one text of {width} tokens does not fit on {self._device}", "Free its memory or use another --device"
            ) from error
        torch.cuda.empty_cache()
        self._batch_tokens = max(width, len(batch) * width // 2)
        say(f"out of memory on {self._device}: going on with batches of {self._batch_tokens:,} tokens")


def render(text: Text, role: Role, spec: TransformerSpec, separator: str) -> str:
    """Return the one string an encoder reads.

    Args:
        text: title and abstract, or an ad-hoc query as title.
        role: an ad-hoc query is its raw text, with its prefix.
        spec: template and prefixes.
        separator: the tokenizer's separator token.
    """
    if role == "query":
        return spec.query_prefix + text.title
    if spec.template == "title-sep-abstract":
        return spec.paper_prefix + text.title + separator + text.abstract
    return spec.paper_prefix + " ".join(part for part in text if part)


def pool(states: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return one vector a text, float32 ``[texts, dimension]``.

    Args:
        states: last layer, ``[texts, width, dimension]``.
        mask: 1 for tokens and 0 for padding, ``[texts, width]``.
        pooling: ``cls``, ``mean`` or ``position:N``.
    """
    if pooling == "mean":
        weight = mask.unsqueeze(-1).float()
        return (states.float() * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
    position = int(pooling.partition(":")[2] or 0)
    return states[:, position].float()


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


def _device(name: str) -> torch.device:
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
