"""The artifacts of the benchmark: one corpus of all tasks' papers, their vectors, and the figures of each task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.text import normalise
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.reader import Corpus
from pipeline.encode.spec import Role
from pipeline.sources.base import PaperBatch, QuerySet, Release, fingerprint
from pipeline.sources.papers import Paper, PaperBuffer
from pipeline.stages.embed import embed_tasks, store_of
from pipeline.studies.pools import write_pool
from pipeline.studies.scirepeval import data
from pipeline.studies.scirepeval.layout import Doc, Folder, Keys
from pipeline.studies.scirepeval.scoring import FiguresConfig, score
from pipeline.studies.scirepeval.systems import Encoders
from pipeline.studies.scirepeval.tasks import FOLDER, Entry, Format, VectorsOf

FIGURES = pa.schema(
    [("figure", pa.string()), ("value", pa.float64()), ("items", pa.int64()), ("draws", pa.list_(pa.float64()))]
)
"""Figures of one task and system: fractions; ``draws``: the value in each resample."""

_BLOCK = 8_192


def docs(entry: Entry, folder: Folder) -> Iterator[Doc]:
    """Yield the papers of a task, of several with one id the first."""
    keys = Keys(entry.name)
    return (doc for doc in data.docs(entry, folder) if keys.add(doc))


@dataclass(frozen=True)
class TaskPapers(Release):
    """The papers and ad-hoc queries of some tasks as a release; a part is a task."""

    folder: Folder
    entries: tuple[Entry, ...]
    source = "scirepeval"

    def identity(self) -> Mapping[str, Any]:
        """Return the version of the texts, the tasks, and the checksums of their files."""
        paths = sorted({path for entry in self.entries for path in self.folder.paths(entry)})
        tasks = [asdict(entry) for entry in self.entries]
        return {"version": 2, "tasks": tasks, "files": fingerprint(paths, self.folder.root)}

    def parts(self) -> Sequence[str]:
        """Return the names of the tasks."""
        return [entry.name for entry in self.entries]

    def read(self, part: str) -> Iterator[PaperBatch]:
        """Yield the papers of a task."""
        (entry,) = (entry for entry in self.entries if entry.name == part)
        buffer = PaperBuffer(self.folder.root / part, self.max_text)
        for doc in docs(entry, self.folder):
            buffer.add(Paper(id=doc.key, title=doc.title, abstract=doc.abstract))
            if buffer.full:
                yield buffer.flush()
        yield buffer.flush()

    def queries(self) -> QuerySet | None:
        """Return the ad-hoc queries of all tasks, without judgements; None where no task has any."""
        texts = {
            f"{entry.name}/{name}": normalise(text)
            for entry in self.entries
            if entry.kind == "search"
            for name, text in data.queries(entry, self.folder).items()
        }
        return QuerySet(sorted(texts), [texts[name] for name in sorted(texts)], []) if texts else None


@dataclass(frozen=True)
class TasksPoolConfig(PoolConfig):
    """The papers of some tasks, by name, as a pool to embed."""

    tasks: tuple[str, ...] = ()

    @property
    def slug(self) -> str:
        """Readable name."""
        return f"{len(self.tasks)}-tasks"


def pool_task(corpus: Artifact, folder: Folder, entries: Sequence[Entry]) -> Task:
    """Return the task that lists the papers and ad-hoc queries of some tasks."""
    kind: Any = "texts" if any(entry.kind == "search" for entry in entries) else "papers"
    names = tuple(entry.name for entry in entries)
    config = TasksPoolConfig(size="all", queries="all", queries_are=kind, tasks=names)

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        papers = Corpus(inputs["corpus"])
        rows = np.unique(_rows(papers, [doc.key for entry in entries for doc in docs(entry, folder)]))
        queries = np.arange(len(papers.query_texts) if kind == "texts" else 0)
        write_pool(out, (queries, [None] * len(queries)), rows, ([], [], []), ([], []))
        return {"candidates": len(rows), "queries": len(queries)}

    slug = f"{corpus.manifest.slug}-{config.slug}"
    return Task("pool", 1, POOLS, slug, config, {"corpus": corpus}, run)


def vector_tasks(
    corpus: Artifact, folder: Folder, entries: Sequence[Entry], system: Encoders
) -> dict[Format, dict[Role, Task]]:
    """Return the tasks that embed each format's papers and queries; formats of one encoder share them."""
    tasks: dict[Format, dict[Role, Task]] = {}
    for model in {model.spec: model for model in system.values()}.values():
        formats = [kind for kind, other in system.items() if other.spec == model.spec]
        if shared := [entry for entry in entries if entry.format in formats]:
            tasks |= dict.fromkeys(formats, embed_tasks(corpus, pool_task(corpus, folder, shared), model))
    return tasks


def figures_task(corpus: Artifact, folder: Folder, config: FiguresConfig, vectors: Mapping[Role, Task]) -> Task:
    """Return the task that evaluates one system on one task of the benchmark."""
    entry = config.task
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "papers": vectors["paper"]}
    if entry.kind == "search":
        inputs["queries"] = vectors["query"]

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        figures, counts = score(config, folder, vectors_of(inputs), resources.workers)
        rows = [figure._asdict() for figure in figures]
        out.arrow("figures.arrow", pa.Table.from_pylist(rows, schema=FIGURES), FIGURES)
        return {**counts, "figures": len(figures)}

    slug = f"{entry.name}-{vectors['paper'].folder.rpartition('/')[2].rpartition('-')[0]}"
    return Task("scirepeval", 3, FOLDER, slug, config, inputs, run)


def vectors_of(inputs: Inputs) -> VectorsOf:
    """Return the vectors of one system for one task; a paper without one, or of another text, is an error."""
    corpus = Corpus(inputs["corpus"])

    def read(keys: Sequence[str], role: Role) -> npt.NDArray[np.float32]:
        if role == "query":
            place = {name: row for row, name in enumerate(corpus.query_texts.column("query_id").to_pylist())}
            store, rows = store_of(inputs["queries"]), np.array([place[key] for key in keys])
        else:
            store, rows = store_of(inputs["papers"]), _rows(corpus, keys)
        distinct, places = np.unique(rows, return_inverse=True)
        vectors: npt.NDArray[np.float32] = np.concatenate([block.vectors for block in store.blocks(distinct, _BLOCK)])
        return vectors[places]

    return read


def _rows(corpus: Corpus, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the row of each key."""
    rows = corpus.rows_of(keys)
    if np.any(rows < 0):
        key = keys[int(np.flatnonzero(rows < 0)[0])]
        raise InputError(f"paper {key.rpartition('~')[0]!r} must be in the corpus, got another text", "Run it again")
    return rows
