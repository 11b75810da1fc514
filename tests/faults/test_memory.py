"""Memory: a process holds what ``--memory`` says and 300 MB, however long the texts are."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cli.run import flags

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

MEMORY, BESIDE = 512, 300
"""MiB: the setting, and what a process takes beside it. Pages of memory-mapped files do not count."""

ABSTRACTS = 130


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a corpus of long abstracts."""
    root, rng = tmp_path_factory.mktemp("long"), np.random.default_rng(3)
    letters = rng.integers(97, 123, (50_000, 13), np.uint8)
    words = np.array([bytes(word).decode() for word in letters])
    passages = [" ".join(chosen) for chosen in rng.choice(words, (2_000, 71))]
    with (root / "a.jsonl").open("w", encoding="utf-8") as handle:
        for number in range(ABSTRACTS):
            abstract = " ".join(passages[place] for place in rng.integers(0, len(passages), 1_000))
            references = [str((number + step) % ABSTRACTS) for step in range(1, 6)]
            paper = {"paper_id": str(number), "title": words[number], "abstract": abstract, "year": 2019}
            handle.write(json.dumps(paper | {"references": references}) + "\n")
    assert peak(root, "corpus", "--source", "jsonl", "--input", str(root / "a.jsonl"), "--corpus", "long") < 600
    return root


def peak(root: Path, *words: str) -> int:
    """Run a command to its end; return the MiB of anonymous memory that it held at most."""
    command = [sys.executable, "-m", "pipeline", *words, "--root", str(root), "--memory", f"{MEMORY}M"]
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
            most = max(most, *map(int, kilobytes), 0)
            time.sleep(0.01)
    assert process.returncode == 0
    return most >> 10


@pytest.mark.parametrize("model", ["bm25", "lsa"])
def test_long_texts_are_read_within_the_setting(root: Path, model: str) -> None:
    stage = "index" if model == "bm25" else "embed"
    words = flags("--size all --queries 20 --samples 1 --year 2019 --corpus long --workers 2")
    assert peak(root, stage, "--model", model, *words) <= MEMORY + BESIDE
