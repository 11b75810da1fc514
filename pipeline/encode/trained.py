"""Training data of encoders that ``mdcr train`` made, read from the manifest beside their folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.config import SHORT_ID
from pipeline.core.manifest import MANIFEST
from pipeline.core.workspace import TRAINING
from pipeline.encode import hub, names
from pipeline.encode.registry import Training, trainings
from pipeline.encode.spec import Model


def recorded(model: Model) -> dict[str, Any]:
    """Return the entry ``training`` of the provenance of vectors: base and triplets; empty if no folder says it."""
    found = of_model(model)
    if found == trainings(model.name):
        return {}
    return {"training": {name: [training.on, training.until] for name, training in found.items()}}


def of_model(model: Model) -> dict[str, Training]:
    """Return the training data of a model, by name; that of a folder is unknown if ``mdcr train`` did not make it."""
    if model.parts:
        return {name: training for part in model.parts for name, training in of_model(part).items()}
    weights = model.adapter or model.checkpoint
    return (_of_folder(weights.folder) if weights and not weights.hub else {}) or trainings(model.name)


def _of_folder(folder: Path) -> dict[str, Training]:
    artifact = hub.trained_in(folder.resolve())
    return _of_artifact(artifact) if artifact and artifact.manifest.stage == "train" else {}


def _of_artifact(artifact: Artifact) -> dict[str, Training]:
    """Return the training data of the base and of the training itself."""
    manifest, root = artifact.manifest, artifact.path.parents[2]
    config, inputs, notes = manifest.config, manifest.inputs, manifest.provenance
    text = str(notes.get("base", ""))
    folder, base = Path(text.partition(":")[0]), str(names.display_name(names.parse_one(text))) if text else ""
    found = (_of_folder(folder) if text and folder.is_dir() else {}) or (trainings(base) if base else {})
    kinds, until = [], None
    if "triplets" in inputs:
        triplets = _published(root, inputs["triplets"])
        until = _published(root, notes.get("derived", {}).get("queries", "")).get("config", {}).get("until")
        kinds.append(f"citations: triplets {triplets.get('slug', inputs['triplets'][:SHORT_ID])}, from {base}")
    if tasks := config.get("tasks"):
        kinds.append(f"tasks of SciRepEval: {', '.join(tasks)}, from {base}")
    return found | {manifest.slug: Training(" and ".join(kinds), until)}


def _published(root: Path, identity: str) -> dict[str, Any]:
    """Return the manifest of a training set; empty if it is gone."""
    found = (root / TRAINING).glob(f"*-{identity[:SHORT_ID]}/{MANIFEST}") if identity else ()
    return next((files.read_json(path) or {} for path in found), {})
