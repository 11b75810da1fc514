"""Stage ``search`` by an approximate index: what is found, and how much of the exact ranking that is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pipeline.core.artifact import Artifact
from pipeline.core.manifest import Counts
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.encode.spec import Role
from pipeline.measure import inputs as measured
from pipeline.retrieve.base import Block, Metric, Ranking, block_rows, check_depth
from pipeline.retrieve.engines import IndexSettings
from pipeline.stages.dense import matrix
from pipeline.stages.embed import store_of
from pipeline.stages.search import slug_of, write_ranking


@dataclass(frozen=True)
class ApproximateConfig:
    """What decides an approximate ranking beside the vectors.

    Attributes:
        metric: ``l2``, ``inner_product`` or ``cosine``.
        depth: entries a query.
        search: the index.
    """

    metric: Metric
    depth: int
    search: IndexSettings


def approximate_ranking_task(
    corpus: Artifact,
    pool: Task | Artifact,
    vectors: Mapping[Role, Task | Artifact],
    exact: Task,
    *,
    name: str,
    metric: Metric,
    depth: int,
    settings: IndexSettings,
) -> Task:
    """Return the task that ranks a pool's candidates by an approximate index; its counts have the recall.

    Args:
        corpus: the corpus of the pool.
        pool: whose queries are run.
        vectors: what embeds the pool.
        exact: the exact ranking, which this one is compared with.
        name: the encoder's, for the folder.
        metric: how its vectors are compared.
        depth: entries a query.
        settings: the index.
    """
    check_depth(depth)
    config = ApproximateConfig(metric, depth, settings)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        from pipeline.retrieve.ann import ApproximateEngine, recall

        opened = Pool(inputs["pool"], Corpus(inputs["corpus"]))
        store = store_of(inputs["paper"])
        size = block_rows(store.dimension, resources.memory)
        queries = matrix(store_of(inputs["query"]) if "query" in inputs else store, opened.query_rows, size)
        with Progress(len(opened.candidates), f"index {name} by {settings.name}", "docs") as progress:
            ranking = ApproximateEngine(config.search).search(
                queries,
                _counted(store.blocks(opened.candidates, size), progress),
                count=len(opened.candidates),
                metric=metric,
                depth=depth,
                excluded=opened.exclusions,
                resources=resources,
            )
        table = inputs["exact"].arrow("ranking.arrow")
        whole = Ranking(*(measured.column(table, column) for column in table.column_names))
        return {**write_ranking(ranking, opened, depth, out), "recall": recall(ranking, whole)}

    inputs: dict[str, Task | Artifact] = {"corpus": corpus, "pool": pool, "exact": exact}
    inputs.update((str(role), embedded) for role, embedded in vectors.items())
    return Task("search", 1, RANKINGS, f"{name}-{settings.kind}-{slug_of(pool)}", config, inputs, run)


def _counted(blocks: Iterable[Block], progress: Progress) -> Iterator[Block]:
    """Yield blocks, and count their papers when they were read."""
    for rows, vectors in blocks:
        yield rows, vectors
        progress.add(len(rows))
