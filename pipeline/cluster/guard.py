"""Keeping two makers from one folder: what jobs of a batch are making is left to them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipeline.cluster.batch import Batch
from pipeline.core.errors import InputError, MdcrError
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.task import Task
from pipeline.runner import with_inputs


def refuse(root: Path, targets: Iterable[Task], own: Batch | None = None) -> None:
    """Refuse to make what jobs are making that have not ended.

    A slice takes no lock, so whoever opens its work folder as if alone would sweep away what it is writing. Of batches
    that have nothing in common with the targets only the record is read; Slurm is asked for others.

    Args:
        root: the workspace.
        targets: what is to be made, with whatever it is made from.
        own: a batch that does not count.

    Raises:
        InputError: there are such jobs.
    """
    batches = [each for each in Batch.all(root) if own is None or each.folder != own.folder]
    batches = [each for each in batches if each.rounds and not each.finished]
    if not batches:
        return
    folders = [f"{task.room}/{task.name}" for task in with_inputs(targets)]
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
    """Return the jobs of a batch that have not ended; none, with a warning, where Slurm cannot be asked."""
    try:
        return batch.alive()
    except MdcrError as error:
        say(f"{batch.folder.name} was submitted for the same, and whether its jobs have ended cannot be seen ({error})")
        return []
