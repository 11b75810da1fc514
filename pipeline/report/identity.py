"""What identifies the scores of a table: the ranking with everything that decides it, and its pool."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical, digest, from_mapping
from pipeline.core.manifest import Manifest
from pipeline.corpus.poolconfig import SETTINGS
from pipeline.measure.measures import parse_measures
from pipeline.retrieve.indexes import IndexSettings

RECORDED = ("encoder", "query_encoder", "weights", "parts")
"""Facts in a ranking's provenance that decide it but are settings of its inputs."""

_TUNED = ("k1", "b", "weights")
"""Settings that differ between pools where they were chosen on validation queries."""


@dataclass(frozen=True)
class Chosen:
    """What was scored of one ranking.

    Attributes:
        system: its name.
        scores: artifacts of the stage ``score``, those published last first.
        ranking: what was scored.
        pool: the pool it ranks.
        corpus: the corpus of the pool; None if it is gone.
        replaced: whether other tunings of the system were scored on this pool and left out.
    """

    system: str
    scores: tuple[Artifact, ...]
    ranking: Artifact
    pool: Artifact
    corpus: Artifact | None
    replaced: bool = False

    @property
    def corpus_name(self) -> str:
        """Folder name of the corpus."""
        return str(self.scores[0].manifest.provenance["corpus"])

    @functools.cached_property
    def settings(self) -> Mapping[str, Any]:
        """Everything that decides the system, as plain data; ``depth`` is always there.

        Scores by a release's own judgements also say what is done about ``missing_positives``.
        """
        scored, given = self.scores[0].manifest, self.pool.manifest.config.get("queries_are") == "texts"
        missing = {"missing_positives": scored.config.get("missing_positives", "ignore")} if given else {}
        return {"depth": scored.counts["depth"], **settings_of(self.ranking.manifest), **missing}

    @property
    def depth(self) -> int:
        """Entries ranked a query."""
        return int(self.settings["depth"])

    @property
    def engine(self) -> str | None:
        """``exact`` or the index of approximate search; None for systems without vectors."""
        searches = list(found_in(self.settings, "search"))
        indexes = [from_mapping(IndexSettings, each).name for each in searches if isinstance(each, Mapping)]
        return next(iter([*indexes, *searches]), None)

    @property
    def precisions(self) -> tuple[str, ...]:
        """Compute precisions of the encoders, also of fused ones."""
        return tuple(sorted(set(found_in(self.settings, "compute"))))

    @property
    def tuned(self) -> bool:
        """Whether settings were chosen on validation queries, for this pool's field."""
        return "tuning" in self.ranking.manifest.inputs or bool(self.settings.get("weights")) or ":tuned" in self.system

    @functools.cached_property
    def row_settings(self) -> Mapping[str, Any]:
        """The settings that are the same for every pool: those chosen on validation queries are left out."""
        own = _without(self.settings, _TUNED if self.tuned else ())
        parts = self.settings.get("parts")
        if isinstance(parts, Mapping):
            own["parts"] = {name: _without(part, _TUNED if ":tuned" in name else ()) for name, part in parts.items()}
        return own

    @functools.cached_property
    def row(self) -> str:
        """Identity of the system on pools of all fields and sizes: digest of its name and :attr:`row_settings`."""
        return digest([self.system, self.row_settings])

    @property
    def variant(self) -> str:
        """Identity of the system on this pool: digest of the stage's version and of all settings, tuned ones too."""
        manifest = self.ranking.manifest
        return digest([manifest.stage_version, manifest.inputs.get("tuning"), canonical(self.settings)])

    @property
    def kind(self) -> str:
        """Identity of what the pools of one table share: all but field, size and sample."""
        manifest = self.pool.manifest
        varied = {each.path[0] for each in SETTINGS.values() if not each.separates}
        shared = {name: value for name, value in manifest.config.items() if name not in varied}
        return digest([manifest.inputs["corpus"], manifest.stage_version, shared])

    @functools.cached_property
    def measures(self) -> tuple[str, ...]:
        """What was scored, in canonical order, without cutoffs beyond the depth."""
        parsed = {each for one in self.scores for each in parse_measures(one.manifest.config["measures"])}
        return tuple(str(each) for each in sorted(parsed, key=lambda m: m.order) if (each.cutoff or 0) <= self.depth)


def _without(settings: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


def settings_of(ranking: Manifest) -> dict[str, Any]:
    """Return all settings that decide a ranking beside its pool, as plain data."""
    return {**ranking.config, **{name: ranking.provenance[name] for name in RECORDED if name in ranking.provenance}}


def found_in(value: Any, key: str) -> Iterator[Any]:
    """Yield every value of a key, however deep."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name == key:
                yield inner
            else:
                yield from found_in(inner, key)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from found_in(inner, key)
