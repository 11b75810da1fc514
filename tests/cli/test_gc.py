"""``mdcr gc``: what goes, what stays, and that nothing in use is touched."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from pipeline.core.artifact import published
from pipeline.core.workspace import CORPORA, MODELS, RANKINGS, SCORES
from tests.cli.run import flags, mdcr, mdcr_json, one_line_error

EVAL = flags("eval --size 300 --queries 10 --samples 1 --model lsa")
CLEAN = flags("corpus --source synthetic --papers 900 --seed 2 --corpus clean")


@pytest.fixture
def used(own: Path) -> Path:
    mdcr_json(own, *EVAL, "--corpus", "tiny")
    return own


def listed(root: Path, *words: str) -> dict[str, str]:
    return {row["path"]: row["why"] for row in mdcr_json(root, "gc", *words)["unused"]}


def forget(root: Path, name: str, days: float = 2) -> None:
    """Take a corpus its name, some days after all corpora were made."""
    (root / CORPORA / f"{name}.name").unlink()
    for manifest in (root / CORPORA).glob("*/manifest.json"):
        os.utime(manifest, (0, time.time() - days * 86_400))


def artifacts(root: Path) -> set[str]:
    return {str(path.parent.relative_to(root)) for path in root.rglob("manifest.json")}


def test_a_corpus_without_a_name_goes_with_all_that_only_it_uses(used: Path) -> None:
    kept = artifacts(used)
    assert listed(used, "--delete") == {}
    assert "Nothing to remove" in mdcr(used, "gc").stderr
    mdcr_json(used, *flags("corpus --source synthetic --papers 900 --seed 2 --corpus other"))
    mdcr_json(used, *EVAL, "--corpus", "other")
    other = artifacts(used) - kept
    assert {path.split("/")[1] for path in other} >= {"pools", "vectors", "fits", "rankings"}
    assert listed(used) == {}
    forget(used, "other")
    assert set(listed(used)) == other
    assert artifacts(used) == kept | other  # listing removes nothing
    assert "can be removed: mdcr gc --delete" in mdcr(used, "gc").stderr
    assert set(listed(used, "--delete")) == other
    assert artifacts(used) == kept
    assert not [path for path in (used / "indexes/vectors").iterdir() if path.name.startswith("other")]


def test_a_name_that_goes_to_another_corpus_is_told(own: Path) -> None:
    first = mdcr_json(own, *CLEAN)["name"]
    assert "no longer" not in mdcr(own, *CLEAN).stderr
    moved = mdcr(own, *CLEAN, "--duplicates", "drop")
    now = (own / CORPORA / "clean.name").read_text().strip()
    assert now != first
    assert f"clean is {now} from now on, and no longer {first}\n" in moved.stderr


def test_the_corpus_that_a_named_one_was_made_from_stays(own: Path) -> None:
    mdcr_json(own, *CLEAN, "--duplicates", "drop")
    assert listed(own) == {}
    forget(own, "clean")
    assert len(listed(own, "--delete")) == 2
    assert len(list(published(own / CORPORA))) == 1


def test_a_corpus_that_an_interrupted_command_will_name_stays_for_a_day(own: Path) -> None:
    mdcr_json(own, *CLEAN)
    forget(own, "clean", days=0.5)  # as a command leaves it that is killed between this corpus and the next
    assert listed(own, "--delete") == {}
    forget(own, "tiny", days=1.5)
    assert len(listed(own)) == 2


def test_scores_without_their_ranking_go_but_not_where_it_can_be_repaired(used: Path) -> None:
    (ranking,) = published(used / RANKINGS)
    manifest = (ranking.path / "manifest.json").read_text()
    (ranking.path / "manifest.json").write_text("{}")
    assert listed(used, "--delete") == {}
    (ranking.path / "manifest.json").write_text(manifest)
    shutil.rmtree(ranking.path)
    assert list(listed(used, "--delete").values()) == ["its ranking was removed or is about to be"]
    assert not list(published(used / SCORES))


def test_unfinished_work_goes_a_day_after_it_was_left(used: Path) -> None:
    fresh, held = (used / RANKINGS / f".{name}.partial" for name in ("fresh-1", "held-1"))
    old = used / MODELS / ".mine-1.5.partial"
    for folder in (fresh, old, held):
        folder.mkdir(parents=True)
        (folder / "part.arrow").write_bytes(b"x" * 1000)
    for path in (old / "part.arrow", old, held / "part.arrow", held):
        os.utime(path, (0, 0))
    with (used / RANKINGS / ".held-1.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert list(listed(used)) == [str(old.relative_to(used))]
        assert "a process is working at" in one_line_error(mdcr(used, "gc", "--delete"))
    assert old.exists()
    assert len(listed(used, "--delete")) == 2
    assert (fresh.exists(), old.exists()) == (True, False)


def test_a_damaged_name_or_an_unfinished_batch_stops_it(own: Path, tmp_path: Path) -> None:
    batch = own / "runs/jobs/eval-1234"
    batch.mkdir(parents=True)
    (batch / "record.json").write_text(json.dumps({"command": "mdcr eval"}))
    (batch / "1_submitted.pkl").touch()
    without_slurm = mdcr(own, "gc", "--delete", env={"PATH": str(tmp_path)})
    assert "jobs of eval-1234 are not done yet" in one_line_error(without_slurm)
    shutil.rmtree(batch)
    (own / CORPORA / "tiny.name").write_text("nowhere")
    assert "names no corpus of this workspace" in one_line_error(mdcr(own, "gc", "--delete"))
