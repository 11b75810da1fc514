"""What is measured of retrieval and scoring, in one run: each bench in a process of its own, one after the other.

    python bench/retrieve.py [--quick]

With --quick two minutes on two cores, which only show that all of it runs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

BENCHES = ("retrieve_bm25.py", "retrieve_dense.py", "score.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small pools, one round")
    options = parser.parse_args()
    for name in BENCHES:
        print(f"== {name}", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(name)), *["--quick"] * options.quick]
        if code := subprocess.run(command, check=False).returncode:
            sys.exit(f"{name} failed with exit code {code}")


if __name__ == "__main__":
    main()
