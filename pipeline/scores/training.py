"""What the encoders of a table were trained on."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.encode.registry import Training, trainings


def of_system(system: str) -> dict[str, Training]:
    """Return what the encoders of a stored system were trained on, by name."""
    return trainings(system.partition("@")[0])


def short(system: str) -> str:
    """Return it in a few words: ``citations to 2021``; empty for a system without a known encoder."""
    return "; ".join(dict.fromkeys(filter(None, (training.short for training in of_system(system).values()))))


def sentence(systems: Iterable[str]) -> str:
    """Return the note of a table of some systems; empty if none has a known encoder."""
    known = {name: training for system in systems for name, training in of_system(system).items() if training.on}
    texts = [f"{name}: {training.on} (to {training.until or 'an unknown year'})" for name, training in known.items()]
    return f"Trained on: {'. '.join(texts)}." if texts else ""
