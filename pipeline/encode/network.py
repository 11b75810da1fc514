"""Loads networks of sentence-transformers and transformers from folders without running code, and finds devices."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from pipeline.core.errors import InputError, MdcrError
from pipeline.core.resources import gpu_number
from pipeline.corpus.reader import Text
from pipeline.encode import hub, shape

_UNUSED = ("pooler.",)
"""Prefixes of weights that a checkpoint may lack, since the last layer's states do not depend on them."""

PROBE = (Text("A title", "An abstract with a word that no vocabulary has: \ue000."), Text("Long", "a word " * 300))
"""Texts that a loaded network is tried out on; the second is longer than most networks read."""

FREE = "Free its memory or use another --device"
_LONGEST = 300
"""Maximum characters of a library's message in ours."""

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
        network, report = original.__get__(None, cls)(*args, **options, output_loading_info=True)
        loaded.append((network, report))
        return network

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
    lists = {name for name, module in network.named_modules() if isinstance(module, torch.nn.ModuleList)}
    keys = (key.removeprefix(f"{network.base_model_prefix}.") for key in unexpected)
    return sorted(key for key in keys if (match := re.match(r"(.+?)\.\d+\.", key)) and match[1] in lists)


def load_saved(cls: Callable[..., Any], folder: Path, task: str = "feature-extraction") -> Any:
    """Return a model of sentence-transformers in float32 on the CPU; raise InputError as :func:`opening`."""
    with opening(folder) as temporary:
        loaded = cls(str(temporary), device="cpu", model_kwargs={"dtype": torch.float32}, **OPTIONS)
        if not isinstance(loaded[0], StaticEmbedding):
            check_transformer(folder, loaded[0], task)
    return loaded


def check_transformer(folder: Path, module: Any, task: str = "feature-extraction") -> None:
    """Raise InputError if a transformer is for another task, or reads no plain text or more tokens than it has."""
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
    """Return a device, ``auto``: the first GPU, else the CPU; raise InputError if it does not exist."""
    gpu = gpu_number(name, torch.cuda.device_count(), "torch", "Choose --device=cpu, or install torch for CUDA")
    return torch.device("cpu") if gpu is None else torch.device("cuda", gpu)


def torch_devices(name: str) -> list[str]:
    """Return the devices of a name: all GPUs for ``auto`` and ``cuda``, else the named one; raises the same."""
    device, count = torch_device(name), torch.cuda.device_count()
    return [f"cuda:{index}" for index in range(count)] if device.type == "cuda" and ":" not in name else [str(device)]
