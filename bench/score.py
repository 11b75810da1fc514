"""Score rankings in a fresh process, against ranx and pytrec_eval on the same rankings and measures.

    python bench/score.py [--quick]

19 fields, 3 samples, 6 systems: 342 generated rankings of 200 queries and 500 entries. Ours is a new process that loads
each ranking and its pool, checks them, computes the default measures and publishes the scores; its start counts. The
peers run warm in this process: ranx by ``Run.from_df``, pytrec_eval from dictionaries. Times are processor time,
medians of interleaved rounds. The first score by ranx, with an empty cache, shows its compile time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core import progress, provenance
from pipeline.core.artifact import Artifact, published
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.resources import Resources
from pipeline.core.schema import CANDIDATES, EXCLUSIONS, JUDGEMENTS, POOL_QUERIES, RANKING
from pipeline.core.task import Task
from pipeline.core.workspace import CORPORA, POOLS, RANKINGS, SCORES
from pipeline.measure.measures import DEFAULT
from pipeline.runner import Runner
from pipeline.sources.synthetic import Synthetic
from pipeline.stages.corpus import corpus_task
from pipeline.stages.score import score_task

PAPERS, CANDIDATE_ROWS, QUERIES, DEPTH, POSITIVES = 60_000, 20_000, 200, 500, 29
SYSTEMS = tuple(f"system{number}" for number in range(6))
MEASURES = tuple(map(str, DEFAULT))
TREC = {"map": "map", "ndcg": "ndcg", "mrr": "recip_rank", "precision@1": "P_1"}
TREC |= {"recall@30": "recall_30", "recall@100": "recall_100"}

Figures = dict[str, dict[str, float]]  # mean of each measure, by ranking


def pool_of(corpus: Artifact, field: str, sample: int) -> Task:
    def write(_inputs: Any, out: Any, _resources: Any) -> dict[str, Any]:
        rng = np.random.default_rng([sample, MAG_FIELDS.index(field)])
        queries = np.sort(rng.choice(PAPERS, QUERIES, replace=False)).astype(np.uint32)
        candidates = np.sort(rng.choice(PAPERS, CANDIDATE_ROWS, replace=False)).astype(np.uint32)
        judged = np.concatenate([np.sort(rng.choice(candidates, POSITIVES, replace=False)) for _ in range(QUERIES)])
        own = np.flatnonzero(np.isin(queries, candidates)).astype(np.uint32)
        out.arrow("queries.arrow", pa.table([queries, [field] * QUERIES], schema=POOL_QUERIES), POOL_QUERIES)
        out.arrow("candidates.arrow", pa.table([candidates], schema=CANDIDATES), CANDIDATES)
        query = np.repeat(np.arange(QUERIES, dtype=np.uint32), POSITIVES)
        grades = np.ones(len(query), np.int16)
        out.arrow("qrels.arrow", pa.table([query, judged, grades], schema=JUDGEMENTS), JUDGEMENTS)
        out.arrow("exclusions.arrow", pa.table([own, queries[own]], schema=EXCLUSIONS), EXCLUSIONS)
        return {"queries": QUERIES, "candidates": CANDIDATE_ROWS, "positives": len(query)}

    config = {"field": field, "sample": sample, "queries_are": "papers", "size": CANDIDATE_ROWS}
    return Task("pool", 1, POOLS, f"{field.lower().replace(' ', '-')}-s{sample}", config, {"corpus": corpus}, write)


def ranking_of(pool: Artifact, system: str) -> Task:
    """Rank half of the relevant papers and some others, without ties, which ranx does not define."""

    def write(inputs: Any, out: Any, _resources: Any) -> dict[str, Any]:
        rng = np.random.default_rng([SYSTEMS.index(system), int(inputs["pool"].id[:8], 16)])
        candidates = inputs["pool"].arrow("candidates.arrow").column("row").to_numpy()
        judged = inputs["pool"].arrow("qrels.arrow").column("row").to_numpy().reshape(QUERIES, POSITIVES)
        queries = inputs["pool"].arrow("queries.arrow").column("row").to_numpy()
        rows = np.empty((QUERIES, DEPTH), np.uint32)
        for number in range(QUERIES):
            some = np.concatenate([judged[number, ::2], rng.choice(candidates, DEPTH + 40, replace=False)])
            some = some[np.sort(np.unique(some, return_index=True)[1])]
            rows[number] = rng.permutation(some[some != queries[number]][:DEPTH])
        query, rank = np.divmod(np.arange(QUERIES * DEPTH), DEPTH)
        columns = [query.astype(np.uint32), rows.ravel(), -rank.astype(np.float32), (rank + 1).astype(np.uint16)]
        out.arrow("ranking.arrow", pa.table(columns, schema=RANKING), RANKING)
        return {"queries": QUERIES, "entries": QUERIES * DEPTH}

    return Task("search", 1, RANKINGS, f"{system}-{pool.manifest.slug}", {"system": system}, {"pool": pool}, write)


def prepare(folder: Path, fields: Sequence[str]) -> int:
    runner = Runner(folder, Resources(workers=2))
    corpus = runner.make(corpus_task("synthetic", Synthetic(PAPERS, seed=13)))
    pools = [runner.make(pool_of(corpus, field, sample)) for field in fields for sample in (1, 2, 3)]
    return len([runner.make(ranking_of(pool, system)) for pool in pools for system in SYSTEMS])


def score_all(folder: str, most: int, engine: str) -> None:
    """Do what ``mdcr score`` does once pools and rankings exist: the new process runs this."""
    progress.set_quiet(True)
    runner = Runner(Path(folder), Resources(workers=2))
    (corpus,) = published(Path(folder) / CORPORA)
    pools = {pool.id: pool for pool in published(Path(folder) / POOLS)}
    for ranking in list(published(Path(folder) / RANKINGS))[:most]:
        pool, system = pools[ranking.manifest.inputs["pool"]], ranking.manifest.config["system"]
        sample = pool.manifest.config["sample"]
        runner.make(score_task(ranking, pool, corpus, system=system, sample=sample, measures=MEASURES, engine=engine))


def ours(folder: Path, most: int, engine: str = "numpy", **environment: str) -> float:
    """Return the processor seconds of scoring in a new process."""
    shutil.rmtree(folder / SCORES, ignore_errors=True)
    code = f"import sys; sys.path[:0] = {sys.path!r}; import runpy; runpy.run_path({__file__!r})"
    call = f"['score_all']({str(folder)!r}, {most}, {engine!r})"
    before = os.times()
    subprocess.run([sys.executable, "-c", code + call], check=True, env=os.environ | environment)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def our_figures(folder: Path) -> Figures:
    found = {}
    for scores in published(folder / SCORES):
        table = scores.arrow("scores.arrow")
        values = table.column("value").to_numpy().reshape(len(MEASURES), QUERIES).mean(axis=1)
        measures = table.column("measure").to_pylist()[::QUERIES]
        found[scores.manifest.inputs["ranking"]] = dict(zip(measures, values.tolist(), strict=True))
    return found


def peers(folder: Path, most: int) -> dict[str, Callable[[], Figures]]:
    import pytrec_eval
    import ranx

    pools = {pool.id: pool for pool in published(folder / POOLS)}
    rankings = list(published(folder / RANKINGS))[:most]

    def tables(ranking: Artifact) -> list[Any]:
        """Return run and qrels with ids as text, the value last."""
        run = ranking.arrow("ranking.arrow").to_pandas()[["query", "row", "score"]]
        qrels = pools[ranking.manifest.inputs["pool"]].arrow("qrels.arrow").to_pandas().astype({"grade": int})
        ids = [{"query": str, "row": str}, {"query": object, "row": object}]
        return [table.astype(ids[0]).astype(ids[1]) for table in (run.astype({"score": float}), qrels)]

    def by_ranx() -> Figures:
        found = {}
        for ranking in rankings:
            run, qrels = tables(ranking)
            names = {"q_id_col": "query", "doc_id_col": "row"}
            loaded = ranx.Qrels.from_df(qrels, score_col="grade", **names)
            values = ranx.evaluate(loaded, ranx.Run.from_df(run, score_col="score", **names), list(MEASURES))
            found[ranking.id] = {measure: float(values[measure]) for measure in MEASURES}
        return found

    def by_trec_eval() -> Figures:
        found = {}
        for ranking in rankings:
            run, qrels = (
                {query: dict(zip(rows["row"], rows.iloc[:, 2], strict=True)) for query, rows in table.groupby("query")}
                for table in tables(ranking)
            )
            values = pytrec_eval.RelevanceEvaluator(qrels, set(TREC.values())).evaluate(run).values()
            found[ranking.id] = {m: float(np.mean([each[TREC[m]] for each in values])) for m in MEASURES}
        return found

    return {"ranx": by_ranx, "pytrec_eval": by_trec_eval}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 fields, 2 rankings of the peers, one round")
    options = parser.parse_args()
    rounds, peer_runs = (1, 2) if options.quick else (3, 12)
    progress.set_quiet(True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = prepare(folder, MAG_FIELDS[:2] if options.quick else MAG_FIELDS)
        first = {engine: ours(folder, 1, engine, NUMBA_CACHE_DIR=f"{name}/numba") for engine in ("numpy", "ranx")}
        others = peers(folder, peer_runs)
        figures = {label: run() for label, run in others.items()}
        seconds: dict[str, list[float]] = {label: [] for label in ("ours", *others)}
        for _ in range(rounds):
            seconds["ours"].append(ours(folder, count) / count)
            for label, run in others.items():
                started = time.process_time()
                run()
                seconds[label].append((time.process_time() - started) / peer_runs)
        mine = our_figures(folder)
    report: dict[str, Any] = {"machine": provenance.processor(), "rankings": count}
    report |= {
        f"first score in a fresh installation by {engine}, s": round(taken, 1) for engine, taken in first.items()
    }
    median = {label: statistics.median(values) for label, values in seconds.items()}
    report |= {f"{label} ms a ranking": round(1000 * taken, 1) for label, taken in median.items()}
    for label in others:
        pairs = [(mine[r][m], value) for r, values in figures[label].items() for m, value in values.items()]
        report[f"ours over {label}"] = round(median[label] / median["ours"], 1)
        report[f"{label}, largest difference"] = max(abs(a - b) for a, b in pairs)
    for label, figure in report.items():
        print(f"  {label:52}{figure:>24}")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
