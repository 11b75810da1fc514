"""``mdcr`` as a process: start-up, streams, exit codes, Ctrl-C, and two at once in one workspace."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.run import COMMAND, Result, flags, heed_signals, mdcr, one_line_error, scores_of

EVALUATE = flags("eval --size 900 --queries 20 --samples 1 --model bm25,lsa --measures map")


def start(root: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments, "--root", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | (env or {}),
        preexec_fn=heed_signals,
    )


def ended(process: subprocess.Popen[str]) -> Result:
    output, errors = process.communicate(timeout=240)
    return Result(process.returncode, output, errors)


def test_help_is_instant_and_loads_no_libraries() -> None:
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*COMMAND, "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.3  # of the processor, in the calmest of five runs
    command = [COMMAND[0], "-X", "importtime", *COMMAND[1:], "--help"]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert "pipeline.cli" in loaded
    assert not [name for name in ("numpy", "pyarrow", "polars", "numba", "torch") if f" {name}\n" in loaded]


def test_exit_codes(own: Path, tmp_path: Path) -> None:
    """0 is asserted below. The message of a hub out of reach names the model, the cache and the remedy."""
    assert "there is no corpus 'tnyi'" in one_line_error(ended(start(own, "pool", "--corpus", "tnyi")), code=2)
    assert ended(start(own, "pool", "--no-such-option")).returncode == 2
    env = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    failed = start(own, *flags("eval --model scincl --size 900 --queries 20"), env=env)
    line = one_line_error(ended(failed), code=1)
    assert all(part in line for part in ("malteos/scincl", str(tmp_path), "download"))


def test_after_ctrl_c_the_same_command_goes_on(tmp_path: Path) -> None:
    words = flags("corpus --source synthetic --papers 12k --seed 7 --corpus tiny --workers 1")
    process = start(tmp_path, *words)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("corpora/.*.partial/*")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    stopped = ended(process)
    assert stopped.returncode == 130
    assert stopped.stderr.endswith("mdcr: stopped; the same command resumes where it stopped\n")
    assert not list(tmp_path.glob("corpora/*.name"))
    again = mdcr(tmp_path, *words)
    assert again.returncode == 0
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.java
@pytest.mark.slow
def test_two_evaluations_at_once_share_the_work_and_results_alone_go_to_stdout(own: Path) -> None:
    both = [ended(process) for process in [start(own, *EVALUATE) for _ in range(2)]]
    assert [result.returncode for result in both] == [0, 0]
    assert both[0].stdout == both[1].stdout
    assert "MAP" in both[0].stdout
    said = [line.split("] ")[-1].split(": ")[0] for result in both for line in result.stderr.splitlines()]
    assert [said.count(stage) for stage in ("fit", "embed", "terms", "search", "score")] == [1, 1, 1, 2, 2]
    assert len(scores_of(own)) == 6  # rankings, scores, scores among candidates with an abstract
    as_json = mdcr(own, *EVALUATE, "--json", "--depth", "100")
    assert {row["system"] for row in json.loads(as_json.stdout)["rows"]} == {"bm25", "lsa"}
    assert "search: bm25" in as_json.stderr
    quiet = mdcr(own, *EVALUATE, "--quiet", "--depth", "50")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert "MAP" in quiet.stdout
