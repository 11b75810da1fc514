"""``mdcr gc``: what no named corpus needs. It is listed, and removed with ``--delete``."""

from __future__ import annotations

import argparse
import fcntl
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
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
    TRAINING,
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

_FOLDERS = (SCORES, RANKINGS, WEIGHTS, TUNINGS, LUCENE, FITS, TRAINING, POOLS, CORPORA)
"""Folders of artifacts; an artifact's inputs lie in later ones."""

_STORES = (VECTORS, TERMS)
"""Folders of stores, each a folder of segments. A segment is kept with its corpus: other pools use it too."""


@dataclass(frozen=True)
class Unused:
    """One folder that can go, and why."""

    path: Path
    why: str

    @property
    def bytes(self) -> int:
        """Size of its files."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file() and not file.is_symlink())


def gc(options: argparse.Namespace) -> None:
    """List what no named corpus needs, or remove it."""
    root = read.runner(options).root
    folders = unused(root)
    if options.delete:
        _check_idle(root)
    sizes = [folder.bytes / 1e6 for folder in folders]
    rows = [
        {"path": str(folder.path.relative_to(root)), "MB": round(size, 1), "why": folder.why}
        for folder, size in zip(folders, sizes, strict=True)
    ]
    if options.delete:
        for folder in folders:
            _remove(folder.path)
    if folders or options.json:
        print_rows("unused", rows, options)
    if folders:
        done = "removed" if options.delete else "can be removed: mdcr gc --delete"
        say(f"{len(folders)} folders, {sum(sizes):,.1f} MB {done}")
    else:
        say("nothing to remove; a corpus without a name, or unfinished work, stays for a day")


def unused(root: Path) -> list[Unused]:
    """Return what no named corpus needs; an artifact comes before its inputs.

    An artifact is kept if its corpus has a name, is an input of one that has, or was made within a day; if its pool and
    (scores) its ranking are kept; and if no newer version replaces it. Artifacts with damaged manifests, which
    ``--repair`` mends, stay too.
    """
    stores = [f"{name}/{store.name}" for name in _STORES for store in _folders(root / name)]
    parents = [*_FOLDERS[:-2], *stores, *_FOLDERS[-2:]]
    artifacts = [(parent, artifact) for parent in parents for artifact in published(root / parent)]
    short_ids = {folder.name[-SHORT_ID:] for parent in parents for folder in _folders(root / parent)}
    corpora = _needed_corpora(root, {artifact.id: artifact for _, artifact in artifacts})
    newest = Counter[str]()
    for _, artifact in artifacts:
        newest[_alike(artifact)] = max(newest[_alike(artifact)], artifact.manifest.stage_version)
    reasons: dict[str, str] = {}
    for parent, artifact in reversed(artifacts):  # inputs first
        why = _why(artifact, parent, corpora, short_ids, reasons)
        if not why and artifact.manifest.stage_version < newest[_alike(artifact)]:
            why = f"version {newest[_alike(artifact)]} replaces it"
        if why:
            reasons[artifact.id] = why
    published_folders = [
        Unused(artifact.path, reasons[artifact.id])
        for _, artifact in artifacts
        if artifact.id in reasons and not artifact.path.is_symlink()
    ]
    unfinished = [path for parent in parents for path in _abandoned(root / parent)]
    return [*published_folders, *(Unused(path, "unfinished, untouched for a day") for path in unfinished)]


def _why(artifact: Artifact, parent: str, corpora: set[str], short_ids: set[str], reasons: Mapping[str, str]) -> str:
    """Return why an artifact can go; empty: it is kept.

    ``short_ids`` are of all folders, also of those whose manifest is damaged; ``reasons`` of the inputs that can go.
    """
    inputs = artifact.manifest.inputs
    if parent == CORPORA:
        return "" if artifact.id in corpora else "its corpus has no name"
    if "corpus" in inputs and inputs["corpus"] not in corpora and inputs["corpus"][:SHORT_ID] in short_ids:
        return "its corpus has no name"
    for name in ("corpus",) if parent.startswith(_STORES) else ("corpus", "pool", "ranking"):
        if name in inputs and (inputs[name] in reasons or inputs[name][:SHORT_ID] not in short_ids):
            return f"its {name} is gone or goes"
    return ""


def _needed_corpora(root: Path, artifacts: Mapping[str, Artifact]) -> set[str]:
    """Return the identities of the corpora with a name or made within a day, and of those they were made from."""
    left, needed = [find_corpus(root, name) for name in corpus_names(root)], set[str]()
    left += [corpus for corpus in published(root / CORPORA) if _recent((corpus.path / MANIFEST).stat().st_mtime)]
    while left:
        corpus = left.pop()
        needed.add(corpus.id)
        left += [artifacts[identity] for identity in corpus.manifest.inputs.values() if identity in artifacts]
    return needed


def _alike(artifact: Artifact) -> str:
    manifest = artifact.manifest
    return repr((manifest.stage, sorted(manifest.inputs.items()), manifest.config))


def _folders(parent: Path) -> list[Path]:
    return sorted(folder for folder in parent.glob("[!.]*") if folder.is_dir())


def _abandoned(parent: Path) -> Iterator[Path]:
    """Yield the folders of unfinished work that nobody holds and nobody has touched for a day."""
    for suffix in ("partial", "repair"):
        for folder in sorted(parent.glob(f".*.{suffix}")):
            newest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
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


def _check_idle(root: Path) -> None:
    """Raise InputError while a process builds something here, or the jobs of a batch may."""
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
