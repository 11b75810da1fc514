"""Submissions: the runs and scores of one system in one file, which another workspace verifies before it adds them.

A submission is a zip file: ``manifest.json`` with the system and, of each run, the identity of its pool, the
SHA-256 of its file and the measures of every query; ``N.trec.gz`` is run N.
"""

from __future__ import annotations

import hashlib
import zipfile
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import numpy as np
import polars as pl

from pipeline.api import Workspace
from pipeline.core import files
from pipeline.core.artifact import Artifact, published
from pipeline.core.config import file_name
from pipeline.core.errors import InputError
from pipeline.core.provenance import code_version
from pipeline.core.task import Task
from pipeline.core.workspace import CORPORA, POOLS, SUBMISSIONS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.exchange.export import write_ranking
from pipeline.exchange.runs import read_run
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, RankedRun, select
from pipeline.measure.measures import parse_measures
from pipeline.retrieve.base import MAX_DEPTH
from pipeline.scores.facts import artifact_of
from pipeline.scores.store import open_pool, stored, values
from pipeline.sources.content import read_blocks
from pipeline.stages.rankings import import_task
from pipeline.stages.score import score_tasks
from pipeline.stages.systems import System
from pipeline.studies.leaderboard.benchmarks import Recipe, read_benchmarks

_MANIFEST = "manifest.json"
_LARGEST = 2**28
"""Maximum bytes of the manifest or a run, decompressed; such a run takes :data:`pipeline.exchange.runs.MEMORY`."""
_EQUAL = 1e-9
"""Tolerance of verified values, for rounding."""

Short = Annotated[str, msgspec.Meta(max_length=1_000)]


class Ranked(msgspec.Struct):
    """A run: id and name of its pool, ranks per query, SHA-256, and each measure's value of every query."""

    pool: Short
    name: Short
    depth: Annotated[int, msgspec.Meta(ge=1, le=MAX_DEPTH)]
    sha256: Short
    scores: dict[Short, list[float]]


class Submission(msgspec.Struct):
    """The manifest: the system, the version of the code that scored it, and its runs."""

    system: Short
    code: Short
    runs: list[Ranked]


def pack(workspace: Workspace, recipe: Recipe, system: str, path: Path) -> Submission:
    """Write a submission of a system with its runs on all benchmarks of the leaderboard, and return its manifest.

    Raises:
        InputError: the system is on no such benchmark.
    """
    benchmarks = read_benchmarks(workspace, recipe)
    runs = [benchmark.runs.filter(system=system) for benchmark in benchmarks if system in benchmark.names]
    rows = pl.concat(runs).rows(named=True) if runs else []
    runs_with_pool = [(run, pool) for run in rows if (pool := open_pool(run))]
    if not runs_with_pool:
        raise InputError(f"{system} must be on a benchmark of the leaderboard, got none", "Run mdcr leaderboard")
    submission = Submission(system, code_version(), [])
    with (
        files.disk_errors(path),
        files.replacing(path) as temporary,
        TemporaryDirectory() as folder,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for run, pool in runs_with_pool:
            file = Path(folder) / f"{len(submission.runs)}.trec.gz"
            write_ranking(file, artifact_of(run, "ranking").arrow("ranking.arrow"), pool, "submission")
            archive.write(file, file.name)
            scores = values(pl.DataFrame([run], runs[0].schema)).sort("query").partition_by("measure", as_dict=True)
            by_measure = {str(measure): column["value"].to_list() for (measure,), column in scores.items()}
            submission.runs.append(
                Ranked(pool.artifact.id, pool.artifact.name, run["depth"], files.sha256(file), by_measure)
            )
        archive.writestr(_MANIFEST, msgspec.json.encode(submission))
    files.remove_abandoned(path.parent)
    return submission


def add(workspace: Workspace, path: Path) -> list[Artifact]:
    """Verify a submission, score its runs in the workspace under the name of its file, and return the scores.

    Nothing is stored or scored before all digests, pools and measures are verified.

    Raises:
        InputError: the file is not a submission, has the name of another system, or contains a file over 256 MiB; a run
            does not match its digest, the workspace lacks a pool, or a measure recomputed from a run differs.
    """
    name, folder, verified_runs = path.stem, workspace.root / SUBMISSIONS / path.stem, list[tuple[Pool, Ranked, str]]()
    is_free = folder.is_dir() or name not in stored(workspace.root)["system"]
    if name != file_name(name, kept="._-") or not is_free:
        remedy = "Rename it, by letters, digits, ., _ and -"
        raise InputError(f"{path} must have the name of a new system, got {name}", remedy)
    folder.parent.mkdir(parents=True, exist_ok=True)
    files.remove_abandoned(folder.parent)
    place = TemporaryDirectory(files.temporary_suffix(), f".{name}.", folder.parent)
    try:
        with place as temporary, zipfile.ZipFile(files.given(path)) as archive:
            submission = msgspec.json.decode(_member(archive, _MANIFEST, path), type=Submission)
            runs, names = submission.runs, [f"{number}.trec.gz" for number in range(len(submission.runs))]
            if sorted(archive.namelist()) != sorted([_MANIFEST, *names]):
                raise KeyError("it must hold its manifest and runs, and nothing else")
            for claim, run_file in zip(runs, names, strict=True):
                pool = _verified(workspace, path, Path(temporary), claim, _member(archive, run_file, path))
                verified_runs.append((pool, claim, f"{pool.artifact.name}.trec.gz"))
            folder.mkdir(exist_ok=True)
            for file in Path(temporary).iterdir():
                file.replace(folder / file.name)
    except (KeyError, msgspec.MsgspecError, *files.ZIP_ERRORS) as error:
        raise InputError(f"{path} must be a submission ({error})", "Write it by mdcr submission") from error
    tasks = list[Task]()
    for pool, claim, run_file in verified_runs:
        system = System.run(folder / run_file, name)
        corpus, measures = pool.corpus.artifact, tuple(sorted(claim.scores))
        ranking = import_task(corpus, pool.artifact, folder / run_file, system.name, depth=claim.depth)
        tasks += score_tasks(ranking, pool.artifact, corpus, system=system.title, depth=claim.depth, measures=measures)
    return workspace.make(tasks)


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    """Return a file of a submission; decompression stops at the limit, whatever size the archive states."""
    if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others have no bound
        raise zipfile.BadZipFile(f"{name} must be stored or deflated")
    with archive.open(name) as member:
        content = member.read(_LARGEST + 1)
    _check_size(len(content), name, path)
    return content


def _check_size(size: int, name: str, path: Path) -> None:
    if size > _LARGEST:
        limit = f"{_LARGEST / 2**20:,.0f} MiB"
        raise InputError(f"{name} of {path} must hold at most {limit} decompressed, got more", "Keep fewer ranks")


def _verified(workspace: Workspace, path: Path, folder: Path, claim: Ranked, run: bytes) -> Pool:
    """Verify the digest and measures of a run, write it to a folder, and return its pool."""
    if hashlib.sha256(run).hexdigest() != claim.sha256:
        problem = f"{path} must have the run on {claim.name} that its digest states, got another"
        raise InputError(problem, "Fetch it again")
    pool_artifact = next((entry for entry in published(workspace.root / POOLS) if entry.id == claim.pool), None)
    if pool_artifact is None:
        raise InputError(f"{path} ranks the pool {claim.name}, which is not in the workspace", "Make it: mdcr pool")
    file = folder / f"{pool_artifact.name}.trec.gz"
    if file.exists():
        raise InputError(f"{path} must rank a pool once, got {pool_artifact.name} twice", "Pack it again")
    file.write_bytes(run)
    for size in accumulate(map(len, read_blocks(file))):
        _check_size(size, f"the run on {pool_artifact.name}", path)
    corpora = {corpus.id: corpus for corpus in published(workspace.root / CORPORA)}
    pool = Pool(pool_artifact, Corpus(corpora[pool_artifact.manifest.inputs["corpus"]]))
    measures, count = parse_measures(sorted(claim.scores)), len(pool.query_rows)
    qrels, table = Qrels.from_table(pool.qrels, count), read_run(file, pool, claim.depth)[0]
    run_of_pool, judged = select(RankedRun.from_table(table, count), qrels, np.flatnonzero(qrels.positives()))
    for measure, recomputed in zip(measures, evaluate(judged, run_of_pool, measures), strict=True):
        claimed = np.array(claim.scores[str(measure)])
        if claimed.shape != recomputed.shape or not np.allclose(claimed, recomputed, rtol=0, atol=_EQUAL):
            problem = f"{path} must have {measure} as its run on {claim.name} gives it, got others"
            raise InputError(problem, "Pack it again")
    return pool
