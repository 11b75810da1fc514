"""What encoders in folders were trained on: read from the manifest of their training, else unknown."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pipeline.core.artifact import Artifact
from pipeline.core.config import folder_name, identity
from pipeline.core.manifest import Manifest
from pipeline.core.workspace import MODELS, TRAINING
from pipeline.encode import known, registry
from pipeline.encode.known import Training, of_model, recorded
from tests.encode.tiny import save_bert


def publish(place: Path, slug: str, stage: str, **facts: Any) -> Artifact:
    """An artifact without outputs, with the manifest of a stage."""
    facts = {"config": {}, "inputs": {}, "provenance": {}} | facts
    name = identity(stage, 1, facts["config"], facts["inputs"])
    folder = place / folder_name(slug, name)
    folder.mkdir(parents=True)
    Manifest(id=name, stage=stage, stage_version=1, slug=slug, outputs=(), counts={}, **facts).write(folder)
    return Artifact.open(folder)


def trained_folder(root: Path, base: str, **config: Any) -> Path:
    """A folder as ``mdcr train`` lays it out, with its triplets and their queries."""
    queries = publish(root / TRAINING, "c", "queries", config={"until": 2016})
    triplets = publish(root / TRAINING, "specter-c", "triplets", inputs={"pool": queries.id})
    notes = {"base": base, "derived": {"queries": queries.id}}
    inputs = {"triplets": triplets.id}
    made = publish(root / MODELS, "mine", "train", config=config, inputs=inputs, provenance=notes)
    return save_bert(made.path / "mine")


def test_a_training_names_its_base_and_triplets(tmp_path: Path) -> None:
    own = Training("citations: triplets specter-c, from scincl", 2016)
    folder = trained_folder(tmp_path, "scincl")
    model = registry.resolve(str(folder))
    assert of_model(model) == {"scincl": known.trainings("scincl")["scincl"], "mine": own}
    assert recorded(model)["training"]["mine"] == [own.on, 2016]
    (tmp_path / "link").symlink_to(folder)
    assert of_model(registry.resolve(str(tmp_path / "link"))).keys() == {"scincl", "mine"}
    again = trained_folder(tmp_path / "second", str(folder), tasks=["fos"])
    assert of_model(registry.resolve(str(again))) == {
        "scincl": known.trainings("scincl")["scincl"],
        "mine": Training("citations: triplets specter-c, from mine and tasks of SciRepEval: fos, from mine", 2016),
    }


def test_triplets_that_are_gone_leave_the_year_unknown(tmp_path: Path) -> None:
    folder = trained_folder(tmp_path, "")
    shutil.rmtree(tmp_path / TRAINING)
    ((name, training),) = of_model(registry.resolve(str(folder))).items()
    assert (name, training.until) == ("mine", None)
    assert training.on.startswith("citations: triplets ")


def test_other_folders_are_unknown(tmp_path: Path) -> None:
    copied = shutil.copytree(trained_folder(tmp_path, "scincl"), tmp_path / "copied")
    other = publish(tmp_path, "other", "embed").path / "other"
    for folder in (copied, save_bert(other)):
        model = registry.resolve(str(folder))
        assert of_model(model) == {model.name: Training("", None)}
        assert recorded(model) == {}
