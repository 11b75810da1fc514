"""What approximate search costs, beside every figure it makes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from pipeline.core.artifact import Artifact
from pipeline.runner import Runner
from pipeline.stages.chain import Evaluation


class Approximate(NamedTuple):
    """An approximate ranking beside the exact one.

    Attributes:
        system: name of the approximate system.
        pool: name of the pool.
        depth: entries a query.
        recall: share of the exact ranking's entries that were found.
        map: mean average precision, a fraction; None where it was not scored.
        map_exact: the same of exact search.
        change: the first less the second.
    """

    system: str
    pool: str
    depth: int
    recall: float
    map: float | None
    map_exact: float | None
    change: float | None

    def line(self) -> str:
        """Return it as a line below a table."""
        found = f"{self.system} on {self.pool}: recall@{self.depth} {self.recall:.4f} of exact search"
        if self.map is None or self.map_exact is None or self.change is None:
            return found
        change = round(100 * self.change, 2) + 0.0  # never -0.00
        return f"{found}, MAP {100 * self.map:.2f} against {100 * self.map_exact:.2f} ({change:+.2f})"


def compared(runner: Runner, evaluations: Iterable[Evaluation]) -> list[Approximate]:
    """Return the comparison of every approximate evaluation that was made."""
    found = []
    for evaluation in evaluations:
        if evaluation.exact is None:
            continue
        ranking, score, exact = (
            runner.make(task) for task in (evaluation.ranking, evaluation.score, evaluation.exact.score)
        )
        mine, other = _map(score), _map(exact)
        change = None if mine is None or other is None else mine - other
        pool = score.arrow("scores.arrow").column("pool")
        found.append(
            Approximate(
                score.manifest.config["system"],
                pool[0].as_py() if len(pool) else "",
                ranking.manifest.counts["depth"],
                ranking.manifest.counts["recall"],
                mine,
                other,
                change,
            )
        )
    return found


def _map(scores: Artifact) -> float | None:
    table = scores.arrow("scores.arrow")
    values = table.filter(pc.equal(table.column("measure"), "map")).column("value").to_numpy()
    return float(np.mean(values)) if len(values) else None
