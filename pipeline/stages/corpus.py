"""Stages ``corpus``, a corpus from a release, ``without-duplicates``, and ``authors``, from the release of a corpus."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.core.artifact import Artifact
from pipeline.core.config import from_mapping
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.files import given, resolved, sha256
from pipeline.core.manifest import MANIFEST, Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Sharded, Task, UnitProvenance
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import AUTHORS, CORPORA, checked_name
from pipeline.corpus.authors import write_authors
from pipeline.corpus.build import build_corpus, read_parts
from pipeline.corpus.duplicates import DuplicatesConfig, write_without_duplicates
from pipeline.corpus.parts import part_record, parts_of
from pipeline.corpus.reader import Corpus
from pipeline.sources.base import LINK_COLUMNS, Release
from pipeline.sources.registry import SOURCES, open_release


@dataclass(frozen=True)
class CorpusConfig:
    """Settings that determine a corpus: its source, the checksums or settings of the release, and the text limit."""

    source: str
    release: Mapping[str, Any]
    max_text: int


@dataclass(frozen=True)
class PartsOfRelease(Sharded):
    """Reading a release in units, one per part. One process does the rest."""

    release: Release

    def plan(self, inputs: Inputs, out: Workdir, spread: bool) -> Mapping[str, int]:  # noqa: ARG002
        """Return one unit per part; none if there are no other machines, as ``finish`` then reads all parts."""
        return {f"scratch/{part_record(number)}": 1 for number, _ in (parts_of(self.release) if spread else ())}

    def work(self, inputs: Inputs, out: Workdir, units: Collection[str], resources: Resources) -> UnitProvenance:  # noqa: ARG002
        """Read some parts."""
        parts = [part for part in parts_of(self.release) if f"scratch/{part_record(part[0])}" in units]
        read_parts(self.release, parts, out, resources)
        return {}

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[UnitProvenance]) -> Counts:  # noqa: ARG002
        """Read the remaining parts, and join them."""
        return build_corpus(self.release, out, resources)


def corpus_task(name: str, release: Release) -> Task:
    """Return the task that builds the corpus ``name``.

    Raises:
        InputError: the name cannot be part of a folder name.
    """
    checked_name(name)
    beside = {"contexts": release.contexts, "citations": release.citations}
    sums: dict[str, Any] = {name: sha256(given(Path(path))) for name, path in beside.items() if path}
    if sums and (renamed := {name: release.names[name] for name in LINK_COLUMNS if release.names[name] != name}):
        sums["link_columns"] = renamed
    if release.markup != "keep":  # the identity of corpora with markup does not mention it
        sums["markup"] = release.markup
    config = CorpusConfig(release.source, {**release.identity(), **sums}, release.max_text)
    # version 4 adds missing.arrow to BEIR's corpora and the given sentences to CSFCube's, and has the newest record of
    # a work of OpenAlex; others are unchanged
    version = 4 if release.source in ("beir", "csfcube", "openalex") and not release.is_joined() else 3
    return Task("corpus", version, CORPORA, name, config, {}, units=PartsOfRelease(release))


def corpus_tasks(
    source: str,
    folder: Path | None,
    options: Mapping[str, Any],
    *,
    name: str | None = None,
    duplicates: str = "keep",
) -> dict[str, Task]:
    """Return the task of a corpus by the corpus's name; of several tasks of MTEB, one for each.

    ``folder`` may be None if the source needs none. Options are as users type them, or Python values. Without a
    ``name`` it is that of the source or of the task; of several tasks, it precedes their names. Duplicates are ``keep``
    or ``drop``.

    Raises:
        InputError: the source, an option or the release is wrong.
    """
    from pipeline.sources.mteb import corpus_name, task_names  # here, because it brings a client of HTTP

    if folder and source in SOURCES and not SOURCES[source].has_folder:
        raise InputError(f"source {source} takes no --input, got {folder}", "Leave it out")
    options = {option: typed for option, value in options.items() if (typed := _as_typed(value))}
    if source in SOURCES and SOURCES[source].markup != "keep":  # the origin of corpora with markup does not mention it
        options.setdefault("markup", SOURCES[source].markup)
    for beside in {"contexts", "citations"} & options.keys():
        options[beside] = str(resolved(Path(options[beside])))
    tasks = task_names(options["task"]) if "task" in options else []
    found = {}
    for task in tasks or [""]:
        default = corpus_name(task) if task else source
        full_name = (f"{name}-{default}" if len(tasks) > 1 else name) if name else default
        found[full_name] = task_of({
            "name": full_name,
            "source": source,
            "input": folder and str(resolved(folder)),  # other machines have other working folders
            "options": {**options, "task": task} if task else options,
            "duplicates": None if duplicates == "keep" else {"action": duplicates, "rules": ["doi", "title"]},
        })  # fmt: skip
    return found


def _as_typed(value: Any) -> str | bool:
    """Return an option of a source as users type it."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={text}" for name, text in value.items())
    return value if isinstance(value, bool) else "" if value is None else str(value)


def task_of(origin: Mapping[str, Any]) -> Task:
    """Return the task of a corpus from its origin, the plain data recorded in its manifest.

    These are ``name`` of the corpus, ``source``, ``input`` (folder of the release or None), ``options`` of the source
    as users type them, and ``duplicates``: fields of :class:`DuplicatesConfig`, or None to keep duplicates.

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
    """Return the task of a published corpus from the origin in its manifest, even if the manifest is damaged.

    The task's name includes the checksums of the release itself, so a wrong record cannot rebuild another corpus.

    Raises:
        CorruptError: the record cannot be read, or the release has moved or changed.
    """
    found = _recorded(folder)
    if isinstance(found, Task):
        return found
    raise CorruptError(
        f"the corpus {folder} is damaged and cannot be repaired from here: {found}",
        "Run mdcr corpus with the options it was made with and --repair",
    )


def release_of(folder: Path) -> Release:
    """Return the release that a published corpus was built from; InputError if it has moved or changed."""
    found = _recorded(folder)
    if isinstance(found, Task):
        task = found.inputs.get("corpus", found)  # that of a corpus without duplicates
        if isinstance(task, Task) and isinstance(task.units, PartsOfRelease):
            return task.units.release
    raise InputError(f"the release of {folder.name} cannot be read again: {found}", "Build the corpus from it again")


def _recorded(folder: Path) -> Task | str:
    """Return the task of a published corpus from the origin in its manifest, or why there is none."""
    try:
        values = json.loads((folder / MANIFEST).read_bytes())
        task = task_of(values["provenance"]["origin"])
    except InputError as error:
        return error.what
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "its manifest does not say from which release it was made"
    return task if task.name == folder.name else "its release has changed"


@dataclass(frozen=True)
class WithoutDuplicatesConfig:
    """Settings that determine a corpus without duplicates: the source of the original corpus, and the rules."""

    source: str
    duplicates: DuplicatesConfig


def without_duplicates_task(corpus: Task, duplicates: DuplicatesConfig) -> Task:
    """Return the task that copies a corpus without its duplicate papers."""

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        return write_without_duplicates(Corpus(inputs["corpus"]), duplicates, out, resources)

    config = WithoutDuplicatesConfig(corpus.config.source, duplicates)
    slug = f"{corpus.slug}-{duplicates.action}"
    return Task("without-duplicates", 1, CORPORA, slug, config, {"corpus": corpus}, run)


@dataclass(frozen=True)
class AuthorsConfig:
    """Nothing to set: the corpus decides."""


def authors_task(corpus: Task | Artifact) -> Task:
    """Return the task that reads the authors of a corpus (:class:`pipeline.corpus.authors.Authors`).

    They are an artifact of their own, so that corpora keep their identity, and all that is computed of them. Raises
    InputError when run: the source has no authors, or its release has moved or changed.
    """

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        return write_authors(Corpus(inputs["corpus"]), release_of(inputs["corpus"].path), out, resources)

    return Task("authors", 1, AUTHORS, corpus.slug, AuthorsConfig(), {"corpus": corpus}, run)
