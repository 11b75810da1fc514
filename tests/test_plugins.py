"""What another package brings by ``mdcr.register_*`` and an entry point: the examples of the documentation, run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.core.errors import InputError
from pipeline.encode import names
from pipeline.measure.measures import measure
from pipeline.sources.registry import Source, register

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "extending.md"


def installed(folder: Path) -> dict[str, str]:
    """Write the page's Python as an installed package with the page's entry point; return the environment to use it."""
    blocks = dict(re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL))
    (folder / "mylab.py").write_text(blocks["python"])
    (folder / "mylab-1.0.dist-info").mkdir()
    (folder / "mylab-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: mylab\nVersion: 1.0\n")
    point = re.findall(r'\[project.entry-points.mdcr\]\n(\w+) = "(.*)"', blocks["toml"])[0]
    (folder / "mylab-1.0.dist-info/entry_points.txt").write_text("[mdcr]\n{} = {}\n".format(*point))
    paths = [folder, ROOT, ROOT / "pipeline/alias"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def run(env: dict[str, str], root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", *words, "--root", str(root)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_the_examples_of_the_page_work_in_commands(tmp_path: Path) -> None:
    env, root = installed(tmp_path), tmp_path / "ws"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/papers.txt").write_text("".join(f"paper {n}\tgraph retrieval of topic {n}\n" for n in range(40)))
    built = run(env, root, "corpus", "--source", "tabbed", "--input", str(tmp_path / "mine"), "--corpus", "mine")
    assert built.returncode == 0, built.stderr
    assert re.search(r"kept +40", built.stdout)
    assert "first-hit" in run(env, root, "show", "measures").stdout
    assert "minilm-128" in run(env, root, "models").stdout
    qrels, ranked = tmp_path / "qrels.txt", tmp_path / "a.run"
    qrels.write_text("q 0 b 1\n")
    ranked.write_text("q Q0 a 1 2 x\nq Q0 b 2 1 x\n")
    words = ["evaluate", "--run", str(ranked), "--qrels", str(qrels), "--measures", "first-hit", "--format", "csv"]
    printed = run(env, root, *words)
    assert printed.returncode == 0, printed.stderr
    row = next(line for line in printed.stdout.splitlines() if ",first-hit," in line)
    assert "0.5" in row


def test_a_broken_plug_in_is_one_line(tmp_path: Path) -> None:
    env = installed(tmp_path)
    (tmp_path / "mylab.py").write_text("import nothing_of_this_name\n")
    failed = run(env, tmp_path, "doctor")
    assert failed.returncode == 2
    assert failed.stderr.startswith("mdcr: the plug-in mylab (mylab) cannot be loaded (ModuleNotFoundError")
    assert failed.stderr.count("\n") == 1


def test_names_that_are_taken_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be called 'minilm'"):
        names.register("minilm", hub="other/model")
    with pytest.raises(InputError, match="there is no encoder 'minilmm'. Did you mean 'minilm'"):
        names.register("another", like="minilmm")
    with pytest.raises(InputError, match="there is a measure 'map' already"):
        measure("map", "Mine")(lambda hits: hits)
    with pytest.raises(InputError, match="there is a source 'beir' already"):
        register("beir", Source("mylab:Mine", "mine"))
