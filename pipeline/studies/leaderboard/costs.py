"""Costs of systems, read from the manifests of the vectors and terms from which rankings were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.core.artifact import readable
from pipeline.encode import kinds, known, names
from pipeline.encode.known import Training
from pipeline.encode.store import VectorStore
from pipeline.scores.sources import (
    INDEX,
    RERANKER,
    UNKNOWN,
    Source,
    Sources,
    as_training,
    cited_until,
    trainings_in,
)
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

_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "int8": 8, "binary": 1}


Costs = Mapping[str, Any]
"""The costs of a system, :data:`COSTS`, and ``training``: :class:`pipeline.encode.known.Training` of each part."""


def costs(roots: Sequence[Path], benchmarks: Iterable[Benchmark]) -> dict[str, Costs]:
    """Return the costs of each system, from the first benchmark that has it."""
    finder = Sources(roots)
    licences = {model.name: model.licence for model in known.known_models()}
    found = dict[str, Costs]()
    for system, ranking_names in _sources_of(benchmarks).items():
        parts = [_facts(part, finder) for part in _parts_of(ranking_names, finder)]
        encoders = [part for part in parts if part["model"]]
        weighted = [part["model"] for part in encoders if part["parameters"] != 0]
        training = [training for part in encoders for training in trainings_in([part]).values()]
        bases = [inner.base for model in weighted for inner in names.parse_one(model).walk() if inner.base != "mean"]
        seconds = _total(parts, "seconds")
        found[system] = {
            "system": system,
            "parameters": _total(parts, "parameters") if parts else 0,
            "bytes": _total(parts, "bytes"),
            "dimension": _total([part for part in encoders if part["role"] != RERANKER], "dimension"),
            "tokens": _total(encoders, "tokens"),
            "papers_per_second": 1 / seconds if seconds else None,
            "machine": "; ".join(dict.fromkeys(part["machine"] for part in parts if part["machine"])) or None,
            "licence": ", ".join(dict.fromkeys(licences.get(base) or UNKNOWN for base in bases)) or None,
            "trained_on": "; ".join(dict.fromkeys(map(_in_words, training))) or None,
            "training": training,
        }
    return found


def _in_words(training: Training) -> str:
    return f"{training.on} (to {training.until or 'an unknown year'})" if training.on else UNKNOWN


def _sources_of(benchmarks: Iterable[Benchmark]) -> dict[str, Sequence[str]]:
    """Return the folder names of the rankings or figures of each system, of the first benchmark that has it."""
    found: dict[str, Sequence[str]] = {}
    for benchmark in benchmarks:
        for system, ranking_names in zip(benchmark.systems, benchmark.sources, strict=True):
            found.setdefault(system, ranking_names)
    return found


def _parts_of(ranking_names: Iterable[str], finder: Sources) -> list[Source]:
    """Return the parts of a system, each once: vectors, terms and rerankers; several rankings may share a store."""
    found: dict[Any, Source] = {}
    for name in ranking_names:
        for part in finder.of(name.rpartition("-")[2]):
            if part.role not in ("query", "queries"):
                manifest = part.artifact.manifest if part.artifact else None
                model = manifest and manifest.provenance.get("model", manifest.stage)
                found.setdefault((model, part.role == RERANKER, part.dimension), part)
    return list(found.values())


def leak(cost: Costs, year: int | None) -> str | None:
    """Return the years of training data that may contain citations by queries of a year; None: unknown; empty: none.

    Each part of a system counts with the last year of its own training data.
    """
    training, until = cost["training"], cited_until(cost["training"])
    if until and year is not None and until >= year:
        return f"to {until}"
    if any("citations:" in part.on and not part.until for part in training):
        return "to an unknown year"
    if not all(part.on for part in training) or (until and year is None):
        return None
    return None if not training and cost["parameters"] != 0 else ""


def _facts(part: Source, finder: Sources) -> dict[str, Any]:
    """Return the costs per paper of one part, over all segments of its store; None: unknown.

    Those of a reranker are per pair of query and paper, which it stores nothing of.
    """
    facts: dict[str, Any] = dict.fromkeys(
        ("model", "training", "parameters", "dimension", "bytes", "tokens", "seconds", "machine")
    ) | {"role": part.role}
    if part.artifact is None:
        return facts | {"model": None if part.role == INDEX else UNKNOWN}
    first, stage = part.artifact.manifest, part.artifact.manifest.stage
    device, processor = first.provenance.get("device", "cpu").upper(), first.provenance.get("processor", "")
    facts |= {"machine": f"{device}, {processor}"}
    spec = first.config.get("encoder")
    if spec:
        facts |= {"model": first.provenance["model"], "training": as_training(first.provenance.get("training"))}
        facts |= {"parameters": _parameters(spec, first.provenance.get("weight_bytes"))}
    if stage == "rerank":
        pairs = first.counts.get("pairs")
        return facts | {"bytes": 0, "seconds": first.provenance["wall_seconds"] / pairs if pairs else None}
    segments = finder.segments(part.artifact)
    manifests = [segment.manifest for segment in segments]
    counts = [manifest.counts.get("embedded", manifest.counts.get("analysed", 0)) for manifest in manifests]
    papers = sum(counts)
    if stage == "index" or not papers:
        return facts | {"parameters": facts["parameters"] if spec else 0}
    stored_bytes = float(sum(output.bytes for segment in segments for output in segment.outputs("[vt]*.arrow")))
    stores = readable([part.artifact.path.parent] if spec else [], VectorStore.open)
    if not spec:
        facts |= {"parameters": 0, "bytes": stored_bytes / papers}
    elif store := next(stores, None):
        dimension = part.dimension or store.dimension
        stored_bytes *= dimension / store.dimension
        facts |= {"dimension": dimension, "bytes": stored_bytes / papers}
    if spec and spec["kind"] == "vectors":  # made elsewhere
        return facts | {"machine": None}
    seconds = [
        count / rate if (rate := made.provenance.get("documents_per_second")) else made.provenance["wall_seconds"]
        for made, count in zip(manifests, counts, strict=True)
    ]
    if all("tokens" in manifest.counts for manifest in manifests):
        facts |= {"tokens": sum(manifest.counts["tokens"] for manifest in manifests) / papers}
    return facts | {"seconds": sum(seconds) / papers}


def _parameters(spec: Mapping[str, Any], weight_bytes: int | None) -> float | None:
    """Return the number of parameters of an encoder or of its parts; None: unknown."""
    if spec.get("kind") in {kind.kind for kind in kinds.KINDS.values() if kind.fitter}:
        return 0
    precisions = _precisions(spec)
    return weight_bytes * 8 / _BITS[precisions.pop()] if weight_bytes and len(precisions) == 1 else None


def _precisions(spec: Mapping[str, Any]) -> set[str]:
    """Return the precisions in which the parts of an encoder compute."""
    inner = [*spec.get("parts", ()), *filter(None, [spec.get("encoder")])]
    return set().union(*map(_precisions, inner)) if inner else {spec[key] for key in ("compute",) if key in spec}


def _total(costs: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Return the sum of a cost; None if there are no parts or one is unknown."""
    numbers = [cost[name] for cost in costs]
    return None if not numbers or None in numbers else sum(numbers)
