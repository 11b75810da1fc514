"""Stage ``index``: the Lucene index of a pool's candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import LUCENE
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Text
from pipeline.retrieve.java import anserini_version
from pipeline.retrieve.lucene_build import build_index
from pipeline.retrieve.lucene_classes import ANALYZER

FOLDER = "index"
"""Folder of the index in its artifact."""


@dataclass(frozen=True)
class IndexConfig:
    """What decides an index beside the pool: scores differ between versions of Lucene.

    Attributes:
        analyzer: Java class that makes terms of texts.
        anserini: version of Anserini, which brings Lucene.
    """

    analyzer: str
    anserini: str


def lucene_task(corpus: Artifact, pool: Task | Artifact) -> Task:
    """Return the task that indexes the candidates of a pool: document frequencies and lengths are the pool's.

    Raises:
        InputError: Pyserini is not installed.
    """

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        opened = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        if not out.done(FOLDER):
            with (
                Progress(len(opened.candidates), "index", "docs") as progress,
                out.folder(FOLDER) as (folder, written),
            ):
                texts = _counted(opened.candidate_texts(), progress)
                written.counts = build_index(texts, opened.candidates, folder, resources.workers, resources.memory)
        return out.counts(FOLDER)

    slug = pool.slug if isinstance(pool, Task) else pool.manifest.slug
    config = IndexConfig(ANALYZER, anserini_version())
    return Task("index", 1, LUCENE, slug, config, {"corpus": corpus, "pool": pool}, run)


def _counted(blocks: Iterator[list[Text]], progress: Progress) -> Iterator[list[Text]]:
    for block in blocks:
        yield block
        progress.add(len(block))
