"""Stage ``terms``: the analysed words of a pool's papers that the store of their corpus does not have yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.artifact import Artifact, published
from pipeline.core.config import SHORT_ID, canonical, digest
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS, TERMS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Rows
from pipeline.retrieve.java import anserini_version
from pipeline.retrieve.lucene_classes import ANALYZER
from pipeline.retrieve.postings.store import (
    BLOCK_PAPERS,
    TermStore,
    block_tokens,
    has_block,
    read_rows,
    write_block,
    write_rows,
)

Role = Literal["paper", "query"]
"""What texts are: papers, or queries that are none."""

_VERSION = 2
_TOGETHER = 8_192
_SPACE = pa.scalar(" ", pa.large_string())
_WORD_BYTES = 128
"""What a distinct word takes in memory, about."""


@dataclass(frozen=True)
class TermsConfig:
    """What decides the terms of a text beside the text.

    Attributes:
        analyzer: Java class that makes terms of texts.
        anserini: version of Anserini, which brings Lucene.
        role: what is analysed.
    """

    analyzer: str
    anserini: str
    role: Role


def terms_tasks(corpus: Artifact, pool: Task | Artifact) -> dict[Role, Task]:
    """Return the tasks that analyse a pool: its papers and, where its queries are no papers, its query texts.

    A segment holds what earlier ones do not. Whoever made it, the store its artifact lies in has all terms of the pool.

    Raises:
        InputError: Pyserini is not installed.
    """
    tasks: dict[Role, Task] = {"paper": _terms_task(corpus, pool, "paper")}
    config = canonical(pool.config) if isinstance(pool, Task) else pool.manifest.config
    if config["queries_are"] == "texts":
        tasks["query"] = _terms_task(corpus, pool, "query")
    return tasks


def stored_terms_tasks(root: Path, corpus: Artifact) -> list[Task]:
    """Return the task of every segment with terms of a corpus, so that all can be repaired.

    A segment whose pool is gone is left out: it can be read but not made again.
    """
    if not (root / TERMS).is_dir():
        return []
    pools = {pool.id: pool for pool in published(root / POOLS)}
    roles: tuple[Role, ...] = ("paper", "query")
    return [
        _terms_task(corpus, pools[segment.manifest.inputs["pool"]], role)
        for role in roles
        for segment in published(root / _room(corpus, role))
        if segment.manifest.inputs["pool"] in pools
    ]


def terms_of(segment: Artifact) -> TermStore:
    """Open the store that a published segment belongs to."""
    return TermStore.open(segment.path.parent)


def _terms_task(corpus: Artifact, pool: Task | Artifact, role: Role) -> Task:
    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        return _analyse(role, inputs, out, resources)

    slug = pool.slug if isinstance(pool, Task) else pool.manifest.slug
    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    return Task("terms", _VERSION, _room(corpus, role), slug, _config(role), inputs, run)


def _config(role: Role) -> TermsConfig:
    return TermsConfig(ANALYZER, anserini_version(), role)


def _room(corpus: Artifact, role: Role) -> str:
    identity = digest({"version": _VERSION, "corpus": corpus.id, "config": _config(role)})
    return f"{TERMS}/{corpus.manifest.slug}{'' if role == 'paper' else f'-{role}'}-{identity[:SHORT_ID]}"


def _analyse(role: Role, inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
    corpus = Corpus(inputs["corpus"])
    wanted = _wanted(Pool(inputs["pool"], corpus), role)
    if not out.done("rows.arrow"):
        folder = out.path.parent
        others = (s for s in published(folder) if s.manifest.inputs["pool"] != inputs["pool"].id)
        write_rows(out, TermStore(folder, others).missing(wanted))
    rows = read_rows(out)
    blocks = range(-(-len(rows) // BLOCK_PAPERS))
    todo = [number for number in blocks if not has_block(out, number)]
    if todo:
        _write_blocks(corpus, role, rows, todo, out, resources)
    return {
        "wanted": len(wanted),
        "present": len(wanted) - len(rows),
        "analysed": len(rows),
        "tokens": sum(block_tokens(out, number) for number in blocks),
    }


def _write_blocks(corpus: Corpus, role: Role, rows: Rows, todo: list[int], out: Workdir, resources: Resources) -> None:
    from pipeline.retrieve.java import java_errors
    from pipeline.retrieve.lucene_classes import Handout, Lucene
    from pipeline.retrieve.postings.analysis import Analysis, LuceneAnalyzer

    lucene = Lucene(resources.memory)
    threads = min(resources.workers, len(todo))
    remembered = resources.memory // (4 * threads * _WORD_BYTES)
    with Progress(len(rows), "analyse", "docs") as progress:

        def work(numbers: Handout[int]) -> None:
            analysis = Analysis(LuceneAnalyzer(lucene), remembered)
            for number in numbers:
                mine = rows[number * BLOCK_PAPERS : (number + 1) * BLOCK_PAPERS]
                write_block(out, number, analysis.block(_texts(corpus, role, mine)))
                progress.add(len(mine))

        with java_errors(out.path):
            lucene.in_threads(threads, work, Handout(todo))


def _texts(corpus: Corpus, role: Role, rows: Rows) -> Iterator[pa.Array]:
    """Yield title and abstract of papers, or the texts of queries, as large strings."""
    for start in range(0, len(rows), _TOGETHER):
        part = rows[start : start + _TOGETHER]
        if role == "query":
            joined = corpus.query_texts.column("text").take(pa.array(part))
        else:
            table = corpus.take(part, ["title", "abstract"])
            joined = pc.binary_join_element_wise(table.column("title"), table.column("abstract"), _SPACE)
        yield pa.concat_arrays(joined.chunks)


def _wanted(pool: Pool, role: Role) -> Rows:
    if role == "query":
        return pool.query_rows
    return np.union1d(pool.candidates, pool.query_rows) if pool.queries_are_papers else pool.candidates
