"""What a ranking was made of: vectors, terms and rerankers, with the texts they cut and their training data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from pipeline.core.artifact import Artifact, readable
from pipeline.core.config import SHORT_ID
from pipeline.core.manifest import MANIFEST
from pipeline.core.workspace import LUCENE, RANKINGS, TERMS, VECTORS
from pipeline.encode import names
from pipeline.encode.known import Training, trainings
from pipeline.encode.recipes import UNLIMITED
from pipeline.stages.systems import exact_name

_NO_SOURCES = ("corpus", "pool", "fit", "tuning", "exact", "smaller", "smaller_pool")
"""Inputs of rankings that are no part of the system, or that another input repeats."""

_TRAINING = pl.Struct({"name": pl.String, "on": pl.String, "until": pl.Int64})
ENCODER = pl.Struct({
    "model": pl.String, "role": pl.String, "training": pl.List(_TRAINING),
    "length": pl.Int64, "texts": pl.Int64, "cut": pl.Int64,
})  # fmt: skip
"""An encoder of a ranking: role of its vectors, training data, and of the texts it read those cut at its length."""

UNKNOWN = "unknown"

CUT = "Truncated inputs"
"""Start of the note on texts that encoders cut."""

_MOST_CUT = 8
"""Number of systems up to which that note has the share of each."""

INDEX = "index"
"""Role of the terms or the Lucene index of BM25."""

RERANKER = "reranker"

IMPORTED = "run"
"""Role of a run of another tool, whatever its name says of its training."""


class Source(NamedTuple):
    """A part of a system.

    Attributes:
        artifact: vectors, terms, Lucene index or reranked ranking; None if it is gone or was imported.
        role: name of the input, such as ``paper`` or ``query``.
    """

    artifact: Artifact | None
    role: str = "paper"


class Sources:
    """Finds the sources of rankings in workspaces; folders are listed, and manifests read, once.

    ``known`` are artifacts that are open already.
    """

    def __init__(self, roots: Iterable[Path], *folders: str, known: Iterable[Artifact] = ()) -> None:
        self._roots, self._folders = list(roots), (RANKINGS, LUCENE, *folders)
        self._opened: dict[Path, Artifact | None] = {artifact.path: artifact for artifact in known}
        self._segments: dict[Path, list[Artifact]] = {}

    @cached_property
    def _paths(self) -> dict[str, Path]:
        """Folders of artifacts by short identity; no manifest is read."""
        paths = [path for root in self._roots for name in self._folders for path in (root / name).glob("[!.]*")]
        paths += [path for root in self._roots for name in (VECTORS, TERMS) for path in (root / name).glob("*/[!.]*")]
        return {path.name.rpartition("-")[2]: path for path in paths}

    def segments(self, artifact: Artifact) -> list[Artifact]:
        """Return all segments of the store of a segment."""
        folder = artifact.path.parent
        if folder not in self._segments:
            found = (self._open(path.parent) for path in sorted(folder.glob(f"[!.]*/{MANIFEST}")))
            self._segments[folder] = [segment for segment in found if segment]
        return self._segments[folder]

    def _open(self, path: Path) -> Artifact | None:
        """Return an artifact; None if it cannot be read."""
        if path not in self._opened:
            self._opened[path] = next(readable([path], Artifact.open), None)
        return self._opened[path]

    def of(self, identity: str, role: str = "ranking") -> Iterator[Source]:
        """Yield the sources of an artifact; one that is gone, or an imported ranking, is a source without artifact."""
        path = self._paths.get(identity[:SHORT_ID])
        artifact = None if path is None else self._open(path)
        if artifact is None or artifact.manifest.stage == "import":
            yield Source(None, role if artifact is None else IMPORTED)
            return
        manifest = artifact.manifest
        if manifest.stage in ("embed", "terms", "index"):
            yield Source(artifact, role)
            return
        if manifest.stage == "rerank":
            yield Source(artifact, RERANKER)
        derived = manifest.provenance.get("derived", {}) if manifest.stage == "search" else {}
        for name, inner in {**manifest.inputs, **derived}.items():
            if name not in _NO_SOURCES:
                role = INDEX if name in derived else name
                yield from self.of(inner, role)

    def encoders(self, ranking: Artifact, system: str) -> list[dict[str, Any]]:
        """Return the encoders of a ranking with texts read and cut; those that are gone have the system's name."""
        found: list[dict[str, Any]] = []
        for source in self.of(ranking.id):
            if source.artifact is None and source.role != INDEX:
                name = exact_name(system)
                of_run = [{"name": name, "on": "", "until": None}] if source.role == IMPORTED else None
                found.append({"model": name, "role": source.role, "training": of_run})
            elif source.artifact is not None and source.artifact.manifest.stage in ("embed", "rerank"):
                found.append(self._encoder(source.artifact, source.role, system))
        return found

    def _encoder(self, artifact: Artifact, role: str, system: str) -> dict[str, Any]:
        """Return the encoder of vectors or of a reranked ranking, with the texts of all segments of its store."""
        manifest, segments = artifact.manifest, self.segments(artifact)
        spec, counts = manifest.config.get("encoder", {}), [segment.manifest.counts for segment in segments]
        cuts = None if role == RERANKER else _length(spec)
        model = manifest.provenance.get("model", exact_name(system))
        return {
            "model": str(names.display_name(names.parse_one(model))),
            "role": role,
            "training": as_training(manifest.provenance.get("training")),
            "length": cuts,
            "texts": sum(count.get("embedded", 0) for count in counts) if cuts else 0,
            "cut": sum(count.get("truncated", 0) for count in counts) if cuts else 0,
        }


def _length(spec: Mapping[str, Any]) -> int | None:
    """Return the number of tokens that an encoder reads; None if it has no limit."""
    inner = [_length(part) for part in (*spec.get("parts", ()), *filter(None, [spec.get("encoder")]))]
    limits = [spec.get("max_length"), spec.get("max_tokens"), *inner]
    return min((limit for limit in limits if limit and limit < UNLIMITED), default=None)


def as_training(recorded: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the training data that a manifest records as those of an :data:`ENCODER`."""
    return [{"name": name, "on": on, "until": until} for name, (on, until) in (recorded or {}).items()]


def trainings_of(run: Mapping[str, Any]) -> dict[str, Training]:
    """Return the training data of the encoders of a ranking, by name.

    Empty for systems that learn from no pairs, and for rankings of files, of which nothing is known.
    """
    return trainings_in(run.get("encoders") or ())


def trainings_in(encoders: Iterable[Mapping[str, Any]]) -> dict[str, Training]:
    """Return the training data of encoders (:data:`ENCODER`) by name."""
    found: dict[str, Training] = {}
    for encoder in encoders:
        if encoder["training"]:
            found |= {training["name"]: Training(training["on"], training["until"]) for training in encoder["training"]}
        elif encoder["role"] not in ("query", "queries"):
            found |= trainings(encoder["model"])
    return found


def cited_until(found: Iterable[Training]) -> int | None:
    """Return the last year of the training data that hold citations; 0 if one of them is undated, None without any."""
    years = [training.until for training in found if "citations:" in training.on]
    return max(filter(None, years), default=0) if years else None


def trained_on(run: Mapping[str, Any]) -> str:
    """Return the training data of a system in a few words, such as ``citations to 2021``; empty if it has none."""
    return "; ".join(dict.fromkeys(training.short or UNKNOWN for training in trainings_of(run).values()))


def cut_note(runs: pl.DataFrame) -> str:
    """Return the share of texts that each encoder cut at its length, or their range; empty if no encoder has one."""
    lines, told, shares_at = dict[str, None](), list[Any](), dict[str, list[float]]()
    for label, of_system in runs.select("label", "encoders").iter_rows():
        parts = [part for part in of_system or () if part["length"] and part["texts"] and part not in told]
        several, shares = len({part["model"] for part in parts}) > 1, []
        told += parts
        for part in parts:
            role = "queries" if part["role"] in ("query", "queries") else "papers"
            share, place = part["cut"] / part["texts"], f"{role} at {part['length']:,} tokens"
            shares_at.setdefault(place, []).append(share)
            shares.append(f"{part['model']} " * several + f"{share:.1%} of {part['texts']:,} {place}")
        lines |= dict.fromkeys([f"{label} {', '.join(shares)}"] if shares else [])
    if len(lines) > _MOST_CUT:
        lines = dict.fromkeys(f"{min(of):.1%} to {max(of):.1%} of the {place}" for place, of in shares_at.items())
    return f"{CUT} (of all that were encoded): {'; '.join(lines)}." if lines else ""
