"""The size of each room of ``pipeline/``: a feature pays with lines. Ceilings only go down."""

from __future__ import annotations

from pathlib import Path

import pytest

PIPELINE = Path(__file__).parents[1] / "pipeline"
LINES = {
    ".": 480,
    "cli": 2_832,
    "train": 2_100,
    "studies": 7_607,
    "cluster": 496,
    "scores": 4_615,
    "stages": 3_544,
    "exchange": 1_735,
    "measure": 2_941,
    "retrieve": 2_590,
    "encode": 4_210,
    "corpus": 2_448,
    "sources": 4_541,
    "core": 3_069,
    "alias": 27,
    "data": 6,
}
"""Lines of Python that a room may have, its tests apart; ``.`` is what lies beside the rooms."""


def size(room: str) -> int:
    """Return the number of lines of the modules of a room."""
    modules = PIPELINE.glob("*.py") if room == "." else (PIPELINE / room).rglob("*.py")
    return sum(len(module.read_text(encoding="utf-8").splitlines()) for module in modules)


@pytest.mark.parametrize("room", LINES)
def test_a_room_keeps_to_its_ceiling(room: str) -> None:
    assert size(room) <= LINES[room], f"shorten pipeline/{room}: its ceiling is {LINES[room]:,} lines"


def test_every_room_has_a_ceiling() -> None:
    assert {path.parent.relative_to(PIPELINE).parts[:1] or (".",) for path in PIPELINE.rglob("*.py")} == {
        (room,) for room in LINES
    }
