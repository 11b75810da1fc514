"""The recall of approximate search, and the change of MAP against exact search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.core.runner import Runner
from pipeline.stages.chain import Evaluation


def compared(runner: Runner, evaluations: Iterable[Evaluation]) -> list[dict[str, Any]]:
    """Return a row for every approximate evaluation that was made.

    ``recall`` is the fraction of the exact ranking's entries that was found; ``map``, ``map_exact`` and ``change`` are
    fractions, None where no query has a positive.
    """
    rows = []
    for evaluation in evaluations:
        if evaluation.exact is None:
            continue
        ranking, score, exact = map(runner.make, (evaluation.ranking, evaluation.scores[0], evaluation.exact.scores[0]))
        own, other = _map(score), _map(exact)
        pool = score.arrow("scores.arrow").column("pool")
        rows.append(
            {
                "system": score.manifest.config["system"],
                "pool": pool[0].as_py() if len(pool) else "",
                "depth": ranking.manifest.counts["depth"],
                "recall": ranking.manifest.counts["recall"],
                "map": own,
                "map_exact": other,
                "change": None if own is None or other is None else own - other,
            }
        )
    return rows


def as_line(row: dict[str, Any]) -> str:
    """Return a row as a line below a table."""
    found = f"{row['system']} on {row['pool']}: recall@{row['depth']} {row['recall']:.4f} of exact search"
    if row["change"] is None:
        return found
    change = round(100 * row["change"], 2) + 0.0  # never -0.00
    return f"{found}, MAP {100 * row['map']:.2f} against {100 * row['map_exact']:.2f} ({change:+.2f})"


def _map(scores: Artifact) -> float | None:
    values = pl.DataFrame(scores.arrow("scores.arrow")).filter(measure="map")["value"].to_numpy()
    return float(values.mean()) if len(values) else None
