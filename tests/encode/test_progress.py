"""Lines of progress where there is no terminal: one a shard, with the time left by characters."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.encode import progress
from pipeline.encode.base import Encoded
from pipeline.encode.progress import EmbedProgress


class _Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def _batch(texts: int, tokens: int, padded: int) -> Encoded:
    return Encoded(np.arange(texts), np.zeros((texts, 2), np.float32), texts, tokens, padded)


def test_one_line_a_shard(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr(progress, "time", clock)
    with EmbedProgress("embed tiny", np.array([100.0, 300.0, 300.0, 300.0])) as bar:
        bar.skip(1, 100.0)
        clock.now += 10
        bar.add(_batch(1, 90, 100), 300.0)
        bar.shard(0)
        clock.now += 310
        bar.add(_batch(1, 90, 100), 300.0)
        clock.now += 0.1
        bar.add(_batch(1, 0, 0), 300.0)
        bar.shard(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "embed tiny: shard 0 done, 2/4 docs, 0.1 docs/s, 9 tokens/s, 10.0% padding, 20 s left",
        "embed tiny: 3/4 docs, 0.0 docs/s, 1 tokens/s, 10.0% padding, 160 s left",
        "embed tiny: shard 1 done, 4/4 docs, 0.0 docs/s, 1 tokens/s, 10.0% padding, 0 s left",
    ]
    assert bar.facts()["padding"] == 0.1


def test_nothing_done_is_no_fact() -> None:
    assert EmbedProgress("embed tiny", np.array([1.0])).facts() == {}
