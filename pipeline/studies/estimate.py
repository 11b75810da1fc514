"""Time and disk that the missing artifacts of a plan take, from artifacts of their kind or else from fixed rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact, published
from pipeline.core.config import canonical
from pipeline.core.runner import Step
from pipeline.core.task import Task
from pipeline.core.workspace import POOLS

_RATES = {
    "pool": (2e-6, 4.0),
    "terms": (1e-4, 560.0),
    "tune": (1e-3, 1.0),
    "index": (3e-4, 1_500.0),
    "fit": (1e-3, 1_000.0),
    "embed": (0.25, 3_076.0),
    "search": (1e-4, 50.0),
    "score": (5e-6, 10.0),
}
"""Assumed seconds and bytes of a candidate on one core, not measured; of ``embed``: a BERT-base, float32 vectors."""
_OTHER = (1e-4, 100.0)


class Estimate(NamedTuple):
    """What the missing artifacts of one stage take, ``measured`` in this workspace or ``assumed``."""

    stage: str
    missing: int
    seconds: float
    bytes: float
    basis: str


def estimate(workspace: Workspace, steps: Sequence[Step]) -> list[Estimate]:
    """Return an estimate for each stage with missing artifacts, in order of work.

    The rate of a stage is the median, per candidate, of the artifacts in the same folder (of one encoder's vectors, for
    ``embed``); a stage that was never run here takes fixed rates of one core.
    """
    sizes = {pool.id: int(pool.manifest.counts["candidates"]) for pool in published(workspace.root / POOLS)}
    corpus = max((len(workspace.corpus(name)) for name in workspace.corpora()), default=0)
    estimates: dict[str, Estimate] = {}
    for step in steps:
        if step.present:
            continue
        stage, papers = step.task.stage, _candidates(step.task, sizes) or corpus
        made = [artifact for artifact in published(step.path.parent) if artifact.manifest.stage == stage]
        rates = [rate for artifact in made if (rate := _rate(artifact, sizes))]
        assumed_seconds, assumed_bytes = _RATES.get(stage, _OTHER)
        assumed = [(assumed_seconds / workspace.runner.resources.workers, assumed_bytes)]
        seconds, size = papers * np.median(rates or assumed, axis=0)
        old = estimates.get(stage, Estimate(stage, 0, 0.0, 0.0, "measured"))
        basis = old.basis if rates else "assumed"
        estimates[stage] = Estimate(
            stage, old.missing + 1, old.seconds + float(seconds), old.bytes + float(size), basis
        )
    return list(estimates.values())


def _rate(artifact: Artifact, sizes: dict[str, int]) -> tuple[float, float] | None:
    """Return seconds and bytes per candidate, or None where the pool is gone."""
    manifest = artifact.manifest
    papers = sizes.get(manifest.id) or sizes.get(manifest.inputs.get("pool", ""))
    if not papers:
        return None
    return manifest.provenance["wall_seconds"] / papers, sum(output.bytes for output in manifest.outputs) / papers


def _candidates(task: Task, sizes: dict[str, int]) -> int | None:
    """Return the candidates of a task's pool, counted or as asked for; None if it has no pool, or of all papers."""
    pool: Any = task if task.stage == "pool" else task.inputs.get("pool")
    size = None if pool is None else sizes.get(pool.id)
    if size is None and isinstance(pool, Task):
        asked = canonical(pool.config)["size"]
        return asked if isinstance(asked, int) else None
    return size
