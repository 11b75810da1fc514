"""What encoders in folders were trained on: the manifest of their training says it, else it is unknown."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pipeline.core.artifact import Artifact
from pipeline.core.config import folder_name, identity
from pipeline.core.manifest import Manifest
from pipeline.core.workspace import MODELS
from pipeline.encode import registry
from pipeline.encode.known import Training, of_model, recorded
from tests.encode.tiny import save_bert


def publish(root: Path, slug: str, **notes: Any) -> Path:
    """Return the folder of a model in an artifact as ``mdcr train`` lays it out."""
    name = identity("train", 1, {}, {})
    folder = root / MODELS / folder_name(slug, name)
    folder.mkdir(parents=True)
    facts: dict[str, Any] = {"config": {}, "inputs": {}, "provenance": notes, "outputs": (), "counts": {}}
    Manifest(id=name, stage="train", stage_version=1, slug=slug, **facts).write(folder)
    return save_bert(Artifact.open(folder).path / slug)


def test_a_training_names_its_base_and_triplets(tmp_path: Path) -> None:
    noted = {"scincl": ["citations: neighbours", 2020], "mine": ["citations: triplets specter-c, from scincl", 2016]}
    folder = publish(tmp_path, "mine", training=noted)
    model = registry.resolve(str(folder))
    assert of_model(model) == {name: Training(*facts) for name, facts in noted.items()}
    assert recorded(model) == {"training": noted}
    (tmp_path / "link").symlink_to(folder)
    assert recorded(registry.resolve(str(tmp_path / "link"))) == {"training": noted}


def test_other_folders_are_unknown(tmp_path: Path) -> None:
    copied = shutil.copytree(publish(tmp_path, "mine", training={"mine": ["x", 1]}), tmp_path / "copied")
    for folder in (copied, publish(tmp_path, "other")):
        model = registry.resolve(str(folder))
        assert of_model(model) == {model.name: Training("", None)}
        assert recorded(model) == {}
