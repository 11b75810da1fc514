"""The Python interface: open a workspace; make pools, rankings and scores; read them as polars frames.

It makes and reads the same artifacts as the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl

from pipeline.cluster.jobs import wait_for_workers
from pipeline.core.artifact import Artifact
from pipeline.core.door import checked_methods, filled, may_be_empty
from pipeline.core.errors import InputError, InsufficientDataError
from pipeline.core.install import load_plugins
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner, with_inputs
from pipeline.core.settings import Positive, convert, read
from pipeline.core.task import Task
from pipeline.core.workspace import EXPORTS, corpus_names, find_corpus, name_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.exchange.views import PoolView
from pipeline.stages.chain import Chain, Evaluation
from pipeline.stages.pool import explained, skip_infeasible
from pipeline.stages.selection import Names, joined, one_name
from pipeline.stages.selection import selection as selection
from pipeline.stages.settings import DEFAULT_DEPTH, RANKED

if TYPE_CHECKING:
    from pipeline.encode.base import Matrix
    from pipeline.encode.store import VectorStore


def open(  # noqa: A001
    root: str | Path = ".", *, memory: str | None = None, workers: int | None = None, device: str = "auto"
) -> Workspace:
    """Open a workspace.

    Args:
        root: the folder that holds ``corpora/``, ``indexes/`` and ``runs/``.
        memory: memory of a stage, such as ``"4G"``; None: half the machine's.
        workers: number of processes or threads; None: the machine's cores.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        InputError: ``root`` is not a folder, or a limit is out of range.
    """
    folder = Path(root).expanduser().absolute()  # notebooks change the working folder
    try:
        is_folder = folder.is_dir()
    except OSError:  # a name that is too long
        is_folder = False
    if not is_folder:
        raise InputError(f"the workspace {folder!s:.200} must be a folder", "Give the folder that holds corpora/")
    load_plugins()
    return Workspace(Runner(folder, Resources.of(memory, workers, device), wait=wait_for_workers))


Pools = PoolView | Task | Iterable[PoolView | Task]
"""One pool or several."""


@checked_methods
class Workspace:
    """A workspace. :func:`open` makes one.

    Attributes:
        runner: makes what is missing.
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    @property
    def root(self) -> Path:
        """The folder that holds ``corpora/``, ``indexes/`` and ``runs/``."""
        return self.runner.root

    def __repr__(self) -> str:
        return f"<workspace {self.root}: {', '.join(self.corpora()) or 'no corpora'}>"

    def corpora(self) -> list[str]:
        """Return the names that commands know corpora by, sorted."""
        return corpus_names(self.root)

    def corpus(self, name: str | None = None) -> Corpus:
        """Open a corpus; without a name, the only one.

        Raises:
            InputError: there are several corpora or none, or none of that name; the message lists them.
        """
        return Corpus(find_corpus(self.root, name))

    def build(
        self,
        source: str,
        input: str | Path | None = None,  # noqa: A002
        *,
        corpus: str | None = None,
        duplicates: str = "keep",
        **options: Any,
    ) -> Corpus:
        """Build a corpus from a release if it is missing, give it its name, and open it, as ``mdcr corpus`` does.

        Args:
            source: kind of the release, such as ``"parquet"``.
            input: folder or file of the release; None: the source needs none.
            corpus: name of the corpus; None: that of the source or of the task.
            duplicates: ``keep`` or ``drop`` (of one DOI, or of one title and year).
            **options: of the source, such as ``columns="paper_id=id,title=headline"``, or a mapping of the two.

        Raises:
            InputError: the source, an option or the release is wrong, or ``task`` names several tasks.
        """
        from pipeline.stages.corpus import corpus_tasks

        folder = None if input is None else Path(input).expanduser()
        tasks = corpus_tasks(source, folder, options, name=corpus, duplicates=duplicates)
        if len(tasks) > 1:
            raise InputError(f"task must name one task, got {', '.join(tasks)}", "Call ws.build(...) for each")
        ((name, task),) = tasks.items()
        (artifact,) = self.make([task])
        name_corpus(self.root, name, artifact)
        return Corpus(artifact)

    def tune(self, corpus: str | None = None, **settings: Annotated[Any, filled]) -> pl.DataFrame:
        """Choose k1 and b of BM25 on the validation queries of a selection, as ``mdcr tune`` does.

        Args:
            corpus: name of the corpus; None: the only one.
            **settings: of :func:`selection`.

        Returns:
            A row for each pool: ``tuning`` (a folder name), ``field``, ``queries``, ``candidates``, ``k1``, ``b``,
            ``map``, ``map_untuned`` (fractions; k1=0.9, b=0.4), and ``at_edge``: a better point may lie outside.

        Raises:
            InputError: the corpus is unknown, a setting is invalid, or there are no validation queries.
        """
        import polars as pl

        from pipeline.stages.tune import summary_of, tune_tasks

        tasks = tune_tasks(find_corpus(self.root, corpus), selection(**settings))
        rows = [summary_of(artifact) for artifact in self.make(skip_infeasible(self.runner, tasks))]
        return pl.DataFrame(rows, schema_overrides={"field": pl.String})

    def pools(self, corpus: str | None = None, **settings: Annotated[Any, filled]) -> list[PoolView]:
        """Make the missing pools of a selection, and open all: by field, then size, then sample.

        If all fields are selected, those with too few papers are left out with a warning.

        Args:
            corpus: name of the corpus; None: the only one.
            **settings: of :func:`selection`.

        Raises:
            InputError: the corpus is unknown or a setting is invalid.
        """
        tasks = selection(**settings).pools(find_corpus(self.root, corpus))
        return [self.view(task) for task in skip_infeasible(self.runner, tasks)]

    def pool(self, corpus: str | None = None, **settings: Annotated[Any, filled]) -> PoolView:
        """Make one pool if it is missing, and open it. The sample is the first, unless ``sample`` is given.

        Args:
            corpus: name of the corpus; None: the only one.
            **settings: of :func:`selection`, and ``sample``, a number from 1.

        Raises:
            InputError: the settings select several pools; the message lists them.
        """
        sample = convert(settings.pop("sample", 1), int, "sample")
        tasks = selection(**{"samples": sample, **settings}).pools(find_corpus(self.root, corpus))
        chosen = tasks if len(tasks) == 1 else [task for task in tasks if getattr(task.config, "sample", 1) == sample]
        if len(chosen) != 1:
            names = ", ".join(task.slug for task in chosen)
            raise InputError(f"the settings must select one pool, got {len(chosen)}: {names}", "Use ws.pools(...)")
        self.make(chosen)
        return self.view(chosen[0])

    def evaluations(
        self,
        pools: Pools,
        systems: Annotated[Names, may_be_empty],
        *,
        depth: int | str = DEFAULT_DEPTH,
        measures: Names | None = None,
        engine: str = "exact",
        bm25_engine: str = "postings",
        precision: str | None = None,
        runs: Annotated[Sequence[str | Path], may_be_empty] = (),
        **settings: Any,
    ) -> list[Evaluation]:
        """Return the tasks that rank and score each system on each pool, pool by pool. Nothing is made.

        Args:
            pools: the pools.
            systems: such as ``["bm25", "scincl", "rrf(bm25,scincl)"]``.
            depth: ranks kept per query.
            measures: measures to score besides the default ones.
            engine: engine of dense search, as ``--engine``.
            bm25_engine: ``postings`` or ``lucene``; the ranking is the same.
            precision: compute precision of encoders: ``fp32``, ``fp16``, ``bf16``; None: each model's own.
            runs: run files of other tools, added as systems.
            **settings: further settings of :class:`pipeline.stages.settings.Ranked`, such as ``missing_positives``.

        Raises:
            InputError: a system or measure is unknown, or ``bm25:tuned`` has no tuning.
            CorruptError: the manifest of a tuning of BM25 is damaged.
        """
        from pipeline.measure.measures import parse_measures
        from pipeline.stages.systems import parse_systems
        from pipeline.stages.tune import tunings_for

        parsed = parse_systems(joined(systems), precision, list(runs))  # before errors of the corpus
        by_corpus: dict[str, list[Task]] = {}
        for pool in [pools] if isinstance(pools, PoolView | Task) else pools:
            task = pool.task if isinstance(pool, PoolView) else pool
            by_corpus.setdefault(task.inputs["corpus"].id, []).append(task)
        kept = [name for name in settings if name in ("untuned", "tunings")]
        own = {name: settings.pop(name) for name in kept}
        settings |= {"depth": depth, "engine": engine, "bm25_engine": bm25_engine}
        settings = {"tunings": tunings_for(self.root, parsed), **own, **read(RANKED, settings, [*own])}
        settings["measures"] = tuple(map(str, parse_measures(joined(measures)))) if measures else ()
        return [
            evaluation
            for group in by_corpus.values()
            for evaluation in Chain(self._corpus_of(group[0]), **settings).evaluations(group, parsed)
        ]

    def evaluate(self, pools: Pools, systems: Annotated[Names, may_be_empty], **settings: Any) -> pl.DataFrame:
        """Make whatever is missing to score systems on pools, and return the scores.

        Args:
            pools: the pools.
            systems: such as ``["bm25", "scincl"]``. Where a tuning gives ``bm25`` its parameters, Anserini's are scored
                too, as ``bm25:k1=0.9,b=0.4``.
            **settings: of :meth:`evaluations`.

        Returns:
            A row for each pool, system, query and measure, values as fractions:
            :data:`pipeline.scores.frames.SCORES_SCHEMA`.

        Raises:
            InputError: as :meth:`evaluations`.
        """
        from pipeline.scores.store import scores_of

        return scores_of(self.evaluated(self.evaluations(pools, systems, **{"untuned": True, **settings})))

    def evaluated(self, evaluations: Annotated[Sequence[Evaluation], may_be_empty]) -> pl.DataFrame:
        """Make whatever is missing of evaluations, and return their labelled rankings as a frame.

        Args:
            evaluations: what :meth:`evaluations` plans: a system on a pool each.

        Returns:
            A row for each ranking: :data:`pipeline.scores.frames.RUNS`.
        """
        from pipeline.scores.labels import labelled
        from pipeline.scores.store import runs_of

        self.make([score for evaluation in evaluations for score in evaluation.scores])
        return labelled(runs_of(self.runner, evaluations))

    def scores(self, **settings: Annotated[Any, filled]) -> pl.DataFrame:
        """Return the stored scores, a row for each pool, system, query and measure; nothing is made.

        Args:
            **settings: filters, as :func:`selection` reads them:
                ``corpus="s2orc", field="Medicine", size="100k", systems="bm25,scincl"``.

        Raises:
            InputError: no scores match; the message lists those that exist.
        """
        from pipeline.scores.choose import load, settings_of_choice

        return load(self.root, **settings_of_choice(**settings))

    def most_different(
        self, pool: PoolView, first: str, second: str, measure: str = "map", most: int = 10
    ) -> pl.DataFrame:
        """Return the queries of a pool on which two systems differ most, with the ranks of their relevant papers.

        Args:
            pool: the pool on which both were scored.
            first: name of a system.
            second: name of another system.
            measure: the measure compared.
            most: maximum number of queries.

        Returns:
            A row for each query: :data:`pipeline.scores.compare.QUERIES`.

        Raises:
            InputError: a system was not scored on the pool, or several rows have its name; the message lists them.
        """
        from pipeline.scores.choose import choose
        from pipeline.scores.compare import most_different, paired
        from pipeline.scores.store import stored, values

        runs = choose(stored(self.root).filter(pool=pool.name), self.root)
        score_pairs, labels = paired(values(runs), runs, first, second)
        return most_different(score_pairs, runs, labels, measure, convert(most, Positive, "most"))

    def ranking(self, pool: PoolView, system: str, **settings: Any) -> pl.DataFrame:
        """Return the ranking of one system on one pool.

        Args:
            pool: the pool.
            system: name of the system.
            **settings: of :meth:`evaluations`, such as ``depth``.

        Returns:
            Entries in order: ``query_id, paper_id, rank`` (from 1), ``score`` (higher is better), ``grade`` (else 0).

        Raises:
            InputError: the system has not ranked the pool.
        """
        (evaluation,) = self.evaluations(pool, one_name(system), **settings)[-1:]
        if not self.runner.published(evaluation.ranking):
            raise InputError(f"{system} has not ranked {pool.name}", f"Run ws.evaluate(pool, {system!r}) first")
        return pool.entries(self.runner.make(evaluation.ranking))

    def vectors(self, pool: PoolView, system: str, *, precision: str | None = None) -> tuple[list[str], Matrix]:
        """Return the vectors of a pool's papers: ids in order, and a memory-mapped float32 ``[papers, dimension]``.

        They are written to a file below ``runs/exports``. For the papers and errors see :meth:`write_vectors`.
        """
        from pipeline.encode.export import open_vectors

        task, _ = self._store(pool, system, precision)
        path = self.root / EXPORTS / f"{pool.name}-{Path(task.folder).name}.npy"  # of one corpus, encoder and revision
        return open_vectors(self.write_vectors(pool, system, path, precision=precision))

    def write_vectors(self, pool: PoolView, system: str, path: Path, *, precision: str | None = None) -> Path:
        """Write the vectors of a pool's papers, in order of id, and return the path.

        The papers are the candidates and, where queries are papers, the queries; those without a vector are left out.

        Args:
            pool: the pool.
            system: an encoder.
            path: a file that ends in ``.npy`` (ids beside it in ``.ids.txt``) or ``.parquet``.
            precision: compute precision of the encoder; None: its own.

        Raises:
            InputError: the system is not an encoder with one vector per paper, or has not embedded the pool.
        """
        from pipeline.encode.export import export_vectors

        opened_pool, store = pool.pool, self._store(pool, system, precision)[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = np.setdiff1d(opened_pool.papers, store.missing(opened_pool.papers))
        return export_vectors(store, rows, opened_pool.corpus.ids, path)

    def _store(self, pool: PoolView, system: str, precision: str | None) -> tuple[Task, VectorStore]:
        """Return the task that embeds the papers of a pool by one encoder, and the store it published into."""
        from pipeline.stages.embed import embed_tasks, store_of
        from pipeline.stages.systems import encoders, parse_systems

        models = encoders(parse_systems(system, precision))
        if len(models) != 1:
            raise InputError(f"the system must be one encoder, got {system}", 'Name one, such as "scincl"')
        task = embed_tasks(self._corpus_of(pool.task), pool.task, models[0].whole())["paper"]
        if not self.runner.published(task):
            raise InputError(f"{system} has not embedded {pool.name}", f"Run ws.evaluate(pool, {system!r}) first")
        return task, store_of(self.runner.make(task))

    def make(self, tasks: Annotated[Sequence[Task], may_be_empty]) -> list[Artifact]:
        """Make the missing artifacts of tasks, pools first, and return the artifacts of all, in their order."""
        pools = [task for task in with_inputs(tasks) if task.stage == "pool"]
        try:
            self.runner.make_all(pools)
        except InsufficientDataError as error:
            raise explained(error, pools) from error
        return self.runner.make_all(tasks)

    def view(self, task: Task) -> PoolView:
        """Make the pool of a task if it is missing, and open it."""
        return PoolView(Pool(self.runner.make(task), Corpus(self._corpus_of(task))), task)

    def _corpus_of(self, pool: Task) -> Artifact:
        corpus = pool.inputs["corpus"]
        return self.runner.make(corpus) if isinstance(corpus, Task) else corpus
