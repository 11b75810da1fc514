"""Stage ``pool``: queries, candidates, qrels and exclusions from a corpus."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.pools import build_given_pool, build_pool
from pipeline.corpus.queries import check_queries
from pipeline.corpus.reader import Corpus


def pool_task(
    corpus: Artifact, config: PoolConfig, exclude: Sequence[Path] = (), test: Task | Artifact | None = None
) -> Task:
    """Return the task that builds one pool.

    Args:
        corpus: the corpus it is drawn from.
        config: its settings; ``exclude`` is filled in here.
        exclude: files with one paper id a line that may not be queries (training queries of an encoder).
        test: of a validation pool: the test pool whose queries it must not share.
    """
    lists = {path: _read_list(path) for path in exclude}
    config = dataclasses.replace(config, exclude=exclusions(exclude))
    inputs: dict[str, Task | Artifact] = {"corpus": corpus}
    if test is not None:
        inputs["test"] = test

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened = Corpus(inputs["corpus"])
        if config.queries_are == "texts":
            return build_given_pool(opened, config, out)
        excluded = opened.rows_of([paper_id for ids in lists.values() for paper_id in ids])
        excluded = excluded[excluded >= 0]
        if "test" in inputs:
            excluded = np.concatenate([excluded, Pool(inputs["test"], opened).query_rows])
        return build_pool(opened, config, out, excluded)

    version = 2 if config.queries_are == "texts" else 1
    return Task("pool", version, POOLS, f"{corpus.manifest.slug}-{config.slug}", config, inputs, run)


def exclusions(paths: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    """Return name and SHA-256 of lists of paper ids, as pools record them.

    Raises:
        InputError: a list cannot be read.
    """
    return tuple((path.name, hashlib.sha256("\n".join(_read_list(path)).encode()).hexdigest()) for path in paths)


def check_pool(task: Task) -> None:
    """Check, without drawing, that the corpus has papers enough that may be queries of a pool.

    Raises:
        LackError: it has not.
    """
    corpus, config = task.inputs["corpus"], task.config
    if isinstance(corpus, Artifact) and config.queries_are != "texts":
        check_queries(Corpus(corpus), config)


def _read_list(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the exclusion list {path} cannot be read ({error})", "Give one paper id a line") from error
    return sorted({line.strip() for line in lines} - {""})
