from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run import flags, mdcr_json
from tests.faults.tally import Tally

SECONDS = 90
"""How long a test of hostile input may take."""


@pytest.fixture
def limit() -> Iterator[None]:
    """Fail a test that waits for ever, as the reader of a pipe does."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"no end after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Return what counts the faults of a test, under the name of its module."""
    kind = request.path.stem.removeprefix("test_")
    return Tally(lambda name, value: request.node.user_properties.append((name, value)), kind)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace with the corpus ``tiny`` of 500 papers."""
    root = tmp_path_factory.mktemp("tiny")
    mdcr_json(root, *flags("corpus --source synthetic --papers 500 --seed 5 --corpus tiny --workers 1"))
    return root
