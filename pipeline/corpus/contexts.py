"""Pools whose queries are citation contexts: candidates by field, year and size as those of citing papers."""

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
from pipeline.corpus.pools import draw, drawable, left_out, table, write_pool
from pipeline.corpus.prefilter import counted, prefilter
from pipeline.corpus.queries import draw_priorities, kept_positives, of_field
from pipeline.corpus.reader import Corpus, Rows


def build_context_pool(corpus: Corpus, config: PoolConfig, out: Workdir, excluded: Ints, taken: Rows) -> dict[str, Any]:
    """Write a pool of the contexts of one year into ``out`` and return its counts.

    The field of a context is that of its citing paper, which its ranking leaves out. Positives are of its year at most.

    Args:
        corpus: has contexts.
        config: year, field, size, number of queries and rules.
        out: gets the tables of the pool.
        excluded: rows of papers whose contexts may not be queries.
        taken: rows of contexts that may not be queries.

    Raises:
        InsufficientDataError: there are too few contexts or candidates.
    """
    attributes, (years, citing) = corpus.attributes, (column.to_numpy() for column in corpus.contexts.columns)
    eligible = (years == config.year) & ~np.isin(citing, excluded)
    eligible &= of_field(np.append(attributes["fields"], np.uint32(0))[citing], config.field)  # -1: the last
    eligible[taken] = False
    prefiltered, prefilter_counts = prefilter(attributes, config.prefilter)
    query, row = (corpus.judgements.column(name).to_numpy().astype(np.int64) for name in ("query", "row"))
    late = (attributes["year"][row] > config.year) & (attributes["year"][row] != NO_YEAR)
    possible = eligible[query] & ~late
    query, row, removed = kept_positives(corpus, config, prefiltered, citing, years, query[possible], row[possible])
    answered = np.unique(query)
    ids = corpus.query_texts.column("query_id").take(pa.array(answered))
    wanted = len(answered) if config.queries == "all" else int(config.queries)
    if wanted > len(answered) or not len(answered):
        raise InsufficientDataError(
            f"{format_count(wanted)} contexts asked for, but only {len(answered)} of {config.year} have a positive",
            f"Ask for --queries={len(answered)} or fewer, or for another year or field",
        )
    keys = id_keys(ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids)
    chosen = np.sort(answered[smallest(draw_priorities(keys, config), wanted)])
    kept = np.isin(query, chosen)
    positives = np.unique(row[kept])
    source = drawable(corpus, config, prefiltered)
    candidates, drawn = draw(attributes["key"], config, positives, source)
    asked = citing[chosen]
    known = np.flatnonzero(asked >= 0)
    own, same_title = left_out(corpus, config, asked[known].astype(np.uint32), candidates)
    pairs = np.unique(np.concatenate([own, same_title]), axis=0)
    judged = np.searchsorted(chosen, query[kept]), row[kept], np.ones(int(kept.sum()))
    names = pa.array([config.field] * len(chosen), pa.string())
    write_pool(out, (chosen, names), candidates, judged, (known[pairs[:, 0]], pairs[:, 1]))
    owner, grade = (column.to_numpy() for column in corpus.missing.columns)
    lacking = np.isin(owner, chosen)
    out.arrow("missing.arrow", table(MISSING, np.searchsorted(chosen, owner[lacking]), grade[lacking]), MISSING)
    return {
        "eligible_queries": int(eligible.sum()),
        "queries": len(chosen),
        "positives": int(kept.sum()),
        **{f"positives_dropped_{reason}": count for reason, count in removed.items()},
        "positives_dropped_later": int((eligible[corpus.judgements.column("query").to_numpy()] & late).sum()),
        "positives_not_in_collection": int(lacking.sum()),
        "candidates": len(candidates),
        "candidates_positive": len(positives),
        "candidates_drawn": drawn,
        "candidates_available": int(np.count_nonzero(source)),
        "excluded_self": len(own),
        "excluded_same_title": len(same_title),
        "prefilter": prefilter_counts,
        "marks": counted(attributes, positives, candidates),
    }
