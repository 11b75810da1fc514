"""Pages of the documentation that are made from the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_of_the_python_interface_is_that_of_the_code() -> None:
    made = subprocess.run([sys.executable, ROOT / "docs/api.py"], capture_output=True, text=True, check=True)
    assert made.stdout == (ROOT / "docs/api.md").read_text(), "run make docs"
