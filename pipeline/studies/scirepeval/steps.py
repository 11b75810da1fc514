"""The artifacts of the benchmark: one corpus of all tasks' papers, their vectors, and the figures of each task."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, StageError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.text import normalise
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.reader import Corpus
from pipeline.encode import names, registry
from pipeline.encode.spec import Model, Role, TransformerSpec
from pipeline.encode.store import VectorStore
from pipeline.sources.base import Limits, PaperBatch, QuerySet, fingerprint
from pipeline.sources.papers import Paper, PaperBuffer
from pipeline.stages.embed import embed_tasks, store_of
from pipeline.studies.pools import write_pool
from pipeline.studies.scirepeval import data
from pipeline.studies.scirepeval.layout import META, Doc, Folder, Keys
from pipeline.studies.scirepeval.scoring import Settings, score
from pipeline.studies.scirepeval.tasks import FORMATS, Entry, Format

FIGURES = pa.schema(
    [("figure", pa.string()), ("value", pa.float64()), ("items", pa.int64()), ("draws", pa.list_(pa.float64()))]
)
"""Figures of one task and system: fractions; ``draws``: the value in each resample."""

LEAKS = pa.schema([("training", pa.string()), ("papers", pa.int64()), ("ids", pa.int64()), ("titles", pa.int64())])
"""By training data: test papers, those in it by id, and those by title alone."""

FOLDER = "runs/scirepeval"
Encoders = Mapping[Format, Model]
_BLOCK = 8_192
_TEMPLATE = "fields-sep"
"""How the published evaluation makes a text, for any transformer."""


def docs(entry: Entry, folder: Folder) -> Iterator[Doc]:
    """Yield the papers of a task, of several with one id the first."""
    keys = Keys(entry.name)
    return (doc for doc in data.docs(entry, folder) if keys.add(doc))


@dataclass(frozen=True)
class TaskPapers(Limits):
    """The papers and ad-hoc queries of some tasks as a release; a part is a task."""

    folder: Folder
    entries: tuple[Entry, ...]
    source: str = "scirepeval"

    def identity(self) -> Mapping[str, Any]:
        """Return the version of the texts, the tasks, and the checksums of their files."""
        paths = sorted({path for entry in self.entries for path in self.folder.paths(entry)})
        return {
            "version": 2,
            "tasks": [asdict(entry) for entry in self.entries],
            "files": fingerprint(paths, self.folder.root),
        }

    def parts(self) -> Sequence[str]:
        """Return the names of the tasks."""
        return [entry.name for entry in self.entries]

    def read(self, part: str) -> Iterator[PaperBatch]:
        """Yield the papers of a task."""
        (entry,) = (each for each in self.entries if each.name == part)
        buffer = PaperBuffer(self.folder.root / part, self.max_text)
        for doc in docs(entry, self.folder):
            buffer.add(Paper(id=doc.key, title=doc.title, abstract=doc.abstract))
            if buffer.full:
                yield buffer.flush()
        yield buffer.flush()

    def queries(self) -> QuerySet | None:
        """Return the ad-hoc queries of all tasks, without judgements; None where no task has any."""
        found = {
            f"{entry.name}/{name}": normalise(text)
            for entry in self.entries
            if entry.kind == "search"
            for name, text in data.queries(entry, self.folder).items()
        }
        ids = sorted(found)
        return QuerySet(ids, [found[each] for each in ids], []) if ids else None


def multi_format(more: str = "") -> dict[str, dict[str, str]]:
    """Return the table ``formats.toml``, with the rows of another file of its kind.

    Raises:
        InputError: the file cannot be read, or a row lacks an encoder.
    """
    found: dict[str, dict[str, str]] = {}
    for path in (Path(__file__).with_name("formats.toml"), *([Path(more).expanduser()] if more else [])):
        try:
            found |= tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(
                f"formats must be a TOML file, got {path} ({error})", "Write it like formats.toml"
            ) from error
    for name, row in found.items():
        if not isinstance(row, dict) or not {*FORMATS} <= row.keys() <= {*FORMATS, "query", "published"}:
            raise InputError(f"system {name} must have an encoder for each of {', '.join(FORMATS)}, got {row}", "")
    return found


def encoders(name: str, more: str = "") -> Encoders:
    """Return the encoder of each format: one in all, unless ``formats.toml`` or the file ``more`` says otherwise.

    Raises:
        InputError: there is no such encoder, or it has several vectors a paper.
    """
    row = multi_format(more).get(name, dict.fromkeys(FORMATS, name))
    models = {each: registry.resolve(row[each], template=_TEMPLATE) for each in FORMATS}
    for model in models.values():
        if model.several:
            raise InputError(f"an encoder must have one vector a paper, got {model.name}", "Choose another encoder")
    if "query" in row:
        models["search"] = dataclasses.replace(models["search"], query=row["query"])
    return models


def alone(name: str) -> Encoders:
    """Return one encoder for all texts, ad-hoc queries too, whatever encodes those otherwise."""
    own = registry.resolve(name, template=_TEMPLATE)
    prefix = own.spec.paper_prefix.strip() if isinstance(own.spec, TransformerSpec) else ""
    typed = names.one(name)
    query = str(dataclasses.replace(typed, options=(*typed.options, ("query_prefix", prefix)))) if prefix else ""
    return dict.fromkeys(FORMATS, dataclasses.replace(own, query=query, passage_prefix=None))


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
    config = TasksPoolConfig(size="all", queries="all", queries_are=kind, tasks=tuple(each.name for each in entries))

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened = Corpus(inputs["corpus"])
        keys = [doc.key for entry in entries for doc in docs(entry, folder)]
        rows = np.unique(_known(opened, keys))
        queries = np.arange(len(opened.query_texts) if kind == "texts" else 0)
        write_pool(out, (queries, [None] * len(queries)), rows, ([], [], []), ([], []))
        return {"candidates": len(rows), "queries": len(queries)}

    slug = f"{corpus.manifest.slug}-{config.slug}"
    return Task("pool", 1, POOLS, slug, config, {"corpus": corpus}, run)


def vector_tasks(
    corpus: Artifact, folder: Folder, entries: Sequence[Entry], system: Encoders
) -> dict[Format, dict[Role, Task]]:
    """Return the tasks that embed each format's papers and queries; formats of one encoder share them."""
    found: dict[Format, dict[Role, Task]] = {}
    for model in {each.spec: each for each in system.values()}.values():
        formats = [each for each in FORMATS if system[each].spec == model.spec]
        own = [entry for entry in entries if entry.format in formats]
        if own:
            tasks = embed_tasks(corpus, pool_task(corpus, folder, own), model)
            found |= dict.fromkeys(formats, tasks)
    return found


@dataclass(frozen=True)
class FiguresConfig:
    """What decides the figures of a task, beside its files and vectors: the task, seed and number of resamples."""

    task: Entry
    seed: int
    resamples: int


def figures_task(
    corpus: Artifact, folder: Folder, entry: Entry, vectors: Mapping[Role, Task], seed: int, resamples: int
) -> Task:
    """Return the task that evaluates one system on one task of the benchmark."""
    config = FiguresConfig(entry, seed, resamples)
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "papers": vectors["paper"]}
    if entry.kind == "search":
        inputs["queries"] = vectors["query"]

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        found = Vectors(entry.name, inputs)
        figures, counts = score(entry, folder, found, Settings(seed, resamples, resources.workers))
        rows = [{"figure": f.name, "value": f.value, "items": f.items, "draws": f.draws.tolist()} for f in figures]
        out.arrow("figures.arrow", pa.Table.from_pylist(rows, schema=FIGURES), FIGURES)
        return {**counts, "figures": len(figures)}

    slug = f"{entry.name}-{vectors['paper'].folder.rpartition('/')[2].rpartition('-')[0]}"
    return Task("scirepeval", 2, FOLDER, slug, config, inputs, run)


@dataclass(frozen=True)
class LeaksConfig:
    """The task, and checksums of its training texts and of each training list, by name."""

    task: Entry
    train: Mapping[str, str]
    lists: Mapping[str, str]


def leaks_task(corpus: Artifact, folder: Folder, entry: Entry, lists: Mapping[str, Path]) -> Task:
    """Return the task that looks for the test papers of a task in its training data, and in training lists.

    A list is a file with the id or the title of a training paper on each line.
    """
    for path in lists.values():
        if not path.is_file():
            raise InputError(f"a training list must be a file, got {path}", "Set training_lists")
    train = folder.files(META, [entry.meta], "train") if entry.in_train else []
    sums = {name: files.sha256(path) for name, path in lists.items()}
    config = LeaksConfig(entry, fingerprint(train, folder.root), sums)

    def run(_inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        rows = data.leaks(entry, folder, bool(train), lists)
        found = [dict(zip(LEAKS.names, row, strict=True)) for row in rows]
        out.arrow("leaks.arrow", pa.Table.from_pylist(found, schema=LEAKS), LEAKS)
        return {"sources": len(rows)}

    return Task("scirepeval-leaks", 1, FOLDER, f"{entry.name}-leaks", config, {"corpus": corpus}, run)


class Vectors:
    """The vectors of one system for one task (:data:`pipeline.studies.scirepeval.tasks.VectorsOf`)."""

    def __init__(self, task: str, inputs: Inputs) -> None:
        self._task = task
        self._corpus = Corpus(inputs["corpus"])
        self._papers = store_of(inputs["papers"])
        self._queries = store_of(inputs["queries"]) if "queries" in inputs else None

    def __call__(self, keys: Sequence[str], role: Role) -> npt.NDArray[np.float32]:
        """Return the vector of each key; a paper without one, or of another text than the corpus has, is an error."""
        if role == "query" and self._queries is not None:
            place = {name: row for row, name in enumerate(self._corpus.query_texts.column("query_id").to_pylist())}
            return self._read(self._queries, np.array([place[key] for key in keys]), keys)
        return self._read(self._papers, _known(self._corpus, keys), keys)

    def _read(self, store: VectorStore, rows: npt.NDArray[np.int64], keys: Sequence[str]) -> npt.NDArray[np.float32]:
        asked, places = np.unique(rows, return_inverse=True)
        missing = store.missing(asked)
        if len(missing):
            key = keys[int(np.flatnonzero(rows == missing[0])[0])]
            raise StageError(f"paper {key.rpartition('~')[0]!r} of task {self._task} must have a vector, got none", "")
        vectors = np.concatenate([block.vectors for block in store.blocks(asked, _BLOCK)])
        found: npt.NDArray[np.float32] = vectors[places]
        return found


def _known(corpus: Corpus, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the row of each key."""
    rows = corpus.rows_of(keys)
    if np.any(rows < 0):
        key = keys[int(np.flatnonzero(rows < 0)[0])]
        raise InputError(f"paper {key.rpartition('~')[0]!r} must be in the corpus, got another text", "Run it again")
    return rows
