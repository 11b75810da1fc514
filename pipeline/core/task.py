"""A unit of the plan: what is to be made, from what, and by which function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
    """

    stage: str
    version: int
    room: str
    slug: str
    config: Any
    inputs: Mapping[str, Task | Artifact]
    run: Run
    batch: Batch | None = None

    @cached_property
    def id(self) -> str:
        """Identity of the artifact, 64 hex digits."""
        return identity(self.stage, self.version, self.config, {name: i.id for name, i in self.inputs.items()})

    @property
    def name(self) -> str:
        """Folder name: slug and short identity."""
        return f"{self.slug}-{self.id[:SHORT_ID]}"
