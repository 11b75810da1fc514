"""Keeps local runs away from folders that jobs of a batch are working in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipeline.cluster.batch import Batch
from pipeline.core.errors import InputError, MdcrError
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.runner import with_inputs
from pipeline.core.task import Task


def check_not_running(root: Path, targets: Iterable[Task], own: Batch | None = None) -> None:
    """Refuse to make artifacts that running or waiting jobs are making.

    Slices take no lock, so a run that opens their work folder would delete what they are writing. Slurm is asked only
    about batches that share an artifact with the targets.

    Args:
        root: the workspace.
        targets: what is to be made; their inputs count too.
        own: a batch that does not count.
    """
    batches = [each for each in Batch.all(root) if each.rounds and not each.finished]
    batches = [each for each in batches if own is None or each.folder != own.folder]
    folders = (f"{task.folder}/{task.name}" for task in with_inputs(targets if batches else ()))
    missing = {folder for folder in folders if not (root / folder / MANIFEST).is_file()}
    for batch in batches:
        shared = sorted(missing & batch.rounds[-1].artifacts)
        if shared and (jobs := _alive(batch)):
            named = ", ".join(map(str, jobs))
            raise InputError(
                f"jobs of {batch.folder.name} are making {shared[0]}: {named}",
                f"Wait for them (mdcr jobs), or scancel {named.replace(',', '')}",
            )


def _alive(batch: Batch) -> list[int]:
    """Return the jobs of a batch that have not ended; without Slurm, warn and return none."""
    try:
        return batch.alive()
    except MdcrError as error:
        say(f"{batch.folder.name} was submitted for the same, and whether its jobs have ended cannot be seen ({error})")
        return []
