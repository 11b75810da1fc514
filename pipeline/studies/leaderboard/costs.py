"""Costs of systems, read from the manifests of the vectors, terms and reranked lists from which rankings were made."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.studies import kit
from pipeline.studies.leaderboard.benchmarks import Benchmark

COSTS = dict.fromkeys(("system", "licence", "trained_on"), pl.String) | dict.fromkeys(
    ("parameters", "bytes", "papers_per_second"), pl.Float64
)
"""Columns of costs; null: unknown. ``parameters`` (0: no weights) are a sum over the encoders; ``bytes`` per paper, as
vectors or terms are stored, and ``papers_per_second`` are of all parts, one after the other. What is unknown of one
part is unknown of the system."""

_BITS = {"float32": 32, "float16": 16, "bfloat16": 16}

Costs = Mapping[str, Any]
"""The costs of a system, :data:`COSTS`, and ``training``: the training data of each part, :class:`kit.Training`."""


def costs(root: Path, benchmarks: Iterable[Benchmark]) -> dict[str, Costs]:
    """Return the costs of each system, from the first benchmark that has it."""
    finder, licences = kit.Sources([root]), {model.name: model.licence for model in kit.known_models()}
    of_systems = pl.concat(benchmark.systems.select("system", "rankings") for benchmark in benchmarks)
    found = dict[str, Costs]()
    for system, rankings in of_systems.unique("system", keep="first", maintain_order=True).iter_rows():
        parts = _parts(rankings, finder)
        weighted = [part["model"] for part in parts if part["model"] and part["parameters"] != 0]
        training = [training for part in parts if part["model"] for training in kit.trainings_in([part]).values()]
        bases = [inner.base for model in weighted for inner in kit.parse_one(model).walk() if inner.base != "mean"]
        trained_on = [f"{of.on} (to {of.until or 'an unknown year'})" if of.on else kit.UNKNOWN for of in training]
        seconds = _total(parts, "seconds")
        found[system] = {
            "system": system,
            "parameters": _total(parts, "parameters") if parts else 0,
            "bytes": _total(parts, "bytes"),
            "papers_per_second": 1 / seconds if seconds else None,
            "licence": ", ".join(dict.fromkeys(licences.get(base) or kit.UNKNOWN for base in bases)) or None,
            "trained_on": "; ".join(dict.fromkeys(trained_on)) or None,
            "training": training,
        }
    return found


def _total(parts: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Return the sum of a cost; None if there are no parts or one is unknown."""
    numbers = [part[name] for part in parts]
    return None if not numbers or None in numbers else sum(numbers)


def _parts(rankings: Iterable[str], finder: kit.Sources) -> list[dict[str, Any]]:
    """Return the parts of a system, each once; several rankings may share a store."""
    found: dict[Any, dict[str, Any]] = {}
    for part in itertools.chain.from_iterable(finder.of(name.rpartition("-")[2]) for name in rankings):
        if part.role not in ("query", "queries"):
            facts = _facts(part, finder)
            found.setdefault((facts["model"], part.role in (kit.INDEX, kit.RERANKER)), facts)
    return [*found.values()]


def _facts(part: kit.Source, finder: kit.Sources) -> dict[str, Any]:
    """Return the costs per paper of one part, over all segments of its store; None: unknown.

    Those of a reranker are per pair of query and paper, which it stores nothing of.
    """
    facts: dict[str, Any] = dict.fromkeys(("model", "training", "parameters", "bytes", "seconds")) | {"role": part.role}
    if part.artifact is None:
        return facts | {"model": None if part.role == kit.INDEX else kit.UNKNOWN}
    manifest = part.artifact.manifest
    made, spec = manifest.provenance, manifest.config.get("encoder")
    facts["parameters"] = 0
    if spec:
        facts |= {"model": made["model"], "training": kit.as_training(made.get("training"))}
        facts |= {"parameters": _parameters(spec, made.get("weight_bytes"))}
    if manifest.stage == "rerank":
        pairs = manifest.counts.get("pairs")
        return facts | {"bytes": 0, "seconds": made["wall_seconds"] / pairs if pairs else None}
    segments = [segment.manifest for segment in finder.segments(part.artifact)]
    counts = [of.counts.get("embedded", of.counts.get("analysed", 0)) for of in segments]
    if manifest.stage == "index" or not (papers := sum(counts)):
        return facts
    stored = sum(
        output.bytes for segment in finder.segments(part.artifact) for output in segment.outputs("[vt]*.arrow")
    )
    facts |= {"bytes": stored / papers}
    if spec and spec["kind"] == "vectors":  # made elsewhere
        return facts
    rates = [of.provenance.get("documents_per_second") for of in segments]
    seconds = [
        n / rate if rate else of.provenance["wall_seconds"] for n, rate, of in zip(counts, rates, segments, strict=True)
    ]
    return facts | {"seconds": sum(seconds) / papers}


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
