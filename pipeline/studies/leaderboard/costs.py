"""Costs of systems, read from the manifests of the vectors and terms from which rankings were made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl

from pipeline.core import files
from pipeline.core.artifact import readable
from pipeline.core.config import digest, file_name
from pipeline.core.errors import InputError
from pipeline.core.workspace import SUBMISSIONS
from pipeline.encode import kinds, known, names
from pipeline.encode.store import VectorStore
from pipeline.scores.sources import INDEX, RERANKER, UNKNOWN, Source, Sources, as_training, trainings_in
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
the encoders; ``bytes`` per paper and ``papers_per_second`` cover all parts, one after the other, on ``machine``.
What is unknown of one part is unknown of the system."""

UNDATED = " (to an unknown year)"
"""Ending of training data whose last year is unknown."""

_STATED = "costs.json"

_KINDS: dict[Any, Any] = {
    pl.String: Annotated[str, msgspec.Meta(max_length=10_000)],
    pl.Float64: Annotated[float, msgspec.Meta(ge=0, le=1e15)],
    pl.Int64: Annotated[int, msgspec.Meta(ge=0, le=9999)],
}
Costs = msgspec.defstruct("Costs", [(name, _KINDS[kind] | None, None) for name, kind in COSTS.items()])
"""Costs of a system as a submission states them, columns :data:`COSTS`, within bounds."""

_BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "int8": 8, "binary": 1}


def write_costs(folder: Path, stated: Costs) -> None:  # type: ignore[valid-type]
    """Write the costs that a submission states into its folder, with their SHA-256."""
    known = msgspec.to_builtins(stated)
    files.write_text(folder / _STATED, json.dumps({"costs": known, "sha256": digest(known)}))


def read_costs(folder: Path) -> Any:
    """Return the costs that a submission states; InputError if they are not as they were written."""
    path = folder / _STATED
    stated = files.read_json(path)
    try:
        if stated["sha256"] != digest(stated["costs"]):
            raise ValueError("their digest does not match")
        return msgspec.convert(stated["costs"], Costs)
    except (TypeError, KeyError, ValueError) as error:
        remedy = f"Add it again: mdcr leaderboard --add {folder.name}.zip"
        raise InputError(f"the costs in {path} cannot be read ({error})", remedy) from error


def costs(roots: Sequence[Path], benchmarks: Iterable[Benchmark]) -> pl.DataFrame:
    """Return the costs of each system, columns :data:`COSTS`, from the first benchmark that has it.

    The costs of a submission are those in its manifest.
    """
    finder = Sources(roots, FOLDER)
    licences = {model.name: model.licence for model in known.known_models()}
    rows = []
    for system, ranking_names in sources_of(benchmarks).items():
        folders = [root / SUBMISSIONS / system for root in roots if named_as_file(system)]
        stated = next(readable([folder for folder in folders if folder.is_dir()], read_costs), None)
        if stated is not None:
            rows.append(msgspec.structs.asdict(stated) | {"system": system})
            continue
        parts = [_facts(part, finder) for part in parts_of(ranking_names, finder)]
        encoders = [part for part in parts if part["model"]]
        weighted = [part["model"] for part in encoders if part["parameters"] != 0]
        trained = [trainings_in([part]) for part in encoders]
        trained_on = [
            f"{training.on or UNKNOWN}{'' if training.until or not training.on else UNDATED}"
            for found in trained
            for training in found.values()
        ]
        years = [training.until for found in trained for training in found.values() if training.until]
        bases = [inner.base for model in weighted for inner in names.parse_one(model).walk() if inner.base != "mean"]
        seconds = _total(parts, "seconds")
        rows.append({
            "system": system,
            "parameters": _total(parts, "parameters") if parts else 0,
            "bytes": _total(parts, "bytes"),
            "dimension": _total([part for part in encoders if part["role"] != RERANKER], "dimension"),
            "tokens": _total(encoders, "tokens"),
            "papers_per_second": 1 / seconds if seconds else None,
            "machine": "; ".join(dict.fromkeys(part["machine"] for part in parts if part["machine"])) or None,
            "licence": ", ".join(dict.fromkeys(licences.get(base) or UNKNOWN for base in bases)) or None,
            "trained_on": "; ".join(dict.fromkeys(trained_on)) or None,
            "trained_until": max(years, default=None),
        })  # fmt: skip
    return pl.DataFrame(rows, schema=COSTS, orient="row")


def sources_of(benchmarks: Iterable[Benchmark]) -> dict[str, Sequence[str]]:
    """Return the folder names of the rankings or figures of each system, of the first benchmark that has it."""
    found: dict[str, Sequence[str]] = {}
    for benchmark in benchmarks:
        for system, ranking_names in zip(benchmark.systems, benchmark.sources, strict=True):
            found.setdefault(system, ranking_names)
    return found


def parts_of(ranking_names: Iterable[str], finder: Sources) -> list[Source]:
    """Return the parts of a system, each once: vectors, terms and rerankers; several rankings may share a store."""
    found: dict[Any, Source] = {}
    for name in ranking_names:
        for part in finder.of(name.rpartition("-")[2]):
            if part.role not in ("query", "queries"):
                manifest = part.artifact.manifest if part.artifact else None
                model = manifest and manifest.provenance.get("model", manifest.stage)
                found.setdefault((model, part.role == RERANKER, part.dimension, part.quantise), part)
    return list(found.values())


def named_as_file(system: str) -> bool:
    """Return whether the name of a system can be that of a submission's file and folder."""
    return system == file_name(system, kept="._-")


def leak(cost: Mapping[str, Any], year: int | None) -> str | None:
    """Return the years of training data that may contain citations by queries of a year; None: unknown; empty: none."""
    parts, until = (cost["trained_on"] or "").split("; "), cost["trained_until"]
    cited = [part for part in parts if "citations:" in part]
    if cited and until is not None and year is not None and until >= year:
        return f"to {until}"
    if any(part.endswith(UNDATED) for part in cited):
        return "to an unknown year"
    if UNKNOWN in parts or (cited and year is None) or (parts == [""] and cost["parameters"] != 0):
        return None
    return ""


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
        bits, dimension = _BITS[spec["storage"]], part.dimension or store.dimension
        stored_bytes *= dimension / store.dimension * _BITS.get(part.quantise, bits) / bits
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
    if spec.get("kind") in {kind.name for kind in kinds.registered() if kind.fit is not None}:
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
