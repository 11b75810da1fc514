"""Stage ``pool`` of one facet: a query for each paper judged by that facet, its judged candidates alone to be ranked.

The candidates of the pool are those of all its queries; what was not judged for a query is excluded from its ranking.
So every engine ranks within judged pools, and the scores are those of any other pool.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.schema import CANDIDATES, EXCLUSIONS, JUDGEMENTS, MISSING, POOL_QUERIES
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.pools import table
from pipeline.corpus.reader import Corpus, Rows
from pipeline.sources.csfcube import query_id


@dataclass(frozen=True)
class JudgedPool(PoolConfig):
    """Settings of the judged pools of one facet.

    Attributes:
        relevant: the least relevant grade; a query without a candidate of that grade is left out, and counted.
    """

    year: int | None = None
    relevant: int = 2

    def __post_init__(self) -> None:
        """Accept any setting: the collection decides the queries."""

    @property
    def slug(self) -> str:
        """Readable name: ``judged-method-texts``."""
        return f"judged-{self.field}-{self.queries_are}"


def judged_pool_task(corpus: Artifact, config: JudgedPool) -> Task:
    """Return the task that makes the judged pools of one facet.

    Args:
        corpus: with queries named ``PAPER_FACET`` and their judgements (:mod:`pipeline.sources.csfcube`).
        config: ``field`` is the facet. ``queries_are`` says what is asked: ``texts``, the facet's sentences;
            ``papers``, the whole paper.

    Raises:
        InputError: once run: no query is of that facet, or none has a relevant candidate.
    """

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        return _build(Corpus(inputs["corpus"]), config, out)

    return Task("pool", 3, POOLS, f"{corpus.manifest.slug}-{config.slug}", config, {"corpus": corpus}, run)


def _build(corpus: Corpus, config: JudgedPool, out: Workdir) -> Counts:
    ids = corpus.query_texts.column("query_id").to_pylist()
    of_facet = np.array([each.rpartition("_")[2] == config.field for each in ids])
    if not of_facet.any():
        known = sorted({each.rpartition("_")[2] for each in ids})
        raise InputError(f"the facet must be one of {', '.join(known)}, got {config.field}", "Set facets in the recipe")
    query, row, grade = (column.to_numpy().astype(np.int64) for column in corpus.judgements.columns)
    relevant = np.bincount(query[grade >= config.relevant], minlength=len(ids)) > 0
    kept = np.flatnonzero(of_facet & relevant)
    if not len(kept):
        raise InputError(
            f"no query of facet {config.field} has a candidate of grade {config.relevant} or more", "Lower relevant"
        )
    asked = kept if config.queries_are == "texts" else corpus.rows_of([ids[each].rpartition("_")[0] for each in kept])
    order = np.argsort(asked)
    number = np.full(len(ids), -1)
    number[kept[order]] = np.arange(len(kept))
    mine = number[query] >= 0
    query, row, grade = number[query[mine]], row[mine], grade[mine]
    by_query = np.lexsort((row, query))
    query, row, grade = query[by_query], row[by_query], grade[by_query]
    candidates = np.unique(row)
    judged = np.zeros((len(kept), len(candidates)), bool)
    judged[query, np.searchsorted(candidates, row)] = True
    unjudged = np.nonzero(~judged)

    names = np.full(len(kept), config.field, object)
    out.arrow("queries.arrow", table(POOL_QUERIES, asked[order], names), POOL_QUERIES)
    out.arrow("candidates.arrow", table(CANDIDATES, candidates), CANDIDATES)
    out.arrow("qrels.arrow", table(JUDGEMENTS, query, row, grade), JUDGEMENTS)
    out.arrow("exclusions.arrow", table(EXCLUSIONS, unjudged[0], candidates[unjudged[1]]), EXCLUSIONS)
    out.arrow("missing.arrow", MISSING.empty_table(), MISSING)
    return {
        "queries": len(kept),
        "queries_without_relevant": int(np.count_nonzero(of_facet & ~relevant)),
        "positives": int(np.count_nonzero(grade > 0)),
        "relevant": int(np.count_nonzero(grade >= config.relevant)),
        "judgements": len(grade),
        "candidates": len(candidates),
        "candidates_without_text": int(np.count_nonzero(without_text(corpus, candidates))),
    }


def without_text(corpus: Corpus, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return which papers have neither title nor abstract."""
    attributes = corpus.attributes
    found: npt.NDArray[np.bool_] = (attributes["title_chars"][rows] + attributes["abstract_chars"][rows]) == 0
    return found


def judged_rows(pool: Pool) -> list[Rows]:
    """Return the judged candidates of each query, rising rows."""
    query, row = (pool.qrels.column(name).to_numpy() for name in ("query", "row"))
    return np.split(row, np.searchsorted(query, np.arange(1, len(pool.query_rows))))


def facet_query_ids(pool: Pool) -> list[str]:
    """Return the queries' ids, ``PAPER_FACET``, whichever way they are asked."""
    ids = pool.query_ids()
    return [query_id(each, pool.artifact.manifest.config["field"]) for each in ids] if pool.queries_are_papers else ids
