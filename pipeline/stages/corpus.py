"""Stage ``corpus``: a release becomes a corpus."""

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
from pipeline.sources.base import Release


@dataclass(frozen=True)
class CorpusConfig:
    """What decides a corpus: the source, and the checksums or settings of its release."""

    source: str
    release: Mapping[str, Any]


def corpus_task(name: str, release: Release) -> Task:
    """Return the task that builds the corpus users will call ``name``."""

    def run(_inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        return build_corpus(release, out, resources)

    config = CorpusConfig(release.source, release.identity())
    return Task("corpus", 1, CORPORA, name, config, {}, run)
