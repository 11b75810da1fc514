"""BM25: the forward index of a corpus (stage ``terms``), the Lucene index of a pool (``index``), rankings (``search``).

Both engines give the same bytes, so a pool has one ranking, whose identity does not include the index.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.artifact import Artifact
from pipeline.core.config import SHORT_ID, canonical, digest
from pipeline.core.csr import slices
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import LUCENE, RANKINGS, TERMS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import TEXT_CHARS, Corpus, Rows
from pipeline.encode.model import Role
from pipeline.retrieve.base import Ranking, check_depth
from pipeline.retrieve.bm25 import forward_index
from pipeline.retrieve.bm25.forward_index import ForwardIndex
from pipeline.retrieve.java import anserini_version
from pipeline.retrieve.lucene import ANALYZER
from pipeline.stages.ranking_file import open_pool, stored_segments, write_ranking
from pipeline.stages.settings import DEFAULT_DEPTH

if TYPE_CHECKING:
    from pipeline.retrieve.bm25.collection import Collection, QueryTerms

FOLDER = "index"
"""Folder of the Lucene index in its artifact."""

_TERMS_VERSION = 4
_TEXTS_TOGETHER = 8_192
_THREAD_BYTES = 3 * 2**27
"""Approximate memory of a thread that analyses a block of texts, bytes."""


@dataclass(frozen=True)
class AnalyzerConfig:
    """Settings that determine the terms of a text: the Java class and the version of Anserini (and its Lucene)."""

    analyzer: str
    anserini: str


@dataclass(frozen=True)
class TermsConfig(AnalyzerConfig):
    """Settings that determine a forward index, besides the corpus: the analyzer and the role of the texts."""

    role: Role


@dataclass(frozen=True)
class Bm25Config(AnalyzerConfig):
    """Settings that determine a BM25 ranking, besides the pool; ``depth`` is that of each query."""

    k1: float
    b: float
    depth: int


def installed_analyzer() -> tuple[str, str]:
    """Return analyzer and version of Anserini, the fields of :class:`AnalyzerConfig`."""
    return ANALYZER, anserini_version()


def terms_tasks(corpus: Artifact, pool: Task | Artifact) -> dict[str, Task]:
    """Return the tasks that analyse a pool: its papers and, where its queries are not papers, its query texts.

    Each task writes a segment with the texts that earlier segments of the forward index lack. Afterwards the index has
    all terms of the pool.
    """
    tasks: dict[str, Task] = {"paper": _terms_task(corpus, pool, "paper")}
    if canonical(pool.config)["queries_are"] == "texts":
        tasks["query"] = _terms_task(corpus, pool, "query")
    return tasks


def stored_terms_tasks(root: Path, corpus: Artifact) -> list[Task]:
    """Return the tasks of :func:`pipeline.stages.ranking_file.stored_segments` of a forward index."""
    if not (root / TERMS).is_dir():
        return []
    roles: tuple[Role, ...] = ("paper", "query")
    return stored_segments(root, lambda pool: [_terms_task(corpus, pool, role) for role in roles])


def index_of(segment: Artifact) -> ForwardIndex:
    """Open the forward index that a published segment belongs to."""
    return ForwardIndex.open(segment.path.parent)


def _terms_task(corpus: Artifact, pool: Task | Artifact, role: Role) -> Task:
    config = TermsConfig(*installed_analyzer(), role)
    identity = digest({"version": _TERMS_VERSION, "corpus": corpus.id, "config": config})
    folder = f"{TERMS}/{corpus.manifest.slug}{'' if role == 'paper' else f'-{role}'}-{identity[:SHORT_ID]}"
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    return Task("terms", _TERMS_VERSION, folder, pool.slug, config, inputs, functools.partial(_analyse, role))


def _analyse(role: Role, inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
    corpus = Corpus(inputs["corpus"])
    pool = Pool(inputs["pool"], corpus)
    needed_rows = pool.query_rows if role == "query" else pool.papers
    if not out.done("rows.arrow"):
        index = ForwardIndex.without(out.path.parent, inputs["pool"])
        forward_index.write_rows(out, index.missing(needed_rows))
    rows = forward_index.read_rows(out)
    blocks = dict(enumerate(rows[span] for span in forward_index.blocks(_characters(corpus, role, rows))))
    missing = {block: block_rows for block, block_rows in blocks.items() if not forward_index.has_block(out, block)}
    if missing:
        _write_blocks(corpus, role, missing, out, resources)
    return {
        "wanted": len(needed_rows),
        "present": len(needed_rows) - len(rows),
        "analysed": len(rows),
        "tokens": sum(forward_index.block_tokens(out, block) for block in blocks),
    }


def _write_blocks(corpus: Corpus, role: Role, missing: Mapping[int, Rows], out: Workdir, resources: Resources) -> None:
    from pipeline.retrieve.bm25.analyzer import CachedAnalyzer
    from pipeline.retrieve.java import java_errors
    from pipeline.retrieve.lucene import Lucene

    lucene = Lucene(resources.memory)
    threads = max(min(resources.workers, len(missing), resources.memory // _THREAD_BYTES), 1)
    capacity = resources.memory // (8 * threads)
    with Progress(sum(map(len, missing.values())), "analyse", "docs") as progress:
        idle = [CachedAnalyzer(lucene, capacity) for _ in range(threads)]

        def analyse(block: int) -> None:
            analyzer = idle.pop()
            forward_index.write_block(out, block, analyzer.block(_texts(corpus, role, missing[block])))
            idle.append(analyzer)
            progress.add(len(missing[block]))

        with java_errors(out.path):
            list(lucene.in_threads(threads, analyse, missing))


def _texts(corpus: Corpus, role: Role, rows: Rows) -> Iterator[pa.Array]:
    """Yield title and abstract of papers, or the texts of queries, as large strings."""
    space = pa.scalar(" ", pa.large_string())
    for block in slices(_characters(corpus, role, rows), _TEXTS_TOGETHER, TEXT_CHARS):
        block_rows = rows[block]
        if role == "query":
            joined = corpus.query_texts.column("text").take(pa.array(block_rows))
        else:
            table = corpus.take(block_rows, ["title", "abstract"])
            joined = pc.binary_join_element_wise(table.column("title"), table.column("abstract"), space)
        yield pa.concat_arrays(joined.chunks)


def _characters(corpus: Corpus, role: Role, rows: Rows) -> npt.NDArray[np.integer]:
    """Return the number of characters of papers or queries, ``[rows]``."""
    return corpus.characters(rows) if role == "paper" else corpus.query_characters(rows)


def lucene_task(corpus: Artifact, pool: Task | Artifact) -> Task:
    """Return the task that builds the Lucene index of a pool, with the pool's document frequencies and lengths."""

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        from pipeline.retrieve.lucene import build_index

        opened_pool = open_pool(inputs)
        if not out.done(FOLDER):
            with (
                Progress(len(opened_pool.candidates), "index", "docs") as progress,
                out.folder(FOLDER) as (folder, written),
            ):
                texts = progress.over(opened_pool.candidate_texts(), len)
                written.counts = build_index(texts, opened_pool.candidates, folder, resources.workers, resources.memory)
        return out.counts(FOLDER)

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    return Task("index", 2, LUCENE, pool.slug, AnalyzerConfig(*installed_analyzer()), inputs, run)


def bm25_ranking_task(
    corpus: Artifact,
    pool: Task | Artifact,
    indexes: Mapping[str, Task | Artifact],
    *,
    k1: float,
    b: float,
    depth: int = DEFAULT_DEPTH,
    tuning: Artifact | None = None,
) -> Task:
    """Return the task that ranks a pool's candidates by BM25.

    ``indexes`` are the tasks of :func:`terms_tasks`, or that of :func:`lucene_task`; the ranking is the same.
    """
    check_depth(depth)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        opened_pool = open_pool(inputs)
        search = _search_lucene if "lucene" in indexes else _search_terms
        return write_ranking(search(inputs, opened_pool, resources, k1, b, depth), opened_pool, depth, out)

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    if tuning is not None:
        inputs["tuning"] = tuning
    slug = f"bm25-{k1:g}-{b:g}-{pool.slug}"
    config = Bm25Config(*installed_analyzer(), k1, b, depth)
    return Task("search", 2, RANKINGS, slug, config, inputs, run, derived=indexes)


def read_terms(inputs: Inputs, pool: Pool, threads: int) -> tuple[Collection, QueryTerms]:
    """Return the terms of a pool's candidates and queries, read from the segments among a task's inputs."""
    from pipeline.retrieve.bm25.collection import Collection, QueryTerms

    index = index_of(inputs["paper"])
    queries = QueryTerms.read(index_of(inputs["query"]) if "query" in inputs else index, pool.query_rows)
    return Collection.read(index, pool.candidates, queries.vocabulary, threads), queries


def _search_terms(inputs: Inputs, pool: Pool, resources: Resources, k1: float, b: float, depth: int) -> Ranking:
    from pipeline.retrieve.bm25.search import search

    collection, queries = read_terms(inputs, pool, resources.workers)
    how: Any = {"k1": k1, "b": b, "depth": depth, "threads": resources.workers}
    with Progress(len(pool.candidates), "search bm25", "docs") as progress:
        return search(collection, queries, pool.exclusions, **how, done=progress.add)


def _search_lucene(inputs: Inputs, pool: Pool, resources: Resources, k1: float, b: float, depth: int) -> Ranking:
    from pipeline.retrieve.lucene import LuceneIndex

    artifact = inputs["lucene"]
    if artifact.manifest.inputs["pool"] != inputs["pool"].id:
        raise InputError(f"{artifact.name} is the index of another pool", "Index this one first")
    artifact.verify()
    with (
        closing(LuceneIndex(artifact.path / FOLDER, pool.candidates, resources.memory)) as index,
        Progress(len(pool.query_rows), "search bm25", "queries") as progress,
    ):
        texts = progress.over(pool.query_texts(block=64), len)
        return index.search(texts, pool.exclusions, k1=k1, b=b, depth=depth, threads=resources.workers)
