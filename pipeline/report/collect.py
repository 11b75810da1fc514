"""From published scores to what a report is made of."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pipeline.core.artifact import Artifact
from pipeline.core.config import changed_fields
from pipeline.core.errors import CorruptError, InputError
from pipeline.measure.statistics import bootstrap_means, percentile_interval
from pipeline.report.model import PoolFacts, Row, Scored, Settings, Setup


def load(scores: Iterable[Artifact], pools: Iterable[Artifact]) -> list[Scored]:
    """Read score artifacts, in the order given.

    Args:
        scores: artifacts of the stage ``score``.
        pools: artifacts of the pools they are of; others do no harm.

    Raises:
        InputError: there are none; a pool is missing; a system was scored twice on one pool; or the pools cannot stand
            in one report (other corpora, or other settings under one field and size).
        CorruptError: a table holds not one value for each query and measure.
    """
    facts_of = {pool.name: _facts(pool) for pool in pools if pool.manifest.stage == "pool"}
    loaded = [_read(artifact, facts_of) for artifact in scores]
    if not loaded:
        raise InputError("there are no scores to report", "Run mdcr eval first")
    for (system, pool), count in Counter((each.system, each.pool.name) for each in loaded).items():
        if count > 1:
            raise InputError(f"{system} was scored {count} times on {pool}", "Name systems apart, or choose one")
    _refuse_mixtures([each.pool for each in loaded])
    return loaded


def rows(scored: Sequence[Scored], settings: Settings) -> list[Row]:
    """Return one row for each (system, pool, measure), with the bootstrap interval over its queries."""
    bounds: dict[int, tuple[Any, Any]] = {}
    batches: dict[tuple[str | None, int], list[int]] = {}
    for place, each in enumerate(scored):
        batches.setdefault((each.pool.setup.field, len(each.queries)), []).append(place)
    for (field, _), places in batches.items():
        low, high = percentile_interval(
            bootstrap_means(
                np.concatenate([scored[place].values for place in places]),
                seed=settings.seed,
                item=field or "",
                resamples=settings.resamples,
            ),
            settings.level,
        )
        cuts = np.cumsum([len(scored[place].measures) for place in places])[:-1]
        bounds.update(zip(places, zip(np.split(low, cuts), np.split(high, cuts), strict=True), strict=True))
    return [
        Row(
            each.system,
            each.pool.name,
            each.pool.setup.field,
            each.pool.setup.size,
            each.pool.sample,
            measure,
            float(each.values[number].mean()),
            float(bounds[place][0][number]),
            float(bounds[place][1][number]),
            len(each.queries),
            each.pool.positives,
        )
        for place, each in enumerate(scored)
        for number, measure in enumerate(each.measures)
    ]


def as_json(found: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """Return rows as ``mdcr eval --json`` prints them: ``{"rows": [...]}``."""
    return {"rows": [dataclasses.asdict(row) for row in found]}


def _facts(pool: Artifact) -> PoolFacts:
    config, counts = pool.manifest.config, pool.manifest.counts
    return PoolFacts(
        name=pool.name,
        setup=Setup(config.get("field"), int(counts["candidates"])),
        sample=int(config.get("sample", 1)),
        positives=int(counts["positives"]),
        corpus=pool.manifest.inputs["corpus"],
        settings={key: value for key, value in config.items() if key != "sample"},
    )


def _read(artifact: Artifact, facts_of: Mapping[str, PoolFacts]) -> Scored:
    config = artifact.manifest.config
    table = artifact.arrow("scores.arrow")
    frame: Any = pl.from_arrow(table.select(["query", "measure", "value"]))
    measures = tuple(config["measures"])
    wide = frame.pivot(on="measure", index="query", values="value", aggregate_function="first").sort("query")
    # As many rows as cells and no cell empty: every cell has one row.
    filled = set(wide.columns) == {"query", *measures} and len(wide) * len(measures) == len(frame) > 0
    if not filled or sum(wide.null_count().row(0)):
        raise CorruptError(f"{artifact.path} holds not one value for each query and measure", "Score it again")
    name = table.column("pool")[0].as_py()
    if name not in facts_of:
        raise InputError(f"the pool {name} of {artifact.name} is gone", "Build it again, or leave these scores out")
    return Scored(
        system=config["system"],
        pool=facts_of[name],
        measures=measures,
        queries=wide["query"].to_numpy().astype(np.int64),
        values=np.ascontiguousarray(wide.select(measures).to_numpy().T),
        counts=artifact.manifest.counts,
        corpus=artifact.manifest.provenance["corpus"],
        parameters=artifact.manifest.provenance.get("parameters", ""),
    )


def _refuse_mixtures(pools: Sequence[PoolFacts]) -> None:
    first_of: dict[Setup, PoolFacts] = {}
    for pool in pools:
        if pool.corpus != pools[0].corpus:
            raise InputError(f"{pools[0].name} and {pool.name} are pools of two corpora", "Report them apart")
        first = first_of.setdefault(pool.setup, pool)
        if pool.settings != first.settings:
            changed = "; ".join(changed_fields(first.settings, pool.settings))
            raise InputError(
                f"{first.name} and {pool.name} have one field and size but other settings ({changed})",
                "Report them apart",
            )
        if pool.sample == first.sample and pool.name != first.name:
            raise InputError(f"{first.name} and {pool.name} are both sample {pool.sample}", "Report them apart")
