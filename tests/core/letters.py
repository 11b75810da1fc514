"""A stage that writes one file a letter, whole or in units, and what is on disk after it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Inputs, Task, UnitProvenance
from pipeline.core.workdir import Workdir

HERE = Resources(memory=2**30, workers=2, device="cpu")


@dataclass(frozen=True)
class Letters:
    letters: str
    pause: float = 0.0


def write_letters(letters: Iterable[str], inputs: Inputs, out: Workdir, pause: float = 0.0) -> Counts:
    """Write the files that are missing, with what the input says in front."""
    prefix = "".join(inputs["before"].file(o.path).read_text() for o in inputs["before"].outputs()) if inputs else ""
    made = []
    for letter in letters:
        if not out.done(letter):
            with out.file(letter) as (path, written):
                time.sleep(pause)
                path.write_text(prefix + letter)
                written.counts = {"bytes": 1}
            made.append(letter)
    out.note(made=made)
    return {"bytes": sum(out.counts(letter)["bytes"] for letter in letters)}


def letters(text: str, before: Task | Artifact | None = None, pause: float = 0.0) -> Task:
    inputs = {} if before is None else {"before": before}
    return Task(
        "letters", 1, "room", text, Letters(text, pause), inputs, lambda i, out, _: write_letters(text, i, out, pause)
    )


@dataclass(frozen=True)
class Units:
    """A unit a letter; later ones are larger."""

    pause: float = 0.0
    processes: int = 1
    accelerated = False

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:
        text = out.path.name.removeprefix(".").partition("-")[0]
        return {letter: number for number, letter in enumerate(text, 1)}

    def devices(self, resources: Resources) -> list[str]:
        return [resources.device] * self.processes

    def work(self, inputs: Inputs, out: Workdir, units: Collection[str], resources: Resources) -> UnitProvenance:
        write_letters(units, inputs, out, self.pause)
        return {"made": list(units)}

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[UnitProvenance]) -> Counts:
        out.note(made=sorted(unit for part in facts for unit in part["made"]))
        return {"bytes": sum(out.counts(letter)["bytes"] for letter in out.plan() or {})}


def in_units(text: str, before: Task | None = None, pause: float = 0.0, processes: int = 1) -> Task:
    return dataclasses.replace(letters(text, before, pause), run=None, units=Units(pause, processes))


def make(root: Path, task: Task, *, repair: bool = False) -> Artifact:
    return Runner(root, HERE, repair=repair).make(task)


def contents(root: Path) -> dict[str, bytes]:
    """Return all files but manifests, which tell times, and the number of the last one."""
    own = ("manifest.json", "number")
    paths = [path for path in sorted(root.rglob("*")) if path.is_file() and path.name not in own]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}
