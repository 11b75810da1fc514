"""The recipe of the study and its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pipeline.studies import kit
from pipeline.studies.neighbours.corpus import NeighboursConfig, PoolKind, pool_task
from pipeline.studies.neighbours.geometry import standardised_task
from pipeline.studies.neighbours.operators import CLASSES

DEPTHS: dict[PoolKind, int] = {"titles": 100, "titles-among-titles": 100, "neighbours": 10, "overlap": 30}
"""Depth of the rankings of each kind of pool; T100, NN10_Ret and AOP-20 need no more."""

STANDARDISED = " standardised"
"""Suffix of the name of a system whose vectors are standardised."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    corpus: str = kit.required("names of corpora, with commas")
    input: str = kit.required("folder with NAME.jsonl.gz of each (id, title, abstract); empty: they are built already")
    systems: str = kit.required("what ranks, with commas; encoders must compare vectors by cosine")
    titles: int = kit.required("papers whose titles are queries, tasks I and II (section 5)")
    papers: str = kit.required("papers whose neighbours are queries, in each class, or all (section 6.3)")
    candidates: Literal["all", "sampled"] = kit.required(
        "of overlaps: neighbours of every paper, or of those papers alone"
    )
    classes: tuple[str, ...] = kit.required("classes of neighbours; empty: all 32")
    standardise: bool = kit.required("repeat tasks I and II with standardised vectors (appendix D.1)")
    seed: int = kit.required("seed of every draw")
    reference: Mapping[str, str] = kit.required(
        "by corpus, the data set of the paper's tables that it is comparable to"
    )

    def __post_init__(self) -> None:
        for name in self.classes:
            kit.require_known(name, CLASSES, f"a class must be one of the 32, got {name!r}")
        if self.titles < 1:
            raise kit.InputError(f"titles must be a number from 1, got {self.titles!r}", "The paper takes 1000")

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
    def queries(self) -> kit.Count:
        """Number of neighbours of each class that are queries."""
        queries: kit.Count = kit.convert(self.papers, kit.Count, "papers")
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
        """Check systems before anything is made."""
        for model in kit.encoders(kit.parse_systems(self.systems)):
            if model.multi_vector:
                raise kit.InputError(f"{model.name} must have one vector per paper", "Leave it out of --model")
            if model.distance != "cosine":
                problem = f"{model.name} must be compared by cosine, got {model.distance}"
                raise kit.InputError(problem, f"{model.name}:distance=cosine")

    def release(self, name: str) -> kit.Task:
        """Return the task that makes a corpus of the input."""
        file = Path(self.input).expanduser() / f"{name}.jsonl.gz"
        if not file.is_file():
            raise kit.InputError(f"{file} must be a file with the papers of {name}", "Check --input and --corpus")
        return kit.corpus_task(name, kit.JsonLines(file, columns="paper_id=id"))


class RankedPool(NamedTuple):
    """A system on a pool: its ranking and its scores (overlaps have none).

    An encoder, unless its vectors are standardised, has the task that embeds the papers of the pool, and its model.
    """

    kind: PoolKind
    pool: kit.Task
    system: str
    ranking: kit.Task
    scores: Sequence[kit.Task]
    encoder: tuple[kit.Task, kit.Model] | None = None


def ranked_pools(workspace: kit.Workspace, recipe: Recipe, corpus: kit.Artifact) -> list[RankedPool]:
    """Return the ranking of every system on every pool of one corpus of neighbours; overlaps are not scored."""
    rankings, counts = list[RankedPool](), corpus.manifest.counts["neighbours"]
    systems, with_neighbours = kit.parse_systems(recipe.systems), [name for name in counts if counts[name]]
    for kind, depth in DEPTHS.items():
        of_titles = kind.startswith("titles")
        queries = recipe.titles if of_titles else recipe.queries
        for name in with_neighbours if kind == "overlap" else [""]:
            pool = pool_task(corpus, kind, queries, recipe.seed, name)
            evaluations = workspace.evaluations(pool, recipe.systems, depth=depth)
            for system, evaluation in zip(systems, evaluations, strict=True):
                scores, model = () if kind == "overlap" else evaluation.scores, system.ranker
                encoder = (evaluation.embed[0], model) if isinstance(model, kit.Model) else None
                rankings.append(RankedPool(kind, pool, system.name, evaluation.ranking, scores, encoder))
                if recipe.standardise and of_titles and encoder:
                    vectors, own_name = standardised_task(corpus, pool, *encoder), system.name + STANDARDISED
                    ranking = kit.dense_ranking_task(corpus, pool, {"paper": vectors}, encoder[1], depth=depth)
                    scores = kit.score_tasks(ranking, pool, corpus, system=own_name, depth=depth)
                    rankings.append(RankedPool(kind, pool, own_name, ranking, scores))
    return rankings
