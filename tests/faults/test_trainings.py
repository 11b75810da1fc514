"""Damaged checkpoints of a killed training, and damaged files of a finished model."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError
from pipeline.core.runner import Runner
from pipeline.encode import registry
from pipeline.train.architectures import Architecture
from pipeline.train.stage import train_task
from tests.faults.tally import Tally, share
from tests.train.test_training import content, recipe, root
from tests.train.world import CPU

__all__ = ["root"]


DAMAGES: Mapping[str, Callable[[bytes], bytes | None]] = {
    "a flipped bit": lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
    "half of it": lambda whole: whole[: len(whole) // 2],
    "nothing": lambda _: b"",
    "no file": lambda _: None,
}


def damage(file: Path, how: str) -> None:
    """Replace the content of a file, or remove it."""
    content = DAMAGES[how](file.read_bytes())
    file.unlink()
    if content is not None:
        file.write_bytes(content)


def trained(root: Path, place: Path | None = None) -> Artifact:
    """Train by the recipe of a workspace, in a copy of it."""
    workspace = Workspace(Runner(place or root, CPU))
    return workspace.runner.make(train_task(workspace, recipe(root)))


@pytest.fixture(scope="module")
def finished(root: Path) -> Artifact:
    """Return the artifact of an undisturbed training."""
    return trained(root)


def without_models(root: Path, to: Path) -> Path:
    return shutil.copytree(root, to, ignore=shutil.ignore_patterns("models"))


@pytest.fixture(scope="module")
def killed(root: Path, finished: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace whose training was killed after its last step."""
    killed = without_models(root, tmp_path_factory.mktemp("killed") / "root")

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Architecture, "save", kill)
        with pytest.raises(KeyboardInterrupt):
            trained(root, killed)
    return killed


@pytest.mark.parametrize("how", DAMAGES)
def test_damage_in_a_checkpoint_changes_no_weight(
    how: str, root: Path, finished: Artifact, killed: Path, tmp_path: Path, tally: Tally
) -> None:
    """The training goes on from the checkpoint before, or from the beginning."""
    work = next(killed.glob("runs/models/.*.partial/scratch/training"))
    checkpoint = max(work.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    names = sorted(path.name for path in checkpoint.iterdir())
    assert {"optimizer.pt", "rng_state.pth", "trained.safetensors", "trainer_state.json"} <= {*names}
    for name in share(names, len(DAMAGES), [*DAMAGES].index(how)):
        place = shutil.copytree(killed, tmp_path / name)
        damage(place / checkpoint.relative_to(killed) / name, how)
        tally.count("tried")
        assert content(trained(root, place)) == content(finished)
        tally.count("resumed")


def test_variables_of_a_job_change_no_weight(
    root: Path, finished: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    for name, value in (("WORLD_SIZE", "2"), ("ACCELERATE_MIXED_PRECISION", "bf16")):
        monkeypatch.setenv(name, value)
    tally.count("tried")
    assert content(trained(root, without_models(root, tmp_path / "root"))) == content(finished)
    tally.count("harmless")


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_model_is_refused(how: str, finished: Artifact, tmp_path: Path, tally: Tally) -> None:
    registry.resolve(str(finished.path / "mine"))
    for number, file in enumerate(sorted(path for path in (finished.path / "mine").rglob("*") if path.is_file())):
        place = shutil.copytree(finished.path, tmp_path / str(number) / finished.path.name)
        damage(place / file.relative_to(finished.path), how)
        tally.count("tried")
        with pytest.raises(CorruptError, match=file.name):
            registry.resolve(str(place / "mine"))
        tally.count("refused")
