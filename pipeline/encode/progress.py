"""Progress of an embedding run: papers, tokens a second, padding, and the time left by the length of what is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core import progress
from pipeline.encode.base import Encoded, padding_share

_HEARTBEAT = 300.0
"""Seconds after which a plain line is printed although no shard is finished."""

_SETTLED = 1.0
"""Seconds before which a rate says nothing."""


class EmbedProgress:
    """A bar over the work in characters; without a terminal one line a shard.

    Characters stand for tokens before these are known. Longest texts go first, so that an estimate by papers would be
    far too long.

    Args:
        what: what is going on, such as ``embed scincl``.
        work: characters that count of each paper, float64 ``[papers]``.
        line: line of the terminal, from 0, where several processes show a bar each.
    """

    def __init__(self, what: str, work: npt.NDArray[np.float64], line: int = 0) -> None:
        self._what, self._papers, self._total = what, len(work), float(work.sum())
        self._line = line
        self._docs = self._skipped = self._tokens = self._padded = 0
        self._done = 0.0
        self._started = self._said = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> EmbedProgress:
        if not progress.quiet() and sys.stderr.isatty():
            from tqdm import tqdm

            form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
            self._bar = tqdm(
                total=self._total, desc=self._what, bar_format=form, delay=2, position=self._line, file=sys.stderr
            )
        return self

    def skip(self, papers: int, work: float) -> None:
        """Count papers that an earlier run embedded."""
        self._skipped += papers
        self._total -= work
        if self._bar is not None:
            self._bar.total = self._total

    def add(self, batch: Encoded, work: float) -> None:
        """Count a batch."""
        self._docs += batch.texts
        self._tokens += batch.tokens
        self._padded += batch.padded
        self._done += work
        if self._bar is not None:
            self._bar.set_postfix_str(self._rates(), refresh=False)
            self._bar.update(work)
        elif time.monotonic() - self._said > _HEARTBEAT:
            self._say("")

    def shard(self, number: int) -> None:
        """Say that a shard is finished."""
        if self._bar is None and time.monotonic() - self._started > _SETTLED:
            self._say(f"shard {number} done, ")

    def facts(self) -> Mapping[str, Any]:
        """Return what of this run belongs into provenance; empty where nothing was computed."""
        if not self._docs:
            return {}
        seconds = max(time.monotonic() - self._started, 1e-9)
        return {
            "documents_per_second": round(self._docs / seconds, 2),
            "tokens_per_second": round(self._tokens / seconds, 1),
            "padding": round(padding_share(self._tokens, self._padded), 4),
        }

    def _rates(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-9)
        rates = f"{self._docs + self._skipped:,}/{self._papers:,} docs, {self._docs / seconds:,.1f} docs/s"
        if self._tokens:
            share = padding_share(self._tokens, self._padded)
            rates += f", {self._tokens / seconds:,.0f} tokens/s, {share:.1%} padding"
        return rates

    def _say(self, event: str) -> None:
        self._said = time.monotonic()
        left = (self._said - self._started) * (self._total - self._done) / max(self._done, 1e-9)
        progress.say(f"{self._what}: {event}{self._rates()}, {max(left, 0):,.0f} s left")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
