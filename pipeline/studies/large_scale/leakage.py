"""Leakage audit: papers of training lists, near-duplicate titles, positives younger than the query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError
from pipeline.core.schema import NO_YEAR
from pipeline.corpus.reader import Corpus
from pipeline.measure.inputs import Mask, Run, query_of
from pipeline.studies.large_scale.data import PoolRuns
from pipeline.studies.large_scale.winners import words

ALIKE = 0.8
"""Jaccard index of the words of two titles from which on they are near-duplicates."""

FIRST = 10
"""Ranks of each system that are searched for near-duplicates."""


def audit(ranked: PoolRuns, trained: Mask | None) -> dict[str, Mask]:
    """Return which queries and positives of a pool may leak, by finding: bool ``[queries]`` or ``[positives]``.

    - trained on: in a training list; ``trained`` is bool ``[papers of the corpus]``, None without lists;
    - younger: of a later year than the query;
    - alike: its title is nearly the query's; an alike hit: one among the first ranks of any system.
    """
    pool, qrels = ranked.pool, ranked.qrels
    query = query_of(qrels.offsets)
    years = pool.corpus.attributes["year"]
    own = pool.query_rows[query]
    first = [_first(run) for run in ranked.runs.values()]
    pairs = np.unique(np.concatenate([np.empty((2, 0), np.int64), *first], axis=1), axis=1)
    near = _alike(pool.corpus, pool.query_rows[pairs[0]], pairs[1])
    known = {}
    if trained is not None:
        known = {"queries trained on": trained[pool.query_rows], "positives trained on": trained[qrels.rows]}
    return {
        **known,
        "positives younger": (years[qrels.rows] > years[own]) & (years[qrels.rows] != NO_YEAR),
        "positives alike": _alike(pool.corpus, own, qrels.rows),
        "queries with an alike hit": np.bincount(pairs[0][near], minlength=ranked.queries) > 0,
    }


def training_papers(files: Sequence[str], corpus: Corpus) -> Mask:
    """Return which papers of a corpus are in lists of ids, one a line: bool ``[papers]``.

    Raises:
        InputError: a file cannot be read.
    """
    found = np.zeros(len(corpus), bool)
    for file in files:
        try:
            lines = Path(file).expanduser().read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the training list {file} cannot be read ({error})", "Give a text file of ids") from error
        rows = corpus.rows_of(lines)
        found[rows[rows >= 0]] = True
    return found


def _first(run: Run) -> npt.NDArray[np.int64]:
    query = query_of(run.offsets)
    kept = np.arange(len(query)) - run.offsets[query] < FIRST
    return np.stack([query[kept], run.rows[kept].astype(np.int64)])


def _alike(corpus: Corpus, one: npt.NDArray[np.integer], other: npt.NDArray[np.integer]) -> Mask:
    """Return which pairs of papers have near-duplicate titles, bool ``[pairs]``; a title without words is like none."""
    rows = np.union1d(one, other)
    titles = corpus.take(rows, ["title"]).column(0).to_pylist()
    of = dict(zip(rows.tolist(), map(words, titles), strict=True))
    pairs = zip(one.tolist(), other.tolist(), strict=True)
    return np.array([len(of[a] & of[b]) >= ALIKE * len(of[a] | of[b]) > 0 for a, b in pairs], bool)
