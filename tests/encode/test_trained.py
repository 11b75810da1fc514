"""What encoders in folders were trained on: read from the manifest of their training, else unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.core.config import SHORT_ID
from pipeline.encode import registry
from pipeline.encode.registry import Training
from pipeline.encode.trained import of_model, recorded
from tests.encode.tiny import save_bert

TRIPLETS, QUERIES = "a" * 64, "b" * 64


def write(path: Path, **manifest: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest))


def trained_folder(root: Path, base: str, **config: Any) -> Path:
    """A folder as ``mdcr train`` lays it out, with the manifests of its triplets and their queries."""
    write(root / f"corpora/training/specter-c-{TRIPLETS[:SHORT_ID]}/manifest.json", slug="specter-c", config={})
    write(root / f"corpora/training/c-{QUERIES[:SHORT_ID]}/manifest.json", slug="c", config={"until": 2016})
    made = root / "runs/models/mine-0123456789ab"
    save_bert(made / "mine")
    provenance = {"base": base, "derived": {"queries": QUERIES}}
    inputs = {"triplets": TRIPLETS}
    write(made / "manifest.json", stage="train", slug="mine", config=config, inputs=inputs, provenance=provenance)
    return made / "mine"


def test_a_training_names_its_base_and_triplets(tmp_path: Path) -> None:
    own = Training("citations: triplets specter-c, from scincl", 2016)
    folder = trained_folder(tmp_path, "scincl")
    model = registry.resolve(str(folder))
    assert of_model(model) == {"scincl": registry.trainings("scincl")["scincl"], "mine": own}
    assert recorded(model)["training"]["mine"] == [own.on, 2016]
    (tmp_path / "link").symlink_to(folder)
    assert of_model(registry.resolve(str(tmp_path / "link"))).keys() == {"scincl", "mine"}
    again = trained_folder(tmp_path / "second", str(folder), tasks=["fos"])
    assert of_model(registry.resolve(str(again))) == {
        "scincl": registry.trainings("scincl")["scincl"],
        "mine": Training("citations: triplets specter-c, from mine and tasks of SciRepEval: fos, from mine", 2016),
    }


def test_triplets_that_are_gone_leave_the_year_unknown(tmp_path: Path) -> None:
    folder = trained_folder(tmp_path, "")
    for manifest in tmp_path.glob("corpora/training/*/manifest.json"):
        manifest.unlink()
    assert of_model(registry.resolve(str(folder))) == {
        "mine": Training(f"citations: triplets {TRIPLETS[:SHORT_ID]}, from ", None)
    }


def test_other_folders_are_unknown(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "model")
    for manifest in (None, "[]", "{}", '{"stage": "embed"}', "no JSON"):
        if manifest is not None:
            (tmp_path / "manifest.json").write_text(manifest)
        model = registry.resolve(str(folder))
        assert of_model(model) == {model.name: Training("", None)}
        assert recorded(model) == {}
