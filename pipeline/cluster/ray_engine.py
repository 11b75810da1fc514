"""Run units as Ray tasks, which Ray repeats on another node if one is lost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipeline.core.errors import InputError, MdcrError, StageError
from pipeline.core.install import optional
from pipeline.core.progress import Progress, say
from pipeline.core.task import Assignment, Executor, UnitProvenance, divide, run_assignment

_TASKS_PER_SLOT = 4
"""Ray tasks per concurrent process: more tasks balance the load and lose less work; fewer load encoders less often."""

_RETRIES = 10
"""Maximum number of retries of a task whose process or node was lost. Errors of the task itself are not retried."""


def ray_executor(address: str) -> Executor:
    """Return an executor that runs units on a Ray cluster.

    ``address`` may be ``auto``: the one that runs here, or that ``RAY_ADDRESS`` names.

    Raises:
        InputError: Ray is not installed, or does not answer at the address.
    """

    def executor(assignment: Assignment) -> list[UnitProvenance]:
        with connected(address) as ray:
            return _run(ray, assignment)

    return executor


def _run(ray: Any, assignment: Assignment) -> list[UnitProvenance]:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    wants_gpu = assignment.stage.accelerated and assignment.resources.device != "cpu"
    gpus = int(wants_gpu and any(node.get("GPU", 0) for node in nodes))
    usable = [node for node in nodes if node.get("GPU" if gpus else "CPU", 0) >= 1]
    if not usable:
        raise InputError("no node of the Ray cluster offers a core or a GPU", "See ray status")
    cores = max(1, int(min([assignment.resources.workers, *(node.get("CPU", 1) for node in usable)])))
    slots = [int(node["GPU"] if gpus else node["CPU"] // cores) for node in usable]
    memory = assignment.resources.memory // max(slots)
    resources = dataclasses.replace(assignment.resources, workers=cores, memory=memory)
    task = ray.remote(max_retries=_RETRIES, num_cpus=1 if gpus else cores, num_gpus=gpus)(run_assignment)
    sizes = assignment.units
    groups = [units for units in divide(sizes, min(len(sizes), _TASKS_PER_SLOT * sum(slots))) if units]
    say(f"on Ray: {sum(slots)} at a time, {'a GPU' if gpus else f'{cores} of the cores'} each")
    waiting = {
        task.remote(dataclasses.replace(assignment.only(group, resources), quiet=True)): group for group in groups
    }
    facts: list[UnitProvenance] = []
    with Progress(sum(sizes.values()), "on Ray", "docs") as progress:
        while waiting:
            for finished in ray.wait(list(waiting), timeout=5)[0]:
                facts.append(_result(ray, finished))
                progress.add(sum(sizes[unit] for unit in waiting.pop(finished)))
    return facts


def _result(ray: Any, reference: Any) -> UnitProvenance:
    try:
        facts: UnitProvenance = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MdcrError):
            raise error.cause from None
        raise StageError(f"a Ray task failed: {error.cause!r}", "Run it again: finished shards are kept") from error
    except ray.exceptions.RayError as error:
        raise StageError(
            f"a Ray task was lost {_RETRIES + 1} times ({type(error).__name__})", "See ray status, then run it again"
        ) from error
    return facts


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a Ray cluster; disconnect at the end."""
    ray = optional("ray", "engine ray", "ray")
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", configure_logging=False)
    except (ConnectionError, ValueError) as error:
        remedy = "Start one (ray start --head), and give its HOST:PORT elsewhere"
        raise InputError(f"no Ray cluster answers at {address}", remedy) from error
    try:
        yield ray
    finally:
        ray.shutdown()
