"""Work in units: who makes which, on this machine, in a slice of a batch job, or wherever a caller spreads them."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.core import files, progress
from pipeline.core.errors import InputError, StageError
from pipeline.core.manifest import Counts
from pipeline.core.parallel import unordered
from pipeline.core.resources import Resources
from pipeline.core.task import Facts, Inputs, Sharded
from pipeline.core.workdir import Workdir


@dataclass(frozen=True)
class Assignment:
    """Some units of one work folder; travels to the process that makes them.

    Attributes:
        stage: what makes them.
        inputs: artifacts by name.
        out: the artifact under construction.
        resources: what that process may use.
        units: which, with their sizes.
        quiet: whether to say nothing.
    """

    stage: Sharded
    inputs: Inputs
    out: Workdir
    resources: Resources
    units: Mapping[str, int]
    quiet: bool

    def of(self, units: Sequence[str], resources: Resources | None = None) -> Assignment:
        """Return the same with some of the units, and other resources."""
        chosen = {unit: self.units[unit] for unit in units}
        return dataclasses.replace(self, units=chosen, resources=resources or self.resources)

    def left(self) -> dict[str, int]:
        """Return the units that are not there yet."""
        return {unit: size for unit, size in self.units.items() if not self.out.done(unit)}


Executor = Callable[[Assignment], list[Facts]]
"""Has the units of a assignment made, dividing them as it sees fit, and returns when they are there."""


@dataclass(frozen=True)
class Slice:
    """A fixed part of every task's units: number ``index`` of ``count``, from 0."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Slice:
        """Read ``I/N``, I from 0.

        Raises:
            InputError: it is no such thing.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match or int(match[1]) >= int(match[2]):
            raise InputError(f"--slice {text!r} is no slice", "Write I/N with I from 0 to N-1, such as 0/4")
        return cls(int(match[1]), int(match[2]))

    def units(self, sizes: Mapping[str, int]) -> list[str]:
        """Return this slice's units; it depends on all the units there are, never on which are finished."""
        return divide(sizes, self.count)[self.index]


def divide(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    """Divide units into ``count`` parts of about equal size: the largest first, each to the smallest part."""
    assignments: list[list[str]] = [[] for _ in range(count)]
    totals = [0] * count
    for unit in sorted(sizes, key=lambda each: (-sizes[each], each)):
        least = totals.index(min(totals))
        assignments[least].append(unit)
        totals[least] += sizes[unit]
    return [sorted(assignment) for assignment in assignments]


def run_units(stage: Sharded, inputs: Inputs, out: Workdir, resources: Resources, executor: Executor) -> Counts:
    """Make whatever units are missing, and the artifact of them; return its counts.

    Raises:
        StageError: units are missing after all.
    """
    assignment = Assignment(stage, inputs, out, resources, plan_units(stage, inputs, out), progress.quiet())
    left = assignment.left()
    facts = executor(assignment.of(list(left))) if left else []
    if missing := assignment.left():
        raise StageError(f"{len(missing)} units of {out.path} are missing: {next(iter(missing))}", "Run it again")
    return stage.finish(inputs, out, resources, [*_slice_facts(out), *facts])


def plan_units(stage: Sharded, inputs: Inputs, out: Workdir) -> Mapping[str, int]:
    """Return the units of a work folder, and write them down in it for those who make slices of them."""
    units = stage.plan(inputs, out)
    out.write_plan(units)
    return units


def work_slice(stage: Sharded, inputs: Inputs, out: Workdir, resources: Resources, part: Slice) -> int:
    """Make what is missing of one slice of a planned work folder; return how many units that was.

    Nothing but finished units is written, so that slices need no lock, and one that runs twice does no harm.
    """
    units = out.plan() or {}
    assignment = Assignment(stage, inputs, out, resources, units, progress.quiet()).of(part.units(units))
    left = assignment.left()
    if left:
        facts = run_here(assignment.of(list(left)))
        files.write_text(out.scratch() / f"facts-{part.index}-{part.count}.json", json.dumps([dict(f) for f in facts]))
    return len(left)


def run_here(assignment: Assignment) -> list[Facts]:
    """Have units made on this machine: by this process, or by one process a device."""
    devices = assignment.stage.devices(assignment.resources)
    workers = max(1, assignment.resources.workers // len(devices))
    assignments = [
        assignment.of(units, dataclasses.replace(assignment.resources, device=device, workers=workers))
        for device, units in zip(devices, divide(assignment.units, len(devices)), strict=True)
        if units
    ]
    return [facts for _, facts in unordered(run_assignment, assignments, len(assignments))]


def run_assignment(assignment: Assignment) -> Facts:
    """Make the units of a assignment that are not there yet (what another try of it finished is not made again)."""
    progress.set_quiet(assignment.quiet)
    left = sorted(assignment.left())
    made = assignment.stage.work(assignment.inputs, assignment.out, assignment.resources, left) if left else {}
    return {**made, "process": f"{socket.gethostname()}:{os.getpid()}"} if made else {}


def _slice_facts(out: Workdir) -> list[Facts]:
    """Return the facts that slices left behind, by name of file."""
    found: list[Facts] = []
    for path in sorted(out.scratch().glob("facts-*.json")):
        found += json.loads(path.read_text())
    return found
