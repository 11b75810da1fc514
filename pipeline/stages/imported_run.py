"""Stage ``import``: the ranking of a pool that another tool made, from its file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.progress import say
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.exchange.runs import read_run
from pipeline.measure.inputs import column
from pipeline.retrieve.base import Ranking, check_depth
from pipeline.stages.search import open_pool, slug_of, write_ranking


@dataclass(frozen=True)
class ImportConfig:
    """What decides an imported ranking.

    Attributes:
        name: of the system in every table.
        sha256: of the file.
        depth: entries kept a query.
        allow_unknown: whether queries and documents that the pool does not have are left out.
    """

    name: str
    sha256: str
    depth: int
    allow_unknown: bool


def import_task(
    corpus: Artifact, pool: Task | Artifact, path: Path, *, name: str, depth: int, allow_unknown: bool = False
) -> Task:
    """Return the task that makes a ranking of a run file.

    Its counts are those of a ranking and of :func:`pipeline.exchange.runs.read_run`.

    Raises:
        InputError: the file cannot be read; once run: it changed since, or an entry is refused.
    """
    check_depth(depth)
    config = ImportConfig(name, _checksum(path), depth, allow_unknown)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        opened = open_pool(inputs)
        table, read = read_run(path, opened, depth, allow_unknown=allow_unknown, memory=resources.memory)
        if _checksum(path) != config.sha256:
            raise InputError(f"{path} changed while it was read", "Run the command again")
        ranking = Ranking(*(column(table, name) for name in table.column_names))
        counts = {**write_ranking(ranking, opened, depth, out), **read}
        out.note(file=path.name)
        say(f"run {name}: {_described(counts)}")
        return counts

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool}
    return Task("import", 1, RANKINGS, f"import-{slug_of(pool)}", config, inputs, run)


def _described(counts: Counts) -> str:
    """Return what an import left out, scored 0 or ordered, on one line."""
    notable = {
        "queries_without_results": "queries without results score 0",
        "unknown_queries": "entries of unknown queries left out",
        "unknown_documents": "entries of unknown documents left out",
        "excluded": "entries that the pool excludes left out",
        "beyond_depth": "entries beyond --depth left out",
        "tied": "tied entries ordered by document id",
    }
    said = [f"{counts[name]:,} {what}" for name, what in notable.items() if counts[name]]
    return "; ".join([f"{counts['entries']:,} entries of {counts['queries']:,} queries", *said])


def _checksum(path: Path) -> str:
    remedy = "Give the path of a run file"
    if path.exists() and not path.is_file():  # a device or a pipe may have no end
        raise InputError(f"the run {path} cannot be read (it must be a file)", remedy)
    try:
        return files.sha256(path)
    except OSError as error:
        raise InputError(f"the run {path} cannot be read ({error.strerror})", remedy) from error
