"""What a system costs, read from the manifests of the vectors and terms that its rankings were made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import SHORT_ID
from pipeline.core.workspace import RANKINGS, TERMS, VECTORS
from pipeline.encode import names, registry
from pipeline.scores.labels import trainings_of
from pipeline.studies.leaderboard.benchmarks import Benchmark
from pipeline.studies.scirepeval.tasks import FOLDER

COSTS = {
    "system": pl.String,
    "parameters": pl.Int64,
    "dimension": pl.Int64,
    "bytes": pl.Float64,
    "papers_per_second": pl.Float64,
    "machine": pl.String,
    "tokens": pl.Float64,
    "licence": pl.String,
    "trained_on": pl.String,
    "trained_until": pl.Int64,
}
"""Columns of costs; null: unknown. ``parameters`` (0: no weights are loaded), ``dimension`` and ``tokens`` of a paper are
of all encoders, ``bytes`` of a paper and ``papers_per_second`` of all parts, one after the other, on ``machine``."""

_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "int8": 8, "binary": 1}
_SPELLED = {"cpu": "CPU", "cuda": "GPU"}


def costs(roots: Sequence[Path], found: Iterable[Benchmark]) -> pl.DataFrame:
    """Return what each system of some benchmarks costs, columns :data:`COSTS`."""
    stores = [folder for root in roots for kind in (TERMS, VECTORS) for folder in (root / kind).glob("[!.]*")]
    places = [*(root / kind for root in roots for kind in (RANKINGS, FOLDER)), *stores]
    made = {one.id[:SHORT_ID]: one for place in places for one in published(place)}
    sources: dict[str, list[str]] = {}
    for one in found:
        for system, text in zip(one.systems, one.sources, strict=True):
            sources.setdefault(system, []).extend(name.rpartition("-")[2] for name in text.split("; "))
    licences = {model.name: model.licence for model in registry.known_models()}
    rows = []
    for system, ids in sources.items():
        parts: dict[str, dict[str, Any]] = {}
        for one, view in (pair for identity in ids for pair in _stored(identity, made, {})):
            parts.setdefault(f"{one.path.parent.name} {view}", _facts(one.path.parent, view))
        encoders = [part for part in parts.values() if part["dimension"] is not None]
        rows.append({
            "system": system,
            **{name: _total([part[name] for part in parts.values()]) for name in ("parameters", "bytes")},
            **{name: _total([part[name] for part in encoders]) for name in ("dimension", "tokens")},
            "papers_per_second": _rate([part["seconds"] for part in parts.values()]),
            "machine": "; ".join(dict.fromkeys(part["machine"] for part in parts.values())) or None,
            "licence": ", ".join(filter(None, {licences.get(base, ""): None for base in _bases(system)})) or None,
            "trained_on": "; ".join(training.on for training in trainings_of(system).values() if training.on) or None,
            "trained_until": max((t.until for t in trainings_of(system).values() if t.until), default=None),
        })  # fmt: skip
    return pl.DataFrame(rows, schema=COSTS, orient="row")


def leak(system: str, year: int | None) -> str | None:
    """Return which encoders may have learnt from the citations of queries of a year; None: unknown, empty: none."""
    known = trainings_of(system)
    citing = {name: t.until for name, t in known.items() if t.on.startswith(("citations", "co-citations"))}
    if citing and year is None:
        return None
    return ", ".join(f"{name} to {until}" for name, until in citing.items() if until is None or until >= (year or 0))


def _bases(system: str) -> list[str]:
    return [inner.base for name in names.parse(system.partition("@")[0]) for inner in name.walk()]


def _stored(
    identity: str, made: Mapping[str, Artifact], view: Mapping[str, Any]
) -> Iterator[tuple[Artifact, Mapping[str, Any]]]:
    """Yield the vectors and terms that an artifact was made from, with the view of them that its ranking took."""
    one = made.get(identity[:SHORT_ID])
    if one is None:
        return
    if one.manifest.stage in ("embed", "terms"):
        yield one, view
        return
    taken = {name: one.manifest.config[name] for name in ("dimension", "quantise") if one.manifest.config.get(name)}
    for name, inner in {**one.manifest.inputs, **one.manifest.provenance.get("derived", {})}.items():
        if name != "query":
            yield from _stored(inner, made, taken or view)


def _facts(folder: Path, view: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the vectors or terms of one store cost a paper, over all its segments."""
    manifests = [one.manifest for one in published(folder)]
    first, papers, stored, tokens, seconds = manifests[0], 0, 0, 0, 0.0
    for one in manifests:
        count = one.counts.get("embedded", one.counts.get("analysed", 0))
        rate = one.provenance.get("documents_per_second")
        papers, tokens = papers + count, tokens + one.counts.get("tokens", 0)
        stored += sum(output.bytes for output in one.outputs if not output.path.startswith("rows"))
        seconds += count / rate if rate else one.provenance["wall_seconds"]
    spec = first.config.get("encoder", {})
    weights, bits = first.provenance.get("weight_bytes"), _BITS[spec.get("storage", "float32")]
    dimension = _components(folder) if spec else None
    share = view.get("dimension", dimension or 1) / (dimension or 1) * _BITS.get(view.get("quantise", ""), bits) / bits
    device = first.provenance.get("device", "cpu").partition(":")[0]
    return {
        "parameters": weights * 8 // _BITS[spec["compute"]] if weights else None if spec else 0,
        "dimension": view.get("dimension", dimension),
        "bytes": share * stored / papers if papers else None,
        "tokens": tokens / papers if papers else None,
        "seconds": seconds / papers if papers else None,
        "machine": f"{_SPELLED.get(device, device)}, {first.provenance['processor']}",
    }


def _components(folder: Path) -> int | None:
    from pipeline.encode.store import VectorStore

    store = VectorStore.open(folder)
    return store.dimension if len(store.rows) else None


def _total(numbers: Sequence[Any]) -> Any:
    """Return a sum; None where there is nothing, or a part is unknown."""
    return None if not numbers or None in numbers else sum(numbers)


def _rate(seconds: Sequence[float | None]) -> float | None:
    total = _total(seconds)
    return 1 / total if total else None
