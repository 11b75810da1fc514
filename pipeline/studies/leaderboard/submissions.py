"""Submissions: the scores and runs of one system in one file, which another workspace verifies before they count.

A submission is a zip file: ``manifest.json`` with the identity of every pool, the SHA-256 of every other file and what
the system costs; ``N.trec.gz``, the run on pool N; ``N.parquet``, its scores.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core import files
from pipeline.core.artifact import Artifact, published
from pipeline.core.errors import InputError
from pipeline.core.progress import say
from pipeline.core.provenance import code_version
from pipeline.core.task import Task
from pipeline.core.workspace import CORPORA, POOLS, RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.exchange.rankings import write_ranking
from pipeline.exchange.runs import read_run
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, Run, select
from pipeline.measure.measures import parse_measures
from pipeline.scores.store import EXPORTED, artifact, opened_pool, values
from pipeline.stages.rankings import import_task
from pipeline.stages.score import score_tasks
from pipeline.stages.systems import ImportedRun
from pipeline.studies.leaderboard.benchmarks import Recipe
from pipeline.studies.leaderboard.costs import SUBMISSIONS, costs
from pipeline.studies.leaderboard.study import found_in

MANIFEST = "manifest.json"
_EQUAL = 1e-9
"""Values that differ by less are equal but for the order of additions."""


class Ranked(msgspec.Struct, forbid_unknown_fields=True):
    """One run: identity and name of its pool, ranks kept of each query, measures, and SHA-256 of its files."""

    pool: str
    name: str
    depth: int
    measures: list[str]
    run: str
    scores: str


class Submission(msgspec.Struct, forbid_unknown_fields=True):
    """What ``manifest.json`` holds: the system, the code that scored it, its costs, and a run for each pool."""

    system: str
    code: str
    costs: dict[str, Any]
    runs: list[Ranked]


def pack(workspace: Workspace, recipe: Recipe, system: str, path: Path) -> Submission:
    """Write a submission of a system with every benchmark of the leaderboard that has runs, and return its manifest.

    Raises:
        InputError: the system is on no such benchmark.
    """
    roots, found = found_in(workspace, recipe)
    frames = [one.runs.filter(system=system) for one in found if one.runs is not None and system in one.systems]
    if not frames:
        raise InputError(f"{system} must be on a benchmark of the leaderboard, got none", "Run mdcr study leaderboard")
    (cost,) = costs(roots, found).filter(system=system).rows(named=True)
    submission = Submission(system, code_version(), cost, [])
    with files.disk_errors(path), files.replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for run in pl.concat(frames).iter_rows(named=True):
            pool, ranking = opened_pool(run), artifact(run, "ranking").arrow("ranking.arrow")
            if pool is None:
                say(f"left out: {run['pool']}, whose corpus is gone")
                continue
            with TemporaryDirectory() as folder:
                write_ranking(file := Path(folder) / "run.trec.gz", ranking, pool, "submission", "trec.gz")
                packed, table = {"trec.gz": file.read_bytes()}, io.BytesIO()
            values(pl.DataFrame([run], schema=frames[0].schema), named=True).select(EXPORTED).write_parquet(table)
            packed["parquet"] = table.getvalue()
            for ending, data in packed.items():
                archive.writestr(f"{len(submission.runs)}.{ending}", data)
            digests = [hashlib.sha256(data).hexdigest() for data in packed.values()]
            one = Ranked(pool.artifact.id, pool.artifact.name, run["depth"], run["measures"], *digests)
            submission.runs.append(one)
        archive.writestr(MANIFEST, json.dumps(msgspec.to_builtins(submission), indent=1))
    return submission


def add(workspace: Workspace, path: Path) -> list[Artifact]:
    """Verify a submission, score its runs in the workspace under the name of the file, and return the scores.

    Nothing is published before every digest, pool and measure is verified.

    Raises:
        InputError: a file is missing or differs from its digest, the workspace lacks a pool, or a measure that is
            recomputed from a run differs.
    """
    folder = workspace.root / SUBMISSIONS / path.stem
    try:
        with zipfile.ZipFile(path) as archive:
            submission = msgspec.json.decode(archive.read(MANIFEST), type=Submission)
            packed = [
                [archive.read(f"{n}.{ending}") for ending in ("trec.gz", "parquet")]
                for n in range(len(submission.runs))
            ]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, NotImplementedError, msgspec.MsgspecError) as error:
        raise InputError(f"{path} must be a submission ({error})", "Write it by mdcr submission") from error
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [
        task
        for run, data in zip(submission.runs, packed, strict=True)
        for task in _verified(workspace, path, folder, run, *data)
    ]
    files.write_text(folder / MANIFEST, json.dumps(msgspec.to_builtins(submission)))
    return workspace.make(tasks)


def _verified(workspace: Workspace, path: Path, folder: Path, one: Ranked, run: bytes, scores: bytes) -> Iterator[Task]:
    """Yield the tasks that score a run, after its digests and measures were verified."""
    for data, sha256 in ((run, one.run), (scores, one.scores)):
        if hashlib.sha256(data).hexdigest() != sha256:
            raise InputError(f"{path} holds a file of {one.name} that differs from its digest", "Fetch it again")
    pools = {pool.id: pool for pool in published(workspace.root / POOLS)}
    if one.pool not in pools:
        raise InputError(
            f"{path} ranks the pool {one.name}, which the workspace must have", "Make the same pool: mdcr pool"
        )
    artifact_of = pools[one.pool]
    corpus = next(
        other for other in published(workspace.root / CORPORA) if other.id == artifact_of.manifest.inputs["corpus"]
    )
    pool, file = Pool(artifact_of, Corpus(corpus)), folder / f"{artifact_of.name}.trec.gz"
    with files.replacing(file) as temporary:
        temporary.write_bytes(run)
    table, _ = read_run(file, pool, one.depth)
    qrels, measures = Qrels.from_table(pool.qrels, len(pool.query_rows)), parse_measures(one.measures)
    scored = np.flatnonzero(qrels.positives())
    ranked, judged = select(Run.from_table(table, len(pool.query_rows)), qrels, scored)
    recomputed = evaluate(judged, ranked, measures)
    frame = pl.read_parquet(io.BytesIO(scores)).sort("query")
    for measure, mine in zip(measures, recomputed, strict=True):
        given = frame.filter(measure=str(measure))["value"].to_numpy()
        if len(given) != len(mine) or not np.allclose(given, mine, rtol=0, atol=_EQUAL):
            raise InputError(
                f"{path} must have the {measure} of its run on {one.name}, got other values", "Write it again"
            )
    system = ImportedRun(file, path.stem)
    sample = artifact_of.manifest.config.get("sample", 1)
    ranking = import_task(corpus, artifact_of, system, depth=one.depth)
    names = tuple(map(str, measures))
    yield from score_tasks(
        ranking, artifact_of, corpus, system=system.title, sample=sample, depth=one.depth, measures=names
    )
