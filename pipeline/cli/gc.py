"""``mdcr gc``: list the artifacts that no named corpus needs; ``--delete`` removes them."""

from __future__ import annotations

import argparse
import fcntl
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pipeline.cli import options as read
from pipeline.cli.output import print_rows
from pipeline.cluster.jobs import Jobs
from pipeline.core.artifact import published, readable
from pipeline.core.config import SHORT_ID, counted
from pipeline.core.errors import InputError
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say
from pipeline.core.workspace import ARTIFACTS, CORPORA, MODELS, STORES, artifact_parents, corpus_names, find_corpus

UNTOUCHED_SECONDS = 86_400
"""Time without a change after which unfinished work counts as abandoned, and a corpus without a name as not needed.

Jobs on other machines hold no lock, and a command that was stopped names its corpus when it is run again.
"""


def gc(options: argparse.Namespace) -> None:
    """List the folders that no named corpus needs and what killed processes left, or remove them."""
    root = read.runner(options).root
    folders = dict(unused(root))
    if options.delete:
        _check_idle(root)
    rows = [
        {"path": str(folder.relative_to(root)), "MB": round(_bytes(folder) / 1e6, 1), "why": why}
        for folder, why in folders.items()
    ]
    for folder in folders if options.delete else ():
        (folder / MANIFEST).unlink(missing_ok=True)  # first: a folder that is removed in part is not published
        shutil.rmtree(folder)
        if folder.parent.parent.name in ("vectors", "terms") and not any(folder.parent.iterdir()):
            folder.parent.rmdir()
    if folders or options.json:
        print_rows("unused", rows, options)
    if folders:
        action = "removed" if options.delete else "can be removed: mdcr gc --delete"
        say(f"{counted(len(folders), 'entry')} {action}")
    else:
        say("Nothing to remove. Unnamed corpora and unfinished work are kept for a day.")


def unused(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folders that no named corpus needs with the reason: artifacts, then what killed processes left.

    A corpus is kept if it has a name, is an input of a corpus with a name, or was made within a day; another artifact
    if its corpus, its pool and (for scores) its ranking are kept. Damaged artifacts are kept for ``--repair``.
    """
    parents = artifact_parents(root)
    short_ids = {folder.name[-SHORT_ID:] for parent in parents for folder in (root / parent).glob("[!.]*/")}
    corpora, gone = _needed_corpora(root), set[str]()
    for parent in reversed(parents):  # inputs first
        for artifact in published(root / parent):
            inputs = {name: identity[:SHORT_ID] for name, identity in artifact.manifest.inputs.items()}
            names = ("corpus",) if parent.startswith(STORES) else ("corpus", "pool", "ranking")
            lacks = [name for name in names if name in inputs and inputs[name] not in short_ids - gone]
            if parent == CORPORA:
                lacks = [] if artifact.id[:SHORT_ID] in corpora else ["name"]
            gone |= {artifact.id[:SHORT_ID]} if lacks else set()
            if lacks and not artifact.path.is_symlink():
                why = "its corpus has no name" if lacks == ["name"] else f"its {lacks[0]} was removed or is about to be"
                yield artifact.path, why
    works = (path for parent in (*parents, MODELS) for path in sorted((root / parent).glob(".*")))
    for folder in (work for work in works if work.suffix in (".partial", ".repair")):
        newest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
        if not _recent(newest) and not _held(folder.with_suffix(".lock")):
            yield folder, "unfinished, untouched for a day"


def _needed_corpora(root: Path) -> set[str]:
    """Return the short ids of the corpora with a name or made within a day, and of those they were made from."""
    corpora, named = {artifact.id: artifact for artifact in published(root / CORPORA)}, corpus_names(root)
    to_visit = list(readable(named, partial(find_corpus, root)))
    if len(to_visit) < len(named):  # what an unreadable corpus was made from is unknown
        to_visit += corpora.values()
    to_visit += [corpus for corpus in corpora.values() if _recent((corpus.path / MANIFEST).stat().st_mtime)]
    needed = set[str]()
    while to_visit:
        corpus = to_visit.pop()
        needed.add(corpus.id[:SHORT_ID])
        to_visit += [corpora[identity] for identity in corpus.manifest.inputs.values() if identity in corpora]
    return needed


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def _recent(time_of_change: float) -> bool:
    return time_of_change >= time.time() - UNTOUCHED_SECONDS


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
