"""How a command ends: one line and an exit code, whatever the disk, the streams, a signal or a fault of ours do."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pipeline.cli import parsers as parsing
from pipeline.core import files
from tests.builders import make_corpus, make_pool
from tests.cli.run import COMMAND, flags, heed_signals, mdcr, one_line_error
from tests.scores.published import GOOD, score

BUILD = flags("corpus --source synthetic --papers 60k --seed 7 --corpus tiny --workers 2")


def ended(words: list[str], **streams: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], text=True, check=False, timeout=120, **streams)  # type: ignore[call-overload]


@pytest.mark.parametrize(("words", "buffered"), [(["show", "measures"], {}), (["--help"], {"PYTHONUNBUFFERED": "1"})])
def test_output_to_a_full_device(words: list[str], buffered: dict[str, str]) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | buffered
    with open("/dev/full", "w") as full:
        result = ended(words, stdout=full, stderr=subprocess.PIPE, env=env)
    assert result.stderr == "mdcr: standard output cannot be written (No space left on device).\n"
    assert result.returncode == 1


def test_errors_to_a_full_device() -> None:
    with open("/dev/full", "w") as full:
        assert ended(["show", "colour"], stdout=full, stderr=full).returncode == 2


@pytest.mark.parametrize(("words", "taken"), [(["show", "measures"], 0), (["models", "--json"], 10)])
def test_a_reader_that_leaves(words: list[str], taken: int) -> None:
    """Before anything is printed, or while it is: 16 kB do not fit into the pipe."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    process = subprocess.Popen([*COMMAND, *words], stdout=writer, stderr=subprocess.PIPE, text=True)
    assert len(os.read(reader, taken)) == taken
    os.close(reader)
    os.close(writer)
    _, error = process.communicate()
    assert (process.returncode, error) == (0, "")


def test_streams_that_are_closed() -> None:
    closed = subprocess.run(f"{' '.join(COMMAND)} show measures >&- 2>&-", shell=True, check=False, capture_output=True)  # noqa: S602
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, "the disk is full at"),
        (errno.EROFS, "may not be written. Choose another folder."),
        (errno.EIO, "Input/output error"),
    ],
)
def test_files_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: str
) -> None:
    corpus = make_corpus(tmp_path, 8, [("00000", "00003"), ("00000", "00005"), ("00001", "00003"), ("00002", "00007")])
    score(tmp_path, corpus, make_pool(tmp_path, corpus, [0, 1, 2], sample=1), "bm25:tuned", GOOD)

    def fail(path: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "sync", fail)
    output = tmp_path / "output"
    line = one_line_error(mdcr(tmp_path, "report", "--output", str(output)), code=1)
    assert expected in line
    assert (str(output) in line) == (number != errno.EIO)


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for words in (BUILD, ["doctor"], ["show", "pools"]):
        assert "is not a folder" in one_line_error(mdcr(tmp_path / "file", *words))
    assert "is not UTF-8" in one_line_error(mdcr(tmp_path, "pool", "--field", "\udcff"))


def test_what_nobody_expected_is_one_line_with_the_place_of_the_details(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise KeyError("a\nb\x1b[31m")

    monkeypatch.setattr(parsing, "run", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    line = one_line_error(mdcr(tmp_path, "pool"), code=70)
    (details,) = tmp_path.glob("mdcr-error-*.txt")
    assert line.startswith("mdcr: unexpected KeyError: 'a")
    assert "\x1b" not in line
    assert str(details) in line
    assert "Traceback (most recent call last)" in details.read_text()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    assert "details cannot be written" in one_line_error(mdcr(tmp_path, "pool"), code=70)


@pytest.mark.kill
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_moment(tmp_path: Path, number: signal.Signals, request: pytest.FixtureRequest) -> None:
    """The signal goes to the whole process group, as from a terminal."""
    process = subprocess.Popen(
        [*COMMAND, *BUILD, "--root", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_signals,
    )
    caught = 0
    while not caught >> (signal.SIGTERM - 1) & 1:  # the interpreter's own start is not ours
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)
    time.sleep(random.Random(request.node.name).uniform(0, 3))
    sent = time.monotonic()
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert time.monotonic() - sent < 3  # under a second on an idle machine
    how = "" if number == signal.SIGINT else f" by {number.name}"
    assert process.returncode == 128 + number, errors
    assert errors.endswith(f"mdcr: stopped{how}; the same command resumes where it stopped\n")
    assert "Traceback" not in errors
    assert not list(tmp_path.rglob(".*.lock"))
