"""What holds for every test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from pipeline.core import progress
from tests.faults.tally import summary

# One place for compiled kernels, before Numba is loaded: all workers, and the processes that tests start, share it.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "numba"))

_FIRST = (
    "cluster/test_batch.py",
    "cluster/test_ray.py",
    "cluster/test_slurm.py",
    "faults/test_memory.py",
    "faults/test_kills.py",
    "test_first_hour.py",
    "test_site.py",
    "retrieve/test_bm25.py",
    "retrieve/test_engines.py",
    "measure/test_engines.py",
    "cli/test_ends.py",
)
"""The longest modules, which pytest-xdist deals out whole: last, one of them would keep a core alone."""


_LACKS = {"Chromium": "Chromium is missing", "Ray": "Ray ", "Slurm": "Slurm ", "real data": "MDCR_SHARED"}
"""What a machine may lack, and what the reason of a skipped test then says."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest modules."""
    tests = Path(__file__).parent
    first = {tests / name: place for place, name in enumerate(_FIRST)}
    items.sort(key=lambda item: first.get(item.path, len(first)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Say below the list of skipped tests what the harness of tests/faults tried, and what this machine lacks."""
    yield
    for line in summary(terminalreporter):
        terminalreporter.write_line(line)
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    counts = {name: sum(text in reason for reason in reasons) for name, text in _LACKS.items()}
    missing = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    if missing:
        terminalreporter.write_line(f"tests skipped because something is missing: {missing}")


def _forget(package: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


@pytest.fixture
def plain_ranx() -> Iterator[ModuleType]:
    """Return ranx in plain Python; compiled for the first time, its dictionaries and fusions take a minute."""
    import numba

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.config, "DISABLE_JIT", 1)
        _forget("ranx")
        yield import_module("ranx")
    _forget("ranx")


@pytest.fixture(autouse=True)
def messages_are_shown() -> None:
    """Undo what a command run by an earlier test of this process said of its messages."""
    progress.set_quiet(False)
