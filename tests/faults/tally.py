"""What the harness tried and what came of it, summed over all tests and processes of a session."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

_Attack = TypeVar("_Attack")

KILLS = int(os.environ.get("MDCR_KILLS", "6"))
"""Kills of chains: above 10 in ``make torture``, where all attacks run; ``make test`` runs a share of them."""

KINDS = ("kills", "jobs", "flips", "inputs", "attacks", "models", "trainings")
GOOD = ("resumed", "refused", "harmless", "counted")
"""What may come of a fault. A fault that none of these names is lost."""

PROPERTY = "fault"


def share(attacks: Sequence[_Attack], one_in: int, first: int = 0) -> Sequence[_Attack]:
    """Return one attack in so many for ``make test``, all for ``make torture``."""
    return attacks if KILLS > 10 else attacks[first % one_in :: one_in]


class Tally:
    """Counts the faults of one test by pytest's ``record_property``, whose records come back from worker processes."""

    def __init__(self, record: Callable[[str, object], None], kind: str) -> None:
        self._record = record
        self._kind = kind

    def count(self, what: str, number: int = 1) -> None:
        """Count ``tried``, ``repaired`` or one of :data:`GOOD`."""
        self._record(PROPERTY, [self._kind, what, number])


def summary(reporter: pytest.TerminalReporter) -> list[str]:
    """Return a line for each kind of fault that was tried, and the number of those that were lost."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for reports in reporter.stats.values():
        for report in reports:
            recorded = getattr(report, "user_properties", ())
            if getattr(report, "when", "") != "teardown":  # that carries what setup and call recorded too
                for kind, what, number in (value for name, value in recorded if name == PROPERTY):
                    counts[kind][what] += number
    lines = []
    for kind, count in counts.items():
        if count["tried"]:
            lost = count["tried"] - sum(count[outcome] for outcome in GOOD)
            outcomes = [f"{what} {count[what]:,}" for what in (*GOOD, "repaired") if count[what]]
            lines.append(f"{kind}: tried {count['tried']:,}, {', '.join([*outcomes, f'lost {lost}'])}")
    return lines
