"""Submissions: runs and scores of one system in one file, which another workspace verifies before they count.

A submission is a zip file: ``manifest.json`` with the system, its costs and, of each run, the identity of its pool, the
SHA-256 of its file and the measures of every query; ``N.trec.gz`` is run N.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterator
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
from pipeline.core.provenance import code_version
from pipeline.core.task import Task
from pipeline.core.workspace import CORPORA, POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.exchange.rankings import write_ranking
from pipeline.exchange.runs import read_run
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, Run, select
from pipeline.measure.measures import parse_measures
from pipeline.scores.store import artifact, opened_pool, values
from pipeline.stages.rankings import import_task
from pipeline.stages.score import score_tasks
from pipeline.stages.systems import ImportedRun
from pipeline.studies.leaderboard.benchmarks import Recipe
from pipeline.studies.leaderboard.costs import SUBMISSIONS, costs
from pipeline.studies.leaderboard.study import found_in

_MANIFEST = "manifest.json"
_EQUAL = 1e-9
"""Values that differ by less are equal but for rounding."""


class Ranked(msgspec.Struct):
    """A run: identity and name of its pool, ranks kept of a query, SHA-256, and each measure of all queries."""

    pool: str
    name: str
    depth: int
    sha256: str
    scores: dict[str, list[float]]


class Submission(msgspec.Struct):
    """A manifest: the system, the code that scored it, what it costs, and its runs."""

    system: str
    code: str
    costs: dict[str, Any]
    runs: list[Ranked]


def pack(workspace: Workspace, recipe: Recipe, system: str, path: Path) -> Submission:
    """Write a submission of a system with each benchmark of the leaderboard that has runs, and return its manifest.

    Raises:
        InputError: the system is on no such benchmark.
    """
    roots, found = found_in(workspace, recipe)
    runs = [one.runs.filter(system=system) for one in found if one.runs is not None and system in one.systems]
    opened = (
        [(run, pool) for run in pl.concat(runs).iter_rows(named=True) if (pool := opened_pool(run))] if runs else []
    )
    if not opened:
        raise InputError(f"{system} must be on a benchmark of the leaderboard, got none", "Run mdcr leaderboard")
    submission = Submission(system, code_version(), costs(roots, found).filter(system=system).row(0, named=True), [])
    with (
        files.disk_errors(path),
        files.replacing(path) as temporary,
        TemporaryDirectory() as folder,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for run, pool in opened:
            file = Path(folder) / f"{len(submission.runs)}.trec.gz"
            write_ranking(file, artifact(run, "ranking").arrow("ranking.arrow"), pool, "submission", "trec.gz")
            archive.write(file, file.name)
            scores = values(pl.DataFrame([run], runs[0].schema)).sort("query").partition_by("measure", as_dict=True)
            by_measure = {str(measure): part["value"].to_list() for (measure,), part in scores.items()}
            one = Ranked(pool.artifact.id, pool.artifact.name, run["depth"], files.sha256(file), by_measure)
            submission.runs.append(one)
        archive.writestr(_MANIFEST, msgspec.json.encode(submission))
    return submission


def add(workspace: Workspace, path: Path) -> list[Artifact]:
    """Verify a submission, score its runs in the workspace under the name of its file, and return the scores.

    Nothing is scored before every digest, pool and measure is verified.

    Raises:
        InputError: the file is no submission, a run differs from its digest, the workspace lacks a pool, or a measure
            that is recomputed from a run differs.
    """
    folder = workspace.root / SUBMISSIONS / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    tasks = list[Task]()
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = archive.read(_MANIFEST)
            for number, one in enumerate(msgspec.json.decode(manifest, type=Submission).runs):
                tasks += _verified(workspace, path, folder, one, archive.read(f"{number}.trec.gz"))
    except (OSError, EOFError, KeyError, RuntimeError, zlib.error, zipfile.BadZipFile, msgspec.MsgspecError) as error:
        raise InputError(f"{path} must be a submission ({error})", "Write it by mdcr submission") from error
    with files.replacing(folder / _MANIFEST) as temporary:
        temporary.write_bytes(manifest)
    return workspace.make(tasks)


def _verified(workspace: Workspace, path: Path, folder: Path, one: Ranked, run: bytes) -> Iterator[Task]:
    """Yield the tasks that score a run, after its digest and measures were verified."""
    if hashlib.sha256(run).hexdigest() != one.sha256:
        raise InputError(f"{path} must have the run on {one.name} that its digest says, got another", "Fetch it again")
    pool = next((pool for pool in published(workspace.root / POOLS) if pool.id == one.pool), None)
    if pool is None:
        raise InputError(f"{path} ranks the pool {one.name}, which is not in the workspace", "Make it: mdcr pool")
    corpora = {corpus.id: corpus for corpus in published(workspace.root / CORPORA)}
    corpus, file = corpora[pool.manifest.inputs["corpus"]], folder / f"{pool.name}.trec.gz"
    with files.replacing(file) as temporary:
        temporary.write_bytes(run)
    opened, measures = Pool(pool, Corpus(corpus)), parse_measures(sorted(one.scores))
    count = len(opened.query_rows)
    qrels, table = Qrels.from_table(opened.qrels, count), read_run(file, opened, one.depth)[0]
    ranked, judged = select(Run.from_table(table, count), qrels, np.flatnonzero(qrels.positives()))
    for measure, mine in zip(measures, evaluate(judged, ranked, measures), strict=True):
        given = np.array(one.scores[str(measure)])
        if given.shape != mine.shape or not np.allclose(given, mine, rtol=0, atol=_EQUAL):
            raise InputError(
                f"{path} must have {measure} as its run on {one.name} gives it, got others", "Pack it again"
            )
    system, sample = ImportedRun(file, path.stem), pool.manifest.config.get("sample", 1)
    ranking, names = import_task(corpus, pool, system, depth=one.depth), tuple(map(str, measures))
    yield from score_tasks(ranking, pool, corpus, system=system.title, sample=sample, depth=one.depth, measures=names)
