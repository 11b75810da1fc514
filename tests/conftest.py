"""What holds for every test."""

from __future__ import annotations

import pytest

from pipeline.core import progress


@pytest.fixture(autouse=True)
def messages_are_shown() -> None:
    """Undo what a command run by an earlier test of this process said of its messages."""
    progress.set_quiet(False)
