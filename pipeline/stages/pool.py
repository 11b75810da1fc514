"""Stage ``pool``: queries, candidates, qrels and exclusions from a corpus."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, InsufficientDataError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import POOLS
from pipeline.corpus.fit import largest
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import SETTINGS, PoolConfig
from pipeline.corpus.pools import build_given_pool, build_pool
from pipeline.corpus.queries import check_queries
from pipeline.corpus.reader import Corpus
from pipeline.stages.search import slug_of


@dataclass(frozen=True)
class PoolBuilder:
    """The work of a pool.

    Attributes:
        config: its settings.
        exclude: files with one paper id a line that may not be queries.
        ids: what they hold.
    """

    config: PoolConfig
    exclude: tuple[Path, ...]
    ids: tuple[str, ...]

    def __call__(self, inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        """Draw the pool, or write the one that a release brings."""
        opened = Corpus(inputs["corpus"])
        if self.config.queries_are == "texts":
            return build_given_pool(opened, self.config, out)
        excluded = opened.rows_of(self.ids)
        excluded = excluded[excluded >= 0]
        if "test" in inputs:
            excluded = np.concatenate([excluded, Pool(inputs["test"], opened).query_rows])
        return build_pool(opened, self.config, out, excluded)


def pool_task(corpus: Task | Artifact, config: PoolConfig, exclude: Sequence[Path] = ()) -> Task:
    """Return the task that builds one pool; a validation pool leaves out the queries of the test pool.

    ``exclude`` are files with one paper id a line that may not be queries, such as training queries of an encoder.
    """
    config = dataclasses.replace(config, exclude=exclusions(exclude))
    inputs: dict[str, Task | Artifact] = {"corpus": corpus}
    if config.split == "validation":
        inputs["test"] = pool_task(corpus, dataclasses.replace(config, split="test", sample=1), exclude)
    builder = PoolBuilder(config, tuple(exclude), read_ids(exclude))
    version = 2 if config.queries_are == "texts" else 1
    return Task("pool", version, POOLS, f"{slug_of(corpus)}-{config.slug}", config, inputs, builder)


def validation_task(pool: Task) -> Task | None:
    """Return the task of the validation pool that belongs to a test pool; None where no queries are left for one."""
    builder = pool.run
    if not isinstance(builder, PoolBuilder) or builder.config.queries_are == "texts" or builder.config.queries == "all":
        return None
    config = dataclasses.replace(builder.config, split="validation", sample=1)
    return pool_task(pool.inputs["corpus"], config, builder.exclude)


def exclusions(paths: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    """Return name and SHA-256 of lists of paper ids, as pools record them."""
    return tuple((path.name, hashlib.sha256("\n".join(_read_list(path)).encode()).hexdigest()) for path in paths)


def check_pool(task: Task) -> None:
    """Check, without drawing, that the corpus has papers enough that may be queries of a pool."""
    corpus, config = task.inputs["corpus"], task.config
    if isinstance(corpus, Artifact) and config.queries_are != "texts":
        check_queries(Corpus(corpus), config)


def explained(error: InsufficientDataError, pools: Sequence[Task]) -> InsufficientDataError:
    """Return an error about some pools of one corpus with the settings nearest to theirs that it has papers for."""
    pools = [pool for pool in pools if pool.config.split == "validation"] or pools
    first = pools[0]
    corpus, builder = first.inputs["corpus"], first.run
    if not isinstance(corpus, Artifact) or not isinstance(builder, PoolBuilder) or first.config.queries_are == "texts":
        return error
    opened, config = Corpus(corpus), first.config
    fields, sizes = (tuple(dict.fromkeys(getattr(pool.config, name) for pool in pools)) for name in ("field", "size"))
    for free in ({"queries", "size"}, {"year", "queries", "size"}):
        held_out = config.split == "validation"
        if found := largest(opened, config, fields, sizes, free, builder.ids, held_out=held_out):
            found = ({} if config.year == SETTINGS["year"].default else {"year": config.year}) | found
            error.instead = {SETTINGS[name].option: SETTINGS[name].typed(value) for name, value in found.items()}
            break
    return error


def read_ids(paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the ids in lists of papers that may not be queries.

    Raises:
        InputError: a list cannot be read.
    """
    return tuple(each for path in paths for each in _read_list(path))


def _read_list(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the exclusion list {path} cannot be read ({error})", "Give one paper id a line") from error
    return sorted({line.strip() for line in lines} - {""})
