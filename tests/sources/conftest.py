from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.sources import fetch
from pipeline.stages.corpus import corpus_task


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were to be waited between attempts; nobody waits."""
    seconds: list[float] = []
    monkeypatch.setattr(fetch, "sleep", seconds.append)
    return seconds


@pytest.fixture
def build(tmp_path: Path) -> Callable[[Any], Artifact]:
    """Return a function that builds the corpus of a release."""
    return lambda release: Runner(tmp_path / "workspace", Resources(2**30, 1)).make(corpus_task("c", release))
