"""The study ``missing_relevance``: does the order of systems hold if uncited papers can be relevant?

Judged pools show how often a candidate that the query does not cite is relevant, given its ranks by the systems. In
large pools only citations are known. There, multiple imputation (Rubin 1987) draws relevant papers among the uncited
ones with this probability, and scores all systems for each draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.api import Workspace, selection
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.rng import generator
from pipeline.core.schema import JUDGEMENTS
from pipeline.core.task import Task
from pipeline.core.workspace import find_corpus
from pipeline.corpus.pool import Pool
from pipeline.corpus.pools import table
from pipeline.corpus.reader import Corpus
from pipeline.measure.engines import evaluate
from pipeline.measure.estimates import share_of_clusters
from pipeline.measure.inputs import Qrels, query_of, within
from pipeline.measure.measures import parse_measures
from pipeline.measure.statistics import LEVEL, Floats
from pipeline.scores.store import Rankings, open_rankings, runs_of
from pipeline.scores.tables import Table, cell, frame_table, grid
from pipeline.sources.csfcube import FACETS
from pipeline.stages.chain import Evaluation
from pipeline.stages.ranking_file import read_ranking
from pipeline.studies.base import Study, StudyResult
from pipeline.studies.common import BRACKETS, formatted, in_points, over_queries
from pipeline.studies.facets.analyses import cited_of, measured
from pipeline.studies.facets.pools import WHOLE, CollectionRecipe, collection_task, judgements_of, ranked_papers
from pipeline.studies.facets.rankings import FacetRanking, rankings
from pipeline.studies.facets.study import STUDY as FACETS_STUDY
from pipeline.studies.recipe import NO_RULES, Rules, pools_of

_BANDS = (1, 5, 10, 20, 50)
"""First rank of each band of the relevance table."""

Judged: TypeAlias = pl.DataFrame
"""A row for each judged candidate: ``paper`` (the query's id), ``row``, ``relevant`` (for any facet of the query),
``cited``, and its rank by each system, in a column with the system's name."""


@dataclass(frozen=True)
class Recipe(CollectionRecipe):
    """Settings of the study, which ``missing_relevance.toml`` explains."""

    relevant: int
    systems: str
    large: str
    field: str
    year: int
    size: str
    queries: str
    seed: int
    depth: int
    imputed: int
    imputations: int
    judged: tuple[int, ...]
    draws: int
    rules: Rules = NO_RULES

    def __post_init__(self) -> None:
        if self.imputations < 2 or not 0 < self.imputed <= self.depth:
            raise InputError(
                f"imputations must be 2 or more and imputed 1 to the depth, got {self.imputations} and {self.imputed}",
                "Correct the recipe",
            )


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the collection's corpus, then all rankings."""
    yield [recipe.corpus_task]
    corpus = recipe.require_corpus(workspace)
    judged = [ranking.ranking for ranking in _judged_rankings(workspace, recipe, corpus)]
    yield [*judged, *(score for evaluation in _evaluations(workspace, recipe) for score in evaluation.scores)]


def _judged_rankings(workspace: Workspace, recipe: Recipe, corpus: Artifact) -> list[FacetRanking]:
    collection = collection_task(corpus, recipe.release)
    return rankings(workspace, corpus, collection, tuple(FACETS), {WHOLE: recipe.systems}, recipe.relevant)


def _evaluations(workspace: Workspace, recipe: Recipe) -> list[Evaluation]:
    pools = selection(**{**pools_of(recipe), "samples": 1}).pools(find_corpus(workspace.root, recipe.large or None))
    return workspace.evaluations(pools, recipe.systems, depth=recipe.depth)


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return tables of the relevance of uncited candidates, of imputed scores, and of how many judgements suffice."""
    corpus, make = recipe.require_corpus(workspace), workspace.runner.make
    judged_pools = {
        (ranking.facet, ranking.system): (
            Pool(make(ranking.pool), Corpus(corpus)), ranked_papers(read_ranking(make(ranking.ranking)))
        )
        for ranking in _judged_rankings(workspace, recipe, corpus)
    }  # fmt: skip
    judged = judged_candidates(judged_pools, recipe.relevant)
    names = judged.columns[4:]
    runs = runs_of(workspace.runner, _evaluations(workspace, recipe))
    large = open_rankings(runs.with_columns(label=pl.int_range(pl.len()).cast(pl.String)))
    values = imputed_precision(judged, large, recipe)
    tables = [
        relevance_table(judged, names),
        *imputation_tables(values, names, recipe),
        settled_table(judged_pools, names, recipe),
    ]
    return StudyResult(tables, sources=[corpus.name, runs["corpus"][0], large.pool.artifact.name])


def judged_candidates(judged_pools: Mapping[tuple[str, str], tuple[Pool, pl.DataFrame]], relevant: int) -> Judged:
    """Return the judged candidates of all facets; relevant means relevant for any facet of the query."""
    judgements = []
    for (_, system), (pool, ranked) in judged_pools.items():
        judged = judgements_of(pool).with_columns(cited=cited_of(pool), system=pl.lit(system))
        judgements.append(judged.join(ranked, on=["query", "row"], how="left"))
    candidates = pl.concat(judgements).group_by("paper", "row", maintain_order=True)
    relevance = candidates.agg((pl.col("grade") >= relevant).any().alias("relevant"), pl.col("cited").first())
    ranks = pl.concat(judgements).pivot("system", index=["paper", "row"], values="rank", aggregate_function="first")
    return relevance.join(ranks, on=["paper", "row"]).sort("paper", "row")


def relevance_table(judged: Judged, systems: Sequence[str]) -> Table:
    """Return how often uncited candidates are relevant, by system and rank; and cited candidates."""
    cells = {}
    paper = judged["paper"].rank("dense").to_numpy()
    relevant, cited = judged["relevant"].to_numpy(), judged["cited"].to_numpy()
    for system in systems:
        ranks = judged[system].to_numpy()
        for first, last in zip(_BANDS, (*(band - 1 for band in _BANDS[1:]), np.inf), strict=True):
            selected = (ranks >= first) & (ranks <= last) & ~cited
            column = f"{first} to {last:g}" if np.isfinite(last) else f"from {first}"
            cells[system, column] = cell(*share_of_clusters(relevant[selected], paper[selected]))
    for label, selected in (("all uncited", ~cited), ("all cited", cited)):
        cells[label, "all"] = cell(*share_of_clusters(relevant[selected], paper[selected]))
    notes = [
        "Percent of judged candidates that are relevant for a facet of their query, by the system's rank.",
        f"{len(judged):,} candidates of {judged['paper'].n_unique()} queries, drawn with their query.",
        BRACKETS,
    ]
    return grid("relevance", "Relevance of papers that the query does not cite", "system", cells, notes)


def features(ranks: npt.NDArray[Any]) -> Floats:
    """Return the predictors of relevance, float64 ``[candidates, 2]``: mean and minimum of the log2 of the ranks.

    Args:
        ranks: from 1, ``[candidates, systems]``.
    """
    logs = np.log2(ranks.astype(np.float64))
    return np.stack([logs.mean(axis=1), logs.min(axis=1)], axis=1)


def imputed_precision(judged: Judged, large: Rankings, recipe: Recipe) -> Floats:
    """Return average precision with citations, then with each imputation, ``[1 + imputations, systems, queries]``.

    Each imputation fits the probability of relevance on a bootstrap sample of the judged query papers, so that the
    uncertainty of the fit is included.
    """
    from sklearn.linear_model import LogisticRegression

    queries, measure, runs = len(large.pool.query_rows), parse_measures("map"), list(large.runs.values())
    positives = pl.DataFrame({"query": query_of(large.qrels.offsets), "row": large.qrels.rows})
    ranked = pl.concat(
        pl.DataFrame({"query": query_of(run.offsets), "row": run.rows, "rank": within(run.offsets) + 1, "run": label})
        for label, run in large.runs.items()
    )
    ranks = ranked.join(positives, on=["query", "row"], how="anti").pivot("run", index=["query", "row"], values="rank")
    top_uncited = ranks.filter(pl.min_horizontal(*large.runs) <= recipe.imputed).sort("query", "row")
    predictors = features(top_uncited.select(pl.col(*large.runs).fill_null(recipe.depth + 1)).to_numpy())
    uncited = judged.filter(~pl.col("cited"))
    x, y = features(uncited.select(judged.columns[4:]).to_numpy()), uncited["relevant"].to_numpy()
    paper = uncited["paper"].rank("dense").cast(pl.Int64).to_numpy() - 1
    values = [[evaluate(large.qrels, run, measure)[0] for run in runs]]
    for imputation in range(recipe.imputations):
        random = generator(recipe.seed, "impute", imputation)
        draw_counts = np.bincount(random.integers(0, paper.max() + 1, paper.max() + 1), minlength=paper.max() + 1)
        model = LogisticRegression(C=np.inf).fit(x, y, sample_weight=draw_counts[paper])
        probabilities = model.predict_proba(predictors)[:, 1]
        imputed = top_uncited.filter(pl.Series(random.random(len(top_uncited)) < probabilities)).select("query", "row")
        both = pl.concat([positives, imputed]).sort("query", "row")
        grades = np.ones(len(both), np.int16)
        qrels = Qrels.from_table(table(JUDGEMENTS, both["query"].to_numpy(), both["row"].to_numpy(), grades), queries)
        values.append([evaluate(qrels, run, measure)[0] for run in runs])
    return np.array(values)


def rubin(values: Floats) -> tuple[float, float, float, float]:
    """Return the mean over imputed differences, its 95% interval and the probability of the opposite sign.

    Rubin's rules add the variance over queries within an imputation and that between imputations. The probability is
    from Student's t distribution.

    Args:
        values: float64 ``[imputations, queries]``.
    """
    from scipy.special import stdtr, stdtrit

    count, queries = values.shape
    means = values.mean(axis=1)
    within, between = values.var(axis=1, ddof=1).mean() / queries, (1 + 1 / count) * means.var(ddof=1)
    mean, error = float(means.mean()), float(np.sqrt(within + between))
    freedom = (count - 1) * (1 + within / between) ** 2 if between else np.inf
    margin = error * float(stdtrit(freedom, (1 + LEVEL) / 2))
    return mean, mean - margin, mean + margin, float(stdtr(freedom, -abs(mean) / error)) if error else 0.0


def imputation_tables(values: Floats, systems: Sequence[str], recipe: Recipe) -> Iterator[Table]:
    """Yield tables of MAP by citations and by imputed relevance: of each system, and of each pair of systems."""
    cited, imputed = values[0], values[1:]
    cells = {}
    for number, system in enumerate(systems):
        cells[system, "citations"] = cell(*over_queries(cited[number], recipe.seed))
        cells[system, "imputed"] = cell(*rubin(imputed[:, number])[:3])
    notes = [
        f"Imputed: uncited papers of the first {recipe.imputed} of any system are relevant at random; "
        f"{recipe.imputations} imputations, combined by Rubin's rules.",
        "The probability of relevance is a logistic function of the mean and the least logarithm of a paper's ranks, "
        "fitted on the judged pools. That it holds in the large pool is assumed, not tested.",
        BRACKETS,
    ]
    yield grid("imputed", "Systems with citations and with imputed relevance", "system", cells, notes)
    pairs = []
    for first, second in itertools.combinations(range(len(systems)), 2):
        mean, low, high = over_queries(cited[first] - cited[second], recipe.seed)
        value, lowest, highest, tail = rubin(imputed[:, first] - imputed[:, second])
        reverse = tail if mean * value >= 0 else 1 - tail
        pairs.append((f"{systems[first]} less {systems[second]}", mean, low, high, value, lowest, highest, reverse))
    columns = ["pair", "citations", "citations_low", "citations_high", "imputed", "low", "high", "other_order"]
    frame = pl.DataFrame(pairs, columns, orient="row")
    shown = frame.select(
        "pair", in_points("citations", "citations_low", "citations_high"), in_points("imputed"),
        formatted("other_order", ".3f").alias("probability of another order"),
    )  # fmt: skip
    notes = ["Points of MAP [95% interval]; probability: that with imputed relevance the sign is another."]
    yield frame_table("pairs", "Does the order hold?", frame, notes, shown=shown)


def settled_table(
    judged_pools: Mapping[tuple[str, str], tuple[Pool, pl.DataFrame]], systems: Sequence[str], recipe: Recipe
) -> Table:
    """Return how often infAP on a sample of each query's judged candidates orders systems as MAP on all of them."""
    full_scores, sampled_scores = {}, {}
    for system in systems:
        facet_scores, facet_samples = [], []
        for facet in FACETS:
            pool, ranked = judged_pools[facet, system]
            grade = (pl.col("grade") >= recipe.relevant).cast(pl.Int16)
            judged = judgements_of(pool).select("query", "row", grade)
            facet_scores.append(measured(judged, ranked, pool, "map"))
            facet_draws = []
            for count, draw in itertools.product(recipe.judged, range(recipe.draws)):
                chance = generator(recipe.seed, "judged", f"{facet}|{draw}").random(len(judged))
                is_sampled = pl.when(pl.col("chance").rank("ordinal").over("query") <= count)
                grade = is_sampled.then("grade").otherwise(-1).cast(pl.Int16)
                sample = judged.with_columns(chance=chance).select("query", "row", grade=grade)
                facet_draws.append(measured(sample, ranked, pool, "infap"))
            facet_samples.append(np.stack(facet_draws))
        full_scores[system] = np.concatenate(facet_scores)
        sampled_scores[system] = np.concatenate(facet_samples, axis=1).reshape(len(recipe.judged), recipe.draws, -1)
    rows = []
    for first, second in itertools.combinations(systems, 2):
        truth = np.nanmean(full_scores[first] - full_scores[second])
        changes = np.nanmean(sampled_scores[first] - sampled_scores[second], axis=2)
        agreed = (changes * np.sign(truth) > 0).mean(axis=1)
        rows.append({"pair": f"{first} less {second}", "MAP, all": 100 * truth} | {
            f"{count} judged": 100 * share for count, share in zip(recipe.judged, agreed.tolist(), strict=True)
        })  # fmt: skip
    notes = [
        f"Points of MAP with all judgements; percent of {recipe.draws} random choices of so many judged candidates of "
        "each query for which infAP gives the same order. Queries without a relevant one among them are left out.",
        "The queries are given: this says nothing about other queries.",
    ]
    return frame_table("settled", "How many judgements settle the order", pl.DataFrame(rows), notes)


STUDY = Study(
    "missing_relevance",
    "does the order of systems hold if uncited papers can be relevant",
    Recipe,
    batches,
    results,
    needs=FACETS_STUDY.needs,
)
