"""Ranking tasks: candidates of each query by ascending Euclidean distance, and reviewers by cosine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pipeline.encode.spec import Role
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, Run
from pipeline.measure.measures import parse_measures
from pipeline.studies.scirepeval.data import Judged

VectorsOf = Callable[[Sequence[str], Role], npt.NDArray[np.float32]]
"""The vectors of papers by key, or of ad-hoc queries by ``TASK/QUERY``: float32 ``[n, dimension]``."""

_BEST = 3
_HARD, _SOFT = 3, 2


def rank(
    task: str, judged: Judged, vectors: VectorsOf, measures: Sequence[str], counts: Counter[str]
) -> npt.NDArray[np.float64]:
    """Return the measures of each query that has a positive, float64 ``[measures, queries]``.

    Each query ranks its own candidates. Ties go by paper key, descending. A query without a positive is left out and
    counted.

    Args:
        task: name of the task.
        judged: queries and candidates.
        vectors: the vectors.
        measures: names, as of :mod:`pipeline.measure.measures`.
        counts: where the rule counts.
    """
    names = list(judged.grades)
    keys = sorted({judged.keys[each] for candidates in judged.grades.values() for each in candidates})
    place = {key: number for number, key in enumerate(keys)}
    papers = vectors(keys, "paper")
    if judged.texts:
        asked = vectors([f"{task}/{name}" for name in names], "query")
    else:
        asked = vectors([judged.keys[name] for name in names], "paper")
    scores: dict[str, Mapping[str, float]] = {}
    for name, query in zip(names, asked.astype(np.float64), strict=True):
        rows = [place[judged.keys[each]] for each in judged.grades[name]]
        distances = np.sqrt(np.square(papers[rows] - query).sum(axis=1))
        scores[name] = dict(zip(judged.grades[name], (-distances).tolist(), strict=True))
    return measure(scores, judged.grades, judged.keys.__getitem__, measures, counts)


def match(judged: Judged, vectors: VectorsOf, measures: Sequence[str], counts: Counter[str]) -> npt.NDArray[np.float64]:
    """Return the measures of each query of reviewer matching, ``[2 * measures, queries]``: hard, then soft labels.

    A reviewer's score is the mean of the three highest cosines of the reviewer's papers with the paper. Hard labels
    count a grade of 3 as relevant, soft ones 2 and 3. A query without a hard positive is left out of the hard figures:
    NaN. A reviewer without papers is not ranked; both are counted.
    """
    pairs = list(_pairs(judged))
    keys = sorted({judged.keys[p] for _, _, paper, group in pairs for p in (paper, *judged.groups.get(group, ()))})
    place = {key: number for number, key in enumerate(keys)}
    units = vectors(keys, "paper").astype(np.float64)
    lengths = np.linalg.norm(units, axis=1, keepdims=True)
    units /= np.where(lengths > 0, lengths, 1)
    scores: dict[str, dict[str, float]] = {query: {} for query in judged.grades}
    for query, candidate, paper, group in pairs:
        rows = [place[judged.keys[each]] for each in judged.groups.get(group, ())]
        if not rows:
            counts["reviewers_without_papers"] += 1
            continue
        cosines = np.sort(units[rows] @ units[place[judged.keys[paper]]])[::-1]
        scores[query][candidate] = float(cosines[:_BEST].mean())
    names = list(judged.grades)
    figures = np.full((2 * len(measures), len(names)), np.nan)
    for number, (least, label) in enumerate(((_HARD, "hard"), (_SOFT, "soft"))):
        binary = {q: {c: int(g >= least) for c, g in each.items()} for q, each in judged.grades.items()}
        kept = [place for place, name in enumerate(names) if any(binary[name].values())]
        found = Counter[str]()
        own = slice(number * len(measures), (number + 1) * len(measures))
        figures[own, kept] = measure(scores, binary, str, measures, found)
        counts[f"queries_without_{label}_positive"] += found["queries_without_positive"]
    return figures


def _pairs(judged: Judged) -> Iterator[tuple[str, str, str, str]]:
    """Yield (query, candidate, paper, reviewer) of each judgement: either side may be the reviewer."""
    for query, candidates in judged.grades.items():
        for candidate in candidates:
            yield (
                (query, candidate, candidate, query) if query in judged.groups else (query, candidate, query, candidate)
            )


def measure(
    scores: Mapping[str, Mapping[str, float]],
    grades: Mapping[str, Mapping[str, int]],
    key: Callable[[str], str],
    measures: Sequence[str],
    counts: Counter[str],
) -> npt.NDArray[np.float64]:
    """Return the measures of each query that has a positive, in order, float64 ``[measures, queries]``.

    Args:
        scores: of each candidate that is ranked, by query.
        grades: of each candidate, by query.
        key: what orders candidates of one score.
        measures: names.
        counts: counts ``queries_without_positive``.
    """
    run, judged, offsets, lengths = list[int](), list[tuple[int, int]](), [0], [0]
    for query, candidates in grades.items():
        if max(candidates.values(), default=0) < 1:
            counts["queries_without_positive"] += 1
            continue
        order = sorted(candidates, key=lambda each: (key(each), each))
        rows = {each: row for row, each in enumerate(order)}
        ranked = sorted(scores[query], key=lambda each: (scores[query][each], rows[each]), reverse=True)
        run.extend(rows[each] for each in ranked)
        positive = sorted((-grade, rows[each]) for each, grade in candidates.items() if grade >= 1)
        judged.extend(positive)
        offsets.append(len(run))
        lengths.append(len(judged))
    if len(offsets) == 1:
        return np.empty((len(measures), 0))
    qrels = Qrels(
        np.array(lengths), np.array([row for _, row in judged], np.uint32), np.array([-g for g, _ in judged], np.int16)
    )
    return evaluate(qrels, Run(np.array(offsets), np.array(run, np.uint32)), parse_measures(measures))
