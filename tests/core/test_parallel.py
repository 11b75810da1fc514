from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.parallel import unordered


def square(number: int) -> tuple[int, int]:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number * number, os.getpid()


@pytest.mark.parametrize("workers", [1, 2])
def test_every_item_once_in_as_many_processes_as_asked(workers: int) -> None:
    results = dict(unordered(square, range(10), workers))
    assert {item: value for item, (value, _) in results.items()} == {i: i * i for i in range(10)}
    processes = {process for _, process in results.values()}
    assert (os.getpid() in processes) == (workers == 1)


def test_an_error_in_a_worker_is_raised_here() -> None:
    with pytest.raises(ValueError, match="-1 is negative"):
        list(unordered(square, [1, -1, 2], 2))


def killed(*_: object) -> Any:
    """End this process, as a machine without memory does; in a module whose import is light."""
    os.kill(os.getpid(), signal.SIGKILL)


def note_and_wait(folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(60)


def test_workers_die_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "from tests.core.test_parallel import note_and_wait\n"
        "from pipeline.core.parallel import unordered\n"
        f"if __name__ == '__main__': list(unordered(note_and_wait, [{str(tmp_path)!r}] * 2, 2))"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    parent = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": os.getcwd()})
    workers: list[int] = []
    deadline = time.monotonic() + 30
    while len(workers) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
        workers = [int(path.name) for path in tmp_path.iterdir() if path.name.isdecimal()]
    assert len(workers) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while any(map(_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(_alive, workers))


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
