"""Networks with one vector for each task format (Singh et al. 2023, section 4.1): building, switching, saving.

``MODEL=/path`` reads what is saved: a folder of sentence-transformers, or one of transformers with the recipe in
``config_sentence_transformers.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import nn
from transformers import set_seed

from pipeline.core.errors import InputError
from pipeline.encode import bottleneck, hub, shape
from pipeline.encode.kinds import Transformer as Base
from pipeline.encode.model import MODULES
from pipeline.encode.network import loading
from pipeline.encode.pals import PalsConfig, PalsModel
from pipeline.encode.transformer import open_modules
from pipeline.train.recipe import CODES, Format, Name, adapter_of

_SIMILARITIES = {"l2": "euclidean", "cosine": "cosine", "inner_product": "dot"}
_NAMES = sorted(CODES.values())
_PALS_WIDTH = {True: 204, False: 24}
"""Hidden size of a PAL, by whether the network is large; six heads share it."""

_REDUCTION = 16
"""Hidden size of the network over the width of an adapter."""


class CodePooling(nn.Module):  # type: ignore[misc]
    """Pools the last state of the control code, which follows the first token."""

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add ``sentence_embedding``, float32 ``[texts, dimension]``."""
        return {**features, "sentence_embedding": features["token_embeddings"][:, 1]}


class Chosen(nn.ModuleList):  # type: ignore[misc]
    """Alternative modules, one of them active; weights are named as in a plain list."""

    active = 0

    def forward(self, *args: Any) -> Any:
        """Return the output of the active module."""
        return self[self.active](*args)


class Architecture:
    """Trainable modules from a base encoder.

    Args:
        name: name of the architecture.
        base: the encoder to train further.
        max_length: maximum tokens of a training text.
        seed: seed of new weights.

    Raises:
        InputError: the base cannot have this architecture, or a package is missing.
    """

    def __init__(self, name: Name, base: Base, max_length: int, seed: int) -> None:
        if base.pals or (base.adapter_files is not None and name != "fusion"):
            raise InputError(f"{base.name} cannot be trained further as {name}", "Give the model without adapters")
        self.name, self.base = name, base
        self._folder = base.ready()
        set_seed(seed)
        modules = open_modules(self._folder, base)
        if not isinstance(modules[0], Transformer):
            raise InputError(f"{base.name} cannot be trained: it is a {shape.STATIC}", "Give a model such as minilm")
        self._limits = _limits(modules[0].tokenizer)
        self.network: Any = modules[0].model
        self._switch: Callable[[str], None] = lambda _: None
        if name != "cls" and any(list(module.parameters()) for module in modules[1:]):
            raise InputError(f"{base.name} has layers behind the transformer", "Train it as cls")
        modules = getattr(self, f"_{name}")(modules)
        modules[0].max_seq_length = max_length
        self.switch("proximity")
        similarity: Any = _SIMILARITIES[base.distance]
        self.model = SentenceTransformer(modules=modules, device="cpu", similarity_fn_name=similarity)

    @property
    def coded(self) -> bool:
        """Whether texts begin with the code of their format."""
        return self.name == "ctrl"

    def switch(self, form: Format) -> None:
        """Make the network compute vectors of a format."""
        self._switch(CODES[form])

    def _cls(self, modules: list[Any]) -> list[Any]:
        return modules

    def _ctrl(self, modules: list[Any]) -> list[Any]:
        tokenizer = modules[0].tokenizer
        tokenizer.add_special_tokens({"additional_special_tokens": _NAMES})
        self.network.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        return [modules[0], CodePooling()]

    def _adapters(self, modules: list[Any]) -> list[Any]:
        for code in _NAMES:
            bottleneck.add_adapter(self.network, code, self.network.config.hidden_size // _REDUCTION)
        self._train_only(".adapters.")
        self._switch = partial(bottleneck.switch, self.network)
        return modules

    def _fusion(self, modules: list[Any]) -> list[Any]:
        for code in _NAMES:
            source = self._folder / "adapters" / code
            if not (source / hub.ADAPTER.config).is_file():
                raise InputError(
                    f"fusion must start from adapters, got none in {source}", "Give base the folder of such a run"
                )
            with loading(source, "adapter"):
                bottleneck.load_adapter(self.network, source, code)
        for code in _NAMES:
            bottleneck.add_fusion(self.network, f"{code}_fusion", _NAMES)
        self._train_only(".adapter_fusion_layer.")
        self._switch = lambda code: bottleneck.switch(self.network, f"{code}_fusion")
        return modules

    def _train_only(self, part: str) -> None:
        """Freeze all weights but those whose name has ``part``."""
        for name, weight in self.network.named_parameters():
            weight.requires_grad = part in name

    def _pals(self, modules: list[Any]) -> list[Any]:
        config = self.network.config
        if config.model_type != "bert":
            raise InputError(f"PALs need a BERT, got {config.model_type} of {self.base.name}", "Use adapters")
        width = _PALS_WIDTH[config.hidden_size >= 256]
        settings = {**config.to_dict(), "pals": True, "hidden_size_aug": width, "num_tasks": len(_NAMES)}
        network = PalsModel(PalsConfig(**{key: value for key, value in settings.items() if key != "model_type"}))
        network.load_state_dict(self.network.state_dict(), strict=False)
        first_layer, *other_layers = network.encoder.layer
        for layer in network.encoder.layer:
            layer.multi_layers = Chosen(layer.multi_layers)
        for layer in other_layers:  # all layers share the projections, as in Stickland and Murray 2019
            for pal, first_pal in zip(layer.multi_layers, first_layer.multi_layers, strict=True):
                pal.aug_dense, pal.aug_dense2 = first_pal.aug_dense, first_pal.aug_dense2
        self.network = modules[0].model = network

        def switch(code: str) -> None:
            for layer in network.encoder.layer:
                layer.multi_layers.active = _NAMES.index(code)

        self._switch = switch
        return modules

    def save(self, folder: Path) -> None:
        """Write the trained model and its tokenizer into a folder."""
        transformer = self.model[0]
        transformer.max_seq_length = self.base.max_length
        _set_limits(transformer.tokenizer, *self._limits)
        if self.name == "cls":
            self.model.save_pretrained(str(folder), create_model_card=True)
            self._describe(folder)
            return
        transformer.tokenizer.model_max_length = self.base.max_length
        transformer.tokenizer.save_pretrained(folder)
        if self.name in ("adapters", "fusion"):
            self._save_adapters(folder)
            return
        if self.name == "pals":
            state = {key: weight.clone() for key, weight in self.network.state_dict().items()}  # none are shared
            self.network.save_pretrained(folder, state_dict=state)
            self._describe(folder, pooling=self._pooling(), pals=CODES["proximity"])
            return
        self.network.save_pretrained(folder)
        prompts = {form: f"{code} " for form, code in CODES.items()}
        self._describe(folder, pooling="position:1", prompts={**prompts, "document": prompts["proximity"]})

    def _save_adapters(self, folder: Path) -> None:
        """Write the base unchanged, its adapters, and their fusions."""
        for path in (*hub.weights(self._folder), shape.first_module(self._folder)[1] / "config.json"):
            (folder / path.name).write_bytes(path.read_bytes())
        (folder / "adapters").mkdir(exist_ok=True)
        for code in _NAMES:
            bottleneck.save(self.network, folder / "adapters" / code, code)
            if self.name == "fusion":
                bottleneck.save(self.network, folder / f"{code}_fusion", f"{code}_fusion")
        self._describe(folder, pooling=self._pooling(), adapter=adapter_of(self.name, CODES["proximity"]))

    def _pooling(self) -> str:
        """Return the pooling of the base by a name that needs no ``modules.json``."""
        if self.base.pooling != MODULES:
            return self.base.pooling
        return "+".join(mode for module in self.model for mode in _modes(module)) or "mean"

    def _describe(self, folder: Path, **settings: Any) -> None:
        path = folder / shape.MODEL_FILE
        values = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        normalises = any(type(module).__name__ == "Normalize" for module in self.model)
        normalise = {"normalise": True} if settings.get("pooling") and normalises else {}
        values |= {"similarity_fn_name": _SIMILARITIES[self.base.distance], "template": self.base.template}
        values["prompts"] = {"document": self.base.paper_prefix, "query": self.base.query_prefix}
        path.write_text(json.dumps({**values, **settings, **normalise}, indent=2), encoding="utf-8")

    def trained(self) -> dict[str, int]:
        """Return the number of parameters, and of trained parameters."""
        weights = list(self.model.parameters())
        return {
            "parameters": sum(map(torch.numel, weights)),
            "trained": sum(weight.numel() for weight in weights if weight.requires_grad),
        }


def _limits(tokenizer: Any) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """Return truncation and padding of a tokenizer, which each call changes; None for none."""
    backend = getattr(tokenizer, "backend_tokenizer", None)  # tokenizers in Python have none
    return (backend.truncation, backend.padding) if backend else (None, None)


def _set_limits(tokenizer: Any, truncation: Mapping[str, Any] | None, padding: Mapping[str, Any] | None) -> None:
    if backend := getattr(tokenizer, "backend_tokenizer", None):
        backend.enable_truncation(**truncation) if truncation else backend.no_truncation()
        backend.enable_padding(**padding) if padding else backend.no_padding()


def _modes(module: Any) -> list[str]:
    mode = getattr(module, "pooling_mode", ())
    return [mode] if isinstance(mode, str) else list(mode)
