"""``mdcr gc``: list the artifacts that no named corpus needs; ``--delete`` removes them."""

from __future__ import annotations

import argparse
import fcntl
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipeline.cli import options as read
from pipeline.cli.output import print_rows
from pipeline.cluster.jobs import Jobs
from pipeline.core.artifact import Artifact, published, readable
from pipeline.core.config import SHORT_ID, counted
from pipeline.core.errors import InputError
from pipeline.core.files import abandoned
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.workspace import (
    ARTIFACTS,
    CORPORA,
    MODELS,
    STORES,
    WRITTEN,
    artifact_parents,
    corpus_names,
    find_corpus,
)

UNTOUCHED_DAYS = 1.0
"""Days without a change after which unfinished work counts as abandoned, and a corpus without a name as not needed.

Jobs on other machines hold no lock, and a command that was stopped names its corpus when it is run again.
"""


@dataclass(frozen=True)
class Unused:
    """A folder or file that can be removed, and the reason."""

    path: Path
    why: str

    @property
    def bytes(self) -> int:
        """Size of its files."""
        within = [self.path, *self.path.rglob("*")]
        return sum(file.stat().st_size for file in within if file.is_file() and not file.is_symlink())


def gc(options: argparse.Namespace) -> None:
    """List the folders that no named corpus needs and what killed processes left, or remove them."""
    root = read.runner(options).root
    folders = unused(root)
    if options.delete:
        _check_idle(root)
    rows = [
        {"path": str(folder.path.relative_to(root)), "MB": round(folder.bytes / 1e6, 1), "why": folder.why}
        for folder in folders
    ]
    size = sum(folder.bytes for folder in folders) / 1e6
    for folder in folders if options.delete else ():
        _remove(folder.path)
    if folders or options.json:
        print_rows("unused", rows, options)
    if folders:
        action = "removed" if options.delete else "can be removed: mdcr gc --delete"
        say(f"{counted(len(folders), 'entry')}, {size:,.1f} MB {action}")
    else:
        say("Nothing to remove. Unnamed corpora and unfinished work are kept for a day.")


def unused(root: Path) -> list[Unused]:
    """Return the folders that no named corpus needs, and what killed processes left; inputs of an artifact follow it.

    An artifact is kept if (1) its corpus has a name, is an input of a corpus with a name, or was made within a day; (2)
    its pool and (for scores) its ranking are kept; and (3) no newer version replaces it. Artifacts with damaged
    manifests are kept for ``--repair``.
    """
    parents = artifact_parents(root)
    artifacts = [(parent, artifact) for parent in parents for artifact in published(root / parent)]
    short_ids = {folder.name[-SHORT_ID:] for parent in parents for folder in _folders(root / parent)}
    corpora = _needed_corpora(root, {artifact.id: artifact for _, artifact in artifacts})
    newest = Counter[str]()
    for _, artifact in artifacts:
        newest[_version_key(artifact)] = max(newest[_version_key(artifact)], artifact.manifest.stage_version)
    reasons: dict[str, str] = {}
    for parent, artifact in reversed(artifacts):  # inputs first
        why = _reason(artifact, parent, corpora, short_ids, reasons)
        if not why and artifact.manifest.stage_version < newest[_version_key(artifact)]:
            why = f"version {newest[_version_key(artifact)]} replaces it"
        if why:
            reasons[artifact.id] = why
    unfinished = [path for parent in (*parents, MODELS) for path in _unfinished(root / parent)]
    written = [folder for room in WRITTEN for folder in (root / room, *sorted((root / room).glob("[!.]*/")))]
    return [
        *(
            Unused(artifact.path, reasons[artifact.id])
            for _, artifact in artifacts
            if artifact.id in reasons and not artifact.path.is_symlink()
        ),
        *(Unused(path, "unfinished, untouched for a day") for path in unfinished),
        *(Unused(path, "left by a process that was killed") for folder in written for path in abandoned(folder)),
    ]


def _reason(artifact: Artifact, parent: str, corpora: set[str], short_ids: set[str], reasons: Mapping[str, str]) -> str:
    """Return the reason for removing an artifact; empty: it is kept.

    ``short_ids`` are those of all folders, even with damaged manifests; ``reasons`` those of the inputs to be removed.
    """
    inputs = artifact.manifest.inputs
    if parent == CORPORA:
        return "" if artifact.id[:SHORT_ID] in corpora else "its corpus has no name"
    if "corpus" in inputs and inputs["corpus"][:SHORT_ID] in short_ids - corpora:
        return "its corpus has no name"
    for name in ("corpus",) if parent.startswith(STORES) else ("corpus", "pool", "ranking"):
        if name in inputs and (inputs[name] in reasons or inputs[name][:SHORT_ID] not in short_ids):
            return f"its {name} was removed or is about to be"
    return ""


def _needed_corpora(root: Path, artifacts: Mapping[str, Artifact]) -> set[str]:
    """Return the short ids of the corpora with a name or made within a day, and of those they were made from."""
    named, needed = corpus_names(root), set[str]()
    to_visit = list(readable(named, partial(find_corpus, root)))
    if len(to_visit) < len(named):  # what an unreadable corpus was made from is unknown
        needed |= {folder.name[-SHORT_ID:] for folder in _folders(root / CORPORA)}
    to_visit += [corpus for corpus in published(root / CORPORA) if _recent((corpus.path / MANIFEST).stat().st_mtime)]
    while to_visit:
        corpus = to_visit.pop()
        needed.add(corpus.id[:SHORT_ID])
        to_visit += [artifacts[identity] for identity in corpus.manifest.inputs.values() if identity in artifacts]
    return needed


def _version_key(artifact: Artifact) -> str:
    manifest = artifact.manifest
    return repr((manifest.stage, sorted(manifest.inputs.items()), manifest.config))


def _folders(parent: Path) -> list[Path]:
    return sorted(folder for folder in parent.glob("[!.]*") if folder.is_dir())


def _unfinished(parent: Path) -> Iterator[Path]:
    """Yield the folders of unfinished work that no process holds and that did not change for a day."""
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
    """Raise InputError if a process works in this workspace, jobs may be running, or a named corpus is unreadable."""
    for name in corpus_names(root):
        find_corpus(root, name)
    for parent in (*ARTIFACTS, *STORES, MODELS):
        for lock in sorted((root / parent).rglob(".*.lock")):
            if _held(lock):
                raise InputError(f"a process is working at {lock}", "Run it again when that has ended")
    for jobs in map(Jobs.opened, Jobs.records(root)):
        if jobs.alive():
            raise InputError(f"jobs of {jobs.folder.name} are not done yet", "See mdcr jobs, or scancel them")


def _remove(path: Path) -> None:
    """Remove a folder or file, a manifest first, so that a partly removed artifact does not count as published."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    (path / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path)
    if path.parent.parent.name in ("vectors", "terms") and not any(path.parent.iterdir()):
        path.parent.rmdir()
