"""The recipe of the study, and the tasks it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, nearest
from pipeline.core.task import Task
from pipeline.core.workspace import find_corpus
from pipeline.encode.spec import Model
from pipeline.sources.collection import open_jsonl
from pipeline.stages.chain import Evaluation
from pipeline.stages.corpus import corpus_task
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.score import score_tasks
from pipeline.stages.selection import parse_count_or_all
from pipeline.stages.systems import encoders, parse_systems
from pipeline.studies.neighbours.artifacts import NeighboursConfig, neighbours_task, tags_task
from pipeline.studies.neighbours.geometry import similarity_task, standardised_task
from pipeline.studies.neighbours.operators import CLASSES
from pipeline.studies.neighbours.pools import Kind, NeighbourPoolConfig, pool_task

DEPTHS: dict[Kind, int] = {"titles": 100, "titles-among-titles": 100, "neighbours": 10, "overlap": 20}
"""Ranks kept of each query: T100, NN10_Ret and AOP-20 need no more."""

STANDARDISED = " standardised"
"""Ends the name of a system whose vectors are standardised."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the study.

    Attributes:
        corpus: names of the corpora, with commas.
        input: folder with ``NAME.jsonl.gz`` of each (id, title, abstract); empty: the corpora are built already.
        systems: what ranks, with commas; encoders must compare vectors by cosine.
        titles: papers whose titles are queries (tasks I and II).
        papers: papers whose neighbours are queries, or ``all``.
        classes: names of the classes; empty: all 32.
        standardise: whether tasks I and II are repeated with standardised vectors.
        seed: of every draw.
        quality: CSV file with the columns ``system`` and ``value``, such as the MAP of each system on citation
            recommendation, for a rank correlation with brittleness; empty: none.
        reference: data set of the paper's tables that a corpus is comparable to, by name of the corpus.
    """

    corpus: str
    input: str
    systems: str
    titles: int
    papers: str
    classes: tuple[str, ...]
    standardise: bool
    seed: int
    quality: str
    reference: Mapping[str, str]

    def __post_init__(self) -> None:
        for name in self.classes:
            if name not in CLASSES:
                raise InputError(f"a class must be one of the 32, got {name!r}", nearest(name, CLASSES))

    @property
    def corpora(self) -> list[str]:
        """Names of the corpora."""
        return [name.strip() for name in self.corpus.split(",") if name.strip()]

    @property
    def settings(self) -> NeighboursConfig:
        """Settings of the corpora of neighbours."""
        papers = parse_count_or_all(str(self.papers), "papers")
        return NeighboursConfig(papers, self.classes or tuple(CLASSES), self.seed)

    def models(self) -> list[Model]:
        """Return the encoders among the systems.

        Raises:
            InputError: one has several vectors a paper, or does not compare them by cosine.
        """
        found = encoders(parse_systems(self.systems))
        for model in found:
            if model.several:
                raise InputError(f"{model.name} must have one vector a paper", "Leave it out of --model")
            if model.distance != "cosine":
                raise InputError(
                    f"{model.name} must be compared by cosine, got {model.distance}", f"{model.name}:distance=cosine"
                )
        return found


@dataclass(frozen=True)
class Ranked:
    """A system on a pool, with what ranks and scores it."""

    pool: Task
    system: str
    ranking: Task
    scores: tuple[Task, ...]


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the tasks, corpus by corpus: tags and neighbours, titles and neighbours as queries, overlaps."""
    recipe.models()
    for name in recipe.corpora:
        if recipe.input:
            yield [_corpus_task(recipe, name)]
        yield [_neighbours_task(workspace, recipe, name)]
        corpus = neighbours_of(workspace, recipe, name)
        ranked = rankings(workspace, recipe, corpus)
        yield [score for each in ranked for score in each.scores]
        yield [each.ranking for each in ranked if not each.scores]
        yield [task for _, task in similarities(workspace, recipe, corpus)]


def neighbours_of(workspace: Workspace, recipe: Recipe, name: str) -> Artifact:
    """Return the corpus of neighbours of one corpus.

    Raises:
        InputError: it, or the corpus, is not made yet.
    """
    return _made(workspace, _neighbours_task(workspace, recipe, name))


def _made(workspace: Workspace, task: Task) -> Artifact:
    if not workspace.runner.published(task):
        raise InputError(f"{task.name} must be made first", "Run mdcr study neighbours")
    return Artifact.open(workspace.runner.path(task))


def pools(recipe: Recipe, corpus: Artifact, kind: Kind) -> list[Task]:
    """Return the pools of one kind; an overlap has one for each class that some paper has a neighbour of."""
    names = [""]
    if kind == "overlap":
        names = [name for name, count in corpus.manifest.counts["neighbours"].items() if count]
    configs = [NeighbourPoolConfig(kind=kind, name=name, queries=recipe.titles, seed=recipe.seed) for name in names]
    return [
        pool_task(corpus, config if kind.startswith("titles") else replace(config, queries="all")) for config in configs
    ]


def rankings(workspace: Workspace, recipe: Recipe, corpus: Artifact) -> list[Ranked]:
    """Return every system on every pool of one corpus of neighbours. Overlaps are not scored."""
    found = []
    for kind, depth in DEPTHS.items():
        tasks = pools(recipe, corpus, kind)
        evaluated = workspace.evaluations(tasks, recipe.systems, depth=depth)
        names = [system.name for system in parse_systems(recipe.systems)]
        for place, each in enumerate(evaluated):
            pool = tasks[place // len(names)]
            scores = () if kind == "overlap" else each.scores
            found.append(Ranked(pool, names[place % len(names)], each.ranking, scores))
        if recipe.standardise and kind.startswith("titles"):
            found += _standardised(recipe, corpus, tasks[0], evaluated)
    return found


def _standardised(recipe: Recipe, corpus: Artifact, pool: Task, evaluated: Sequence[Evaluation]) -> Iterator[Ranked]:
    """Yield each encoder with standardised vectors on one pool."""
    depth = DEPTHS["titles"]
    names = [system.name for system in parse_systems(recipe.systems)]
    for model in recipe.models():
        if model.name in names:
            vectors = evaluated[names.index(model.name)].embed[0]
            moved = standardised_task(corpus, pool, vectors, model)
            ranking = dense_ranking_task(corpus, pool, {"paper": moved}, model, depth=depth)
            system = model.name + STANDARDISED
            scores = score_tasks(ranking, pool, corpus, system=system, sample=1, depth=depth)
            yield Ranked(pool, system, ranking, scores)


def similarities(workspace: Workspace, recipe: Recipe, corpus: Artifact) -> list[tuple[str, Task]]:
    """Return the encoders with the task that describes the cosines within each class."""
    found = embedded(workspace, recipe, corpus)
    return [(model.name, similarity_task(corpus, vectors, model)) for model, vectors in found]


def embedded(
    workspace: Workspace, recipe: Recipe, corpus: Artifact, kind: Kind = "neighbours"
) -> list[tuple[Model, Task]]:
    """Return the encoders with the task that embeds the pool of one kind."""
    (pool,) = pools(recipe, corpus, kind)
    names = {system.name for system in parse_systems(recipe.systems)}
    models = [model for model in recipe.models() if model.name in names]
    evaluated = workspace.evaluations(pool, [model.name for model in models], depth=DEPTHS[kind]) if models else []
    return [(model, each.embed[0]) for model, each in zip(models, evaluated, strict=True)]


def _corpus_task(recipe: Recipe, name: str) -> Task:
    file = Path(recipe.input).expanduser() / f"{name}.jsonl.gz"
    if not file.is_file():
        raise InputError(f"{file} must be a file with the papers of {name}", "Check --input and --corpus")
    return corpus_task(name, open_jsonl(file, "paper_id=id"))


def _neighbours_task(workspace: Workspace, recipe: Recipe, name: str) -> Task:
    corpus = _made(workspace, _corpus_task(recipe, name)) if recipe.input else find_corpus(workspace.root, name)
    return neighbours_task(corpus, tags_task(corpus), recipe.settings)
