"""Scores in memory, as :func:`pipeline.report.collect.load` returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pipeline.report.model import PoolFacts, Scored, Setup

Values = Mapping[str, Sequence[float]]
"""Fractions of every query, by measure."""


def scored(
    system: str,
    values: Values,
    *,
    field: str | None = None,
    size: int = 200_000,
    sample: int = 1,
    positives: int = 100,
    parameters: str = "",
    identity: Mapping[str, Any] | None = None,
    absent: int = 0,
    **counts: Any,
) -> Scored:
    table = np.array(list(values.values()), dtype=np.float64)
    label = f"{field or 'dataset'}-{size}-s{sample}"
    return Scored(
        system=system,
        pool=PoolFacts(label, Setup(field, size), sample, positives, "c" * 64, {"seed": 13, "size": size}, absent),
        measures=tuple(values),
        queries=np.arange(table.shape[1]),
        values=table,
        counts={
            "depth": 500,
            "retrieved": 1_000,
            "tied_share": 0.0,
            "queries_without_results": 0,
            "queries_without_positive": 0,
            **counts,
        },
        corpus="tiny-0123456789ab",
        parameters=parameters,
        identity=identity or {},
    )


def made_up(
    systems: Sequence[str],
    setups: Sequence[tuple[str | None, int]],
    *,
    measures: Sequence[str] = ("map", "ndcg"),
    samples: int = 3,
    queries: int = 40,
) -> list[Scored]:
    """Every system on every setup; later systems are better, samples differ a little."""
    found = []
    for field, size in setups:
        hardness = np.random.default_rng(size).random(queries)
        for number, system in enumerate(systems):
            for sample in range(1, samples + 1):
                noise = np.random.default_rng([number, sample, size]).random((len(measures), queries))
                level = 0.3 * hardness + 0.1 * number + 0.1 * noise
                found.append(
                    scored(system, dict(zip(measures, level, strict=True)), field=field, size=size, sample=sample)
                )
    return found
