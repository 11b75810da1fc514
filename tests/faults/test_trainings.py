"""Damaged checkpoints of a killed training, and damaged files of a finished model."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pipeline.api import Workspace
from pipeline.core.errors import CorruptError
from pipeline.core.runner import Runner
from pipeline.encode import registry
from pipeline.train.architectures import Architecture
from pipeline.train.stage import train_task
from tests.faults.tally import Tally, share
from tests.train.test_training import content, recipe, root
from tests.train.world import CPU

__all__ = ["root"]


def flipped(whole: bytes) -> bytes:
    middle = len(whole) // 2
    return whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]


DAMAGES: Mapping[str, Callable[[bytes], bytes | None]] = {
    "a flipped bit": flipped,
    "half of it": lambda whole: whole[: len(whole) // 2],
    "nothing": lambda _: b"",
    "zeros": lambda whole: bytes(len(whole)),
    "no file": lambda _: None,
}


def damage(file: Path, how: str) -> None:
    """Replace the content of a file, or remove it."""
    content = DAMAGES[how](file.read_bytes())
    file.unlink()
    if content is not None:
        file.write_bytes(content)


@pytest.fixture(scope="module")
def finished(root: Path) -> Path:
    """Return the folder of an undisturbed training."""
    workspace = Workspace(Runner(root, CPU))
    return workspace.runner.make(train_task(workspace, recipe(root))).path


@pytest.fixture(scope="module")
def killed(root: Path, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace whose training was killed after its last step."""
    killed = shutil.copytree(root, tmp_path_factory.mktemp("killed") / "root", ignore=shutil.ignore_patterns("models"))
    workspace = Workspace(Runner(killed, CPU))

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Architecture, "save", kill)
        with pytest.raises(KeyboardInterrupt):
            workspace.runner.make(train_task(workspace, recipe(root)))
    return killed


@pytest.mark.parametrize("how", DAMAGES)
def test_damage_in_a_checkpoint_changes_no_weight(
    how: str, root: Path, finished: Path, killed: Path, tmp_path: Path, tally: Tally
) -> None:
    """The training goes on from the checkpoint before, or from the beginning."""
    work = next(killed.glob("runs/models/.*.partial/scratch/training"))
    checkpoint = max(work.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    names = sorted(path.name for path in checkpoint.iterdir())
    undisturbed = {str(file.relative_to(finished / "mine")): file.read_bytes() for file in files(finished)}
    assert {"optimizer.pt", "rng_state.pth", "trained.safetensors", "trainer_state.json"} <= {*names}
    for name in share(names, 3, [*DAMAGES].index(how)):
        place = shutil.copytree(killed, tmp_path / name)
        damage(place / checkpoint.relative_to(killed) / name, how)
        tally.count("tried")
        workspace = Workspace(Runner(place, CPU))
        made = workspace.runner.make(train_task(workspace, recipe(root)))
        assert content(made) == undisturbed
        tally.count("resumed")


@pytest.mark.parametrize(
    "variables",
    [{"WORLD_SIZE": "2"}, {"WORLD_SIZE": "x", "LOCAL_RANK": "0"}, {"ACCELERATE_MIXED_PRECISION": "bf16"}],
)
def test_variables_of_a_job_change_no_weight(
    variables: Mapping[str, str],
    root: Path,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tally: Tally,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    copy = shutil.copytree(root, tmp_path / "root", ignore=shutil.ignore_patterns("models"))
    workspace = Workspace(Runner(copy, CPU))
    tally.count("tried")
    made = workspace.runner.make(train_task(workspace, recipe(root)))
    assert {path.name: path.read_bytes() for path in files(made.path)} == {
        path.name: path.read_bytes() for path in files(finished)
    }
    tally.count("harmless")


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_model_is_refused(how: str, finished: Path, tmp_path: Path, tally: Tally) -> None:
    registry.resolve(str(finished / "mine"))
    for file in files(finished):
        place = shutil.copytree(finished, tmp_path / f"{file.name}-{len(list(tmp_path.iterdir()))}" / finished.name)
        damage(place / file.relative_to(finished), how)
        tally.count("tried")
        with pytest.raises(CorruptError, match=file.name):
            registry.resolve(str(place / "mine"))
        tally.count("refused")


def files(model: Path) -> list[Path]:
    return sorted(path for path in (model / "mine").rglob("*") if path.is_file())
