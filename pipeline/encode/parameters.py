"""Numbers of parameters of encoders, from the headers of their weights, or else from the sizes of the files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from pipeline.encode import hub
from pipeline.encode.kinds import Transformer
from pipeline.encode.model import PALS, Model


def parameters(model: Model) -> int | None:
    """Return the number of parameters of all checkpoints and adapters of a model; None without weights."""
    parts = (model, *model.parts)
    return _counted({*filter(None, (files for part in parts for files in (part.files, part.adapter_files)))})


def own_parameters(model: Model) -> int | None:
    """Return the parameters of one format alone: its adapter, fusion, PALs or control code; None without any."""
    if model.parts:
        return sum(filter(None, map(own_parameters, model.parts))) or None
    if model.adapter_files:
        return _counted([model.adapter_files])
    if not model.files or not isinstance(model, Transformer):
        return None
    if model.pals:
        return _counted([model.files], f".multi_layers.{PALS.index(model.pals)}.")
    coded = model.pooling == "position:1"
    config = json.loads((model.files.folder / "config.json").read_text(encoding="utf-8")) if coded else {}
    return config.get("hidden_size")  # the embedding of the code


def _counted(checkpoints: Iterable[hub.Checkpoint], part: str = "") -> int | None:
    """Return the number of parameters whose names hold ``part``; None if no file tells it."""
    sizes = list[int]()
    for path in (path for checkpoint in checkpoints for path in hub.weights(checkpoint.folder, checkpoint.layout)):
        if path.suffix == ".safetensors":
            with path.open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            tensors = (row for name, row in header.items() if name != "__metadata__" and part in name)
            sizes += [math.prod(row["shape"]) for row in tensors]
        elif path.suffix != ".json" and not part:  # .json: the index of several files
            sizes.append(path.stat().st_size // 4)
    return sum(sizes) if sizes else None
