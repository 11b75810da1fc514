"""A collection: its recipe, and stage ``facets``: labelled sentences, annotations and folds beside its papers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, nearest
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.sources.base import fingerprint
from pipeline.sources.csfcube import FACETS, Csfcube, Judged, query_id, read_judged
from pipeline.stages.corpus import corpus_task
from pipeline.studies.common import made

if TYPE_CHECKING:
    from pipeline.api import Workspace

FOLDER = "corpora/facets"
SPLITS = "evaluation_splits.json"
_FILE = "facets.json"


@dataclass(frozen=True)
class CollectionRecipe:
    """What every recipe of a collection has.

    Attributes:
        corpus: name of the corpus that is made.
        input: folder of the collection (:mod:`pipeline.sources.csfcube`).
    """

    corpus: str
    input: str

    @property
    def release(self) -> Csfcube:
        """The collection's files."""
        return Csfcube(Path(self.input).expanduser())

    @property
    def corpus_task(self) -> Task:
        """What makes the corpus."""
        return corpus_task(self.corpus, self.release)

    def made(self, workspace: Workspace) -> Artifact:
        """Return the corpus, which must have been made."""
        return made(workspace, self.corpus_task)


@dataclass(frozen=True)
class CollectionConfig:
    """What decides the artifact: the checksums of the files, by name."""

    files: Mapping[str, str]


class Collection(msgspec.Struct):
    """What a collection has beside its papers.

    Attributes:
        folds: test queries of each fold; empty where the collection has no folds.
        sentences: label and text of each sentence, by paper: queries and candidates.
        annotations: candidates and grades of every annotator, by facet.
    """

    folds: dict[str, list[str]]
    sentences: dict[str, list[tuple[str, str]]]
    annotations: dict[str, Judged]


def read_collection(artifact: Artifact) -> Collection:
    """Read what :func:`collection_task` made."""
    return msgspec.convert(files.read_json(artifact.file(_FILE)), Collection)


def collection_task(corpus: Artifact, release: Csfcube) -> Task:
    """Return the task that reads what a collection has beside its papers.

    Raises:
        InputError: once run: the splits name a query that does not exist; the query is named.
    """
    splits = release.folder / SPLITS
    more = fingerprint([splits], release.folder) if splits.is_file() else {}

    def run(_inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        asked = release.asked()
        annotations = {facet: read_judged(path) for facet, path in release.annotations().items()}
        queries = {paper for paper, _ in asked}
        judged = {paper for of_facet in annotations.values() for lists in of_facet.values() for paper in lists["cands"]}
        documents = release.documents(queries | judged)
        folds = _folds(splits, {query_id(*query) for query in asked}) if splits.is_file() else {}
        sentences = {paper: document.sentences for paper, document in sorted(documents.items())}
        content = {"folds": folds, "sentences": sentences, "annotations": annotations}
        with out.file(_FILE) as (path, _):
            files.write_text(path, json.dumps(content, ensure_ascii=False))
        return {"queries": len(asked), "papers": len(documents), "folds": len(folds)}

    config = CollectionConfig({**release.identity()["files"], **more})
    return Task("facets", 2, FOLDER, corpus.manifest.slug, config, {"corpus": corpus}, run)


def _folds(path: Path, queries: set[str]) -> dict[str, list[str]]:
    try:
        splits = msgspec.convert(files.given_json(path), dict[str, dict[str, list[str]]])
    except msgspec.ValidationError as error:
        raise InputError(f"{path} must name queries by facet and fold ({error})", "Fetch it again") from error
    folds: dict[str, list[str]] = {}
    for facet in FACETS:
        for name, members in splits.get(facet, {}).items():
            if name.endswith("_test"):
                folds[name] = folds.get(name, []) + members
    for query in sorted({query for members in folds.values() for query in members} - queries)[:1]:
        raise InputError(f"{path} names query {query}, which is not judged", nearest(query, queries))
    return folds
