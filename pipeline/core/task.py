"""Tasks: which artifact is made, from which inputs, by which code."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical, digest, folder_name, identity
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.workdir import Workdir

_DRAWN = ("field", "sample", "k1", "b")
"""Settings in which tasks of one command differ that take about as long: what is drawn, and tuned."""

Inputs = Mapping[str, Artifact]
Run = Callable[[Inputs, Workdir, Resources], Counts]

Facts = Mapping[str, Any]
"""Provenance of some units; ``process`` names the process that made them."""


class Job(NamedTuple):
    """Units of one artifact.

    Attributes:
        inputs: what the artifact is made from, by name.
        out: the artifact under construction.
        units: names of the units, with their sizes.
    """

    inputs: Inputs
    out: Workdir
    units: Mapping[str, int]


class Sharded(Protocol):
    """Work that divides into units, which any process on any machine can make. It must pickle.

    A unit is a file of the work folder: an output (``vectors-00012.arrow``) or an intermediate file
    (``scratch/top-3-of-8.arrow``). Its bytes do not depend on who makes it or how often.

    Tasks whose ``Sharded`` compare equal are worked on together, unless they are sequential.
    """

    @property
    def sequential(self) -> bool:
        """Whether a task can be planned only after earlier tasks of its folder are published."""

    @property
    def accelerated(self) -> bool:
        """Whether a GPU makes units faster."""

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:
        """Write what all units share. Return the units with their sizes in papers.

        Args:
            inputs: artifacts by name.
            out: the artifact under construction.
            spread: whether several machines share the units; otherwise few large units may be best.
        """

    def devices(self, resources: Resources) -> list[str]:
        """Return the devices of one machine that share the units, one process each."""

    def work(self, jobs: Sequence[Job], resources: Resources) -> Facts:
        """Make the units of some jobs."""

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[Facts]) -> Counts:
        """Make the artifact from its finished units."""


@dataclass(frozen=True)
class Task:
    """One artifact to be made, if it is missing. Either ``run`` or ``units`` makes it.

    Attributes:
        stage: name of the stage.
        version: raised when the stage's code changes what it writes.
        folder: below the workspace, such as ``corpora/pools``.
        slug: the readable part of the folder name.
        config: frozen dataclass with everything that decides the content.
        inputs: artifacts, or tasks that make them, by name.
        run: ``run(inputs, out, resources) -> counts``; reads only its inputs, writes only ``out``.
        units: the work in units, where it divides.
        derived: further artifacts that the work reads. Config and inputs decide what it takes from them (an index of
            the pool, the terms of its papers), so they are not part of the identity.
        origin: what the manifest records so that the task can be made again without the command that asked for it.

    Raises:
        InputError: the slug cannot be part of a folder's name.
    """

    stage: str
    version: int
    folder: str
    slug: str
    config: Any
    inputs: Mapping[str, Task | Artifact]
    run: Run | None = None
    units: Sharded | None = None
    derived: Mapping[str, Task | Artifact] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+=,@()-]{0,199}", self.slug):
            raise InputError(
                f"{self.slug!r} cannot be part of a folder's name", "Use letters, digits, '-', '_' and '.', at most 200"
            )

    @property
    def reads(self) -> dict[str, Task | Artifact]:
        """All artifacts that the work reads, or the tasks that make them, by name."""
        return {**self.inputs, **self.derived}

    @cached_property
    def id(self) -> str:
        """Identity of the artifact, 64 hex digits."""
        return identity(self.stage, self.version, self.config, {name: i.id for name, i in self.inputs.items()})

    @cached_property
    def kind(self) -> str:
        """Digest of what decides how long the work takes: the identity without :data:`_DRAWN`, of the inputs too."""
        made_from = {
            name: _kind(made.manifest.stage, made.manifest.config, {}) if isinstance(made, Artifact) else made.kind
            for name, made in self.inputs.items()
        }
        return _kind(self.stage, canonical(self.config), made_from)

    @property
    def name(self) -> str:
        """Folder name: slug and short identity."""
        return folder_name(self.slug, self.id)

    def path(self, root: Path) -> Path:
        """Return where the artifact lies in a workspace, whether it is made or not."""
        return root / self.folder / self.name


def _kind(stage: str, config: Mapping[str, Any], made_from: Mapping[str, str]) -> str:
    return digest([stage, {name: value for name, value in config.items() if name not in _DRAWN}, made_from])
