"""Where the real papers are, for tests marked ``realdata``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("MDCR_SHARED", Path(__file__).parent.parent.parent / "shared"))


def real(name: str) -> Path:
    """Return a folder of real data, or skip the test with the reason."""
    folder = SHARED / "data" / name
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: set MDCR_SHARED")
    return folder
