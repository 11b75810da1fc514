"""Rankings and qrels in plain Python, as our tables and as trec_eval takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytrec_eval

from pipeline.core.schema import JUDGEMENTS, RANKING
from pipeline.corpus.pool import Pool
from pipeline.measure import inputs as measured
from pipeline.measure.measures import Measure

Run = Sequence[Mapping[int, float]]
"""Score by row, for each query."""
Grades = Sequence[Mapping[int, int]]
"""Grade by row, for each query."""


def ranking_table(run: Run) -> pa.Table:
    """Entries in the one total order."""
    entries = []
    for query, scores in enumerate(run):
        order = sorted(((np.float32(score), row) for row, score in scores.items()), reverse=True)
        entries += [(query, row, score, rank) for rank, (score, row) in enumerate(order, 1)]
    return table(entries, RANKING)


def qrels_table(grades: Grades) -> pa.Table:
    return table([(query, row, of[row]) for query, of in enumerate(grades) for row in sorted(of)], JUDGEMENTS)


def inputs(run: Run, grades: Grades) -> tuple[measured.Qrels, measured.RankedRun]:
    qrels = measured.Qrels.from_table(qrels_table(grades), len(grades))
    return qrels, measured.RankedRun.from_table(ranking_table(run), len(run))


def random_case(
    seed: int, queries: int, rows: int, depth: int, positives: int, score_levels: int
) -> tuple[Run, Grades]:
    """Runs of uneven depth, some empty, with ties where there are few score levels; grades from -1 to 3."""
    random = np.random.default_rng(seed)
    run, grades = [], []
    for _ in range(queries):
        retrieved = random.choice(rows, size=random.integers(0, depth + 1), replace=False)
        run.append({int(row): float(random.integers(score_levels)) / 3 for row in retrieved})
        judged = random.choice(rows, size=random.integers(1, positives + 1), replace=False)
        graded = {int(row): int(random.integers(-1, 4)) for row in judged}
        graded[int(judged[0])] = 1 + int(random.integers(3))
        grades.append(graded)
    return run, grades


def of_pool(pool: Pool, run: Run) -> Run:
    """Return a run over positions in a pool's candidates as one over rows, without what each query excludes."""
    rows, queries = pool.candidates.tolist(), pool.query_rows.tolist()
    gone = [{query, *pool.excluded(place).tolist()} for place, query in enumerate(queries)]
    by_row = [{rows[place]: score for place, score in scores.items()} for scores in run]
    return [{row: scores[row] for row in scores.keys() - gone[place]} for place, scores in enumerate(by_row)]


def trec_eval(run: Run, grades: Grades, measures: Sequence[Measure]) -> np.ndarray:
    """Values by trec_eval's own code, ``[measures, queries]``."""
    docno = [{_docno(row): score for row, score in scores.items()} for scores in run]
    judged = {str(query): {_docno(row): grade for row, grade in of.items()} for query, of in enumerate(grades)}
    return np.array([[_trec_value(docno[q], judged, q, measure) for q in range(len(run))] for measure in measures])


def _trec_value(
    scores: Mapping[str, float], judged: Mapping[str, Mapping[str, int]], q: int, measure: Measure
) -> float:
    if not scores:
        return 0.0  # trec_eval leaves such a query out; its complete-set option (-c) counts 0
    k = measure.cutoff
    if measure.name == "mrr" and k is not None:  # trec_eval has no cut reciprocal rank: cut the run instead
        scores = dict(sorted(scores.items(), key=lambda item: (np.float32(item[1]), item[0]), reverse=True)[:k])
        k = None
    uncut, cut = _TREC[measure.name]
    names = [cut.format(k)] if k is not None else [uncut]
    if measure.name == "f1":
        names = [f"P_{k}", f"recall_{k}"] if k is not None else ["set_P", "set_recall"]
    evaluator = pytrec_eval.RelevanceEvaluator({str(q): judged[str(q)]}, set(names), measure.relevant)
    values = [evaluator.evaluate({str(q): dict(scores)})[str(q)][name] for name in names]
    if measure.name == "f1":
        return 2 * values[0] * values[1] / sum(values) if sum(values) else 0.0
    return values[0]


_TREC = {
    "map": ("map", "map_cut_{}"),
    "ndcg": ("ndcg", "ndcg_cut_{}"),
    "recall": ("set_recall", "recall_{}"),
    "precision": ("set_P", "P_{}"),
    "mrr": ("recip_rank", ""),
    "hit_rate": ("success_1000", "success_{}"),
    "r-precision": ("Rprec", ""),
    "f1": ("", ""),
}


def _docno(row: int) -> str:
    return f"{row:08d}"


def table(rows: list[tuple], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(values, f.type) for values, f in zip(columns, schema, strict=True)], schema)
