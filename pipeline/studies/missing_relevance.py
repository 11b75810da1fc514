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
from pipeline.measure.inputs import Qrels, Run, query_of
from pipeline.measure.measures import parse_measures
from pipeline.measure.statistics import LEVEL, Floats, interval
from pipeline.scores.store import artifact, runs_of
from pipeline.scores.tables import frame_table
from pipeline.sources.csfcube import FACETS
from pipeline.stages.search import read_ranking
from pipeline.stages.selection import Selection
from pipeline.studies.base import Study, StudyResult, StudyTable
from pipeline.studies.facets.analyses import cited_of, measured
from pipeline.studies.facets.pools import WHOLE, CollectionRecipe, collection_task, query_papers
from pipeline.studies.facets.rankings import FacetRanking, rankings
from pipeline.studies.facets.study import STUDY as FACETS_STUDY
from pipeline.studies.recipe import NO_RULES, Rules, pools_of
from pipeline.studies.tables import Measurement, interval_table, points

_BANDS = (1, 5, 10, 20, 50)
"""First ranks of the bands by which relevance is shown."""

Judged: TypeAlias = pl.DataFrame
"""A row for each judged candidate: ``paper`` (the query's id), ``row``, ``relevant`` (for a facet of the query),
``cited``, and its rank by each system, a column of the system's name."""


@dataclass(frozen=True)
class Recipe(CollectionRecipe):
    """Settings of the study, beside those of the judged collection.

    Attributes:
        relevant: the least relevant grade.
        systems: what ranks whole papers in the judged pools and in the large one, with commas.
        large: name of the corpus of the large pool; empty: the only one besides the collection.
        field: one of the 19 fields; empty: a dataset-level pool.
        year: publication year of the queries.
        size: number of candidates, or ``all``.
        queries: number of queries, or ``all``.
        seed: of every draw.
        depth: ranks kept of each query.
        imputed: ranks of every system whose uncited papers can be relevant.
        imputations: number of imputed sets of judgements.
        judged: numbers of judged candidates of a query that are tried.
        draws: random choices of so many candidates.
        rules: further settings of pools that the recipe gives.
    """

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

    @property
    def selection(self) -> Selection:
        """The large pool."""
        return selection(**{**pools_of(self), "samples": 1})


def batches(workspace: Workspace, recipe: Recipe) -> Iterator[Sequence[Task]]:
    """Yield the collection's corpus, then all rankings."""
    yield [recipe.corpus_task]
    corpus = recipe.made(workspace)
    judged = [ranking.ranking for ranking in _judged_rankings(workspace, recipe, corpus)]
    yield [*judged, *(score for evaluation in _evaluations(workspace, recipe) for score in evaluation.scores)]


def _judged_rankings(workspace: Workspace, recipe: Recipe, corpus: Artifact) -> list[FacetRanking]:
    collection = collection_task(corpus, recipe.release)
    return rankings(workspace, corpus, collection, tuple(FACETS), {WHOLE: recipe.systems}, recipe.relevant)


def _evaluations(workspace: Workspace, recipe: Recipe) -> list[Any]:
    pools = recipe.selection.pools(find_corpus(workspace.root, recipe.large or None))
    return workspace.evaluations(pools, recipe.systems, depth=recipe.depth)


def results(workspace: Workspace, recipe: Recipe) -> StudyResult:
    """Return how often uncited candidates are relevant, scores under imputed judgements, what judgements settle."""
    corpus, make = recipe.made(workspace), workspace.runner.make
    opened = {}
    for ranking in _judged_rankings(workspace, recipe, corpus):
        pool = Pool(make(ranking.pool), Corpus(corpus))
        opened[ranking.facet, ranking.system] = pool, read_ranking(make(ranking.ranking))
    judged = judged_candidates(opened, recipe.relevant)
    runs = runs_of(workspace.runner, _evaluations(workspace, recipe))
    large = Pool(artifact(runs.row(0, named=True), "pool"), Corpus(artifact(runs.row(0, named=True), "corpus")))
    queries = len(large.query_rows)
    names = judged.columns[4:]
    ranked = [
        Run.from_table(artifact(run, "ranking").arrow("ranking.arrow"), queries) for run in runs.iter_rows(named=True)
    ]
    values = imputed_precision(judged, large, ranked, recipe)
    tables = [
        relevance_table(judged, names),
        *imputation_tables(values, names, recipe),
        settled_table(opened, names, recipe),
    ]
    return StudyResult(tables, sources=[corpus.name, runs["corpus"][0], large.artifact.name])


def judged_candidates(opened: Mapping[tuple[str, str], tuple[Pool, Any]], relevant: int) -> Judged:
    """Return the judged candidates of all facets; one is relevant that is so for any facet of its query."""
    parts: dict[str, list[pl.DataFrame]] = {}
    for (_, system), (pool, ranking) in opened.items():
        papers = pl.Series(query_papers(pool), dtype=pl.String)
        qrels = pl.DataFrame(pl.from_arrow(pool.qrels)).with_columns(cited=pl.Series(cited_of(pool)))
        ranks = pl.DataFrame({"query": ranking.query, "row": ranking.row, system: ranking.rank})
        joined = qrels.join(ranks, on=["query", "row"], how="left").with_columns(paper=papers.gather(qrels["query"]))
        parts.setdefault(system, []).append(joined.select("paper", "row", "grade", "cited", system))
    keys, frame = ["paper", "row"], pl.DataFrame()
    for system, of_system in parts.items():
        candidates = pl.concat(of_system).group_by(keys).agg(
            (pl.col("grade") >= relevant).any().alias("relevant"), pl.col("cited").first(), pl.col(system).first()
        )  # fmt: skip
        frame = candidates if frame.is_empty() else frame.join(candidates.select(*keys, system), on=keys)
    return frame.sort(keys)


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


def imputed_precision(judged: Judged, pool: Pool, ranked: Sequence[Run], recipe: Recipe) -> Floats:
    """Return average precision with citations, then with each imputation, ``[1 + imputations, systems, queries]``.

    Each imputation fits the probability of relevance on other query papers, drawn with replacement, so that its
    uncertainty counts.
    """
    from sklearn.linear_model import LogisticRegression

    queries, measure = len(pool.query_rows), parse_measures("map")
    qrels = Qrels.from_table(pool.qrels, queries)
    positives = pl.DataFrame({"query": query_of(qrels.offsets), "row": qrels.rows.astype(np.int64)})
    listed = [
        pl.DataFrame({"query": query_of(run.offsets), "row": run.rows.astype(np.int64)}).with_columns(
            (pl.int_range(pl.len()).over("query") + 1).alias(str(place))
        )
        for place, run in enumerate(ranked)
    ]
    names = [str(place) for place in range(len(ranked))]
    near = pl.concat(
        part.filter(pl.col(name) <= recipe.imputed).select("query", "row")
        for part, name in zip(listed, names, strict=True)
    )
    near = near.unique().join(positives, on=["query", "row"], how="anti").sort("query", "row")
    for part in listed:
        near = near.join(part, on=["query", "row"], how="left", maintain_order="left")
    predictors = features(near.select(pl.col(names).fill_null(recipe.depth + 1)).to_numpy())
    uncited = judged.filter(~pl.col("cited"))
    x, y = features(uncited.select(judged.columns[4:]).to_numpy()), uncited["relevant"].to_numpy()
    paper = uncited["paper"].rank("dense").cast(pl.Int64).to_numpy() - 1
    values = [_precision(ranked, qrels, measure)]
    for number in range(recipe.imputations):
        random = generator(recipe.seed, "impute", number)
        times = np.bincount(random.integers(0, paper.max() + 1, paper.max() + 1), minlength=paper.max() + 1)
        fit = LogisticRegression(C=np.inf).fit(x, y, sample_weight=times[paper])
        chance = fit.predict_proba(predictors)[:, 1]
        drawn = near.filter(pl.Series(random.random(len(near)) < chance)).select("query", "row")
        both = pl.concat([positives, drawn]).sort("query", "row")
        grades = np.ones(len(both), np.int16)
        judgements = table(JUDGEMENTS, both["query"].to_numpy(), both["row"].to_numpy(), grades)
        values.append(_precision(ranked, Qrels.from_table(judgements, queries), measure))
    return np.stack(values)


def _precision(ranked: Sequence[Run], qrels: Qrels, measure: Any) -> Floats:
    return np.stack([evaluate(qrels, run, measure)[0] for run in ranked])


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
    for place, system in enumerate(systems):
        rows.append(Measurement(system, "citations", *interval(cited[place], recipe.seed)))
        rows.append(Measurement(system, "imputed", *rubin(imputed[:, place])[:3]))
    notes = [
        f"Imputed: uncited papers of the first {recipe.imputed} of any system are relevant at random; "
        f"{recipe.imputations} imputations, combined by Rubin's rules.",
        "The probability of relevance is a logistic function of the mean and the least logarithm of a paper's ranks, "
        "fitted on the judged pools. That it holds in the large pool is assumed, not tested.",
    ]
    yield interval_table("imputed", "Systems with citations and with imputed relevance", "system", rows, notes)
    shown, frame = [], []
    for one, other in itertools.combinations(range(len(systems)), 2):
        mean, low, high = interval(cited[one] - cited[other], recipe.seed)
        value, least, most, tail = rubin(imputed[:, one] - imputed[:, other])
        changed = tail if mean * value >= 0 else 1 - tail
        pair = f"{systems[one]} less {systems[other]}"
        frame.append((pair, mean, low, high, value, least, most, changed))
        shown.append({
            "pair": pair, "citations": points({"difference": mean, "low": low, "high": high}),
            "imputed": points({"difference": value, "low": least, "high": most}),
            "probability of another order": f"{changed:.3f}",
        })  # fmt: skip
    columns = ["pair", "citations", "citations_low", "citations_high", "imputed", "low", "high", "other_order"]
    notes = ["Points of MAP [95% interval]; probability: that with imputed relevance the sign is another."]
    yield StudyTable(
        "pairs",
        frame_table("Does the order hold?", pl.DataFrame(shown), notes),
        pl.DataFrame(frame, columns, orient="row"),
    )


def settled_table(
    opened: Mapping[tuple[str, str], tuple[Pool, Any]], systems: Sequence[str], recipe: Recipe
) -> StudyTable:
    """Return how often infAP on some judged candidates of each query gives the order of MAP on all of them."""
    whole, sampled = {}, {}
    for system in systems:
        full, drawn = [], []
        for facet in FACETS:
            pool, ranking = opened[facet, system]
            judged = pl.DataFrame(pl.from_arrow(pool.qrels)).with_columns(grade=pl.col("grade") - (recipe.relevant - 1))
            ranked = pl.DataFrame({"query": ranking.query, "row": ranking.row})
            full.append(measured(_binary(judged), ranked, pool, "map"))
            of_facet = []
            for count, draw in itertools.product(recipe.judged, range(recipe.draws)):
                chance = generator(recipe.seed, "judged", f"{facet}|{draw}").random(len(judged))
                order = judged.with_columns(chance=pl.Series(chance)).select(
                    pl.col("chance").rank("ordinal").over("query")
                )
                chosen = _binary(judged).with_columns(
                    grade=pl.when(order.to_series() <= count).then("grade").otherwise(-1).cast(pl.Int16)
                )
                of_facet.append(measured(chosen, ranked, pool, "infap"))
            drawn.append(np.stack(of_facet))
        whole[system] = np.concatenate(full)
        sampled[system] = np.concatenate(drawn, axis=1).reshape(len(recipe.judged), recipe.draws, -1)
    rows = []
    for one, other in itertools.combinations(systems, 2):
        truth = np.nanmean(whole[one] - whole[other])
        changes = np.nanmean(sampled[one] - sampled[other], axis=2)
        agreed = (changes * np.sign(truth) > 0).mean(axis=1)
        rows.append({"pair": f"{one} less {other}", "MAP, all": 100 * truth} | {
            f"{count} judged": 100 * share for count, share in zip(recipe.judged, agreed.tolist(), strict=True)
        })  # fmt: skip
    notes = [
        f"Points of MAP with all judgements; percent of {recipe.draws} random choices of so many judged candidates of "
        "each query for which infAP gives the same order. Queries without a relevant one among them are left out.",
        "The queries are given: this says nothing about other queries.",
    ]
    frame = pl.DataFrame(rows)
    return StudyTable("settled", frame_table("How many judgements settle the order", frame, notes), frame)


def _binary(judged: pl.DataFrame) -> pl.DataFrame:
    return judged.select("query", "row", grade=(pl.col("grade") >= 1).cast(pl.Int16))


STUDY = Study(
    "missing_relevance",
    "does the order of systems hold if uncited papers can be relevant",
    Recipe,
    batches,
    results,
    needs=FACETS_STUDY.needs,
)
