"""What a row of a frame of rankings says of its pool, its system and its artifacts, as typed records."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical
from pipeline.core.workspace import CORPORA, POOLS, RANKINGS

Gaps = Mapping[str, Mapping[str, int]]
"""Counts of positives and negatives, and of those without metadata (:func:`pipeline.corpus.prefilter.count_marks`)."""

_PARENTS = {"corpus": CORPORA, "pool": POOLS, "ranking": RANKINGS}


@dataclass(frozen=True)
class PoolFacts:
    """The settings of a pool, as its manifest has them."""

    settings: Mapping[str, Any]

    @property
    def has_own_queries(self) -> bool:
        """Whether the queries came with the release; the whole collection is its candidates."""
        return self.settings.get("queries_are") == "texts" and self.settings.get("year") is None

    @property
    def is_named(self) -> bool:
        """Whether the documents are those that files of runs and qrels name."""
        return self.settings.get("documents") == "named"

    @property
    def size(self) -> int | str | None:
        """The number of candidates that was asked for, or ``all``."""
        return self.settings.get("size")

    @property
    def of_samples(self) -> dict[str, Any]:
        """The settings that all samples of the pool share."""
        return {name: value for name, value in self.settings.items() if name != "sample"}

    @property
    def applied(self) -> dict[str, Any]:
        """The settings that apply, with those of the prefilter on the top level."""
        if self.has_own_queries:
            return {name: self.settings[name] for name in ("drop_identical_id",) if name in self.settings}
        applied = {name: value for name, value in self.settings.items() if name != "prefilter"}
        return applied | (self.settings.get("prefilter") or {})


def pool_facts(run: Mapping[str, Any]) -> PoolFacts:
    """Return the settings of the pool of a ranking."""
    return PoolFacts(_read(run["pool_settings"]))


def ranking_settings(run: Mapping[str, Any], column: str = "settings") -> Mapping[str, Any]:
    """Return the settings of a ranking, or those that its row has on every pool (``row_settings``)."""
    settings: Mapping[str, Any] = _read(run[column])
    return settings


def gaps_of(run: Mapping[str, Any]) -> Gaps:
    """Return the counts of missing texts and years of the pool of a ranking."""
    gaps: Gaps = _read(run["metadata_gaps"])
    return gaps


def encoders_of(run: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the encoders of a ranking (:meth:`pipeline.scores.sources.Sources.encoders`); empty for files."""
    encoders: Sequence[Mapping[str, Any]] = _read(run.get("encoders") or "[]")
    return encoders


@functools.lru_cache(4096)
def _read(text: str) -> Any:
    return json.loads(text)


def as_json(settings: Any) -> str:
    """Return settings as canonical JSON."""
    return json.dumps(canonical(settings), sort_keys=True, ensure_ascii=False)


def artifact_of(run: Mapping[str, Any], kind: str) -> Artifact:
    """Open the ``corpus``, ``pool`` or ``ranking`` of a row of a frame of rankings."""
    return Artifact.open(path_of(run, kind))


def path_of(run: Mapping[str, Any], kind: str) -> Path:
    """Return the folder of the ``corpus``, ``pool`` or ``ranking`` of a row."""
    return Path(run["workspace"], _PARENTS[kind], run[kind])
