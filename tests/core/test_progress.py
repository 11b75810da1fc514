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

    def step(ids: str, stage: str, seconds: float) -> None:
        own = {each: kinds[each] for each in ids}
        steps.begin(own, stage, list(ids))
        steps.end(own, stage, seconds)

    step("p", "pool", 2.0)
    step("e", "embed", 60.0)
    step("f", "embed", 20.0)
    step("ab", "search", 80.0)
    step("c", "search", 4.0)  # 2 steps of 40 seconds, as the latest took
    step("d", "search", 4.0)
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


def test_details_are_a_second_level_and_what_is_left_out_always_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps()
    for quiet, verbose, expected in ((False, False, "warn "), (False, True, "detail end warn "), (True, True, "warn ")):
        monkeypatch.setattr(progress, "_quiet", quiet)
        monkeypatch.setattr(progress, "_verbose", verbose)
        progress.detail("detail")
        steps.end({"x": "kind"}, "end", 1.0)
        progress.warn("warn")
        said = capsys.readouterr().err
        assert "".join(f"{word} " for word in ("detail", "end", "warn") if word in said) == expected
