"""Make what the gallery of the site shows: the demo, studies of its corpus, a comparison, leaderboard and card.

Usage: python docs/gallery.py WORKSPACE. What is there already is kept.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from pipeline.core.workspace import REPORTS
from pipeline.studies.base import STUDIES, find

COMPARE = ["compare", "bm25", "lsa", "--corpus", "demo", "--queries", "50", "--nested"]
"""On the pools of the study ``large_scale``."""

BOARD = (
    "bm25,bm25:k1=0.9,b=0.4,bm25:k1=1.2,b=0.75,lsa,word2vec,minilm,minilm:dimension=128,rrf(bm25,lsa),rrf(bm25,minilm)"
)
"""Systems of the leaderboard."""

POOLS = ("--year 2019 --size 1500", "--year 2019 --size 1500 --field Medicine", "--year 2020 --size 1500")


def leaderboard() -> Iterator[list[str]]:
    """Yield the commands of the leaderboard and card: before the studies, whose pools few of its systems rank."""
    for pool in POOLS:
        drawn = ["--corpus", "demo", "--queries", "50", "--min-citations", "0", "--seed", "13", *pool.split()]
        yield ["tune", *drawn, "--size", "all"]
        yield ["eval", *drawn, "--samples", "1", "--model", BOARD]
    yield from (["leaderboard"], ["card", "minilm"])


def studies() -> Iterator[str]:
    """Yield the studies whose own recipe is of the demo's corpus, or of the files of an earlier study."""
    for name in STUDIES:
        recipe = tomllib.loads(find(name).default_recipe.read_text())
        if recipe.get("corpus") == "demo" or recipe.get("input", "").startswith("runs/"):
            yield name


def main(workspace: str) -> None:
    """Run everything, studies in the order of the registry: one may read what an earlier one wrote."""
    Path(workspace).mkdir(parents=True, exist_ok=True)
    board = [] if (Path(workspace) / REPORTS / "card-minilm").exists() else leaderboard()
    for words in (["demo"], *board, *(["study", name] for name in studies()), COMPARE):
        command = [sys.executable, "-m", "pipeline", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=workspace)


if __name__ == "__main__":
    main(sys.argv[1])
