"""The recipe of the study and its tasks."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

from pipeline.api import Workspace
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, require_known
from pipeline.core.settings import Count, convert, required
from pipeline.core.task import Task
from pipeline.core.text import from_csv_cell
from pipeline.core.workspace import find_corpus
from pipeline.encode.model import Model
from pipeline.sources.collection import JsonLines
from pipeline.stages.corpus import corpus_task
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.score import score_tasks
from pipeline.stages.systems import encoders, parse_systems
from pipeline.studies.neighbours.corpus import (
    NeighboursConfig,
    PoolKind,
    neighbours_task,
    pool_task,
)
from pipeline.studies.neighbours.geometry import similarity_task, standardised_task
from pipeline.studies.neighbours.operators import CLASSES

DEPTHS: dict[PoolKind, int] = {"titles": 100, "titles-among-titles": 100, "neighbours": 10, "overlap": 30}
"""Depth of the rankings of each kind of pool; T100, NN10_Ret and AOP-20 need no more."""

STANDARDISED = " standardised"
"""Suffix of the name of a system whose vectors are standardised."""

FEWEST = 3
"""Minimum number of systems of a rank correlation."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    corpus: str = required("names of corpora, with commas")
    input: str = required("folder with NAME.jsonl.gz of each (id, title, abstract); empty: they are built already")
    systems: str = required("what ranks, with commas; encoders must compare vectors by cosine")
    titles: int = required("papers whose titles are queries, tasks I and II (section 5)")
    papers: str = required("papers whose neighbours are queries, in each class, or all (section 6.3)")
    candidates: Literal["all", "sampled"] = required("of overlaps: neighbours of every paper, or of those papers alone")
    classes: tuple[str, ...] = required("classes of neighbours; empty: all 32")
    standardise: bool = required("repeat tasks I and II with standardised vectors (appendix D.1)")
    seed: int = required("seed of every draw")
    quality: str = required("CSV of mdcr show --format csv, for the correlation of MAP with brittleness")
    reference: Mapping[str, str] = required("by corpus, the data set of the paper's tables that it is comparable to")

    def __post_init__(self) -> None:
        for name in self.classes:
            require_known(name, CLASSES, f"a class must be one of the 32, got {name!r}")
        if self.titles < 1:
            raise InputError(f"titles must be a number from 1, got {self.titles!r}", "The paper takes 1000")

    @property
    def corpora(self) -> list[str]:
        """Names of the sets, which the recipe separates by commas."""
        return [name.strip() for name in self.corpus.split(",") if name.strip()]

    @property
    def settings(self) -> NeighboursConfig:
        """Settings of the corpora of neighbours."""
        queries = self.queries  # always read, so that it is checked before anything is made
        papers = "all" if self.candidates == "all" else queries
        return NeighboursConfig(papers, self.classes or tuple(CLASSES), self.seed)

    @property
    def queries(self) -> Count:
        """Number of neighbours of each class that are queries."""
        queries: Count = convert(self.papers, Count, "papers")
        return queries

    @property
    def limitations(self) -> list[str]:
        """Note for the tables of overlaps, if their candidates differ from those of the paper."""
        if self.candidates == "all" or self.queries == "all":
            return []
        return [
            f"Limitation (candidates=sampled): candidates are the originals and the neighbours of {self.papers} papers "
            "alone. With those of all papers, as in section 6.3, overlaps are lower."
        ]

    def check(self) -> None:
        """Check systems and quality before anything is made."""
        systems = parse_systems(self.systems)
        if self.quality:
            read_quality(self.quality, [system.name for system in systems])
        for model in encoders(systems):
            if model.multi_vector:
                raise InputError(f"{model.name} must have one vector per paper", "Leave it out of --model")
            if model.distance != "cosine":
                raise InputError(
                    f"{model.name} must be compared by cosine, got {model.distance}", f"{model.name}:distance=cosine"
                )


def read_quality(file: str, systems: Sequence[str]) -> dict[str, float]:
    """Return the mean value of each system of the study in a CSV file with the columns ``system`` and ``value``.

    If the file has a column ``measure``, as written by ``mdcr show --format csv``, only the rows of MAP are used.
    """
    try:
        rows = pl.read_csv(Path(file).expanduser(), infer_schema=False)
        rows = rows.filter(pl.col("measure") == "map") if "measure" in rows.columns else rows
        means = rows.group_by("system").agg(pl.col("value").cast(pl.Float64).mean()).sort("system")
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{file} cannot be read ({reason})", "Give a CSV with the columns system and value") from error
    system_values = ((from_csv_cell(system or ""), value) for system, value in means.iter_rows())
    quality = {system: value for system, value in system_values if system in systems}
    if len(quality) < FEWEST:
        names = ", ".join(means["system"].cast(pl.String).fill_null("(none)")) or "no system"
        raise InputError(
            f"{file} must have the MAP of {FEWEST} or more of the systems, got {len(quality)} (it has {names})",
            f"Name systems as --model does: {', '.join(systems)}",
        )
    return quality


class RankedPool(NamedTuple):
    """A system on a pool: its ranking and its scores (overlaps have none).

    An encoder, unless its vectors are standardised, also has its model and the task that embeds the papers of the pool.
    """

    pool: Task
    system: str
    ranking: Task
    scores: tuple[Task, ...]
    model: Model | None = None
    vectors: Task | None = None

    @property
    def kind(self) -> PoolKind:
        """What queries and candidates of the pool are (:data:`PoolKind`)."""
        kind: PoolKind = self.pool.config.kind
        return kind


def neighbours_of(workspace: Workspace, recipe: Recipe, name: str) -> Generator[Sequence[Task], Any, Artifact]:
    """Make the corpus of neighbours of one corpus."""
    corpus = [find_corpus(workspace.root, name)] if not recipe.input else (yield [_corpus_task(recipe, name)])
    made = yield [neighbours_task(corpus[0], recipe.settings)]
    artifact: Artifact = made[0]
    return artifact


def ranked_pools(workspace: Workspace, recipe: Recipe, corpus: Artifact) -> list[RankedPool]:
    """Return the ranking of every system on every pool of one corpus of neighbours; overlaps are not scored."""
    systems, rankings, counts = parse_systems(recipe.systems), list[RankedPool](), corpus.manifest.counts["neighbours"]
    for kind, depth in DEPTHS.items():
        of_titles = kind.startswith("titles")
        queries = recipe.titles if of_titles else recipe.queries
        for name in [name for name in counts if counts[name]] if kind == "overlap" else [""]:  # classes with neighbours
            pool = pool_task(corpus, kind, queries, recipe.seed, name)
            evaluations = workspace.evaluations(pool, recipe.systems, depth=depth)
            for system, evaluation in zip(systems, evaluations, strict=True):
                scores = () if kind == "overlap" else evaluation.scores
                if not isinstance(system.ranker, Model):
                    rankings.append(RankedPool(pool, system.name, evaluation.ranking, scores))
                    continue
                model, vectors = system.ranker, evaluation.embed[0]
                rankings.append(RankedPool(pool, system.name, evaluation.ranking, scores, model, vectors))
                if recipe.standardise and of_titles:
                    standardised = standardised_task(corpus, pool, vectors, model)
                    ranking = dense_ranking_task(corpus, pool, {"paper": standardised}, model, depth=depth)
                    system_name = system.name + STANDARDISED
                    scores = score_tasks(ranking, pool, corpus, system=system_name, depth=depth)
                    rankings.append(RankedPool(pool, system_name, ranking, scores))
    return rankings


def similarity_tasks(corpus: Artifact, rankings: Sequence[RankedPool]) -> list[tuple[str, Task]]:
    """Return the name of each encoder with the task that describes the cosines within each class."""
    return [
        (ranked_pool.system, similarity_task(corpus, ranked_pool.pool, ranked_pool.vectors, ranked_pool.model))
        for ranked_pool in rankings
        if ranked_pool.kind == "neighbours" and ranked_pool.model and ranked_pool.vectors
    ]


def _corpus_task(recipe: Recipe, name: str) -> Task:
    file = Path(recipe.input).expanduser() / f"{name}.jsonl.gz"
    if not file.is_file():
        raise InputError(f"{file} must be a file with the papers of {name}", "Check --input and --corpus")
    return corpus_task(name, JsonLines(file, columns="paper_id=id"))
