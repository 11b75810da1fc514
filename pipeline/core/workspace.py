"""The folders of a workspace, and the users' names of corpora."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, InputError, nearest
from pipeline.core.manifest import MANIFEST
from pipeline.core.progress import say

CORPORA = "corpora"
POOLS = "corpora/pools"
AUTHORS = "corpora/authors"
TRAINING = "corpora/training"
VECTORS = "indexes/vectors"
FITS = "indexes/fits"
LUCENE = "indexes/lucene"
TERMS = "indexes/terms"
RANKINGS = "runs/rankings"
SCORES = "runs/scores"
TUNINGS = "runs/tunings"
JUDGED = "runs/judged"
REPORTS = "runs/reports"
EXPORTS = "runs/exports"
SUBMISSIONS = "runs/submissions"
JOBS = "runs/jobs"
MODELS = "runs/models"
RELEASES = "corpora/releases"

ARTIFACTS = (JUDGED, SCORES, RANKINGS, TUNINGS, LUCENE, FITS, TRAINING, POOLS, AUTHORS, CORPORA)
"""Folders of artifacts; the inputs of an artifact are in later folders."""

STORES = (VECTORS, TERMS)
"""Folders of stores of segments. A segment is kept as long as its corpus, since several pools use it."""

DEMO = "demo"
"""Name of the corpus that ``mdcr demo`` makes."""


def artifact_parents(root: Path) -> list[str]:
    """Return the folders that hold artifacts, below the workspace: :data:`ARTIFACTS`, with stores before pools."""
    found = [(name, store) for name in STORES for store in sorted((root / name).glob("[!.]*"))]
    stores = [f"{name}/{store.name}" for name, store in found if store.is_dir()]
    return [*ARTIFACTS[:-3], *stores, *ARTIFACTS[-3:]]


def checked_name(name: str) -> str:
    """Return a corpus name; raise InputError if it cannot be part of a folder name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name):
        raise InputError(f"{name!r} is not a name for a corpus", "Use letters, digits, '-', '_' and '.'")
    return name


def name_corpus(root: Path, name: str, artifact: Artifact) -> None:
    """Give a corpus a name, and say so if another corpus had it."""
    files.remove_abandoned(root / CORPORA)
    if name in corpus_names(root) and (other := _read_name(root, name)[0]) != artifact.name:
        say(f"{name} is {artifact.name} from now on, and no longer {other}")
    files.write_text(root / CORPORA / f"{name}.name", artifact.name + "\n")


def name_study_corpus(root: Path, study: str, artifact: Artifact) -> None:
    """Name a corpus of a study, unless it has a name: by its slug, or by its folder name if the slug is taken.

    Such a corpus does not count when the only corpus is looked up.
    """
    names = {name: _read_name(root, name)[0] for name in corpus_names(root)}
    if artifact.name not in names.values():
        name = artifact.name if artifact.manifest.slug in names else artifact.manifest.slug
        files.write_text(root / CORPORA / f"{name}.name", f"{artifact.name}\n{study}\n")


def corpus_names(root: Path, *, studies: bool = True) -> list[str]:
    """Return the names of all corpora, or without ``studies`` of those that users made."""
    names = sorted(path.stem for path in (root / CORPORA).glob("*.name"))
    return names if studies else [name for name in names if not _read_name(root, name)[1]]


def corpus_folders(root: Path) -> dict[str, str]:
    """Return the first names of named corpora, by folder name."""
    by_folder: dict[str, str] = {}
    for name in corpus_names(root):
        by_folder.setdefault(_read_name(root, name)[0], name)
    return by_folder


def find_corpus(root: Path, name: str | None) -> Artifact:
    """Open the corpus of a name or folder name; without a name, the only corpus.

    Raises:
        InputError: there is no such corpus, or its name file or manifest is damaged.
    """
    return Artifact.open(find_corpus_folder(root, name))


def find_corpus_folder(root: Path, name: str | None) -> Path:
    """Return the folder of a corpus by the rules of :func:`find_corpus`; its manifest may be damaged."""
    names = corpus_names(root)
    if name is None:
        names = corpus_names(root, studies=False)
        if len(names) != 1:
            if not names:
                raise InputError(
                    f"there is no corpus in {root / CORPORA}", "Run mdcr demo, or build one: mdcr corpus --help"
                )
            problem = f"there are {len(names)} corpora in {root / CORPORA}"
            raise InputError(problem, f"Name one with --corpus: {', '.join(names)}")
        (name,) = names
    folder_name = name
    if name in names:
        file = root / CORPORA / f"{name}.name"
        folder_name, _ = _read_name(root, name)
        if folder_name not in _published_names(root):
            raise CorruptError(f"{file} names no corpus of this workspace", f"Run mdcr corpus again: --corpus={name}")
    if folder_name in _published_names(root):
        return root / CORPORA / folder_name
    remedy = "Run mdcr demo, which makes it" if name == DEMO else nearest(name, names)
    raise InputError(f"there is no corpus {name!r} in {root / CORPORA}", remedy)


def _read_name(root: Path, name: str) -> tuple[str, str]:
    """Return the folder name of a named corpus, and the study that made it; empty if a user named it."""
    text = (root / CORPORA / f"{name}.name").read_text(encoding="utf-8", errors="replace")
    folder, _, study = text.strip().partition("\n")
    return folder.strip(), study.strip()


def _published_names(root: Path) -> set[str]:
    return {path.parent.name for path in (root / CORPORA).glob(f"[!.]*/{MANIFEST}")}
