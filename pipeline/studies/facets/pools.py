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
import polars as pl

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
    queries = pl.DataFrame({"id": corpus.query_texts.column("query_id").to_pylist()}).with_row_index("text")
    queries = queries.with_columns(facet=pl.col("id").str.extract("([^_]*)$"), paper=pl.col("id").str.extract("(.*)_"))
    of_facet = queries.filter(facet=config.field)
    if of_facet.is_empty():
        facets = ", ".join(queries["facet"].unique().sort())
        raise InputError(f"the facet must be one of {facets}, got {config.field}", "Set facets in the recipe")
    judged = pl.DataFrame(pl.from_arrow(corpus.judgements)).rename({"query": "text"})
    least = config.relevant
    kept = of_facet
    if least is not None:
        kept = of_facet.join(judged.filter(pl.col("grade") >= least), on="text", how="semi")
    if kept.is_empty():
        raise InputError(
            f"no query of facet {config.field} has a candidate of grade {least} or more",
            "Grade the candidates (relevance_adju), or lower relevant",
        )
    kept = kept.with_columns(paper_row=pl.Series(corpus.rows_of(kept["paper"].to_list())).cast(pl.UInt32))
    asked = "text" if config.queries_are == "texts" else "paper_row"
    kept = kept.sort(asked).with_row_index("query")
    judged = judged.join(kept, on="text").select("query", "row", "grade").sort("query", "row")
    if least is None:
        judged = judged.clear()
        candidates = pl.DataFrame(
            {"row": np.flatnonzero(~without_text(corpus, np.arange(len(corpus))))}, {"row": pl.UInt32}
        )
        excluded = kept.select("query", row="paper_row").join(candidates, on="row", how="semi")
    else:
        candidates = judged.select("row").unique().sort("row")
        excluded = kept.select("query").join(candidates, how="cross")
        excluded = excluded.join(judged, on=["query", "row"], how="anti", maintain_order="left")
    rows = candidates["row"].to_numpy()
    write_pool(out, (kept[asked], [config.field] * len(kept)), rows, judged.get_columns(), excluded.get_columns())
    out.arrow("missing.arrow", MISSING.empty_table(), MISSING)
    return {
        "queries": len(kept),
        "queries_without_relevant": len(of_facet) - len(kept),
        "positives": judged.filter(pl.col("grade") > 0).height,
        "relevant": judged.filter(pl.col("grade") >= (least or 0)).height,
        "judgements": len(judged),
        "candidates": len(candidates),
        "candidates_without_text": int(np.count_nonzero(without_text(corpus, rows))),
    }


def without_text(corpus: Corpus, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return which papers have neither title nor abstract."""
    attributes = corpus.attributes
    empty: npt.NDArray[np.bool_] = (attributes["title_chars"][rows] + attributes["abstract_chars"][rows]) == 0
    return empty


def ranked_rows(pool: Pool) -> Iterator[Rows]:
    """Yield what each query ranks, rising rows."""
    for query in range(len(pool.query_rows)):
        yield np.setdiff1d(pool.candidates, pool.excluded(query), assume_unique=True)


def facet_query_ids(pool: Pool) -> list[str]:
    """Return the queries' ids, ``PAPER_FACET``, whichever way they are asked."""
    ids = pool.query_ids()
    return (
        [query_id(paper, pool.artifact.manifest.config["field"]) for paper in ids] if pool.queries_are_papers else ids
    )
