from __future__ import annotations

import pytest

from pipeline.core import progress
from pipeline.core.progress import Steps, span


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.4, "1 s"), (89, "89 s"), (150, "2 min"), (5_000, "83 min"), (7_800, "2 h 10 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_the_time_left_is_told_once_all_kinds_of_work_that_are_left_were_timed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kinds = {"p": "pool", "e": "embed 1k", "f": "embed 1k", "a": "search", "b": "search", "c": "search", "d": "search"}
    steps = Steps()
    steps.expect(kinds)
    # 2 steps of 40 seconds are left at "c", as the latest took
    for ids, seconds in (("p", 2.0), ("e", 60.0), ("f", 20.0), ("ab", 80.0), ("c", 4.0), ("d", 4.0)):
        together, stage = {step: kinds[step] for step in ids}, kinds[ids[0]].split()[0]
        steps.begin(together, stage, list(ids))
        steps.end(together, stage, seconds)
    steps.expect({"g": "search", "h": "embed 2k"})
    steps.begin({"g": "search"}, "search", ["g"])  # embedding another pool size was not timed
    assert capsys.readouterr().err.splitlines() == [
        "[1/7] pool: p",
        "[2/7] embed: e",
        "[3/7] embed: f",
        "[4-5/7] search: a and 1 more in one pass",
        "[6/7] search: c (about 80 s left)",
        "[7/7] search: d (about 4 s left)",
        "[8/9] search: g",
    ]


@pytest.mark.parametrize(
    ("quiet", "verbose", "shown"), [(False, False, "warn"), (False, True, "detail warn"), (True, True, "warn")]
)
def test_details_are_a_second_level_and_what_is_left_out_always_shows(
    capsys: pytest.CaptureFixture[str], quiet: bool, verbose: bool, shown: str
) -> None:
    progress.set_quiet(quiet)
    progress.set_verbose(verbose)
    progress.detail("detail")
    progress.warn("warn")
    progress.set_verbose(False)
    assert capsys.readouterr().err.split() == shown.split()
