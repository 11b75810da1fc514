"""Stage ``authors``: the authors of the papers of a corpus, from the release that it was built from."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import AUTHORS
from pipeline.corpus.authors import write_authors
from pipeline.corpus.reader import Corpus
from pipeline.stages.corpus import release_of


@dataclass(frozen=True)
class AuthorsConfig:
    """Nothing to set: the corpus decides."""


def authors_task(corpus: Task | Artifact) -> Task:
    """Return the task that reads the authors of a corpus (:class:`pipeline.corpus.authors.Authors`).

    They are an artifact of their own, so that corpora keep their identity, and all that is computed of them. Raises
    InputError when run: the source has no authors, or its release has moved or changed.
    """

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        corpus = inputs["corpus"]
        return write_authors(Corpus(corpus), release_of(corpus.path), out, resources)

    return Task("authors", 1, AUTHORS, corpus.slug, AuthorsConfig(), {"corpus": corpus}, run)
