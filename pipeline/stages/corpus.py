"""Stage ``corpus``: a release becomes a corpus, and a corpus one without duplicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import CORPORA
from pipeline.corpus.build import build_corpus
from pipeline.corpus.deduplicate import write_without_duplicates
from pipeline.corpus.duplicates import DuplicatesConfig
from pipeline.corpus.reader import Corpus
from pipeline.sources.base import Release
from pipeline.sources.tables import JoinedRelease


@dataclass(frozen=True)
class CorpusConfig:
    """What decides a corpus: the source, and the checksums or settings of its release."""

    source: str
    release: Mapping[str, Any]


def corpus_task(name: str, release: Release | JoinedRelease) -> Task:
    """Return the task that builds the corpus users will call ``name``."""

    def run(_inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        return build_corpus(release, out, resources)

    config = CorpusConfig(release.source, release.identity())
    return Task("corpus", 2, CORPORA, name, config, {}, run)


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
