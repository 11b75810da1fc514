"""Units as Ray tasks, which Ray runs again elsewhere when a node is lost."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipeline.core.errors import InputError, MdcrError, StageError
from pipeline.core.install import optional
from pipeline.core.progress import Progress, say
from pipeline.core.task import Assignment, Executor, Facts, divide, run_assignment

_PARTS_PER_PLACE = 4
"""Ray tasks for each process: more balance the load and lose less with a node, fewer load the encoder less often."""

_RETRIES = 10
"""Times Ray runs a task again whose process or node was lost. Errors of the task itself are not retried."""

_ANSWER_SECONDS = 10.0


def ray_executor(address: str) -> Executor:
    """Return an executor that runs units on a Ray cluster.

    The address may be ``auto``, the one running here, else one of this machine alone, or ``local``, that one.

    Raises:
        InputError: Ray is not installed, or does not answer there.
    """

    def executor(assignment: Assignment) -> list[Facts]:
        with connected(address) as ray:
            return _run(ray, assignment)

    return executor


def _run(ray: Any, assignment: Assignment) -> list[Facts]:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    asked = assignment.stage.accelerated and assignment.resources.device != "cpu"
    gpus = int(asked and any(node.get("GPU", 0) for node in nodes))
    usable = [node for node in nodes if node.get("GPU" if gpus else "CPU", 0) >= 1]
    if not usable:
        raise InputError("no node of the Ray cluster has a core or a GPU to give", "See ray status")
    cores = max(1, int(min([assignment.resources.workers, *(node.get("CPU", 1) for node in usable)])))
    places = [int(node["GPU"] if gpus else node["CPU"] // cores) for node in usable]
    memory = assignment.resources.memory // max(places)
    resources = dataclasses.replace(assignment.resources, workers=cores, memory=memory)
    task = ray.remote(max_retries=_RETRIES, num_cpus=1 if gpus else cores, num_gpus=gpus)(run_assignment)
    sizes = assignment.sizes
    parts = [units for units in divide(sizes, min(len(sizes), _PARTS_PER_PLACE * sum(places))) if units]
    say(f"on Ray: {sum(places)} at a time, {'a GPU' if gpus else f'{cores} of the cores'} each")
    waiting = {task.remote(dataclasses.replace(assignment.of(units, resources), quiet=True)): units for units in parts}
    facts: list[Facts] = []
    with Progress(sum(sizes.values()), "on Ray", "docs") as progress:
        while waiting:
            for done in ray.wait(list(waiting), timeout=5)[0]:
                facts.append(_result(ray, done))
                progress.add(sum(sizes[unit] for unit in waiting.pop(done)))
    return facts


def _result(ray: Any, done: Any) -> Facts:
    try:
        facts: Facts = ray.get(done)
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
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}
    if address not in ("auto", "local"):
        _check_answers(address)
    try:
        if address != "local":
            ray.init(address=address, **options)
    except ConnectionError as error:
        if address != "auto":
            raise InputError(f"no Ray cluster answers at {address}", "Start one: ray start --head") from error
        say("no Ray cluster is running here: starting one of this machine alone")
    try:
        if not ray.is_initialized():
            ray.init(address="local", include_dashboard=False, **options)
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Ray cluster answers at {address}", "Start one (ray start --head) and give its HOST:PORT"
        ) from error
