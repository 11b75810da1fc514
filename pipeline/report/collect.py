"""Reading published scores."""

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
from pipeline.measure.measures import parse_measures
from pipeline.measure.statistics import bootstrap_means, percentile_interval
from pipeline.report.model import PoolFacts, ReportSettings, Scored, Setup


def load(scores: Iterable[Artifact], pools: Iterable[Artifact]) -> list[Scored]:
    """Read score artifacts, in the order given; those of one ranking become one :class:`Scored` with all measures.

    Args:
        scores: artifacts of the stage ``score``.
        pools: artifacts of their pools; others are ignored.

    Raises:
        InputError: there are none; a pool is missing; a system was scored twice on one pool; or the pools do not fit in
            one report (several corpora, or several settings with one field and size).
        CorruptError: a table does not have one value for each query and measure.
    """
    facts_of = {pool.name: _facts(pool) for pool in pools if pool.manifest.stage == "pool"}
    of_ranking: dict[tuple[str, str, str], Scored] = {}
    for artifact in scores:
        read = _read(artifact, facts_of)
        key = (read.system, read.pool.name, artifact.manifest.inputs.get("ranking", ""))
        of_ranking[key] = _merged(of_ranking[key], read) if key in of_ranking else read
    loaded = list(of_ranking.values())
    if not loaded:
        raise InputError("there are no scores to report", "Run mdcr eval first")
    for (system, pool), count in Counter((each.system, each.pool.name) for each in loaded).items():
        if count > 1:
            raise InputError(f"{system} was scored {count} times on {pool}", "Name systems apart, or choose one")
    _refuse_mixtures([each.pool for each in loaded])
    return loaded


def rows(scored: Sequence[Scored], settings: ReportSettings) -> list[dict[str, Any]]:
    """Return one row for each (system, pool, measure): the entries of ``mdcr eval --json``.

    Values are fractions, ``low`` and ``high`` bound the bootstrap interval over queries, ``size`` counts candidates.
    """
    found = []
    for each in scored:
        pool = each.pool
        means = bootstrap_means(
            each.values, seed=settings.seed, item=pool.setup.field or "", resamples=settings.resamples
        )
        low, high = percentile_interval(means, settings.level)
        for number, measure in enumerate(each.measures):
            found.append(
                {
                    "system": each.system,
                    "pool": pool.name,
                    "field": pool.setup.field,
                    "size": pool.setup.size,
                    "sample": pool.sample,
                    "measure": measure,
                    "value": float(each.values[number].mean()),
                    "low": float(low[number]),
                    "high": float(high[number]),
                    "queries": len(each.queries),
                    "positives": pool.positives,
                }
            )
    return found


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
    long: Any = pl.from_arrow(table.select(["query", "measure", "value"]))
    measures = tuple(config["measures"])
    wide = long.pivot(on="measure", index="query", values="value", aggregate_function="first").sort("query")
    # As many rows as values and no value missing: no query and measure is repeated.
    filled = set(wide.columns) == {"query", *measures} and len(wide) * len(measures) == len(long) > 0
    if not filled or sum(wide.null_count().row(0)):
        raise CorruptError(f"{artifact.path} does not have one value for each query and measure", "Score it again")
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


def _merged(first: Scored, other: Scored) -> Scored:
    """Return the scores of one ranking with the measures of both, in canonical order."""
    values = {
        **dict(zip(other.measures, other.values, strict=True)),
        **dict(zip(first.measures, first.values, strict=True)),
    }
    names = sorted(values, key=lambda name: parse_measures(name)[0].order)
    return dataclasses.replace(first, measures=tuple(names), values=np.stack([values[name] for name in names]))


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
