"""What the tests say they skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WITHOUT_RAY = "import sys; sys.modules['ray'] = None; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
SKIPPED = [
    "scores/page/test_chromium.py::test_sorting_by_mouse_and_keyboard",
    "cluster/test_ray.py::test_no_cluster_there",
    "studies/large_scale/test_published.py::test_the_figures_are_those_of_the_papers",
]


def test_one_line_says_what_is_missing(tmp_path: Path) -> None:
    tests = Path(__file__).parent
    command = [
        sys.executable,
        "-c",
        WITHOUT_RAY,
        "-n0",
        "-p",
        "no:cacheprovider",
        *(str(tests / name) for name in SKIPPED),
    ]
    env = {**os.environ, "PATH": str(tmp_path), "MDCR_SHARED": str(tmp_path)}
    done = subprocess.run(command, cwd=tests.parent, env=env, capture_output=True, text=True, check=False, timeout=120)
    *_, line, _ = done.stdout.splitlines()
    assert line.startswith("tests skipped because something is missing: Chromium ")
    assert line.endswith(", Ray 1, real data 1")
