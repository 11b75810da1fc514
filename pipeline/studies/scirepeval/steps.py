"""The artifacts of the benchmark: one corpus of all tasks' papers, their vectors, and figures of each task."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.studies import kit
from pipeline.studies.kit import Artifact, InputError, Task
from pipeline.studies.scirepeval import data
from pipeline.studies.scirepeval.scoring import FiguresConfig, score
from pipeline.studies.scirepeval.tasks import FORMATS, Doc, Entry, Folder, Format, Keys, VectorsOf
from pipeline.studies.sentences import Pairing, transported

Encoders = Mapping[Format, kit.Model]
Formats = str | Mapping[str, Mapping[str, str]]
"""Encoders of each format, by system, as ``formats.toml`` has them; or a file of such rows, empty for none."""

FOLDER = "runs/scirepeval"
"""Folder of the artifacts, in a workspace."""
_BLOCK = 8_192

FIGURES = pa.schema(
    [("figure", pa.string()), ("value", pa.float64()), ("items", pa.int64()), ("draws", pa.list_(pa.float64()))]
)
"""Figures of one task and system: fractions; ``draws``: the value in each resample."""


def multi_format(extra: Formats = "") -> dict[str, dict[str, str]]:
    """Return the rows of ``formats.toml``, extended and overridden by ``extra``: such rows, or their file."""
    texts = "the setting formats: the TOML file", "Write it like formats.toml"
    own = kit.given_toml(Path(__file__).with_name("formats.toml"), *texts)
    if isinstance(extra, str):
        extra = kit.given_toml(Path(extra).expanduser(), *texts) if extra else {}
    table = {**own, **extra}
    for name, row in table.items():
        if not isinstance(row, dict) or not {*FORMATS} <= row.keys() <= {*FORMATS, "query", "published"}:
            problem = f"system {name} must have an encoder for each of {', '.join(FORMATS)}, got {row}"
            raise InputError(problem, "Write it like formats.toml")
    return table


def _encoder(name: str) -> kit.Model:
    """Return an encoder; transformers read the published evaluation's text."""
    return kit.resolve(name, template="fields-sep").whole()


def encoders(name: str, extra: Formats = "") -> Encoders:
    """Return the encoder of each format: the same in all, unless ``formats.toml`` or ``extra`` names several.

    An encoder with a prompt for a format uses it: ``task=classification``. ``ot(ENCODER)`` has the vectors of ENCODER.
    """
    ot_encoder = transported(kit.parse_one(name))
    row = multi_format(extra).get(name) or {kind: kit.for_task(ot_encoder or name, kind) for kind in FORMATS}
    models = {kind: _encoder(row[kind]) for kind in FORMATS}
    if ot_encoder and not models["proximity"].multi_vector:
        raise InputError(f"{name} must name an encoder with a vector a sentence", "Write ot(aspire-ot-bm)")
    if "query" in row:
        models["search"] = dataclasses.replace(models["search"], query=row["query"])
    return models


def single_encoder(name: str) -> Encoders:
    """Return one encoder for the papers of all formats and for ad-hoc queries, which it encodes like papers."""
    model, parsed = _encoder(name), kit.parse_one(name)
    prefix = getattr(model, "paper_prefix", "").strip()
    query = str(dataclasses.replace(parsed, options=(*parsed.options, ("query_prefix", prefix)))) if prefix else ""
    return dict.fromkeys(FORMATS, dataclasses.replace(model, query=query, passage_prefix=None))


def pairing_of(name: str, model: kit.Model, entry: Entry) -> Pairing | None:
    """Return how a system with several vectors per paper compares papers (appendix C); None for one vector."""
    if not model.multi_vector:
        return None
    if entry.format != "proximity" or entry.kind == "authors":
        problem = f"task {entry.name} needs one vector per paper, {name} has several"
        raise InputError(problem, "Set tasks to those of the format proximity but s2and")
    return "transport" if transported(kit.parse_one(name)) else "best pair"


def docs(entry: Entry, folder: Folder) -> Iterator[Doc]:
    """Yield the papers of a task, the first of several with one id."""
    keys = Keys()
    yield from (doc for doc in data.docs(entry, folder) if keys.add(doc))


@dataclass(frozen=True)
class TaskPapers(kit.Release):
    """The papers and ad-hoc queries of some tasks as a release; each part is a task."""

    folder: Folder
    entries: tuple[Entry, ...]
    source = "scirepeval"

    def identity(self) -> Mapping[str, Any]:
        """Return the version of the texts, the tasks, and the checksums of their files."""
        paths = sorted({path for entry in self.entries for path in self.folder.paths(entry)})
        tasks = [asdict(entry) for entry in self.entries]
        return {"version": 2, "tasks": tasks, "files": kit.fingerprint(paths, self.folder.root)}

    def parts(self) -> Sequence[str]:
        """Return the names of the tasks."""
        return [entry.name for entry in self.entries]

    def read(self, part: str) -> Iterator[kit.PaperBatch]:
        """Yield the papers of a task."""
        (entry,) = (entry for entry in self.entries if entry.name == part)
        papers = (kit.Paper(id=doc.key, title=doc.title, abstract=doc.abstract) for doc in docs(entry, self.folder))
        return kit.paper_batches(papers, kit.Tally(self.folder.root / part, self))

    def queries(self) -> kit.QuerySet | None:
        """Return the ad-hoc queries of all tasks, without judgements; None if no task has any."""
        texts, entries = dict[str, str](), [entry for entry in self.entries if entry.kind == "search"]
        for entry in entries:
            queries = data.queries(entry, self.folder)
            texts |= {f"{entry.name}/{name}": kit.normalise(text) for name, text in queries.items()}
        return kit.QuerySet(texts, []) if entries else None


def pool_task(corpus: Artifact, folder: Folder, entries: Sequence[Entry]) -> Task:
    """Return the task that lists the papers and ad-hoc queries of some tasks."""
    kind = "texts" if any(entry.kind == "search" for entry in entries) else "papers"

    def build(inputs: kit.Inputs, out: kit.Workdir) -> kit.Counts:
        papers = kit.Corpus(inputs["corpus"])
        rows = np.unique(_rows(papers, [doc.key for entry in entries for doc in docs(entry, folder)]))
        queries = np.arange(len(papers.query_texts) if kind == "texts" else 0)
        kit.write_pool(out, (queries, [None] * len(queries)), rows, ([], [], []), ([], []))
        return {"candidates": len(rows), "queries": len(queries)}

    slug, own = f"{corpus.manifest.slug}-{len(entries)}-tasks", {"tasks": tuple(entry.name for entry in entries)}
    return kit.own_pool(slug, build, {"corpus": corpus}, own=own, year=2019, queries_are=kind)


def vector_tasks(
    corpus: Artifact, folder: Folder, entries: Sequence[Entry], system: Encoders
) -> dict[Format, Mapping[kit.Role, Task]]:
    """Return the tasks that embed each format's papers and queries; formats of one encoder share them."""
    tasks: dict[Format, Mapping[kit.Role, Task]] = {}
    for model in {kit.digest(model.identity): model for model in system.values()}.values():
        formats = [name for name, encoder in system.items() if encoder.identity == model.identity]
        if shared := [entry for entry in entries if entry.format in formats]:
            tasks |= dict.fromkeys(formats, kit.embed_tasks(corpus, pool_task(corpus, folder, shared), model))
    return tasks


def figures_task(corpus: Artifact, folder: Folder, config: FiguresConfig, vectors: Mapping[kit.Role, Task]) -> Task:
    """Return the task that evaluates one system on one task of the benchmark."""
    entry = config.task
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "papers": vectors["paper"]}
    if entry.kind == "search":
        inputs["queries"] = vectors["query"]

    def run(inputs: kit.Inputs, out: kit.Workdir, resources: kit.Resources) -> kit.Counts:
        figures, counts = score(config, folder, vectors_of(inputs, config.pairing), resources.workers)
        rows = [dict(zip(FIGURES.names, figure, strict=True)) for figure in figures]
        out.arrow("figures.arrow", pa.Table.from_pylist(rows, schema=FIGURES), FIGURES)
        return {**counts, "figures": len(rows)}

    slug = f"{entry.name}-{vectors['paper'].folder.rpartition('/')[2].rpartition('-')[0]}"
    return Task("scirepeval", 3, FOLDER, slug, config, inputs, run)


def vectors_of(inputs: kit.Inputs, pairing: Pairing | None = None) -> VectorsOf:
    """Return the function that reads vectors of one system for one task; InputError for a paper with another text."""
    corpus = kit.Corpus(inputs["corpus"])

    def read(keys: Sequence[str], role: kit.Role) -> npt.NDArray[Any]:
        if role == "query":
            row_of = {name: row for row, name in enumerate(corpus.query_texts.column("query_id").to_pylist())}
            store, rows = kit.store_of(inputs["queries"]), np.array([row_of[key] for key in keys])
        else:
            store, rows = kit.store_of(inputs["papers"]), _rows(corpus, keys)
        distinct, positions = np.unique(rows, return_inverse=True)
        if pairing:
            grouped = store.grouped(distinct)
            return np.fromiter(np.split(grouped.vectors, grouped.offsets[1:-1]), object, len(distinct))[positions]
        vectors: npt.NDArray[np.float32] = np.concatenate([block.vectors for block in store.blocks(distinct, _BLOCK)])
        return vectors[positions]

    return read


def _rows(corpus: kit.Corpus, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the row of each key."""
    rows = corpus.rows_of(keys)
    if np.any(rows < 0):
        key = keys[int(np.flatnonzero(rows < 0)[0])]
        raise InputError(f"paper {key.rpartition('~')[0]!r} must be in the corpus, got another text", "Run it again")
    return rows
