"""Stage ``pool`` of one facet: a query for each paper asked by that facet, and what each query ranks.

In judged pools the candidates are those of all queries, and what was not judged for a query is excluded from its
ranking. So every engine ranks within judged pools, and the scores are those of any other pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.schema import MISSING
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Rows
from pipeline.sources.csfcube import query_id
from pipeline.studies.pools import ExternalPoolConfig, write_pool

FACET, WHOLE = "facet", "whole"
"""What is asked: the query's sentences of the facet, or the whole paper."""

_QUERIES: Mapping[str, Literal["papers", "texts"]] = {FACET: "texts", WHOLE: "papers"}


@dataclass(frozen=True)
class FacetPool(ExternalPoolConfig):
    """Settings of the pools of one facet.

    Attributes:
        relevant: the least relevant grade; a query without a candidate of that grade is left out, and counted. None:
            nothing is judged, and every query ranks all other papers with text.
    """

    relevant: int | None = 2

    @property
    def slug(self) -> str:
        """Readable name: ``judged-method-texts``."""
        return f"{'open' if self.relevant is None else 'judged'}-{self.field}-{self.queries_are}"


def facet_pool_task(corpus: Artifact, facet: str, form: str, relevant: int | None) -> Task:
    """Return the task that makes the pools of one facet, asked as ``form`` (:data:`FACET` or :data:`WHOLE`) says.

    The corpus has queries named ``PAPER_FACET`` and their judgements (:mod:`pipeline.sources.csfcube`).

    Raises:
        InputError: once run: no query is of that facet, or none has a relevant candidate.
    """
    config = FacetPool(field=facet, queries_are=_QUERIES[form], relevant=relevant)

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        return _build(Corpus(inputs["corpus"]), config, out)

    return Task("pool", 3, POOLS, f"{corpus.manifest.slug}-{config.slug}", config, {"corpus": corpus}, run)


def _build(corpus: Corpus, config: FacetPool, out: Workdir) -> Counts:
    ids = corpus.query_texts.column("query_id").to_pylist()
    of_facet = np.array([each.rpartition("_")[2] == config.field for each in ids])
    if not of_facet.any():
        known = sorted({each.rpartition("_")[2] for each in ids})
        raise InputError(f"the facet must be one of {', '.join(known)}, got {config.field}", "Set facets in the recipe")
    query, row, grade = (column.to_numpy().astype(np.int64) for column in corpus.judgements.columns)
    least = config.relevant
    relevant = np.full(len(ids), True)
    if least is not None:
        relevant = np.bincount(query[grade >= least], minlength=len(ids)) > 0
    kept = np.flatnonzero(of_facet & relevant)
    if not len(kept):
        raise InputError(
            f"no query of facet {config.field} has a candidate of grade {least} or more",
            "Grade the candidates (relevance_adju), or lower relevant",
        )
    papers = corpus.rows_of([ids[each].rpartition("_")[0] for each in kept]).astype(np.int64)
    asked = kept if config.queries_are == "texts" else papers
    order = np.argsort(asked)
    number = np.full(len(ids), -1)
    number[kept[order]] = np.arange(len(kept))
    mine = (number[query] >= 0) & (least is not None)
    query, row, grade = number[query[mine]], row[mine], grade[mine]
    by_query = np.lexsort((row, query))
    query, row, grade = query[by_query], row[by_query], grade[by_query]
    if least is None:
        candidates = np.flatnonzero(~without_text(corpus, np.arange(len(corpus))))
        ranked = candidates != papers[order, None]
    else:
        candidates = np.unique(row)
        ranked = np.zeros((len(kept), len(candidates)), bool)
        ranked[query, np.searchsorted(candidates, row)] = True
    excluded = np.nonzero(~ranked)

    names = np.full(len(kept), config.field, object)
    write_pool(out, (asked[order], names), candidates, (query, row, grade), (excluded[0], candidates[excluded[1]]))
    out.arrow("missing.arrow", MISSING.empty_table(), MISSING)
    return {
        "queries": len(kept),
        "queries_without_relevant": int(np.count_nonzero(of_facet & ~relevant)),
        "positives": int(np.count_nonzero(grade > 0)),
        "relevant": int(np.count_nonzero(grade >= (least or 0))),
        "judgements": len(grade),
        "candidates": len(candidates),
        "candidates_without_text": int(np.count_nonzero(without_text(corpus, candidates))),
    }


def without_text(corpus: Corpus, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return which papers have neither title nor abstract."""
    attributes = corpus.attributes
    found: npt.NDArray[np.bool_] = (attributes["title_chars"][rows] + attributes["abstract_chars"][rows]) == 0
    return found


def ranked_rows(pool: Pool) -> Iterator[Rows]:
    """Yield what each query ranks, rising rows."""
    for query in range(len(pool.query_rows)):
        yield np.setdiff1d(pool.candidates, pool.excluded(query), assume_unique=True)


def facet_query_ids(pool: Pool) -> list[str]:
    """Return the queries' ids, ``PAPER_FACET``, whichever way they are asked."""
    ids = pool.query_ids()
    return [query_id(each, pool.artifact.manifest.config["field"]) for each in ids] if pool.queries_are_papers else ids
