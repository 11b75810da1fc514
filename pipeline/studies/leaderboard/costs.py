"""Costs of systems, read from the manifests of the vectors and terms from which rankings were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.studies import kit
from pipeline.studies.kit import UNKNOWN
from pipeline.studies.leaderboard.benchmarks import Benchmark

COSTS = {
    "system": pl.String,
    "parameters": pl.Float64,
    "dimension": pl.Float64,
    "bytes": pl.Float64,
    "tokens": pl.Float64,
    "papers_per_second": pl.Float64,
    "machine": pl.String,
    "licence": pl.String,
    "trained_on": pl.String,
}
"""Columns of costs; null: unknown. ``parameters`` (0: no weights), ``dimension`` and ``tokens`` per paper are sums over
the encoders; ``bytes`` per paper and ``papers_per_second`` cover all parts, one after the other, on ``machine``.
What is unknown of one part is unknown of the system."""

_BITS = {"float32": 32, "float16": 16, "bfloat16": 16}
_OF_PART = ("model", "training", "parameters", "dimension", "bytes", "tokens", "seconds", "machine")

Costs = Mapping[str, Any]
"""The costs of a system, :data:`COSTS`, and ``training``: the training data of each part, :class:`kit.Training`."""


def costs(roots: Sequence[Path], benchmarks: Iterable[Benchmark]) -> dict[str, Costs]:
    """Return the costs of each system, from the first benchmark that has it."""
    finder, licences = kit.Sources(roots), {model.name: model.licence for model in kit.known_models()}
    of_systems = pl.concat(benchmark.systems.select("system", "rankings") for benchmark in benchmarks)
    found = dict[str, Costs]()
    for system, rankings in of_systems.unique("system", keep="first", maintain_order=True).iter_rows():
        parts = [_facts(part, finder) for part in _parts_of(rankings, finder)]
        encoders = [part for part in parts if part["model"]]
        weighted = [part["model"] for part in encoders if part["parameters"] != 0]
        training = [training for part in encoders for training in kit.trainings_in([part]).values()]
        bases = [inner.base for model in weighted for inner in kit.parse_one(model).walk() if inner.base != "mean"]
        seconds = _total(parts, "seconds")
        trained_on = [f"{of.on} (to {of.until or 'an unknown year'})" if of.on else UNKNOWN for of in training]
        texts = {
            "machine": ("; ", [part["machine"] for part in parts if part["machine"]]),
            "licence": (", ", [licences.get(base) or UNKNOWN for base in bases]),
            "trained_on": ("; ", trained_on),
        }
        found[system] = {
            "system": system,
            "parameters": _total(parts, "parameters") if parts else 0,
            "bytes": _total(parts, "bytes"),
            "dimension": _total([part for part in encoders if part["role"] != kit.RERANKER], "dimension"),
            "tokens": _total(encoders, "tokens"),
            "papers_per_second": 1 / seconds if seconds else None,
            **{name: separator.join(dict.fromkeys(of)) or None for name, (separator, of) in texts.items()},
            "training": training,
        }
    return found


def _total(costs: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Return the sum of a cost; None if there are no parts or one is unknown."""
    numbers = [cost[name] for cost in costs]
    return None if not numbers or None in numbers else sum(numbers)


def _parts_of(rankings: Iterable[str], finder: kit.Sources) -> Iterable[kit.Source]:
    """Return the parts of a system, each once: vectors, terms and rerankers; several rankings may share a store."""
    found: dict[Any, kit.Source] = {}
    for name in rankings:
        for part in finder.of(name.rpartition("-")[2]):
            if part.role not in ("query", "queries"):
                manifest = part.artifact.manifest if part.artifact else None
                model = manifest and manifest.provenance.get("model", manifest.stage)
                found.setdefault((model, part.role == kit.RERANKER, part.dimension), part)
    return found.values()


def leak(cost: Costs, year: int | None) -> str | None:
    """Return the years of training data that may contain citations by queries of a year; None: unknown; empty: none.

    Each part of a system counts with the last year of its own training data.
    """
    training, until = cost["training"], kit.cited_until(cost["training"])
    if until and year is not None and until >= year:
        return f"to {until}"
    if any("citations:" in part.on and not part.until for part in training):
        return "to an unknown year"
    if not all(part.on for part in training) or (until and year is None):
        return None
    return None if not training and cost["parameters"] != 0 else ""


def _facts(part: kit.Source, finder: kit.Sources) -> dict[str, Any]:
    """Return the costs per paper of one part, over all segments of its store; None: unknown.

    Those of a reranker are per pair of query and paper, which it stores nothing of.
    """
    facts: dict[str, Any] = dict.fromkeys(_OF_PART) | {"role": part.role}
    if part.artifact is None:
        return facts | {"model": None if part.role == kit.INDEX else UNKNOWN}
    first = part.artifact.manifest
    made, spec, stage = first.provenance, first.config.get("encoder"), first.stage
    facts |= {"machine": f"{made.get('device', 'cpu').upper()}, {made.get('processor', '')}"}
    if spec:
        parameters = _parameters(spec, made.get("weight_bytes"))
        facts |= {"model": made["model"], "training": kit.as_training(made.get("training")), "parameters": parameters}
    if stage == "rerank":
        pairs = first.counts.get("pairs")
        return facts | {"bytes": 0, "seconds": made["wall_seconds"] / pairs if pairs else None}
    segments = finder.segments(part.artifact)
    counts = [of.manifest.counts.get("embedded", of.manifest.counts.get("analysed", 0)) for of in segments]
    papers = sum(counts)
    if not spec:
        facts |= {"parameters": 0}
    if stage == "index" or not papers:
        return facts
    stored_bytes = float(sum(output.bytes for segment in segments for output in segment.outputs("[vt]*.arrow")))
    if not spec:
        facts |= {"bytes": stored_bytes / papers}
    elif store := next(kit.readable([part.artifact.path.parent], kit.VectorStore.open), None):
        dimension = part.dimension or store.dimension
        facts |= {"dimension": dimension, "bytes": stored_bytes * dimension / store.dimension / papers}
    if spec and spec["kind"] == "vectors":  # made elsewhere
        return facts | {"machine": None}
    seconds = 0.0
    for segment, count in zip(segments, counts, strict=True):
        of_segment = segment.manifest.provenance
        rate = of_segment.get("documents_per_second")
        seconds += count / rate if rate else of_segment["wall_seconds"]
    if all("tokens" in segment.manifest.counts for segment in segments):
        facts |= {"tokens": sum(segment.manifest.counts["tokens"] for segment in segments) / papers}
    return facts | {"seconds": seconds / papers}


def _parameters(spec: Mapping[str, Any], weight_bytes: int | None) -> float | None:
    """Return the number of parameters of an encoder or of its parts; None: unknown."""
    if getattr(kit.KINDS.get(spec.get("kind", "")), "fitter", ""):
        return 0
    precisions = _precisions(spec)
    return weight_bytes * 8 / _BITS[precisions.pop()] if weight_bytes and len(precisions) == 1 else None


def _precisions(spec: Mapping[str, Any]) -> set[str]:
    """Return the precisions in which the parts of an encoder compute."""
    inner = [*spec.get("parts", ()), *filter(None, [spec.get("encoder")])]
    return set().union(*map(_precisions, inner)) if inner else {spec[key] for key in ("compute",) if key in spec}
