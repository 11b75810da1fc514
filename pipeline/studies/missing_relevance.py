"""The study ``missing_relevance``: does the order of systems hold if uncited papers can be relevant?

Judged pools say how often a candidate that the query does not cite is relevant, given where systems rank it. That
probability is carried over to large pools, where only citations are known, by multiple imputation (Rubin 1987): uncited
candidates become relevant at random, again and again, and every system is scored anew.
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
from pipeline.measure.statistics import LEVEL, Floats, interval
from pipeline.scores.store import Rankings, open_rankings, runs_of
from pipeline.sources.csfcube import FACETS
from pipeline.stages.chain import Evaluation
from pipeline.stages.search import read_ranking
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.common import Measurement, formatted, in_points, interval_table
from pipeline.studies.facets.analyses import cited_of, measured
from pipeline.studies.facets.pools import WHOLE, CollectionRecipe, collection_task, judgements_of, ranked_papers
from pipeline.studies.facets.rankings import FacetRanking, rankings
from pipeline.studies.facets.study import STUDY as FACETS_STUDY
from pipeline.studies.recipe import NO_RULES, Rules, pools_of

_BANDS = (1, 5, 10, 20, 50)
"""First ranks of the bands by which relevance is shown."""

Judged: TypeAlias = pl.DataFrame
"""A row for each judged candidate: ``paper`` (the query's id), ``row``, ``relevant`` (for a facet of the query),
``cited``, and its rank by each system, a column of the system's name."""


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
    corpus = recipe.made(workspace)
    judged = [ranking.ranking for ranking in _judged_rankings(workspace, recipe, corpus)]
    yield [*judged, *(score for evaluation in _evaluations(workspace, recipe) for score in evaluation.scores)]


def _judged_rankings(workspace: Workspace, recipe: Recipe, corpus: Artifact) -> list[FacetRanking]:
    collection = collection_task(corpus, recipe.release)
    return rankings(workspace, corpus, collection, tuple(FACETS), {WHOLE: recipe.systems}, recipe.relevant)


def _evaluations(workspace: Workspace, recipe: Recipe) -> list[Evaluation]:
    pools = selection(**{**pools_of(recipe), "samples": 1}).pools(find_corpus(workspace.root, recipe.large or None))
    return workspace.evaluations(pools, recipe.systems, depth=recipe.depth)


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return how often uncited candidates are relevant, scores under imputed judgements, what judgements settle."""
    corpus, make = recipe.made(workspace), workspace.runner.make
    opened = {
        (ranking.facet, ranking.system): (
            Pool(make(ranking.pool), Corpus(corpus)), ranked_papers(read_ranking(make(ranking.ranking)))
        )
        for ranking in _judged_rankings(workspace, recipe, corpus)
    }  # fmt: skip
    judged = judged_candidates(opened, recipe.relevant)
    names = judged.columns[4:]
    runs = runs_of(workspace.runner, _evaluations(workspace, recipe))
    large = open_rankings(runs.with_columns(label=pl.int_range(pl.len()).cast(pl.String)))
    values = imputed_precision(judged, large, recipe)
    tables = [
        relevance_table(judged, names),
        *imputation_tables(values, names, recipe),
        settled_table(opened, names, recipe),
    ]
    return StudyResult(tables, sources=[corpus.name, runs["corpus"][0], large.pool.artifact.name])


def judged_candidates(opened: Mapping[tuple[str, str], tuple[Pool, pl.DataFrame]], relevant: int) -> Judged:
    """Return the judged candidates of all facets; one is relevant that is so for any facet of its query."""
    parts = []
    for (_, system), (pool, ranked) in opened.items():
        judged = judgements_of(pool).with_columns(cited=cited_of(pool), system=pl.lit(system))
        parts.append(judged.join(ranked, on=["query", "row"], how="left"))
    candidates = pl.concat(parts).group_by("paper", "row", maintain_order=True)
    relevance = candidates.agg((pl.col("grade") >= relevant).any().alias("relevant"), pl.col("cited").first())
    ranks = pl.concat(parts).pivot("system", index=["paper", "row"], values="rank", aggregate_function="first")
    return relevance.join(ranks, on=["paper", "row"]).sort("paper", "row")


def relevance_table(judged: Judged, systems: Sequence[str]) -> StudyTable:
    """Return how often candidates are relevant that the query does not cite, by rank and system, and cited ones."""
    rows = []
    paper = judged["paper"].rank("dense").to_numpy()
    relevant, cited = judged["relevant"].to_numpy(), judged["cited"].to_numpy()
    for system in systems:
        ranks = judged[system].to_numpy()
        for first, last in zip(_BANDS, (*(band - 1 for band in _BANDS[1:]), np.inf), strict=True):
            kept = (ranks >= first) & (ranks <= last) & ~cited
            column = f"{first} to {last:g}" if np.isfinite(last) else f"from {first}"
            rows.append(Measurement(system, column, *share_of_clusters(relevant[kept], paper[kept])))
    for label, kept in (("all uncited", ~cited), ("all cited", cited)):
        rows.append(Measurement(label, "all", *share_of_clusters(relevant[kept], paper[kept])))
    notes = [
        "Percent of judged candidates that are relevant for a facet of their query, by the system's rank.",
        f"{len(judged):,} candidates of {judged['paper'].n_unique()} queries, drawn with their query.",
    ]
    return interval_table("relevance", "Relevance of papers that the query does not cite", "system", rows, notes)


def features(ranks: npt.NDArray[Any]) -> Floats:
    """Return what relevance is predicted from, float64 ``[candidates, 2]``: mean and least logarithm of the ranks.

    Args:
        ranks: from 1, ``[candidates, systems]``.
    """
    logs = np.log2(ranks.astype(np.float64))
    return np.stack([logs.mean(axis=1), logs.min(axis=1)], axis=1)


def imputed_precision(judged: Judged, large: Rankings, recipe: Recipe) -> Floats:
    """Return average precision with citations, then with each imputation, ``[1 + imputations, systems, queries]``.

    Each imputation fits the probability of relevance on other query papers, drawn with replacement, so that its
    uncertainty counts.
    """
    from sklearn.linear_model import LogisticRegression

    queries, measure, runs = len(large.pool.query_rows), parse_measures("map"), list(large.runs.values())
    positives = pl.DataFrame({"query": query_of(large.qrels.offsets), "row": large.qrels.rows})
    ranked = pl.concat(
        pl.DataFrame({"query": query_of(run.offsets), "row": run.rows, "rank": within(run.offsets) + 1, "run": label})
        for label, run in large.runs.items()
    )
    ranks = ranked.join(positives, on=["query", "row"], how="anti").pivot("run", index=["query", "row"], values="rank")
    near = ranks.filter(pl.min_horizontal(*large.runs) <= recipe.imputed).sort("query", "row")
    predictors = features(near.select(pl.col(*large.runs).fill_null(recipe.depth + 1)).to_numpy())
    uncited = judged.filter(~pl.col("cited"))
    x, y = features(uncited.select(judged.columns[4:]).to_numpy()), uncited["relevant"].to_numpy()
    paper = uncited["paper"].rank("dense").cast(pl.Int64).to_numpy() - 1
    values = [[evaluate(large.qrels, run, measure)[0] for run in runs]]
    for number in range(recipe.imputations):
        random = generator(recipe.seed, "impute", number)
        times = np.bincount(random.integers(0, paper.max() + 1, paper.max() + 1), minlength=paper.max() + 1)
        fit = LogisticRegression(C=np.inf).fit(x, y, sample_weight=times[paper])
        chance = fit.predict_proba(predictors)[:, 1]
        drawn = near.filter(pl.Series(random.random(len(near)) < chance)).select("query", "row")
        both = pl.concat([positives, drawn]).sort("query", "row")
        grades = np.ones(len(both), np.int16)
        qrels = Qrels.from_table(table(JUDGEMENTS, both["query"].to_numpy(), both["row"].to_numpy(), grades), queries)
        values.append([evaluate(qrels, run, measure)[0] for run in runs])
    return np.array(values)


def rubin(values: Floats) -> tuple[float, float, float, float]:
    """Return the mean over imputed differences, its 95% interval and the probability that its sign is another.

    Rubin's rules: the variance over queries within an imputation, and that between imputations; the probability is that
    of Student's t.

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


def imputation_tables(values: Floats, systems: Sequence[str], recipe: Recipe) -> Iterator[StudyTable]:
    """Yield the systems with citations and with imputed judgements, and each two of them."""
    cited, imputed = values[0], values[1:]
    rows = []
    for number, system in enumerate(systems):
        rows.append(Measurement(system, "citations", *interval(cited[number], recipe.seed)))
        rows.append(Measurement(system, "imputed", *rubin(imputed[:, number])[:3]))
    notes = [
        f"Imputed: uncited papers of the first {recipe.imputed} of any system are relevant at random; "
        f"{recipe.imputations} imputations, combined by Rubin's rules.",
        "The probability of relevance is a logistic function of the mean and the least logarithm of a paper's ranks, "
        "fitted on the judged pools. That it holds in the large pool is assumed, not tested.",
    ]
    yield interval_table("imputed", "Systems with citations and with imputed relevance", "system", rows, notes)
    pairs = []
    for first, second in itertools.combinations(range(len(systems)), 2):
        mean, low, high = interval(cited[first] - cited[second], recipe.seed)
        value, least, most, tail = rubin(imputed[:, first] - imputed[:, second])
        changed = tail if mean * value >= 0 else 1 - tail
        pairs.append((f"{systems[first]} less {systems[second]}", mean, low, high, value, least, most, changed))
    columns = ["pair", "citations", "citations_low", "citations_high", "imputed", "low", "high", "other_order"]
    frame = pl.DataFrame(pairs, columns, orient="row")
    shown = frame.select(
        "pair", in_points("citations", "citations_low", "citations_high"), in_points("imputed"),
        formatted("other_order", ".3f").alias("probability of another order"),
    )  # fmt: skip
    notes = ["Points of MAP [95% interval]; probability: that with imputed relevance the sign is another."]
    yield StudyTable.of("pairs", "Does the order hold?", frame, notes, shown=shown)


def settled_table(
    opened: Mapping[tuple[str, str], tuple[Pool, pl.DataFrame]], systems: Sequence[str], recipe: Recipe
) -> StudyTable:
    """Return how often infAP on some judged candidates of each query gives the order of MAP on all of them."""
    whole, sampled = {}, {}
    for system in systems:
        full, drawn = [], []
        for facet in FACETS:
            pool, ranked = opened[facet, system]
            grade = (pl.col("grade") >= recipe.relevant).cast(pl.Int16)
            judged = judgements_of(pool).select("query", "row", grade)
            full.append(measured(judged, ranked, pool, "map"))
            of_facet = []
            for count, draw in itertools.product(recipe.judged, range(recipe.draws)):
                chance = generator(recipe.seed, "judged", f"{facet}|{draw}").random(len(judged))
                kept = pl.when(pl.col("chance").rank("ordinal").over("query") <= count)
                grade = kept.then("grade").otherwise(-1).cast(pl.Int16)
                chosen = judged.with_columns(chance=chance).select("query", "row", grade=grade)
                of_facet.append(measured(chosen, ranked, pool, "infap"))
            drawn.append(np.stack(of_facet))
        whole[system] = np.concatenate(full)
        sampled[system] = np.concatenate(drawn, axis=1).reshape(len(recipe.judged), recipe.draws, -1)
    rows = []
    for first, second in itertools.combinations(systems, 2):
        truth = np.nanmean(whole[first] - whole[second])
        changes = np.nanmean(sampled[first] - sampled[second], axis=2)
        agreed = (changes * np.sign(truth) > 0).mean(axis=1)
        rows.append({"pair": f"{first} less {second}", "MAP, all": 100 * truth} | {
            f"{count} judged": 100 * share for count, share in zip(recipe.judged, agreed.tolist(), strict=True)
        })  # fmt: skip
    notes = [
        f"Points of MAP with all judgements; percent of {recipe.draws} random choices of so many judged candidates of "
        "each query for which infAP gives the same order. Queries without a relevant one among them are left out.",
        "The queries are given: this says nothing about other queries.",
    ]
    return StudyTable.of("settled", "How many judgements settle the order", pl.DataFrame(rows), notes)


STUDY = Study(
    "missing_relevance",
    "does the order of systems hold if uncited papers can be relevant",
    Recipe,
    batches,
    results,
    needs=FACETS_STUDY.needs,
)
