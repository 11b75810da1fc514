"""Sizes and speeds of encoders (Singh et al. 2023, table 4)."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from pipeline.studies import kit
from pipeline.studies.scirepeval.tasks import Format


def efficiency(vectors: Mapping[tuple[str, Format], tuple[kit.Model, kit.Artifact]]) -> kit.Table:
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
        segments = [segment.manifest for segment in kit.published(artifact.path.parent)]
        read, cut = (sum(segment.counts.get(name, 0) for segment in segments) for name in ("embedded", "truncated"))
        timed = [manifest for manifest in segments if "documents_per_second" in manifest.provenance]
        papers = sum(manifest.counts["embedded"] for manifest in timed)
        seconds = sum(manifest.counts["embedded"] / manifest.provenance["documents_per_second"] for manifest in timed)
        rows.append({
            "system": system, "encoder": encoder, "formats": ", ".join(kinds), "parameters": kit.parameters(model),
            "own_parameters": kit.own_parameters(model),
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
    shown = frame.rename(
        {"own_parameters": "of the format", "papers_per_second": "papers per second", "cut": "cut (%)"}
    )
    return kit.table("efficiency", "SciRepEval: efficiency", frame, "{system}", notes=notes, rows=shown)
