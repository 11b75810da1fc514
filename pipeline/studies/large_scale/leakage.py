"""The leakage audit: queries and positives that an encoder may have been trained on, or that give an answer away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.studies import kit

Mask = npt.NDArray[np.bool_]
_WORDS = re.compile(r"\w{3,}")
_ALIKE = 0.8  # minimum Jaccard index of the words of two near-duplicate titles
_FIRST = 10  # ranks of each system searched for near-duplicates


def tables(workspace: kit.Workspace, recipe: Any, found: kit.Scored, pools: pl.DataFrame) -> Iterator[kit.Table]:
    """Yield the shares of queries and positives that may leak (:func:`audit`), and the papers of training lists."""
    files = recipe.training or tuple(dict(recipe.rules).get("exclude", ()))
    trained = kit.in_lists(files, kit.corpus_of(workspace, recipe)) if files else None
    years = [*map(found.trained_until, found.labels), dict(recipe.rules).get("trained_until")]
    until = max(filter(None, years), default=None)
    rows = []
    for pool, field in pools.select("pool", "field").iter_rows():
        rankings = found.open(pool)
        queries, positives = np.arange(len(rankings.pool.query_rows)), kit.query_of(rankings.qrels.offsets)
        for finding, flags in audit(rankings, trained, until).items():
            figures = kit.share_of_clusters(flags, queries if finding.startswith("queries") else positives)
            rows.append((field or "dataset", finding, *figures))
    notes = [
        f"Alike: titles whose words have a Jaccard index of at least {_ALIKE}; hits: the first {_FIRST} of every "
        "system. Younger: of a later year than the query. Positives of one query are drawn as one."
    ]
    notes += ["Trained on: not audited, as the recipe names no training lists."] if trained is None else []
    if until is not None:
        notes.append(f"Up to {until}: the last year of any encoder's training data; --trained-until leaves it out.")
    notes.append("Brackets: 95% interval.")
    frame = pl.DataFrame(rows, ["field", "column", "value", "low", "high"], orient="row")
    yield kit.table("leakage", "Leakage audit", frame, "{field}", kit.figure(), notes, across="{column}")
    if trained is not None:
        yield training(found, pools, trained)


def audit(rankings: kit.Rankings, trained: Mask | None, until: int | None = None) -> dict[str, Mask]:
    """Return which queries and positives of a pool may leak, by finding: bool ``[queries]`` or ``[positives]``.

    - trained on: in a training list; ``trained`` is bool ``[papers of the corpus]``, None without lists;
    - up to a year: ``until``, the last year of any encoder's training data; None if unknown;
    - younger: of a later year than the query;
    - alike: its title is a near-duplicate of the query's; an alike hit: such a paper in the first ranks of a system.
    """
    corpus, (queries, query_years), positives = rankings.pool.corpus, rankings.pool.query_papers, rankings.qrels.rows
    query_of_positive = kit.query_of(rankings.qrels.offsets)
    citing, years = queries[query_of_positive], corpus.attributes["year"]
    ranked = pl.concat(
        pl.DataFrame({"query": kit.query_of(run.offsets), "row": run.rows.astype(np.int64)})
        .group_by("query")
        .head(_FIRST)
        for run in rankings.runs.values()
    ).unique()
    query, row = (ranked[name].cast(pl.Int64).to_numpy() for name in ("query", "row"))
    hits = query[_alike(corpus, queries[query], row)]
    in_training = {} if trained is None else {
        "queries trained on": np.append(trained, False)[queries], "positives trained on": trained[positives]
    }  # fmt: skip
    dated, cited = years[positives] != kit.NO_YEAR, years[positives]
    seen = {"queries": query_years <= (until or 0), "positives": dated & (cited <= (until or 0))}
    by_year = {f"{subject} up to {until}": flags for subject, flags in seen.items() if until is not None}
    return {
        **in_training,
        **by_year,
        "positives younger": dated & (cited > query_years[query_of_positive]),
        "positives alike": _alike(corpus, citing, positives),
        "queries with an alike hit": np.isin(np.arange(len(queries)), hits),
    }


def words(text: str) -> frozenset[str]:
    """Return the distinct words of three letters or more, in lower case."""
    return frozenset(_WORDS.findall(text.casefold()))


def _alike(corpus: kit.Corpus, papers: npt.NDArray[np.integer], others: npt.NDArray[np.integer]) -> Mask:
    """Return which pairs of papers have near-duplicate titles, bool ``[pairs]``.

    A title without words, or the paper -1 (none), has no near-duplicate.
    """
    rows = np.union1d(papers, others)
    rows = rows[rows >= 0]
    titles = corpus.take(rows, ["title"]).column(0).to_pylist()
    words_of = {-1: frozenset[str](), **dict(zip(rows.tolist(), map(words, titles), strict=True))}
    pairs = ((words_of[paper], words_of[other]) for paper, other in zip(papers.tolist(), others.tolist(), strict=True))
    return np.array([len(title & other) >= _ALIKE * len(title | other) > 0 for title, other in pairs], bool)


def training(found: kit.Scored, pools: pl.DataFrame, trained: Mask) -> kit.Table:
    """Return the papers of training lists by field, and the number of queries left out (section 4.2 of the paper).

    ``trained`` are the papers of the lists, bool ``[papers of the corpus]``; a paper of several fields counts in each.
    """
    opened = {field or "dataset": found.pool(pool) for pool, field in pools.select("pool", "field").iter_rows()}
    masks = next(iter(opened.values())).corpus.attributes["fields"][trained]
    counts = {
        field: int(np.count_nonzero(masks >> np.uint32(kit.FIELD_BIT[field]) & np.uint32(1)))
        for field in kit.MAG_FIELDS
    }
    rows = [(field, count, 100 * count / max(len(masks), 1)) for field, count in counts.items() if count]
    frame = pl.DataFrame(rows, {"field": pl.String, "papers": pl.Int64, "share in %": pl.Float64}, orient="row")
    left_out = []
    for field, pool in opened.items():
        counts_of_pool = pool.artifact.manifest.counts
        eligible = counts_of_pool["eligible_queries"] + counts_of_pool["excluded_queries"]
        left_out.append(f"{field} {counts_of_pool['excluded_queries']:,} of {eligible:,}")
    notes = [
        f"Papers of the training lists that the corpus has: {len(masks):,}.",
        f"Queries left out of those that may be drawn: {'; '.join(left_out)}.",
    ]
    columns = {"papers": "{papers:,}", "share in %": "{share in %:.1f}"}
    return kit.table("training", "Training queries by field", frame, "{field}", columns, notes)
