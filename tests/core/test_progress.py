from __future__ import annotations

import pytest

from pipeline.core import progress
from pipeline.core.progress import Steps, span


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.4, "1 s"), (89, "89 s"), (150, "2 min"), (5_000, "83 min"), (7_800, "2 h 10 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_steps_are_numbered_and_the_time_left_is_of_the_same_stage(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps()
    steps.expect({"p": "pool", "e": "embed", "a": "search", "b": "search", "c": "search", "s": "score"})
    steps.begin(["p"], "pool", ["medicine"])
    steps.end(["p"], "pool", 2.0)
    steps.begin(["e"], "embed", ["medicine"])  # not timed yet: a pool costs 1, embed 100, three searches 15, a score 1
    steps.end(["e"], "embed", 60.0)
    steps.begin(["a", "b"], "search", ["one", "two"])  # (2 + 60) / 101 a unit, 16 units
    steps.end(["a", "b"], "search", 8.0)
    steps.begin(["c"], "search", ["three"])  # 4 seconds, and a score
    assert capsys.readouterr().err.splitlines() == [
        "[1/6] pool: medicine",
        "[2/6] embed: medicine (about 4 min left)",
        "[3-4/6] search: one and 1 more in one pass (about 10 s left)",
        "[5/6] search: three (about 5 s left)",
    ]


def test_details_are_a_second_level_and_what_is_left_out_always_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps()
    for quiet, verbose, expected in ((False, False, "warn "), (False, True, "detail end warn "), (True, True, "warn ")):
        monkeypatch.setattr(progress, "_quiet", quiet)
        monkeypatch.setattr(progress, "_verbose", verbose)
        progress.detail("detail")
        steps.end(["x"], "end", 1.0)
        progress.warn("warn")
        said = capsys.readouterr().err
        assert "".join(f"{word} " for word in ("detail", "end", "warn") if word in said) == expected
