"""Costs of systems, read from the manifests of the vectors and terms from which rankings were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import SHORT_ID, file_name
from pipeline.core.files import read_json
from pipeline.core.workspace import RANKINGS, TERMS, VECTORS
from pipeline.encode import names, registry
from pipeline.encode.store import VectorStore
from pipeline.scores.labels import trainings_of
from pipeline.studies.leaderboard.benchmarks import Benchmark
from pipeline.studies.scirepeval.tasks import FOLDER

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
    "trained_until": pl.Int64,
}
"""Columns of costs; null: unknown. ``parameters`` (0: no weights), ``dimension`` and ``tokens`` per paper are sums over
the encoders; ``bytes`` per paper and ``papers_per_second`` cover all parts, one after the other, on ``machine``."""

SUBMISSIONS = "runs/submissions"
_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "int8": 8, "binary": 1}


def costs(roots: Sequence[Path], benchmarks: Iterable[Benchmark]) -> pl.DataFrame:
    """Return the costs of each system, columns :data:`COSTS`, from the first benchmark that has it.

    The costs of a submission are those in its manifest.
    """
    indexes = [folder for root in roots for kind in (TERMS, VECTORS) for folder in (root / kind).glob("[!.]*")]
    folders = [*(root / kind for root in roots for kind in (RANKINGS, FOLDER)), *indexes]
    artifacts = {artifact.id[:SHORT_ID]: artifact for folder in folders for artifact in published(folder)}
    licences = {model.name: model.licence for model in registry.known_models()}
    sources: dict[str, Sequence[str]] = {}
    for benchmark in benchmarks:
        for system, ranking_names in zip(benchmark.systems, benchmark.sources, strict=True):
            sources.setdefault(system, ranking_names)
    rows = []
    for system, ranking_names in sources.items():
        manifests = [root / SUBMISSIONS / system / "manifest.json" for root in roots if named_as_file(system)]
        manifest = next(filter(None, map(read_json, manifests)), None)
        if manifest is not None:
            rows.append({name: manifest["costs"].get(name) for name in COSTS} | {"system": system})
            continue
        stores: dict[tuple[str, int, str], dict[Path, None]] = {}
        for name in ranking_names:
            for store, *view in _stores_of(name.rpartition("-")[2], artifacts, (0, "")):
                model = store.manifest.provenance.get("model", store.manifest.stage)
                stores.setdefault((model, *view), {})[store.path.parent] = None
        parts = [_facts(list(folders), dimension, quantise) for (_, dimension, quantise), folders in stores.items()]
        encoders = [part for part in parts if part["dimension"]]
        models = [model for (model, *_), part in zip(stores, parts, strict=True) if part["dimension"]]
        trained = [training for model in models for training in trainings_of(model).values() if training.on]
        bases = [inner.base for model in models for name in names.parse(model) for inner in name.walk()]
        seconds = _total(parts, "seconds")
        rows.append({
            "system": system,
            **{name: _total(parts, name) for name in ("parameters", "bytes")},
            **{name: _total(encoders, name) for name in ("dimension", "tokens")},
            "papers_per_second": 1 / seconds if seconds else None,
            "machine": "; ".join(dict.fromkeys(part["machine"] for part in parts)) or None,
            "licence": ", ".join(dict.fromkeys(filter(None, (licences.get(base) for base in bases)))) or None,
            "trained_on": "; ".join(training.on for training in trained) or None,
            "trained_until": max((training.until for training in trained if training.until), default=None),
        })  # fmt: skip
    return pl.DataFrame(rows, schema=COSTS, orient="row")


def named_as_file(system: str) -> bool:
    """Return whether the name of a system can be that of a submission's file and folder."""
    return system == file_name(system, kept="._-")


def leak(cost: Mapping[str, Any], year: int | None) -> str | None:
    """Return the years of training data that may contain citations by queries of a year; None: unknown; empty: none."""
    trained, until = cost["trained_on"], cost["trained_until"]
    if trained is None or "citations:" not in trained:
        return None if trained is None and cost["parameters"] != 0 else ""
    return None if year is None else f"to {until}" if until is None or until >= year else ""


def _stores_of(
    identity: str, artifacts: Mapping[str, Artifact], view: tuple[int, str]
) -> Iterator[tuple[Artifact, int, str]]:
    """Yield the vectors and terms from which an artifact was made, with the view used by its ranking."""
    artifact = artifacts.get(identity[:SHORT_ID])
    if artifact is None:
        return
    manifest = artifact.manifest
    if manifest.stage in ("embed", "terms"):
        yield artifact, *view
        return
    own_view = manifest.config.get("dimension", 0), manifest.config.get("quantise", "")
    for name, inner in {**manifest.inputs, **manifest.provenance.get("derived", {})}.items():
        if name != "query":
            yield from _stores_of(inner, artifacts, own_view if any(own_view) else view)


def _facts(folders: Sequence[Path], dimension: int, quantise: str) -> dict[str, Any]:
    """Return the costs per paper in the stores of one part, over all segments, for the given view of the vectors."""
    segments = [segment for folder in folders for segment in published(folder)]
    manifests = [segment.manifest for segment in segments]
    first, spec = manifests[0], manifests[0].config.get("encoder")
    counts = [manifest.counts.get("embedded", manifest.counts.get("analysed", 0)) for manifest in manifests]
    seconds = [
        count / rate if (rate := entry.provenance.get("documents_per_second")) else entry.provenance["wall_seconds"]
        for entry, count in zip(manifests, counts, strict=True)
    ]
    papers = max(sum(counts), 1)
    stored_bytes = float(sum(output.bytes for segment in segments for output in segment.outputs("[vt]*.arrow")))
    weight_bytes = first.provenance.get("weight_bytes")
    if spec:
        full_dimension, bits = VectorStore.open(folders[0]).dimension, _BITS[spec["storage"]]
        dimension = dimension or full_dimension
        stored_bytes *= dimension / full_dimension * _BITS.get(quantise, bits) / bits
    return {
        "parameters": weight_bytes * 8 / _BITS[spec["compute"]] if weight_bytes and spec else None if spec else 0,
        "dimension": dimension,
        "bytes": stored_bytes / papers,
        "tokens": sum(manifest.counts.get("tokens", 0) for manifest in manifests) / papers,
        "seconds": sum(seconds) / papers,
        "machine": f"{first.provenance.get('device', 'cpu').upper()}, {first.provenance['processor']}",
    }


def _total(costs: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Return the sum of a cost; None if there are no parts or one is unknown."""
    numbers = [cost[name] for cost in costs]
    return None if not numbers or None in numbers else sum(numbers)
