"""Queries that a release brings along: its texts, judgements, exclusions and citation contexts, by rows of a corpus."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.core import files
from pipeline.core.config import counted
from pipeline.core.errors import InputError
from pipeline.core.progress import warn
from pipeline.core.schema import CONTEXTS, EXCLUSIONS, JUDGEMENTS, MISSING, NO_YEAR, QUERY_TEXTS
from pipeline.core.text import doi_key, plain_doi
from pipeline.core.workdir import Workdir
from pipeline.corpus.pools import table
from pipeline.corpus.reader import rows_of
from pipeline.sources.base import QuerySet

MAX_EXCLUSIONS = 2**27
"""Maximum number of (query, excluded paper) pairs: 1 GiB in a corpus, and as much in its pool."""


def write_queries(out: Workdir, queries: QuerySet, papers: int) -> dict[str, int]:
    """Write a release's queries, judgements and exclusions, and the positives that the corpus lacks."""
    if papers == 0:
        raise InputError("the release has queries but no papers", "Check the input folder")
    row_of = _rows_of({paper for _, paper, _ in queries.judgements}, out.path)
    position_of = {query_id: position for position, query_id in enumerate(queries.query_ids)}
    judgements = [(position_of[query], row_of.get(paper, -1), grade) for query, paper, grade in queries.judgements]
    in_corpus = [judgement for judgement in judgements if judgement[1] >= 0]
    missing = [(query, grade) for query, row, grade in judgements if row < 0 and grade >= 1]
    if judgements and not in_corpus:
        judged = {paper for _, paper, _ in queries.judgements}
        first_id = files.read_arrow(min(out.path.glob("papers-*.arrow"))).column("paper_id")[0].as_py()
        raise InputError(
            f"0 of {len(judged):,} judged documents are in the corpus: judged is {min(judged)!r:.60}, but papers have "
            f"ids such as {first_id!r:.60}",
            "Give the judgements of this collection, or the ids that they use",
        )
    texts = [queries.texts[query_id] for query_id in queries.query_ids]
    out.arrow("queries.arrow", pa.table([queries.query_ids, texts], schema=QUERY_TEXTS), QUERY_TEXTS)
    if queries.origins:
        origins = [queries.origins[query_id] for query_id in queries.query_ids]
        papers_of = _rows_of({citing for citing, _ in origins}, out.path)
        year_of = files.read_arrow(out.path / "attributes.arrow").column("year").to_numpy()
        rows = [papers_of.get(citing, -1) for citing, _ in origins]
        years = [int(year_of[row]) if row >= 0 else NO_YEAR for row in rows]
        years = [known if given is None else given for known, (_, given) in zip(years, origins, strict=True)]
        contexts = list(zip(years, rows, strict=True))
        if NO_YEAR in years:
            queries.noted["context_without_year"] += years.count(NO_YEAR)
            undated = counted(years.count(NO_YEAR), "context")
            warn(f"no pool has {undated} without a year of its own or of its citing paper")
        out.arrow("contexts.arrow", table(CONTEXTS, *np.array(contexts, np.int64).T), CONTEXTS)
    out.arrow("judgements.arrow", _sorted_table(JUDGEMENTS, in_corpus), JUDGEMENTS)
    if queries.exclusions is not None:
        row_of = _rows_of({paper for _, paper in queries.exclusions}, out.path)
        excluded = {(position_of[q], row_of[p]) for q, p in queries.exclusions if q in position_of and p in row_of}
        out.arrow("exclusions.arrow", _sorted_table(EXCLUSIONS, excluded), EXCLUSIONS)
    elif queries.ranked:
        out.arrow("exclusions.arrow", _unranked(queries, out.path, papers), EXCLUSIONS)
    out.arrow("missing.arrow", _sorted_table(MISSING, missing), MISSING)
    return {
        "queries": len(queries.query_ids),
        "judgements": len(in_corpus),
        "judgements_of_nothing": len(queries.judgements) - len(in_corpus),
    }


def _unranked(queries: QuerySet, folder: Path, papers: int) -> pa.Table:
    """Return pairs of a query and a paper that its candidate list lacks; InputError if there are too many."""
    if papers * len(queries.ranked) > MAX_EXCLUSIONS:
        raise InputError(
            f"{len(queries.ranked):,} queries with candidate lists and {papers:,} papers must have at most "
            f"{MAX_EXCLUSIONS:,} pairs of query and paper, got {papers * len(queries.ranked):,}",
            "Give lists for fewer queries",
        )
    lists = queries.ranked
    row_of = _rows_of({paper for ranked in lists.values() for paper in ranked}, folder)
    unranked = [
        np.setdiff1d(np.arange(papers, dtype=np.uint32), [row_of[paper] for paper in lists[query] if paper in row_of])
        if query in lists
        else np.empty(0, np.uint32)
        for query in queries.query_ids
    ]
    return table(EXCLUSIONS, np.repeat(np.arange(len(unranked)), list(map(len, unranked))), np.concatenate(unranked))


def _sorted_table(schema: pa.Schema, rows: Collection[tuple[int, ...]]) -> pa.Table:
    return table(schema, *np.array(sorted(rows), np.int64).reshape(-1, len(schema)).T)


def _rows_of(ids: set[str], folder: Path) -> dict[str, int]:
    """Return the row of each id that the corpus has; of a DOI that is no id, the row of the paper with it."""
    rows = rows_of(list(ids), map(files.read_arrow, sorted(folder.glob("papers-*.arrow"))))
    found = {paper: row for paper, row in zip(ids, rows.tolist(), strict=True) if row >= 0}
    dois = {paper: doi_key(doi) for paper in ids - found.keys() if (doi := plain_doi(paper))}
    if dois:
        keys = files.read_arrow(folder / "attributes.arrow").column("doi_key").to_numpy()
        rows_with = np.flatnonzero(np.isin(keys, np.array([*dois.values()], np.uint64)))[::-1]
        row_of = dict(zip(keys[rows_with].tolist(), rows_with.tolist(), strict=True))  # the lowest row of a DOI
        found |= {paper: row_of[key] for paper, key in dois.items() if key in row_of}
    return found
