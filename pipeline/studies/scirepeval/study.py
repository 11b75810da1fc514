"""SciRepEval: 24 tasks in four formats, on vectors embedded once (Singh et al. 2023)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pipeline.studies import kit
from pipeline.studies.kit import Artifact, InputError, Task, require_known, required
from pipeline.studies.scirepeval import data, report
from pipeline.studies.scirepeval.scoring import FiguresConfig, score
from pipeline.studies.scirepeval.tasks import (
    FORMATS,
    Doc,
    Entry,
    Folder,
    Format,
    Keys,
    VectorsOf,
    entries,
    facts_of,
)  # fmt: skip
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


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    input: str = required("folder with scirepeval/ and scirepeval_test/, or the training samples")
    systems: str = required("entries of models.toml, or of pipeline/studies/scirepeval/formats.toml")
    tasks: tuple[str, ...] = required("names of tasks; empty: all that the folder has")
    edition: Literal[24, 25] = required("number of tasks; 25: the earlier version, with the feeds tasks")
    baseline: str = required("the system that the others are compared with; empty: the first")
    formats: str | Mapping[str, Mapping[str, str]] = required(
        "further multi-format systems: a TOML file, or a table of them"
    )
    confusion: str = required("multi-format system whose every encoder is tried on every format; empty: none")
    seed: int = required("seed of the bootstrap")
    resamples: int = required("resamples of the bootstrap")

    def __post_init__(self) -> None:
        if self.resamples < 1:
            raise InputError(f"resamples must be at least 1, got {self.resamples}", "Correct the recipe")

    @property
    def folder(self) -> Folder:
        """The published files."""
        if not self.input:
            raise InputError("the recipe must name the folder of the published files, got none", "Give it with --input")
        return Folder(kit.resolved(Path(self.input).expanduser()))

    @property
    def names(self) -> list[str]:
        """Names of the systems, which the recipe separates by commas."""
        return kit.split_names(self.systems)

    @property
    def baseline_system(self) -> str:
        """The system that the others are compared with."""
        baseline = self.baseline or self.names[0]
        problem = f"the baseline must be one of {', '.join(self.names)}, got {baseline!r}"
        require_known(baseline, self.names, problem, "Set baseline")
        return baseline

    @property
    def confused_encoders(self) -> dict[str, str]:
        """The encoder of each format, and of ad-hoc queries, of the system whose formats are confused; empty: none."""
        if not self.confusion:
            return {}
        table = multi_format(self.formats)
        require_known(self.confusion, table, f"confusion must name a multi-format system, got {self.confusion!r}")
        row = table[self.confusion]
        return {name: row[name] for name in (*FORMATS[:3], "query") if name in row}

    def available(self) -> dict[str, Entry]:
        """Return the tasks with files in the folder, by name."""
        folder = self.folder
        available = {name: entry for name, entry in entries().items() if folder.state(entry) != "missing"}
        if not available:
            raise InputError(f"{folder.root} must hold files of a task, got none", "mdcr study scirepeval --list")
        return available

    def chosen(self) -> list[Entry]:
        """Return the tasks to evaluate: those of the recipe, or all of the edition that the folder has."""
        available = self.available()
        for name in self.tasks:
            require_known(name, entries(), f"a task must be one of the table, got {name!r}")
            if name not in available:
                problem = f"{self.folder.root} must hold the files of task {name}, got none"
                raise InputError(problem, "mdcr study scirepeval --list shows what it has")
        chosen = self.tasks or [name for name, entry in available.items() if self.edition in entry.editions]
        return [entry for name, entry in available.items() if name in chosen]


def listing(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the facts of each task, and whether the folder has its files."""
    folder = recipe.folder if recipe.input else None
    rows = []
    for entry in entries().values():
        few_shot, editions = (", ".join(map(str, numbers)) for numbers in (dict(entry.few_shot), entry.editions))
        domain, train, test, source = facts_of(entry.name)
        rows.append({
            "task": entry.name, "title": entry.title, "domain": domain, "format": entry.format,
            "measures": ", ".join(entry.measures), "few_shot": few_shot, "trained": entry.trained, "editions": editions,
            "train_published": train, "test_published": test, "source": source,
            "files": folder.state(entry) if folder else "",
        })  # fmt: skip
    return rows


NEEDS = "Fetch scirepeval and scirepeval_test, hf download allenai/..., and give their folder with --input"


@kit.study("scirepeval", "24 tasks in four formats", Recipe, needs=NEEDS, listing=listing)
def scirepeval(_workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return averages, tasks, formats, differences, correlations, costs and counts."""
    folder, available, chosen = recipe.folder, [*recipe.available().values()], recipe.chosen()
    baseline, confused = recipe.baseline_system, recipe.confused_encoders
    systems = {name: encoders(name, recipe.formats) for name in recipe.names}
    systems |= {f"~{name}": single_encoder(name) for name in confused.values()}
    keys = [*itertools.product(chosen, systems)]
    pairings = [pairing_of(name, systems[name][entry.format], entry) for entry, name in keys]

    (corpus,) = yield [kit.corpus_task("scirepeval", TaskPapers(folder=folder, entries=tuple(available)))]
    # All tasks of the folder are embedded, so the choice of tasks does not change the vectors.
    vectors = {name: vector_tasks(corpus, folder, available, system) for name, system in systems.items()}
    configs = [FiguresConfig(entry, recipe.seed, recipe.resamples, pairing)
               for (entry, _), pairing in zip(keys, pairings, strict=True)]  # fmt: skip
    figure_tasks = [
        figures_task(corpus, folder, config, vectors[name][config.task.format])
        for (_, name), config in zip(keys, configs, strict=True)
    ]
    made = yield figure_tasks
    artifacts = dict(zip(keys, made, strict=True))
    embedded = [(name, kind) for name in recipe.names for kind in FORMATS if kind in {entry.format for entry in chosen}]
    stores = yield [vectors[name][kind]["paper"] for name, kind in embedded]

    is_own, sources = pl.col("system").is_in(recipe.names), [corpus.name, *(each.name for each in artifacts.values())]
    with_confusion = report.figures_of(artifacts, folder)
    figures = with_confusion.filter(is_own)
    means = report.means(with_confusion, recipe.edition)
    differences = report.differences(figures, baseline, recipe.seed)
    samples = [entry.name for entry in chosen if folder.state(entry) == "sample"]
    sizes = report.efficiency({
        (name, kind): (systems[name][kind], store) for (name, kind), store in zip(embedded, stores, strict=True)
    })  # fmt: skip
    table, published = multi_format(recipe.formats), dict[str, str]()
    published |= {system: row.get("published", system) for system, row in table.items()}
    published |= {name: "" for name in published.values() if name not in table}  # its encoder alone
    tables = [
        report.averages(means.filter(is_own), published, recipe.edition, samples),
        report.tasks(figures),
        report.formats(means.filter(is_own)),
        report.codes(means, confused, published.get(recipe.confusion, ""), recipe.edition),
        report.difference_table(differences, baseline),
        report.correlations(figures),
        sizes,
        report.counts({key: artifact for key, artifact in artifacts.items() if key[1] in recipe.names}),
    ]
    return kit.Report([table for table in tables if len(table.frame)], sources=sources)


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
