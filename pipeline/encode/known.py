"""What is known of encoders beside what affects a vector: weights on this machine, published figures, training data.

Training data is that of ``models.toml``, or of the manifest of ``mdcr train`` that made the folder.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.data import DATA
from pipeline.encode import hub, kinds, names
from pipeline.encode.model import Model
from pipeline.encode.names import Name
from pipeline.encode.registry import entry_name

_SHOWN_ELSEWHERE = ("hub", "revision", "package", "adapter", "adapter_revision", "licence", "exclusions")
"""Keys of an entry that are fields of :class:`KnownModel`."""


@dataclass(frozen=True)
class KnownModel:
    """A known model as ``mdcr models`` and ``mdcr doctor`` show it.

    Attributes:
        source: hub id, installed package, ``mean(...)``, or empty for a model without weights.
        folder: its weights on this machine, or None.
        revision: commit in the local cache, or the one ``models.toml`` asks for.
        available: whether it can be used without a network.
        recipe: the other settings of its entry, with their source.
    """

    name: str
    source: str
    adapter: str
    folder: Path | None
    revision: str
    available: bool
    licence: str
    exclusions: tuple[str, ...]
    recipe: Mapping[str, Any]


def known_models() -> list[KnownModel]:
    """Return all entries with their state on this machine, without using the network."""
    return [_known_model(name) for name in names.entries()]


def _known_model(name: str) -> KnownModel:
    entry = names.entries()[name]
    parts = [_known_model(part) for part in entry.get("parts", ())]
    source, adapter, package = (entry.get(key, "") for key in ("hub", "adapter", "package"))
    folder, revision, available = None, entry.get("revision", "main") if source else "", not source
    installed = hub.packaged(package) if package else None
    if parts:
        source, available = f"mean({','.join(entry['parts'])})", all(part.available for part in parts)
    elif installed:
        source, folder, revision, available = package, installed, "", bool(hub.weights(installed))
    elif source and (cached := _cached(source, revision)):
        available = not adapter or _cached(adapter, entry.get("adapter_revision", "main"), hub.ADAPTER) is not None
        folder, revision = (cached.folder, cached.revision) if available else (None, revision)
    if entry.get("kind") == "oagbert":
        source, available = "weights=FOLDER", False
    return KnownModel(
        name=name,
        source=source,
        adapter=adapter,
        folder=folder,
        revision=revision,
        available=available,
        licence=", ".join(dict.fromkeys(part.licence for part in parts)) or entry.get("licence", ""),
        exclusions=tuple(entry.get("exclusions", ())),
        recipe={key: value for key, value in entry.items() if key not in _SHOWN_ELSEWHERE},
    )


def _cached(hub_id: str, revision: str, layout: hub.Layout = hub.MODEL) -> hub.Checkpoint | None:
    """Return a model or adapter of the local cache; None if it or its weights are missing."""
    checkpoint = hub.cached(hub_id, revision, layout)
    return checkpoint if checkpoint and hub.weights(checkpoint.folder, layout) else None


@functools.cache
def _reference() -> dict[str, dict[str, float]]:
    """Return the published figures by system."""
    figures: dict[str, dict[str, float]] = {}
    for path in sorted((DATA / "reference").glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                key = f"{row['experiment']}.{row['measure']}"
                figures.setdefault(row["system"], {})[key] = float(row["percent"])
    return figures


def published(text: str) -> Mapping[str, float]:
    """Return the published figures of an entry, in percent, by ``EXPERIMENT.MEASURE``; empty for any other system.

    Options ``compute`` and ``storage`` are ignored; any other option makes another system.
    """
    system, *further_systems = names.parse(text) or [Name("")]
    if further_systems or system.label or not {key for key, _ in system.options} <= {"compute", "storage"}:
        return {}
    return _reference().get(system.base, {})


@dataclass(frozen=True)
class Training:
    """Training data of an encoder: ``KIND: SOURCE`` of its pairs, and the last year of their papers."""

    on: str
    until: int | None

    @property
    def short(self) -> str:
        """``citations to 2020``; empty if unknown."""
        return self.on.partition(":")[0] + (f" to {self.until}" if self.on and self.until else "")


def trainings(text: str) -> dict[str, Training]:
    """Return the training data of the encoders of systems, by entry; a mean has that of its parts.

    Systems that learn from no pairs are left out; a model without an entry has unknown training data.
    """
    by_entry: dict[str, Training] = {}
    for inner in names.walk(text):
        base = entry_name(inner.base)
        entry = names.entries().get(base, {})
        parts = [*entry.get("parts", ()), *filter(None, [dict(inner.options).get("encoder", entry.get("encoder"))])]
        if parts:
            by_entry |= trainings(",".join(parts))
        elif inner.parts is None and _may_be_trained(base, entry):
            by_entry[base] = Training(entry.get("trained_on", ""), entry.get("trained_until"))
    return by_entry


def _may_be_trained(base: str, entry: Mapping[str, Any]) -> bool:
    if not entry:
        return base.partition(":")[0] not in ("bm25", *names.BASELINES) and not base.isdecimal()
    return not kinds.find(entry.get("kind", "transformer")).fitter


def recorded(model: Model) -> dict[str, Any]:
    """Return the entry ``training`` of the provenance of vectors: base and triplets; empty if no folder says it."""
    found = of_model(model)
    if found == trainings(model.name):
        return {}
    return {"training": {name: [training.on, training.until] for name, training in found.items()}}


def of_model(model: Model) -> dict[str, Training]:
    """Return the training data of a model, by name; that of a folder is unknown if ``mdcr train`` did not make it."""
    if model.parts:
        return {name: training for part in model.parts for name, training in of_model(part).items()}
    weights = model.adapter_files or model.files
    artifact = hub.trained_in(weights.folder.resolve()) if weights and not weights.hub else None
    noted = artifact.manifest.provenance.get("training", {}) if artifact else {}
    return {name: Training(*facts) for name, facts in noted.items()} or trainings(model.name)
