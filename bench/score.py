"""Scoring 342 rankings in a fresh process, against ranx's own loading and pytrec_eval: same rankings, same measures.

    python bench/score.py [--quick] [--folder DIR]

19 fields, 3 samples and 6 systems; 200 queries of 500 entries each: 34 million entries, made up here, published as the
chain publishes them. We: one new process loads every ranking and its pool, refuses what breaks the contract, computes
the default measures, and publishes 342 score artifacts; its whole wall time counts, its start too (its processor time
is printed beside). Once before, a process scores one ranking, so that ranx's kernels are compiled (numba keeps them
between processes). The peers, warm, load ``--peer-runs`` of the rankings from the same files and compute the same
measures: ranx by ``Run.from_df`` and by ``Run.from_file`` (a TREC run), pytrec_eval from dictionaries; their seconds a
run are set against ours. Rounds are interleaved and medians compared. Whether all get the same figures is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
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
    """Rank half of the relevant papers among the best, the rest anywhere."""

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
        scores = -np.sort(-rng.random((QUERIES, DEPTH), np.float32), axis=1)
        scores -= np.arange(DEPTH, dtype=np.float32)  # no ties: ranx does not define them
        query, rank = np.divmod(np.arange(QUERIES * DEPTH), DEPTH)
        columns = [query.astype(np.uint32), rows.ravel(), scores.ravel(), (rank + 1).astype(np.uint16)]
        out.arrow("ranking.arrow", pa.table(columns, schema=RANKING), RANKING)
        return {"queries": QUERIES, "entries": QUERIES * DEPTH}

    return Task("search", 1, RANKINGS, f"{system}-{pool.manifest.slug}", {"system": system}, {"pool": pool}, write)


def prepare(folder: Path, fields: Sequence[str]) -> int:
    runner = Runner(folder, Resources(workers=2))
    corpus = runner.make(corpus_task("synthetic", Synthetic(PAPERS, seed=13)))
    count = 0
    for field in fields:
        for sample in (1, 2, 3):
            pool = runner.make(pool_of(corpus, field, sample))
            for system in SYSTEMS:
                runner.make(ranking_of(pool, system))
                count += 1
    return count


def score_all(folder: Path, most: int) -> None:
    """Do what ``mdcr score`` does once pools and rankings are there: the new process runs this."""
    progress.set_quiet(True)
    runner = Runner(folder, Resources(workers=2))
    (corpus,) = published(folder / CORPORA)
    pools = {pool.id: pool for pool in published(folder / POOLS)}
    for ranking in list(published(folder / RANKINGS))[:most]:
        pool = pools[ranking.manifest.inputs["pool"]]
        system, sample = ranking.manifest.config["system"], pool.manifest.config["sample"]
        runner.make(score_task(ranking, pool, corpus, system=system, sample=sample, measures=MEASURES))


def ours(folder: Path, most: int) -> None:
    shutil.rmtree(folder / SCORES, ignore_errors=True)
    code = f"import sys; sys.path[:0] = {sys.path!r}; import runpy; runpy.run_path({__file__!r})"
    call = f"['score_all'](__import__('pathlib').Path({str(folder)!r}), {most})"
    subprocess.run([sys.executable, "-c", code + call], check=True)


def _children() -> float:
    """Return the processor time of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def our_figures(folder: Path) -> dict[str, dict[str, float]]:
    found = {}
    for scores in published(folder / SCORES):
        table = scores.arrow("scores.arrow")
        values = table.column("value").to_numpy().reshape(len(MEASURES), QUERIES).mean(axis=1)
        measures = table.column("measure").to_pylist()[::QUERIES]
        found[scores.manifest.inputs["ranking"]] = dict(zip(measures, values.tolist(), strict=True))
    return found


def peers(folder: Path, most: int) -> dict[str, Callable[[], dict[str, dict[str, float]]]]:
    """Return what scores some of the rankings, mean by measure for each, by other means."""
    import pandas as pd
    import pytrec_eval
    import ranx

    pools = {pool.id: pool for pool in published(folder / POOLS)}
    rankings = list(published(folder / RANKINGS))[:most]
    in_ranx = {"map": "map", "ndcg": "ndcg", "mrr": "mrr"}
    names = {measure: in_ranx.get(measure, measure) for measure in MEASURES}
    runs = folder / "trec"
    runs.mkdir(exist_ok=True)

    def frames(ranking: Artifact) -> tuple[Any, Any]:
        run = ranking.arrow("ranking.arrow").to_pandas()
        qrels = pools[ranking.manifest.inputs["pool"]].arrow("qrels.arrow").to_pandas()
        as_text = [
            pd.DataFrame(
                {"q_id": each["query"].astype(str).astype(object), "doc_id": each["row"].astype(str).astype(object)}
            )
            for each in (run, qrels)
        ]
        as_text[0]["score"], as_text[1]["score"] = run["score"].astype(np.float64), qrels["grade"].astype(np.int64)
        return tuple(as_text)

    for ranking in rankings:
        run, _ = frames(ranking)
        lines = zip(run["q_id"], run["doc_id"], run["score"], strict=True)
        text = "".join(f"{query} Q0 {row} 1 {score!r} x\n" for query, row, score in lines)
        (runs / f"{ranking.name}.trec").write_text(text)

    def evaluated(qrels: Any, run: Any) -> dict[str, float]:
        values = ranx.evaluate(qrels, run, list(names.values()), make_comparable=True)
        return {measure: float(values[name]) for measure, name in names.items()}

    def from_df() -> dict[str, dict[str, float]]:
        found = {}
        for ranking in rankings:
            run, qrels = frames(ranking)
            loaded = ranx.Run.from_df(run, q_id_col="q_id", doc_id_col="doc_id", score_col="score")
            judged = ranx.Qrels.from_df(qrels, q_id_col="q_id", doc_id_col="doc_id", score_col="score")
            found[ranking.id] = evaluated(judged, loaded)
        return found

    def from_file() -> dict[str, dict[str, float]]:
        found = {}
        for ranking in rankings:
            _, qrels = frames(ranking)
            loaded = ranx.Run.from_file(str(runs / f"{ranking.name}.trec"), kind="trec")
            judged = ranx.Qrels.from_df(qrels, q_id_col="q_id", doc_id_col="doc_id", score_col="score")
            found[ranking.id] = evaluated(judged, loaded)
        return found

    trec = {"map": "map", "ndcg": "ndcg", "mrr": "recip_rank", "precision": "P", "recall": "recall"}

    def by_trec_eval() -> dict[str, dict[str, float]]:
        found = {}
        columns = {m: trec[m.split("@")[0]] + (f"_{m.split('@')[1]}" if "@" in m else "") for m in MEASURES}
        asked = {name.replace("_", ".") if name[-1].isdigit() else name for name in columns.values()}
        for ranking in rankings:
            dictionaries = []
            for frame, kind in zip(frames(ranking), (float, int), strict=True):
                each: dict[str, dict[str, Any]] = {}
                for query, row, value in zip(frame["q_id"], frame["doc_id"], frame["score"], strict=True):
                    each.setdefault(query, {})[row] = kind(value)
                dictionaries.append(each)
            values = pytrec_eval.RelevanceEvaluator(dictionaries[1], asked).evaluate(dictionaries[0])
            found[ranking.id] = {m: float(np.mean([v[name] for v in values.values()])) for m, name in columns.items()}
        return found

    return {"ranx Run.from_df": from_df, "ranx Run.from_file": from_file, "pytrec_eval": by_trec_eval}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 fields, 2 runs of the peers, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-runs", type=int, default=12, help="rankings the peers score (default: 12)")
    parser.add_argument("--folder", type=Path, help="where the rankings are kept (default: nowhere)")
    options = parser.parse_args()
    fields = MAG_FIELDS[:2] if options.quick else MAG_FIELDS
    rounds, peer_runs = (1, 2) if options.quick else (options.rounds, options.peer_runs)
    progress.set_quiet(True)
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        count = prepare(folder, fields)
        os.environ.setdefault("NUMBA_CACHE_DIR", str(Path.home() / ".cache/mdcr/numba"))
        ours(folder, 1)
        others = peers(folder, peer_runs)
        taken: dict[str, list[float]] = {label: [] for label in ("ours", *others)}
        found: dict[str, Any] = {label: run() for label, run in others.items()}
        processor = []
        for _ in range(rounds):
            started, used = time.perf_counter(), _children()
            ours(folder, count)
            taken["ours"].append(time.perf_counter() - started)
            processor.append(_children() - used)
            for label, run in others.items():
                started = time.perf_counter()
                run()
                taken[label].append(time.perf_counter() - started)
        mine = our_figures(folder)
    report: dict[str, Any] = {"machine": provenance.processor(), "rankings": count, "entries": count * QUERIES * DEPTH}
    report["ours s, start of the process included"] = round(statistics.median(taken["ours"]), 2)
    report["ours s (processor)"] = round(statistics.median(processor), 2)
    each = statistics.median(taken["ours"]) / count
    report["ours ms a ranking"] = round(1000 * each, 1)
    for label, values in found.items():
        theirs = statistics.median(taken[label]) / peer_runs
        differences = [abs(mine[r][m] - value) for r, figures in values.items() for m, value in figures.items()]
        report[f"{label} ms a ranking"] = round(1000 * theirs, 1)
        report[f"ours over {label}"] = round(theirs / each, 1)
        report[f"{label}, largest difference"] = max(differences)
    for label, figure in report.items():
        print(f"  {label:44}{figure:>14}")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
