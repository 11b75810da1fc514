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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from pipeline.core import progress, provenance
from pipeline.core.artifact import Artifact, published
from pipeline.core.fields import MAG_FIELDS
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.schema import CANDIDATES, EXCLUSIONS, JUDGEMENTS, POOL_QUERIES, RANKING
from pipeline.core.task import Task
from pipeline.core.workspace import CORPORA, POOLS, RANKINGS, SCORES
from pipeline.measure.measures import DEFAULT
from pipeline.sources.synthetic import Synthetic
from pipeline.stages.corpus import corpus_task
from pipeline.stages.score import score_task

PAPERS, CANDIDATE_ROWS, QUERIES, DEPTH, POSITIVES = 60_000, 20_000, 200, 500, 29
SYSTEMS = tuple(f"system{number}" for number in range(6))
MEASURES = tuple(map(str, DEFAULT))
_RECALLS = tuple(f"recall_{cutoff}" for cutoff in (5, 10, 20, 30, 100))
TREC = ("map", "ndcg", "ndcg_cut_10", *_RECALLS, "P_1", "recip_rank", "Rprec")
IDS = ("query", "row")


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
        runner.make(score_task(ranking, pool, corpus, system=system, measures=MEASURES, engine=engine))


def ours(folder: Path, most: int, engine: str = "numpy", **environment: str) -> float:
    """Return the processor seconds of scoring in a new process."""
    shutil.rmtree(folder / SCORES, ignore_errors=True)
    code = f"from bench.score import score_all; score_all({str(folder)!r}, {most}, {engine!r})"
    before = os.times()
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | environment)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def tables(ranking: Artifact, pool: Artifact) -> list[Any]:
    """Return run and qrels with ids as text, the value last."""
    run = ranking.arrow("ranking.arrow").to_pandas()[["query", "row", "score"]].astype({"score": float})
    qrels = pool.arrow("qrels.arrow").to_pandas().astype({"grade": int})
    return [table.astype(dict.fromkeys(IDS, str)).astype(dict.fromkeys(IDS, object)) for table in (run, qrels)]


def by_ranx(run: Any, qrels: Any) -> dict[str, float]:
    import ranx

    judged = ranx.Qrels.from_df(qrels, *IDS, score_col="grade")
    values = ranx.evaluate(judged, ranx.Run.from_df(run, *IDS, score_col="score"), list(MEASURES))
    return {measure: float(values[measure]) for measure in MEASURES}


def by_pytrec_eval(run: Any, qrels: Any) -> dict[str, float]:
    import pytrec_eval

    scores, grades = (
        {query: dict(zip(rows["row"], rows.iloc[:, 2], strict=True)) for query, rows in table.groupby("query")}
        for table in (run, qrels)
    )
    values = pytrec_eval.RelevanceEvaluator(grades, set(TREC)).evaluate(scores).values()
    return {m: float(np.mean([each[name] for each in values])) for name, m in zip(TREC, MEASURES, strict=True)}


def means(scores: Artifact) -> dict[str, float]:
    table: Any = pl.from_arrow(scores.arrow("scores.arrow"))
    return dict(table.group_by("measure").agg(pl.col("value").mean()).iter_rows())


PEERS = (by_ranx, by_pytrec_eval)


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
        pools = {pool.id: pool for pool in published(folder / POOLS)}
        chosen = [(each, pools[each.manifest.inputs["pool"]]) for each in published(folder / RANKINGS)][:peer_runs]
        figures = {peer: [peer(*tables(*each)) for each in chosen] for peer in PEERS}
        seconds: dict[str, list[float]] = {"ours": [], **{peer.__name__: [] for peer in PEERS}}
        for _ in range(rounds):
            seconds["ours"].append(ours(folder, count) / count)
            for peer in PEERS:
                started = time.process_time()
                for each in chosen:
                    peer(*tables(*each))
                seconds[peer.__name__].append((time.process_time() - started) / peer_runs)
        mine = {each.manifest.inputs["ranking"]: means(each) for each in published(folder / SCORES)}
    report: dict[str, Any] = {"machine": provenance.processor(), "rankings": count}
    peers = provenance.versions(("ranx", "pytrec_eval-terrier"))
    for engine, taken in first.items():
        report[f"first score in a fresh installation by {engine}, s"] = round(taken, 1)
    median = {label: statistics.median(values) for label, values in seconds.items()}
    report |= {f"{label} ms a ranking": round(1000 * taken, 1) for label, taken in median.items()}
    for peer, found in figures.items():
        pairs = [(mine[r.id][m], v) for (r, _), values in zip(chosen, found, strict=True) for m, v in values.items()]
        report[f"ours over {peer.__name__}"] = round(median[peer.__name__] / median["ours"], 1)
        report[f"{peer.__name__}, largest difference"] = max(abs(a - b) for a, b in pairs)
    for label, figure in report.items():
        print(f"  {label:52}{figure:>24}")
    print("  peers:", *(f"{name} {version}" for name, version in peers.items()))
    print(json.dumps({**report, "peers": peers}))


if __name__ == "__main__":
    main()
