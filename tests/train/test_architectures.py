"""Each architecture learns every format, trains only what it should, and is the same when its folder is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.core.errors import InputError
from pipeline.corpus.reader import Text
from pipeline.encode import registry
from pipeline.encode.base import in_order
from pipeline.studies.scirepeval.tasks import Folder
from pipeline.train import architectures
from pipeline.train.architectures import Architecture
from pipeline.train.recipe import CODES, systems
from tests.encode.tiny import change, load, save_bert, save_mpnet, words
from tests.shared import real
from tests.train.world import samples, trained

TITLES = [words(5, start) for start in range(4)]
HOW = {
    "adapters": {"learning_rate": 1e-2, "epochs": 25},
    "fusion": {"learning_rate": 1e-2, "epochs": 25},
}
ONLY = {"adapters": ".adapters.", "fusion": "adapter_fusion_layer"}
"""What the names of all trained weights hold."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a BERT without dropout, which learns a few examples by heart in a few steps."""
    folder = save_bert(tmp_path_factory.mktemp("base") / "tiny", positions=64)
    change(folder / "config.json", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return samples(tmp_path_factory.mktemp("samples") / "all", real("scirepeval-sample"))


@pytest.fixture(scope="module")
def adapters(base: Path, folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any]]:
    """Return the folder of a model with trained adapters, as fusion starts from, and the run; they are wide."""
    place = tmp_path_factory.mktemp("adapters")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(architectures, "_REDUCTION", 2)
        run = trained(base, folder, place / "work", architecture="adapters", **HOW["adapters"])
        (place / "model").mkdir()
        run[0].save(place / "model")
        yield place / "model", run


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["cls", "ctrl", "adapters", "fusion", "pals"])
def test_an_architecture_learns_and_is_the_same_when_it_is_loaded(
    name: str, base: Path, folder: Folder, adapters: tuple[Path, Any], tmp_path: Path
) -> None:
    start = adapters[0] if name == "fusion" else base
    before = Architecture(name, registry.resolve(str(start)), 24, 5)
    untrained = {key: weight.clone() for key, weight in before.model.named_parameters()}
    run = adapters[1] if name == "adapters" else None
    how = {"architecture": name, **HOW.get(name, {})}
    architecture, writer, counts = run or trained(start, folder, tmp_path / "work", **how)
    losses = [loss for _, loss in counts["loss"]]
    assert np.mean(losses[-3:]) < losses[0] / 2
    weights = dict(architecture.model.named_parameters())
    moved = {key for key, weight in weights.items() if not torch.equal(weight, untrained[key])}
    assert moved
    assert all(ONLY.get(name, "") in key for key in moved)
    assert {key for key, weight in weights.items() if weight.requires_grad} >= moved
    assert name in ONLY or "0.model.embeddings.word_embeddings.weight" in moved

    here: dict[str, np.ndarray] = {}
    for form in CODES:
        architecture.switch(form)
        here[form] = architecture.model.encode([writer(title, "", form) for title in TITLES])
    here["search"] = here["proximity"]  # papers that are searched
    (tmp_path / "model").mkdir()
    architecture.save(tmp_path / "model")
    for form, system in systems(name, tmp_path / "model").items():
        model, encoder = load(system)
        assert model.max_length == 64
        prepared = encoder.prepare([Text(title, "") for title in TITLES], "query" if form == "query" else "paper")
        _, vectors = in_order(encoder.finish(prepared), encoder.dimension)
        np.testing.assert_allclose(vectors, here[form], atol=2e-5)
    differ = [np.abs(here[form] - here["proximity"]).max() > 1e-3 for form in CODES if form != "proximity"]
    assert all(differ) if name != "cls" else True
    assert load(tmp_path / "model")[0].distance == "l2"


def test_what_cannot_be_trained_is_refused_in_a_line(base: Path, tmp_path: Path) -> None:
    refused = ("pals", save_mpnet(tmp_path / "mpnet"), "need a BERT"), ("fusion", base, "must start from adapters")
    for name, place, said in refused:
        with pytest.raises(InputError, match=said):
            Architecture(name, registry.resolve(str(place)), 24, 5)
