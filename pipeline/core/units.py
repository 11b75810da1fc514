"""Work in units, divided between the processes of this machine, slices of batch jobs or a cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pipeline.core import files, progress
from pipeline.core.errors import InputError, StageError
from pipeline.core.manifest import Counts
from pipeline.core.parallel import unordered
from pipeline.core.resources import Resources
from pipeline.core.task import Facts, Inputs, Job, Sharded
from pipeline.core.workdir import Workdir


@dataclass(frozen=True)
class Assignment:
    """Units of one or more artifacts; it is pickled to the process that makes them.

    Attributes:
        stage: what makes them.
        jobs: the units of each artifact.
        resources: what that process may use.
        quiet: whether it prints no progress.
    """

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

    Without an executor this machine makes the units.

    Raises:
        StageError: units are still missing at the end.
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
