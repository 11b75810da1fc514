"""What holds for every test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.core import progress

# One place for compiled kernels, before Numba is loaded: all workers, and the processes that tests start, share it.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "numba"))

_LONGEST_FIRST = ("slurm", "ray", "cli", "kills")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each module in one worker, which alone makes its fixtures, and begin with the longest groups."""

    def place(item: pytest.Item) -> int:
        mark = item.get_closest_marker("xdist_group")
        if mark is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
            return len(_LONGEST_FIRST)
        return _LONGEST_FIRST.index(mark.args[0]) if mark.args[0] in _LONGEST_FIRST else len(_LONGEST_FIRST)

    items.sort(key=place)


@pytest.fixture(autouse=True)
def messages_are_shown() -> None:
    """Undo what a command run by an earlier test of this process said of its messages."""
    progress.set_quiet(False)
