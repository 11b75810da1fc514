"""The artifacts of the benchmark: one corpus of all tasks' papers, their vectors, figures of each task, and leaks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.config import digest
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import warn
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.text import normalise, same_title_form
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.pools import write_pool
from pipeline.corpus.reader import Corpus
from pipeline.encode import names, registry
from pipeline.encode.kinds import Transformer
from pipeline.encode.model import Model, Role
from pipeline.sources.base import PaperBatch, QuerySet, Release, fingerprint
from pipeline.sources.papers import Paper, paper_batches
from pipeline.sources.records import Tally
from pipeline.stages.embed import embed_tasks, store_of
from pipeline.studies.scirepeval import data
from pipeline.studies.scirepeval.scoring import FiguresConfig, score
from pipeline.studies.scirepeval.tasks import FOLDER, FORMATS, Doc, Entry, Folder, Format, Keys, VectorsOf
from pipeline.studies.sentences import Pairing, transported

Encoders = Mapping[Format, Model]
Formats = str | Mapping[str, Mapping[str, str]]
"""Encoders of each format, by system, as ``formats.toml`` has them; or a file of such rows, empty for none."""
_TEMPLATE = "fields-sep"
"""Template of a paper's text in the published evaluation, for any transformer."""


def multi_format(extra: Formats = "") -> dict[str, dict[str, str]]:
    """Return the rows of ``formats.toml``, extended and overridden by ``extra``: such rows, or their file."""
    texts = "the setting formats: the TOML file", "Write it like formats.toml"
    own = files.given_toml(Path(__file__).with_name("formats.toml"), *texts)
    if isinstance(extra, str):
        extra = files.given_toml(Path(extra).expanduser(), *texts) if extra else {}
    table = {**own, **extra}
    for name, row in table.items():
        if not isinstance(row, dict) or not {*FORMATS} <= row.keys() <= {*FORMATS, "query", "published"}:
            raise InputError(f"system {name} must have an encoder for each of {', '.join(FORMATS)}, got {row}", "")
    return table


def encoders(name: str, extra: Formats = "") -> Encoders:
    """Return the encoder of each format: the same in all, unless ``formats.toml`` or ``extra`` names several.

    An encoder with a prompt for a format uses it: ``task=classification``. ``ot(ENCODER)`` has the vectors of ENCODER.
    """
    ot_encoder = transported(names.parse_one(name))
    row = multi_format(extra).get(name) or {kind: registry.for_task(ot_encoder or name, kind) for kind in FORMATS}
    models = {kind: registry.resolve(row[kind], template=_TEMPLATE).whole() for kind in FORMATS}
    if ot_encoder and not models["proximity"].multi_vector:
        raise InputError(f"{name} must name an encoder with a vector a sentence", "Write ot(aspire-ot-bm)")
    if "query" in row:
        models["search"] = dataclasses.replace(models["search"], query=row["query"])
    return models


def pairing_of(name: str, model: Model, entry: Entry) -> Pairing | None:
    """Return how a system with several vectors per paper compares papers (appendix C); None for one vector."""
    if not model.multi_vector:
        return None
    if entry.format != "proximity" or entry.kind == "authors":
        raise InputError(
            f"task {entry.name} needs one vector per paper, {name} has several",
            "Set tasks to those of the format proximity but s2and",
        )
    return "transport" if transported(names.parse_one(name)) else "best pair"


def single_encoder(name: str) -> Encoders:
    """Return one encoder for the papers of all formats and for ad-hoc queries, which it encodes like papers."""
    model = registry.resolve(name, template=_TEMPLATE).whole()
    prefix = model.paper_prefix.strip() if isinstance(model, Transformer) else ""
    parsed = names.parse_one(name)
    query = str(dataclasses.replace(parsed, options=(*parsed.options, ("query_prefix", prefix)))) if prefix else ""
    return dict.fromkeys(FORMATS, dataclasses.replace(model, query=query, passage_prefix=None))


FIGURES = pa.schema(
    [("figure", pa.string()), ("value", pa.float64()), ("items", pa.int64()), ("draws", pa.list_(pa.float64()))]
)
"""Figures of one task and system: fractions; ``draws``: the value in each resample."""

_BLOCK = 8_192


def docs(entry: Entry, folder: Folder) -> Iterator[Doc]:
    """Yield the papers of a task, the first of several with one id; of a damaged file, those before the damage."""
    keys = Keys()
    with left_out(entry):
        yield from (doc for doc in data.docs(entry, folder) if keys.add(doc))


@contextlib.contextmanager
def left_out(entry: Entry) -> Iterator[None]:
    """Leave out a task whose files are damaged, with a line, so that the others are still evaluated."""
    try:
        yield
    except (CorruptError, InputError) as error:
        _warn_once(f"left out: task {entry.name}: {error.what}. {error.remedy}")


_warn_once = functools.lru_cache(maxsize=None)(warn)


@dataclass(frozen=True)
class TaskPapers(Release):
    """The papers and ad-hoc queries of some tasks as a release; each part is a task."""

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
        papers = (Paper(id=doc.key, title=doc.title, abstract=doc.abstract) for doc in docs(entry, self.folder))
        return paper_batches(papers, Tally(self.folder.root / part, self))

    def queries(self) -> QuerySet | None:
        """Return the ad-hoc queries of all tasks, without judgements; None if no task has any."""
        texts, entries = dict[str, str](), [entry for entry in self.entries if entry.kind == "search"]
        for entry in entries:
            with left_out(entry):
                queries = data.queries(entry, self.folder)
                texts |= {f"{entry.name}/{name}": normalise(text) for name, text in queries.items()}
        return QuerySet(texts, []) if entries else None


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
    for model in {digest(model.identity): model for model in system.values()}.values():
        formats = [name for name, encoder in system.items() if encoder.identity == model.identity]
        if shared := [entry for entry in entries if entry.format in formats]:
            tasks |= dict.fromkeys(formats, embed_tasks(corpus, pool_task(corpus, folder, shared), model))
    return tasks


def figures_task(corpus: Artifact, folder: Folder, config: FiguresConfig, vectors: Mapping[Role, Task]) -> Task:
    """Return the task that evaluates one system on one task of the benchmark; one with damaged files has no figures."""
    entry = config.task
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "papers": vectors["paper"]}
    if entry.kind == "search":
        inputs["queries"] = vectors["query"]

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        rows, counts = list[dict[str, Any]](), Counter(damaged=1)
        with left_out(entry):
            figures, counts = score(config, folder, vectors_of(inputs, config.pairing), resources.workers)
            rows = [dict(zip(FIGURES.names, figure, strict=True)) for figure in figures]
        out.arrow("figures.arrow", pa.Table.from_pylist(rows, schema=FIGURES), FIGURES)
        return {**counts, "figures": len(rows)}

    slug = f"{entry.name}-{vectors['paper'].folder.rpartition('/')[2].rpartition('-')[0]}"
    return Task("scirepeval", 3, FOLDER, slug, config, inputs, run)


def vectors_of(inputs: Inputs, pairing: Pairing | None = None) -> VectorsOf:
    """Return the function that reads vectors of one system for one task; InputError for a paper with another text."""
    corpus = Corpus(inputs["corpus"])

    def read(keys: Sequence[str], role: Role) -> npt.NDArray[Any]:
        if role == "query":
            row_of = {name: row for row, name in enumerate(corpus.query_texts.column("query_id").to_pylist())}
            store, rows = store_of(inputs["queries"]), np.array([row_of[key] for key in keys])
        else:
            store, rows = store_of(inputs["papers"]), _rows(corpus, keys)
        distinct, positions = np.unique(rows, return_inverse=True)
        if pairing:
            grouped = store.grouped(distinct)
            return np.fromiter(np.split(grouped.vectors, grouped.offsets[1:-1]), object, len(distinct))[positions]
        vectors: npt.NDArray[np.float32] = np.concatenate([block.vectors for block in store.blocks(distinct, _BLOCK)])
        return vectors[positions]

    return read


def _rows(corpus: Corpus, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the row of each key."""
    rows = corpus.rows_of(keys)
    if np.any(rows < 0):
        key = keys[int(np.flatnonzero(rows < 0)[0])]
        raise InputError(f"paper {key.rpartition('~')[0]!r} must be in the corpus, got another text", "Run it again")
    return rows


LEAKS = pa.schema([("training", pa.string()), ("papers", pa.int64()), ("ids", pa.int64()), ("titles", pa.int64())])
"""For each set of training data: number of test papers, of those in it by id, and of those in it by title only."""


@dataclass(frozen=True)
class LeaksConfig:
    """Settings of leaks: the task, and checksums of its training texts and of each training list, by name."""

    task: Entry
    train: Mapping[str, str]
    lists: Mapping[str, str]


def leaks_task(corpus: Artifact, folder: Folder, entry: Entry, lists: Mapping[str, Path]) -> Task:
    """Return the task that searches the training data of a task, and training lists, for its test papers.

    A list is a file with the id or the title of a training paper on each line.
    """
    train = folder.texts(entry, "train") if entry.in_train else []
    checksums = {name: files.sha256(path) for name, path in lists.items()}
    config = LeaksConfig(entry, fingerprint(train, folder.root), checksums)

    def run(_inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        rows = list[dict[str, Any]]()
        with left_out(entry):
            test, sources = _leak_sources(entry, folder, bool(train), lists)
            rows = [
                {"training": name, "papers": len(test), **_leaked(test, papers)} for name, papers in sources.items()
            ]
        out.arrow("leaks.arrow", pa.Table.from_pylist(rows, schema=LEAKS), LEAKS)
        return {"sources": len(rows)}

    return Task("scirepeval-leaks", 1, FOLDER, f"{entry.name}-leaks", config, {"corpus": corpus}, run)


Titles = Iterable[tuple[str, str]]
"""Ids and titles of papers; titles are normalised (:func:`pipeline.core.text.same_title_form`)."""


def _leak_sources(
    entry: Entry, folder: Folder, with_training_texts: bool, lists: Mapping[str, Path]
) -> tuple[dict[str, str], dict[str, Titles]]:
    """Return the titles of a task's test papers by id, and its sets of training data by name."""
    titles = {doc.id: same_title_form(doc.title) for doc in data.docs(entry, folder)}
    test, sources = set(titles), dict[str, Titles]()
    if entry.format in ("classification", "regression"):
        labelled = data.load_labelled(entry, folder)
        train_ids, test = ({key.rpartition("~")[0] for key in keys} for keys in (labelled.train, labelled.test))
        sources["its own"] = ((paper, titles[paper]) for paper in train_ids)
    elif entry.kind != "authors":
        judged = data.load_judged(entry, folder)
        test &= {*judged.pairs["query"], *judged.pairs["candidate"]}.union(*judged.groups.values())
    if with_training_texts:
        sources["the encoders'"] = ((doc.id, same_title_form(doc.title)) for doc in data.docs(entry, folder, "train"))
    return {paper: titles[paper] for paper in test}, sources | {name: _read_list(path) for name, path in lists.items()}


def _read_list(path: Path) -> Titles:
    with path.open(encoding="utf-8", errors="replace") as lines:
        yield from ((line.strip(), same_title_form(line)) for line in lines)


def _leaked(test: Mapping[str, str], training: Titles) -> dict[str, int]:
    """Return the numbers of test papers in training data by id, and by title only."""
    by_title: dict[str, set[str]] = {}
    for paper, title in test.items():
        by_title.setdefault(title, set()).add(paper)
    by_title.pop("", None)
    ids, same_title = set[str](), set[str]()
    for paper, title in training:
        ids |= {paper} & test.keys()
        same_title |= by_title.get(title, set())
    return {"ids": len(ids), "titles": len(same_title - ids)}
