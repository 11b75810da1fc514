"""Build pools whose queries are citation contexts; candidates are drawn as for queries that are papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.config import format_count
from pipeline.core.csr import Ints
from pipeline.core.errors import InsufficientDataError
from pipeline.core.rng import smallest
from pipeline.core.schema import MISSING, NO_YEAR
from pipeline.core.text import id_keys
from pipeline.core.workdir import Workdir
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.pools import draw_pool, table
from pipeline.corpus.prefilter import prefilter
from pipeline.corpus.queries import Queries, draw_priorities, filter_positives, has_field
from pipeline.corpus.reader import Corpus, Rows


def build_context_pool(corpus: Corpus, config: PoolConfig, out: Workdir, excluded: Ints, used: Rows) -> dict[str, Any]:
    """Write a pool of the citation contexts of one year into ``out`` and return its counts.

    A context has the field of its citing paper, which is excluded from its ranking. Positives are of its year or
    earlier.

    Args:
        corpus: has contexts.
        config: year, field, size, number of queries and rules.
        out: receives the tables of the pool.
        excluded: rows of papers whose contexts may not be queries.
        used: rows of contexts that may not be queries.

    Raises:
        InsufficientDataError: there are too few contexts or candidates.
    """
    attributes, (years, citing) = corpus.attributes, (column.to_numpy() for column in corpus.contexts.columns)
    eligible = (years == config.year) & ~np.isin(citing, excluded)
    eligible &= has_field(np.append(attributes["fields"], np.uint32(0))[citing], config.field)  # row -1: no fields
    eligible[used] = False
    prefiltered = prefilter(attributes, config.prefilter)
    query, row = (corpus.judgements.column(name).to_numpy().astype(np.int64) for name in ("query", "row"))
    later = (attributes["year"][row] > config.year) & (attributes["year"][row] != NO_YEAR)
    possible = eligible[query] & ~later
    of_year = query[possible], row[possible]
    query, row, removed = filter_positives(corpus, config, prefiltered[0], citing, years, *of_year)
    answered = np.unique(query)
    ids = corpus.query_texts.column("query_id").take(pa.array(answered))
    wanted = len(answered) if config.queries == "all" else int(config.queries)
    if wanted > len(answered) or not len(answered):
        raise InsufficientDataError(
            f"{format_count(wanted)} contexts requested, but only {len(answered)} of {config.year} have a positive",
            f"Give --queries={len(answered)} or fewer, or another year or field",
        )
    keys = id_keys(ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids)
    chosen = np.sort(answered[smallest(draw_priorities(keys, config), wanted)])
    is_chosen = np.isin(query, chosen)
    owner, grade = (column.to_numpy() for column in corpus.missing.columns)
    missing = np.isin(owner, chosen)
    out.arrow("missing.arrow", table(MISSING, np.searchsorted(chosen, owner[missing]), grade[missing]), MISSING)
    counts = {
        "eligible_queries": int(eligible.sum()),
        "queries": len(chosen),
        "positives": int(is_chosen.sum()),
        **{f"positives_dropped_{reason}": count for reason, count in removed.items()},
        "positives_dropped_later": int((eligible[corpus.judgements.column("query").to_numpy()] & later).sum()),
        "positives_not_in_collection": int(missing.sum()),
    }
    queries = Queries(chosen.astype(np.uint32), np.searchsorted(chosen, query[is_chosen]), row[is_chosen], counts)
    return draw_pool(corpus, config, out, prefiltered, queries, citing[chosen])
