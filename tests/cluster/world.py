"""A workspace of many small shards, and ``mdcr`` as a user runs it there, with a slow encoder that needs no model."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from pipeline.encode import kinds
from tests.builders import made_up_paper, make_corpus
from tests.cli.run import COMMAND, Result, flags, mdcr
from tests.encode import stub

PAPERS = 300
SHARD_ROWS = 25
SHARDS = PAPERS // SHARD_ROWS

EMBED = flags("--corpus tiny --model stub --size all --queries 8 --min-abstract-chars 1")
SELECTION = [*EMBED, "--measures", "map"]

_STUB = """
import os

from tests.encode import stub

stub.install()
stub.StubEncoder.pause = float(os.environ.get("STUB_PAUSE", 0))
stub.StubEncoder.limit = int(os.environ.get("STUB_LIMIT", 0)) or None
"""


class World:
    """A workspace below ``folder``, with a corpus unless it is to begin ``empty``.

    In the environment of its processes ``STUB_PAUSE`` are the seconds of a batch of texts, ``STUB_LIMIT`` the
    texts after which the encoder fails.

    Attributes:
        root: the workspace.
        env: environment in which the encoder ``stub`` is known to ``mdcr``, in all its processes.
    """

    def __init__(self, folder: Path, pause: float = 0.0, *, empty: bool = False) -> None:
        self.root = folder / "workspace"
        site = folder / "site"
        site.mkdir(parents=True)
        (site / "sitecustomize.py").write_text(_STUB)
        path = os.pathsep.join([str(site), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        self.env = os.environ | {"PYTHONPATH": path, "STUB_PAUSE": str(pause)}
        if not empty:
            self._fill()

    def _fill(self) -> None:
        ids = [f"{number:05d}" for number in range(PAPERS)]
        papers: list[dict[str, Any]] = [made_up_paper(number) for number in range(PAPERS)]
        for paper in papers[::9]:  # equal texts in many shards: equal vectors, equal scores
            paper |= {"title": "the same title", "abstract": "the same abstract"}
        cited = [(ids[a], ids[(a * 7 + step) % PAPERS]) for a in range(PAPERS) for step in range(1, 5)]
        make_corpus(self.root, papers, cited, shard_rows=SHARD_ROWS)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command as a process."""
        return subprocess.Popen(
            [*COMMAND, *words, "--root", str(self.root)],
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, *words: str, code: int = 0) -> Result:
        """Run a command in this process, without pauses; it must end with a code."""
        stub.install()
        try:
            result = mdcr(self.root, *words, env=self.env)
        finally:
            del kinds.KINDS["stub"]
        assert result.returncode == code, result.stderr
        return result

    def tables(self) -> dict[str, bytes]:
        """Return the content of every published table, by path below the workspace."""
        paths = sorted(path for path in self.root.rglob("*.arrow") if ".partial" not in str(path))
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in paths}

    def leftovers(self) -> list[Path]:
        """Return unfinished folders and temporary files, which a finished chain has none of."""
        return [*self.root.rglob("*.partial"), *self.root.rglob("*.tmp")]

    def units(self) -> int:
        """Count the finished shards of unpublished vectors."""
        return len(list(self.root.glob("indexes/vectors/*/.*.partial/vectors-*.arrow")))


def whole(folder: Path, model: str = "stub") -> dict[str, bytes]:
    """Return the tables that one process on one machine makes of the chain."""
    world = World(folder)
    world.run("eval", *SELECTION, "--model", model)
    return world.tables()
