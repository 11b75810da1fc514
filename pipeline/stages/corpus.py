"""Stage ``corpus``: a release becomes a corpus, and a corpus one without duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Facts, Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import CORPORA
from pipeline.corpus.build import build_corpus, extract
from pipeline.corpus.deduplicate import write_without_duplicates
from pipeline.corpus.duplicates import DuplicatesConfig
from pipeline.corpus.extract import part_record
from pipeline.corpus.reader import Corpus
from pipeline.sources.base import Release
from pipeline.sources.tables import JoinedRelease


@dataclass(frozen=True)
class CorpusConfig:
    """What decides a corpus: the source, and the checksums or settings of its release."""

    source: str
    release: Mapping[str, Any]


@dataclass(frozen=True)
class PartsOfRelease:
    """Reading a release in units, one a part (:class:`pipeline.core.task.Sharded`); later passes are one machine's.

    Attributes:
        release: what is read; a release in one table.
    """

    release: Release
    in_turn = False
    accelerated = False

    def plan(self, inputs: Inputs, out: Workdir) -> Mapping[str, int]:  # noqa: ARG002
        """Return the units: the parts of the release, whose sizes are not known."""
        return {f"scratch/{part_record(number)}": 1 for number, _ in enumerate(self.release.parts())}

    def devices(self, resources: Resources) -> list[str]:
        """Return no more than this machine."""
        return [resources.device]

    def work(self, inputs: Inputs, out: Workdir, resources: Resources, units: Sequence[str]) -> Facts:  # noqa: ARG002
        """Read some parts into sorted runs."""
        parts = list(self.release.parts())
        mine = [(number, part) for number, part in enumerate(parts) if f"scratch/{part_record(number)}" in units]
        extract(self.release, mine, out, resources)
        return {"parts": len(mine)}

    def finish(self, inputs: Inputs, out: Workdir, resources: Resources, facts: Sequence[Facts]) -> Counts:  # noqa: ARG002
        """Merge the runs and resolve the citations."""
        return build_corpus(self.release, out, resources)


def corpus_task(name: str, release: Release | JoinedRelease) -> Task:
    """Return the task that builds the corpus users will call ``name``."""

    def run(_inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        return build_corpus(release, out, resources)

    config = CorpusConfig(release.source, release.identity())
    units = None if isinstance(release, JoinedRelease) else PartsOfRelease(release)
    return Task("corpus", 2, CORPORA, name, config, {}, run, units=units)


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
