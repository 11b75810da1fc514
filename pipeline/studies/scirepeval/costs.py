"""Sizes and speeds of encoders (Singh et al. 2023, table 4)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping

import polars as pl

from pipeline.core.artifact import Artifact, published
from pipeline.encode import hub
from pipeline.encode.kinds import Transformer
from pipeline.encode.model import PALS, Model
from pipeline.scores.tables import Table, frame_table
from pipeline.studies.scirepeval.tasks import Format


def efficiency(vectors: Mapping[tuple[str, Format], tuple[Model, Artifact]]) -> Table:
    """Return the size and speed of each encoder of each system (table 4), from the runs that embedded papers.

    ``parameters`` is the number of parameters of all checkpoints and adapters of an encoder; null without weights.
    ``own_parameters`` are those of the format alone. ``cut`` is the percentage of papers that were cut at its length.
    """
    formats: dict[tuple[str, str], list[Format]] = {}
    for (system, kind), (model, _) in vectors.items():
        formats.setdefault((system, model.name), []).append(kind)
    rows = []
    for (system, encoder), kinds in formats.items():
        model, artifact = vectors[system, kinds[0]]
        segments = [segment.manifest for segment in published(artifact.path.parent)]
        read, cut = (sum(segment.counts.get(name, 0) for segment in segments) for name in ("embedded", "truncated"))
        timed = [manifest for manifest in segments if "documents_per_second" in manifest.provenance]
        papers = sum(manifest.counts["embedded"] for manifest in timed)
        seconds = sum(manifest.counts["embedded"] / manifest.provenance["documents_per_second"] for manifest in timed)
        rows.append({
            "system": system, "encoder": encoder, "formats": ", ".join(kinds), "parameters": _parameters(model),
            "own_parameters": _own_parameters(model),
            "papers": papers, "papers_per_second": papers / seconds if timed else None,
            "cut": 100 * cut / read if read else None,
            "device": ", ".join(dict.fromkeys(manifest.provenance["device"] for manifest in timed)),
        })  # fmt: skip
    frame = pl.DataFrame(rows, infer_schema_length=None)
    notes = [
        "Papers per second while vectors were made, whatever else ran on the device; not tested. Parameters of files "
        "that are not safetensors: their bytes by four. Of the format: of its adapter, PALs or code alone. Cut: papers "
        "longer than the encoder reads.",
    ]
    heads = {"own_parameters": "of the format", "papers_per_second": "papers per second", "cut": "cut (%)"}
    shown = frame.rename(heads)
    return frame_table("efficiency", "SciRepEval: efficiency", frame, notes, shown=shown)


def _parameters(model: Model) -> int | None:
    """Return the number of parameters of a model, by the header of each file of weights, or else by its size."""
    parts = (model, *model.parts)
    checkpoints = {*filter(None, (checkpoint for part in parts for checkpoint in (part.files, part.adapter_files)))}
    return _counted(checkpoints)


def _own_parameters(model: Model) -> int | None:
    """Return the parameters of one format alone: its adapter, fusion, PALs or control code; None without any."""
    if model.parts:
        return sum(filter(None, map(_own_parameters, model.parts))) or None
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
            sizes += [
                math.prod(row["shape"]) for name, row in header.items() if name != "__metadata__" and part in name
            ]
        elif path.suffix != ".json" and not part:  # .json: the index of several files
            sizes.append(path.stat().st_size // 4)
    return sum(sizes) if sizes else None
