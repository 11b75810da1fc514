"""``mdcr gc``: what no named corpus needs. It is listed, and removed with ``--delete``."""

from __future__ import annotations

import argparse
import fcntl
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.cli import options as read
from pipeline.cli.output import print_rows
from pipeline.cluster.batch import Batch
from pipeline.core.artifact import Artifact, published
from pipeline.core.config import SHORT_ID
from pipeline.core.errors import InputError, MdcrError
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.workspace import (
    CORPORA,
    FITS,
    LUCENE,
    POOLS,
    RANKINGS,
    SCORES,
    TERMS,
    TUNINGS,
    VECTORS,
    WEIGHTS,
    corpus_names,
    find_corpus,
)

UNTOUCHED_DAYS = 1.0
"""Days without a change after which unfinished work counts as given up, and a corpus without a name as not needed.

Slices on other machines hold no lock, and a command that was stopped names its corpus once it goes on.
"""

_FOLDERS = (SCORES, RANKINGS, WEIGHTS, TUNINGS, LUCENE, FITS, POOLS, CORPORA)
"""Rooms of artifacts, users of others first."""

_STORES = (VECTORS, TERMS)
"""Rooms of stores, each a folder of segments. A segment is kept with its corpus: other pools use it too."""


@dataclass(frozen=True)
class Unused:
    """One folder that can go, and why."""

    path: Path
    why: str

    @property
    def bytes(self) -> int:
        """Size of its files."""
        return sum(each.stat().st_size for each in self.path.rglob("*") if each.is_file() and not each.is_symlink())


def gc(options: argparse.Namespace) -> None:
    """List what no named corpus needs, or remove it."""
    root = read.runner(options).root
    found = unused(root)
    if options.delete:
        _refuse_busy(root)
    rows = [
        {"path": str(each.path.relative_to(root)), "MB": round(each.bytes / 1e6, 1), "why": each.why} for each in found
    ]
    total = sum(each.bytes for each in found) / 1e6
    if options.delete:
        for each in found:
            _remove(each.path)
    if found or options.json:
        print_rows("unused", rows, options)
    said = "removed" if options.delete else "can be removed: mdcr gc --delete"
    say(f"{len(found)} folders, {total:,.1f} MB {said}" if found else "everything is in use")


def unused(root: Path) -> list[Unused]:
    """Return what no named corpus needs, users of others first.

    An artifact is kept if its corpus has a name, is an input of one that has, or was made within a day; if its pool and
    (scores) its ranking are kept; and if no newer version replaces it. Artifacts with damaged manifests, which
    ``--repair`` mends, stay too.
    """
    parents = [
        *_FOLDERS[:-2],
        *(f"{name}/{each.name}" for name in _STORES for each in _folders(root / name)),
        *_FOLDERS[-2:],
    ]
    artifacts = {parent: list(published(root / parent)) for parent in parents}
    everything = [artifact for each in artifacts.values() for artifact in each]
    by_id = {artifact.id: artifact for artifact in everything}
    there = {folder.name[-SHORT_ID:] for parent in parents for folder in _folders(root / parent)}
    alive = _corpora(root, by_id)
    newest: dict[str, int] = {}
    for artifact in everything:
        newest[_alike(artifact)] = max(newest.get(_alike(artifact), 0), artifact.manifest.stage_version)
    gone: dict[str, str] = {}
    for parent in reversed(parents):  # inputs first
        for artifact in artifacts[parent]:
            why = _why(artifact, parent, alive, there, gone)
            if not why and artifact.manifest.stage_version < newest[_alike(artifact)]:
                why = f"version {newest[_alike(artifact)]} replaces it"
            if why:
                gone[artifact.id] = why
    found = [
        Unused(artifact.path, gone[artifact.id])
        for parent in parents
        for artifact in artifacts[parent]
        if artifact.id in gone and not artifact.path.is_symlink()
    ]
    return [
        *found,
        *(Unused(path, "unfinished, untouched for a day") for parent in parents for path in _left(root / parent)),
    ]


def _why(artifact: Artifact, parent: str, alive: set[str], there: set[str], gone: dict[str, str]) -> str:
    """Return why an artifact can go; empty: it is kept."""
    inputs = artifact.manifest.inputs
    if parent == CORPORA:
        return "" if artifact.id in alive else "its corpus has no name"
    if "corpus" in inputs and inputs["corpus"] not in alive and inputs["corpus"][:SHORT_ID] in there:
        return "its corpus has no name"
    for name in ("corpus",) if parent.startswith(_STORES) else ("corpus", "pool", "ranking"):
        each = inputs.get(name)
        if each is not None and (each in gone or each[:SHORT_ID] not in there):
            return f"its {name} is gone or goes"
    return ""


def _corpora(root: Path, by_id: dict[str, Artifact]) -> set[str]:
    """Return the identities of the corpora with a name or made within a day, and of those they were made from."""
    left, found = [find_corpus(root, name) for name in corpus_names(root)], set[str]()
    left += [each for each in published(root / CORPORA) if _recent((each.path / MANIFEST).stat().st_mtime)]
    while left:
        artifact = left.pop()
        found.add(artifact.id)
        left += [by_id[each] for each in artifact.manifest.inputs.values() if each in by_id]
    return found


def _alike(artifact: Artifact) -> str:
    manifest = artifact.manifest
    return repr((manifest.stage, sorted(manifest.inputs.items()), manifest.config))


def _folders(parent: Path) -> list[Path]:
    return sorted(each for each in parent.glob("[!.]*") if each.is_dir())


def _left(parent: Path) -> Iterator[Path]:
    """Yield the folders of unfinished work that nobody holds and nobody has touched for a day."""
    for suffix in ("partial", "repair"):
        for folder in sorted(parent.glob(f".*.{suffix}")):
            newest = max(each.stat().st_mtime for each in (folder, *folder.rglob("*")))
            lock = folder.with_name(f"{folder.name.removesuffix(suffix)}lock")
            if not _recent(newest) and not _held(lock):
                yield folder


def _recent(time_of_change: float) -> bool:
    return time_of_change >= time.time() - UNTOUCHED_DAYS * 86_400


def _held(lock: Path) -> bool:
    try:
        with lock.open() as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _refuse_busy(root: Path) -> None:
    """Refuse to remove anything while a process builds something here, or the jobs of a batch may."""
    for parent in (*_FOLDERS, *_STORES):
        for lock in sorted((root / parent).rglob(".*.lock")):
            if _held(lock):
                raise InputError(f"a process is working at {lock}", "Run it again when that has ended")
    for batch in Batch.all(root):
        if batch.rounds and not batch.finished and _maybe_alive(batch):
            raise InputError(f"jobs of {batch.folder.name} are not done yet", "See mdcr jobs, or scancel them")


def _maybe_alive(batch: Batch) -> bool:
    try:
        return bool(batch.alive())
    except MdcrError:
        return True  # Slurm cannot be asked


def _remove(path: Path) -> None:
    """Remove a folder. An artifact loses its manifest first, so that one half removed is none."""
    (path / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path)
    if path.parent.parent.name in ("vectors", "terms") and not any(path.parent.iterdir()):
        path.parent.rmdir()
