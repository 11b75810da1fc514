"""A unit of the plan: what is to be made, from what, and by which function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from pipeline.core.artifact import Artifact
from pipeline.core.config import SHORT_ID, identity
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.workdir import Workdir

Inputs = Mapping[str, Artifact]
Run = Callable[[Inputs, Workdir, Resources], Counts]
RunTogether = Callable[[Sequence[tuple[Inputs, Workdir]], Resources], list[Counts]]


@dataclass(frozen=True)
class Batch:
    """Tasks whose work has a large part in common, and the function that does it once.

    Each task keeps its identity, its folder and its ``run``, which makes the same bytes alone: to be made together is
    execution.

    Attributes:
        key: tasks with equal keys may be made together.
        run: ``run([(inputs, out), ...], resources) -> [counts, ...]``; it writes what ``run`` of each task would.
    """

    key: str
    run: RunTogether


Facts = Mapping[str, Any]
"""What belongs into provenance of how some units were made; ``process`` names who made them."""


class Sharded(Protocol):
    """Work that divides into units, each made alone by any process on any machine; it travels to them by pickle.

    A unit is a finished file of the work folder: its own (``vectors-00012.arrow``) or an intermediate one
    (``scratch/top-00003.arrow``). Whoever makes it, and however often, writes the same bytes.
    """

    @property
    def in_turn(self) -> bool:
        """Whether tasks of one room are planned one after another, since each holds what earlier ones do not."""

    @property
    def accelerated(self) -> bool:
        """Whether a unit is made faster by a GPU, so that a cluster's GPUs are worth asking for."""

    def plan(self, inputs: Inputs, out: Workdir) -> Mapping[str, int]:
        """Write what all units share, and return the units with their sizes (papers)."""

    def devices(self, resources: Resources) -> list[str]:
        """Return the devices to divide units between on one machine, one process each."""

    def work(self, inputs: Inputs, out: Workdir, resources: Resources, units: Sequence[str]) -> Facts:
        """Make some units."""

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[Facts]) -> Counts:
        """Join the units, all of which are there, to the artifact."""


@dataclass(frozen=True)
class Task:
    """One artifact to be made, if it is not there already.

    Attributes:
        stage: name of the stage.
        version: raised when the stage's code changes what it writes.
        room: folder below the workspace, such as ``corpora/pools``.
        slug: the readable part of the folder name.
        config: frozen dataclass with everything that decides the content.
        inputs: artifacts, or tasks that make them, by name.
        run: ``run(inputs, out, resources) -> counts``; reads only its inputs, writes only ``out``.
        batch: which tasks it can be made together with, if any.
        units: the same work in units, where it divides.
        derived: further artifacts that ``run`` reads. Config and inputs decide what it takes from them (an index of the
            pool, the terms of its papers), so they are no part of the identity.
    """

    stage: str
    version: int
    room: str
    slug: str
    config: Any
    inputs: Mapping[str, Task | Artifact]
    run: Run
    batch: Batch | None = None
    units: Sharded | None = None
    derived: Mapping[str, Task | Artifact] = field(default_factory=dict)

    @property
    def reads(self) -> dict[str, Task | Artifact]:
        """All artifacts that ``run`` reads, or the tasks that make them, by name."""
        return {**self.inputs, **self.derived}

    @cached_property
    def id(self) -> str:
        """Identity of the artifact, 64 hex digits."""
        return identity(self.stage, self.version, self.config, {name: i.id for name, i in self.inputs.items()})

    @property
    def name(self) -> str:
        """Folder name: slug and short identity."""
        return f"{self.slug}-{self.id[:SHORT_ID]}"
