"""Stage ``corpus``: a corpus from a release, and a corpus without duplicates from a corpus."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.core.config import from_mapping
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.files import sha256
from pipeline.core.manifest import MANIFEST, Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Facts, Inputs, Job, Sharded, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import CORPORA, checked_name
from pipeline.corpus.build import build_corpus, extract
from pipeline.corpus.duplicates import DuplicatesConfig, write_without_duplicates
from pipeline.corpus.extract import part_record
from pipeline.corpus.reader import Corpus
from pipeline.sources.base import JoinedRelease, Release
from pipeline.sources.registry import open_release


@dataclass(frozen=True)
class CorpusConfig:
    """What decides a corpus: the source, the checksums or settings of its release, the longest text."""

    source: str
    release: Mapping[str, Any]
    max_text: int


@dataclass(frozen=True)
class PartsOfRelease(Sharded):
    """Reading a release in units, one per part. One process does the rest."""

    release: Release

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:  # noqa: ARG002
        """Return a unit for each part. Without other machines ``finish`` reads all parts itself."""
        count = len(list(self.release.parts())) if spread else 0
        return {f"scratch/{part_record(number)}": 1 for number in range(count)}

    def work(self, jobs: Sequence[Job], resources: Resources) -> Facts:
        """Read some parts into sorted runs."""
        parts = list(enumerate(self.release.parts()))
        for job in jobs:
            mine = [part for part in parts if f"scratch/{part_record(part[0])}" in job.units]
            extract(self.release, mine, job.out, resources)
        return {}

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[Facts]) -> Counts:  # noqa: ARG002
        """Read what is missing, merge the runs and resolve the citations."""
        return build_corpus(self.release, out, resources)


def corpus_task(name: str, release: Release) -> Task:
    """Return the task that builds the corpus users will call ``name``.

    Raises:
        InputError: the name cannot be part of a folder's.
    """
    checked_name(name)
    contexts = {"contexts": sha256(Path(release.contexts))} if release.contexts else {}
    config = CorpusConfig(release.source, {**release.identity(), **contexts}, release.max_text)
    if not isinstance(release, JoinedRelease):
        # 4 adds missing.arrow to BEIR's corpora and the sentences as given to CSFCube's; others are as they were.
        version = 4 if release.source in ("beir", "csfcube") else 3
        return Task("corpus", version, CORPORA, name, config, {}, units=PartsOfRelease(release))

    def run(_inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        return build_corpus(release, out, resources)

    return Task("corpus", 3, CORPORA, name, config, {}, run)


def task_of(origin: Mapping[str, Any]) -> Task:
    """Return the task of a corpus from plain data, which its manifest records.

    Args:
        origin: ``name`` of the corpus, ``source``, ``input`` (folder of the release or None), ``options`` of the source
            as users type them, and ``duplicates``: fields of :class:`DuplicatesConfig`, or None to keep them.

    Raises:
        InputError: the source, an option or the release is wrong.
    """
    folder = None if origin["input"] is None else Path(origin["input"])
    task = corpus_task(origin["name"], open_release(origin["source"], folder, origin["options"]))
    task = replace(task, origin={**origin, "duplicates": None})
    if origin["duplicates"] is not None:
        rules = from_mapping(DuplicatesConfig, origin["duplicates"])
        task = replace(without_duplicates_task(task, rules), origin=origin)
    return task


def recorded_task(folder: Path) -> Task:
    """Return the task of a published corpus by what its manifest records, even where that is damaged.

    The task's name has the checksums of the release itself, so a wrong record cannot lead to another corpus.

    Raises:
        CorruptError: the record cannot be read, or the release is no longer where it was, or has changed.
    """
    try:
        values = json.loads((folder / MANIFEST).read_bytes())
        task = task_of(values["provenance"]["origin"])
        if task.name == folder.name:
            return task
        reason = "its release has changed"
    except InputError as error:
        reason = f"{error.what}"
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        reason = "its manifest does not say from which release it was made"
    raise CorruptError(
        f"the corpus {folder} is damaged and cannot be repaired from here: {reason}",
        "Run mdcr corpus with the options it was made with and --repair",
    )


@dataclass(frozen=True)
class WithoutDuplicatesConfig:
    """What decides a corpus without duplicates: the source of the one it is made from, and the rules."""

    source: str
    duplicates: DuplicatesConfig


def without_duplicates_task(corpus: Task, duplicates: DuplicatesConfig) -> Task:
    """Return the task that writes a corpus anew, with every paper once."""

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        return write_without_duplicates(Corpus(inputs["corpus"]), duplicates, out, resources)

    config = WithoutDuplicatesConfig(corpus.config.source, duplicates)
    slug = f"{corpus.slug}-{duplicates.action}"
    return Task("without-duplicates", 1, CORPORA, slug, config, {"corpus": corpus}, run)
