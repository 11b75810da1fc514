"""Tasks: which artifact is made, from which inputs, by which code; work that divides into units, which many share."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from pipeline.core import files, progress
from pipeline.core.artifact import Artifact
from pipeline.core.config import canonical, digest, folder_name, identity
from pipeline.core.errors import InputError, StageError
from pipeline.core.manifest import Counts
from pipeline.core.parallel import unordered
from pipeline.core.resources import Resources
from pipeline.core.workdir import Workdir

_DRAWN = ("field", "sample", "k1", "b")
"""Settings in which tasks of one command differ that take about as long: what is drawn, and tuned."""

Inputs = Mapping[str, Artifact]
Run = Callable[[Inputs, Workdir, Resources], Counts]

Facts = Mapping[str, Any]
"""Provenance of some units; ``process`` names the process that made them."""


class Job(NamedTuple):
    """Units of one artifact by name, with their sizes; ``inputs`` is what it is made from, ``out`` where."""

    inputs: Inputs
    out: Workdir
    units: Mapping[str, int]


class Sharded(Protocol):
    """Work that divides into units, which any process on any machine can make. It must pickle.

    A unit is a file of the work folder: an output (``vectors-00012.arrow``) or an intermediate file
    (``scratch/top-3-of-8.arrow``). Its bytes do not depend on who makes it or how often.

    Tasks whose ``Sharded`` compare equal are worked on together, unless they are sequential.

    Attributes:
        sequential: whether a task can be planned only after earlier tasks of its folder are published.
        accelerated: whether a GPU makes units faster.
    """

    sequential: ClassVar[bool] = False
    accelerated: ClassVar[bool] = False

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:
        """Write what all units share. Return the units with their sizes in papers.

        ``spread``: several machines share the units; otherwise few large units may be best.
        """

    def devices(self, resources: Resources) -> list[str]:
        """Return the devices of one machine that share the units, one process each: by default the machine itself."""
        return [resources.device]

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


@dataclass(frozen=True)
class Assignment:
    """Units of some artifacts, pickled to the process that makes them, which prints nothing if ``quiet``."""

    stage: Sharded
    jobs: tuple[Job, ...]
    resources: Resources
    quiet: bool

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each unit, summed over the artifacts."""
        sizes = Counter[str]()
        for job in self.jobs:
            sizes.update(job.units)
        return sizes

    def of(self, units: Collection[str], resources: Resources | None = None) -> Assignment:
        """Return an assignment of some of the units, with other resources."""
        return self._select(lambda _, unit: unit in units, resources or self.resources)

    def left(self) -> Assignment:
        """Return an assignment of the missing units."""
        return self._select(lambda job, unit: not job.out.done(unit), self.resources)

    def _select(self, wanted: Callable[[Job, str], bool], resources: Resources) -> Assignment:
        jobs = (job._replace(units={u: n for u, n in job.units.items() if wanted(job, u)}) for job in self.jobs)
        return dataclasses.replace(self, jobs=tuple(job for job in jobs if job.units), resources=resources)


Executor = Callable[[Assignment], list[Facts]]
"""Has the units of an assignment made, divided as it sees fit, and returns when they are there."""


@dataclass(frozen=True)
class Slice:
    """A fixed part of every artifact's units: number ``index`` of ``count``, from 0."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Slice:
        """Read ``I/N`` with I from 0 to N-1."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match or int(match[1]) >= int(match[2]):
            raise InputError(f"--slice={text!r} is not a slice", "Write I/N with I from 0 to N-1, such as 0/4")
        return cls(int(match[1]), int(match[2]))

    def units(self, sizes: Mapping[str, int]) -> list[str]:
        """Return the units of this slice. They depend on all units of the plan, not on which are finished."""
        return divide(sizes, self.count)[self.index]


def divide(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    """Divide units into ``count`` parts of about equal size: the largest first, each to the smallest part."""
    parts: list[list[str]] = [[] for _ in range(count)]
    totals = [0] * count
    for unit in sorted(sizes, key=lambda unit: (-sizes[unit], unit)):
        smallest = totals.index(min(totals))
        parts[smallest].append(unit)
        totals[smallest] += sizes[unit]
    return [sorted(part) for part in parts]


def run_units(
    stage: Sharded, works: Sequence[tuple[Inputs, Workdir]], resources: Resources, executor: Executor | None
) -> list[Counts]:
    """Make the missing units of some artifacts, then the artifacts; return the counts of each.

    Without an executor this machine makes the units. StageError if units are still missing at the end.
    """
    jobs = []
    for inputs, out in works:
        units = stage.plan(inputs, out, executor is not None)
        out.write_plan(units)
        jobs.append(Job(inputs, out, units))
    assignment = Assignment(stage, tuple(jobs), resources, progress.quiet())
    left = assignment.left()
    facts = (executor or run_here)(left) if left.jobs else []
    for job in assignment.left().jobs:
        raise StageError(f"{len(job.units)} units of {job.out.path} are missing: {min(job.units)}", "Run it again")
    return [stage.finish(inputs, out, resources, [*_slice_facts(out), *facts]) for inputs, out in works]


def run_slice(stage: Sharded, jobs: Sequence[Job], resources: Resources, part: Slice) -> int:
    """Make the missing units of one slice of planned work folders; return how many units were made.

    It writes nothing but finished units, so slices need no lock and may run twice.
    """
    mine = [job._replace(units={unit: job.units[unit] for unit in part.units(job.units)}) for job in jobs]
    left = Assignment(stage, tuple(mine), resources, progress.quiet()).left()
    if left.jobs:
        text = json.dumps([dict(facts) for facts in run_here(left)])
        for job in left.jobs:
            files.write_text(job.out.scratch() / f"facts-{part.index}-{part.count}.json", text)
    return sum(len(job.units) for job in left.jobs)


def run_here(assignment: Assignment) -> list[Facts]:
    """Make units on this machine: in this process, or in one process for each device."""
    devices = assignment.stage.devices(assignment.resources)
    workers = max(1, assignment.resources.workers // len(devices))
    parts = [
        assignment.of(units, dataclasses.replace(assignment.resources, device=device, workers=workers))
        for device, units in zip(devices, divide(assignment.sizes, len(devices)), strict=True)
        if units
    ]
    return [facts for _, facts in unordered(run_assignment, parts, len(parts))]


def run_assignment(assignment: Assignment) -> Facts:
    """Make the units of an assignment that are missing: another attempt may have finished some."""
    progress.set_quiet(assignment.quiet)
    left = assignment.left()
    made = left.stage.work(left.jobs, left.resources) if left.jobs else {}
    return {**made, "process": f"{socket.gethostname()}:{os.getpid()}"} if made else {}


def _slice_facts(out: Workdir) -> list[Facts]:
    facts: list[Facts] = []
    for path in sorted(out.scratch().glob("facts-*.json")):
        facts += files.read_json(path) or ()
    return facts
