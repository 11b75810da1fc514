"""Papers of a training set: queries up to a year with the papers that they cite, and possible negatives.

They have the layout of a pool, so all systems can rank them. Test queries are excluded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from pipeline.core.artifact import Artifact, opened
from pipeline.core.config import digest
from pipeline.core.csr import Ints
from pipeline.core.errors import InsufficientDataError
from pipeline.core.fields import FIELD_BIT
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.rng import priorities, smallest
from pipeline.core.schema import CANDIDATES, EXCLUSIONS, JUDGEMENTS, NO_YEAR, POOL_QUERIES
from pipeline.core.settings import Count
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import CORPORA, POOLS, TRAINING
from pipeline.corpus.pool import Pool
from pipeline.corpus.prefilter import Mask
from pipeline.corpus.reader import Corpus, Rows
from pipeline.stages.pool import read_ids
from pipeline.train.recipe import Draw

_BLOCK = 2**20
"""Papers of a block whose citations are read together."""


@dataclass(frozen=True)
class QueriesConfig:
    """Everything that affects the papers of a training set.

    Attributes:
        until: last year of papers and citations; None: any, also papers without a year.
        field: field of the queries; None: any.
        queries: number of queries, or ``all``.
        seed: seed of the draw; with the same seed, fewer queries are a subset of more.
        left_out: digest of the excluded ids.
        min_abstract_chars: minimum characters of an abstract.
    """

    until: int | None
    field: str | None
    queries: Count
    seed: int
    left_out: str
    min_abstract_chars: int = 30
    balanced: Literal[False] = False
    queries_are: Literal["papers"] = "papers"
    split: Literal["train"] = "train"
    sample: int = 1


def left_out(root: Path, corpus: Artifact, exclude: Sequence[Path], until: int | None) -> tuple[Rows, dict[str, int]]:
    """Return the rows of papers that no triplet may contain, rising, and their number by reason.

    They are the queries of all pools of the workspace, also validation pools and pools of other corpora, and the
    papers of exclusion lists. Papers after ``until`` are not counted.

    Raises:
        InputError: a list cannot be read.
        CorruptError: the manifest of a pool is damaged.
    """
    reader = Corpus(corpus)
    corpora = {artifact.id: artifact for artifact in opened(root / CORPORA)}
    possible = _allowed_years(reader, until)
    reasons = {"pools": np.zeros(len(reader), bool), "exclusion_lists": np.zeros(len(reader), bool)}
    pools = 0
    for artifact in opened(root / POOLS):
        source = artifact.manifest.inputs["corpus"]
        if artifact.manifest.config["queries_are"] == "papers" and source in corpora:
            pools += 1
            pool = Pool(artifact, Corpus(corpora[source]))
            rows = pool.query_rows if source == corpus.id else reader.rows_of(pool.query_ids())
            reasons["pools"][rows[rows >= 0]] = True
    rows = reader.rows_of(read_ids(exclude))
    reasons["exclusion_lists"][rows[rows >= 0]] = True
    counts = {f"left_out_{name}": int(np.count_nonzero(mask & possible)) for name, mask in reasons.items()}
    excluded = np.flatnonzero((reasons["pools"] | reasons["exclusion_lists"]) & possible).astype(np.uint32)
    return excluded, {"pools": pools, **counts}


def queries_task(root: Path, corpus: Artifact, draw: Draw) -> Task:
    """Return the task that draws the queries of a training set; see :class:`QueriesConfig` and :func:`left_out`."""
    excluded, excluded_counts = left_out(root, corpus, draw.exclude, draw.until)
    left = digest(Corpus(corpus).ids(excluded))
    config = QueriesConfig(draw.until, draw.field, draw.queries, draw.seed, left)

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        return {**_write(Corpus(inputs["corpus"]), config, excluded, out), **excluded_counts}

    field, until = (draw.field or "").lower().replace(" ", "-"), f"to-{draw.until}" if draw.until else ""
    slug = "-".join(filter(None, [corpus.manifest.slug, field, until, str(draw.queries)]))
    return Task("queries", 1, TRAINING, slug, config, {"corpus": corpus}, run)


def _allowed_years(corpus: Corpus, until: int | None) -> Mask:
    years = corpus.attributes["year"]
    return np.ones(len(years), bool) if until is None else (years <= until) & (years != NO_YEAR)


def _write(corpus: Corpus, config: QueriesConfig, excluded: Rows, out: Workdir) -> Counts:
    attributes = corpus.attributes
    tests = {
        "after_year": ~_allowed_years(corpus, config.until),
        "no_title": attributes["title_chars"] == 0,
        "short_abstract": attributes["abstract_chars"] < config.min_abstract_chars,
        "left_out": np.isin(np.arange(len(corpus)), excluded),
    }
    allowed, counts = np.ones(len(corpus), bool), {"read": len(corpus)}
    for reason, fails in tests.items():
        counts[f"dropped_{reason}"] = int(np.count_nonzero(allowed & fails))
        allowed &= ~fails
    candidates = np.flatnonzero(allowed).astype(np.uint32)
    counts["kept"] = len(candidates)
    rows = candidates
    if config.field is not None:
        rows = rows[attributes["fields"][rows] >> np.uint32(FIELD_BIT[config.field]) & 1 == 1]
    rows = np.concatenate([rows[:0], *(block[np.unique(owner)] for block, owner, _ in _cited(corpus, rows, allowed))])
    counts["queries_possible"] = len(rows)
    if not len(rows):
        raise InsufficientDataError(
            f"no paper of {corpus.artifact.manifest.slug} that cites another may train",
            "Choose a later --until, or another field",
        )
    if config.queries != "all":
        order = priorities(corpus.attributes["key"][rows], config.seed, "training queries")
        rows = np.sort(rows[smallest(order, int(config.queries))])
    fields = attributes["fields"][rows]
    counts["queries"] = len(rows)
    by_field = {name: int(np.count_nonzero(fields >> np.uint32(bit) & 1)) for name, bit in FIELD_BIT.items()}

    def positives() -> Iterator[pa.RecordBatch]:
        start = 0
        for block, owner, cited in _cited(corpus, rows, allowed):
            columns = [(owner + start).astype(np.uint32), cited, np.ones(len(cited), np.int16)]
            yield pa.record_batch(columns, JUDGEMENTS)
            start += len(block)

    names = pa.array([config.field] * len(rows), pa.string())
    positions = np.arange(len(rows), dtype=np.uint32)
    out.arrow("queries.arrow", pa.table([rows, names], POOL_QUERIES), POOL_QUERIES)
    out.arrow("candidates.arrow", pa.table([candidates], CANDIDATES), CANDIDATES)
    out.arrow("exclusions.arrow", pa.table([positions, rows], EXCLUSIONS), EXCLUSIONS)
    counts["positives"] = out.arrow("qrels.arrow", positives(), JUDGEMENTS)
    return {**counts, "queries_by_field": {name: count for name, count in by_field.items() if count}}


def _cited(corpus: Corpus, rows: Rows, allowed: Mask) -> Iterator[tuple[Rows, Ints, Rows]]:
    """Yield blocks of papers, with the citing position and the cited row of their citations of allowed papers."""
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        owner, cited = corpus.outgoing.of_many(block)
        inside = allowed[cited] & (cited != block[owner])
        yield block, owner[inside], cited[inside]
