"""Tasks: an artifact to make, its inputs and its code; and work in units that several processes share."""

from __future__ import annotations

import dataclasses
import os
import re
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pipeline.core import progress
from pipeline.core.artifact import Artifact
from pipeline.core.config import counted, folder_name, identity
from pipeline.core.errors import InputError, StageError
from pipeline.core.manifest import Counts
from pipeline.core.parallel import unordered
from pipeline.core.resources import Resources
from pipeline.core.workdir import Workdir

Inputs = Mapping[str, Artifact]
StageFunction = Callable[[Inputs, Workdir, Resources], Counts]

UnitProvenance = Mapping[str, Any]
"""Provenance of units; ``process`` names the process that made them."""


class Sharded(Protocol):
    """Work in units, which any process on any machine can make, faster on a GPU if ``accelerated``. It must pickle.

    A unit is a file of the work folder: an output (``vectors-00012.arrow``) or an intermediate file
    (``scratch/top-3-of-8.arrow``). Its bytes do not depend on the process that makes it.
    """

    accelerated: ClassVar[bool] = False

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:
        """Write shared files; return the units with their sizes in papers.

        ``spread``: several machines share the units; otherwise few large units may be best.
        """

    def devices(self, resources: Resources) -> list[str]:
        """Return the devices of one machine that share the units, one process each: by default the machine itself."""
        return [resources.device]

    def work(self, inputs: Inputs, out: Workdir, units: Collection[str], resources: Resources) -> UnitProvenance:
        """Make some units."""

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[UnitProvenance]) -> Counts:
        """Make the artifact from its finished units."""


@dataclass(frozen=True)
class Task:
    """An artifact to make if it is missing, by either ``run`` or ``units``.

    ``config`` and ``inputs`` decide the content. Changed code that writes other bytes raises ``version``. ``folder``
    lies in the workspace; ``slug`` is the readable part of the name. ``run(inputs, out, resources)`` reads only its
    inputs, writes only ``out``, and returns counts. ``derived`` are further artifacts that the work reads; config and
    inputs decide what it reads from them (an index of the pool, the terms of its papers). ``origin`` is recorded, to
    make the task again without its command. Raises InputError if the slug cannot be part of a folder name.
    """

    stage: str
    version: int
    folder: str
    slug: str
    config: Any
    inputs: Mapping[str, Task | Artifact]
    run: StageFunction | None = None
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

    @property
    def name(self) -> str:
        """Folder name: slug and short identity."""
        return folder_name(self.slug, self.id)

    def path(self, root: Path) -> Path:
        """Return the folder of the artifact in a workspace, which need not exist."""
        return root / self.folder / self.name


@dataclass(frozen=True)
class Assignment:
    """Units of an artifact, with their sizes, for one process, which prints nothing if ``quiet``. It pickles."""

    stage: Sharded
    inputs: Inputs
    out: Workdir
    units: Mapping[str, int]
    resources: Resources
    quiet: bool

    def only(self, units: Collection[str], resources: Resources | None = None) -> Assignment:
        """Return an assignment of the given units alone, with other resources."""
        chosen = {unit: size for unit, size in self.units.items() if unit in units}
        return dataclasses.replace(self, units=chosen, resources=resources or self.resources)

    def unfinished(self) -> Assignment:
        """Return an assignment of the missing units."""
        return self.only([unit for unit in self.units if not self.out.done(unit)])


Executor = Callable[[Assignment], list[UnitProvenance]]
"""Function that makes the units of an assignment in any division and returns when all are finished."""


def divide(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    """Divide units into ``count`` groups of similar size: largest unit first, into the smallest group."""
    groups: list[list[str]] = [[] for _ in range(count)]
    totals = [0] * count
    for unit in sorted(sizes, key=lambda unit: (-sizes[unit], unit)):
        smallest = totals.index(min(totals))
        groups[smallest].append(unit)
        totals[smallest] += sizes[unit]
    return [sorted(group) for group in groups]


def run_units(stage: Sharded, inputs: Inputs, out: Workdir, resources: Resources, executor: Executor | None) -> Counts:
    """Make the missing units of an artifact, then the artifact; return its counts.

    Without an executor this machine makes the units. Raises StageError if units are still missing at the end.
    """
    units = stage.plan(inputs, out, executor is not None)
    out.write_plan(units)
    assignment = Assignment(stage, inputs, out, units, resources, progress.quiet())
    missing = assignment.unfinished()
    facts = (executor or run_here)(missing) if missing.units else []
    if lacking := assignment.unfinished().units:
        raise StageError(f"{out.path} lacks {counted(len(lacking), 'unit')}: {min(lacking)}", "Run it again")
    return stage.finish(inputs, out, resources, facts)


def run_here(assignment: Assignment) -> list[UnitProvenance]:
    """Make units on this machine, in this process or in one process for each device."""
    devices = assignment.stage.devices(assignment.resources)
    workers = max(1, assignment.resources.workers // len(devices))
    parts = [
        assignment.only(units, dataclasses.replace(assignment.resources, device=device, workers=workers))
        for device, units in zip(devices, divide(assignment.units, len(devices)), strict=True)
        if units
    ]
    return [facts for _, facts in unordered(run_assignment, parts, len(parts))]


def run_assignment(assignment: Assignment) -> UnitProvenance:
    """Make the missing units of an assignment; an earlier attempt may have finished some."""
    progress.set_quiet(assignment.quiet)
    missing = assignment.unfinished()
    units = missing.units
    facts = missing.stage.work(missing.inputs, missing.out, units, missing.resources) if units else {}
    return {**facts, "process": f"{socket.gethostname()}:{os.getpid()}"} if facts else {}
