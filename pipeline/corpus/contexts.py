"""Build pools whose queries are citation contexts; candidates are drawn as for queries that are papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.csr import Ints
from pipeline.core.errors import InsufficientDataError
from pipeline.core.rng import smallest
from pipeline.core.schema import MISSING, NO_YEAR
from pipeline.core.text import id_keys
from pipeline.core.workdir import Workdir
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.pools import draw_pool, table
from pipeline.corpus.prefilter import Mask, prefilter
from pipeline.corpus.queries import Queries, draw_priorities, filter_positives, has_field, no_query, too_few_queries
from pipeline.corpus.reader import AnyRows, Corpus, Rows


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
    prefiltered = prefilter(corpus.attributes, config.prefilter)
    queries = choose_contexts(corpus, config, prefiltered[0], excluded, used)
    owner, grade = (column.to_numpy() for column in corpus.missing.columns)
    missing = np.isin(owner, queries.rows)
    out.arrow("missing.arrow", table(MISSING, np.searchsorted(queries.rows, owner[missing]), grade[missing]), MISSING)
    queries.counts["positives_not_in_collection"] = int(missing.sum())
    return draw_pool(corpus, config, out, prefiltered, queries, _origins(corpus)[1][queries.rows])


def choose_contexts(corpus: Corpus, config: PoolConfig, prefiltered: Mask, excluded: Ints, used: AnyRows) -> Queries:
    """Draw the contexts of a pool, in random order, from those of the year and field that have a positive.

    Raises:
        InsufficientDataError: there are too few contexts.
    """
    if config.field and not corpus.attributes["n_outbound"].any():
        raise InsufficientDataError(
            f"no paper is cited in {config.field}, since no paper has references",
            "Leave out --field: its candidates are papers that its papers cite",
        )
    years = _origins(corpus)[0]
    possible = _possible_contexts(corpus, config, excluded)
    possible[used] = False
    eligible = possible & (years == config.year)
    query, row, removed = _positives(corpus, config, prefiltered, eligible)
    answered = np.unique(query)
    if not len(answered) and not len(used):
        answered = np.unique(_positives(corpus, config, prefiltered, possible)[0])
        raise no_query(corpus, config, "context", years[answered])
    wanted = len(answered) if config.drawn == "all" else int(config.drawn)
    if wanted > len(answered) or not len(answered):
        raise too_few_queries(config, len(answered), "contexts")
    chosen = np.sort(answered[smallest(draw_priorities(context_keys(corpus, answered), config), wanted)])
    is_chosen = np.isin(query, chosen)
    counts = {
        "eligible_queries": int(eligible.sum()),
        "queries": len(chosen),
        "positives": int(is_chosen.sum()),
        **{f"positives_dropped_{reason}": count for reason, count in removed.items()},
    }
    return Queries(chosen.astype(np.uint32), np.searchsorted(chosen, query[is_chosen]), row[is_chosen], counts)


def contexts_by_year(corpus: Corpus, config: PoolConfig, prefiltered: Mask, excluded: Ints) -> Ints:
    """Return the number of possible contexts with a positive per year, int64 ``[latest year + 1]``."""
    years = _origins(corpus)[0]
    possible = _possible_contexts(corpus, config, excluded)
    answered = np.unique(_positives(corpus, config, prefiltered, possible)[0])
    return np.bincount(years[answered], minlength=int(years.max(initial=0)) + 1)


def context_keys(corpus: Corpus, rows: AnyRows) -> npt.NDArray[np.uint64]:
    """Return the keys of the ids of contexts, by which they are drawn, uint64 ``[rows]``."""
    ids = corpus.query_texts.column("query_id").take(pa.array(rows))
    return id_keys(ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids)


def _origins(corpus: Corpus) -> tuple[Ints, Ints]:
    """Return the year of each context, and the row of its citing paper, -1 if the corpus lacks it."""
    years, citing = (column.to_numpy() for column in corpus.contexts.columns)
    return years, citing


def _possible_contexts(corpus: Corpus, config: PoolConfig, excluded: Ints) -> Mask:
    """Return which contexts are of the field and of a paper that may be a query, bool ``[contexts]``."""
    citing = _origins(corpus)[1]
    of_field = has_field(np.append(corpus.attributes["fields"], np.uint32(0))[citing], config.field)  # row -1: no field
    return np.asarray(of_field & ~np.isin(citing, excluded))


def _positives(
    corpus: Corpus, config: PoolConfig, prefiltered: Mask, contexts: Mask
) -> tuple[Ints, Rows, dict[str, int]]:
    """Return (context, positive) of some contexts, and the number of citations that each rule removed."""
    years, citing = _origins(corpus)
    query, row = (corpus.judgements.column(name).to_numpy().astype(np.int64) for name in ("query", "row"))
    query, row = query[contexts[query]], row[contexts[query]]
    cited_year = corpus.attributes["year"][row]
    later = (cited_year > years[query]) & (cited_year != NO_YEAR)
    query, row, removed = filter_positives(corpus, config, prefiltered, citing, years, query[~later], row[~later])
    return query, row, {**removed, "later": int(later.sum())}
