"""Make what the gallery of the site shows: the demo, studies of its corpus, a comparison, leaderboard and card.

Usage: python docs/gallery.py WORKSPACE. What is there already is kept.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from pipeline.studies.base import STUDIES, find

COMPARE = ["compare", "bm25:tuned", "lsa", "--corpus", "demo", "--queries", "100", "--nested"]
"""On the pools of the study ``large_scale``."""

BOARD = (
    "bm25:k1=0.9,b=0.4,bm25:k1=1.2,b=0.75,bm25,lsa,word2vec,minilm,minilm:dimension=128,minilm:quantise=binary,"
    "rrf(bm25,lsa),rrf(bm25,minilm)"
)
"""Systems of the leaderboard on the pool of the demo."""

POOL = "--corpus demo --year 2019 --size 1k --queries 100 --samples 1 --seed 13"
LEADERBOARD = [
    ["eval", *POOL.split(), "--model", BOARD],
    ["leaderboard"],
    ["card", "minilm"],
]


def studies() -> Iterator[str]:
    """Yield the studies whose own recipe is of the demo's corpus, or of the files of an earlier study."""
    for name in STUDIES:
        recipe = tomllib.loads(find(name).default_recipe.read_text())
        if recipe.get("corpus") == "demo" or recipe.get("input", "").startswith("runs/"):
            yield name


def main(workspace: str) -> None:
    """Run everything, in the order of the registry: a study may read what an earlier one wrote."""
    Path(workspace).mkdir(parents=True, exist_ok=True)
    for words in (["demo"], *(["study", name] for name in studies()), COMPARE, *LEADERBOARD):
        command = [sys.executable, "-m", "pipeline", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=workspace)


if __name__ == "__main__":
    main(sys.argv[1])
