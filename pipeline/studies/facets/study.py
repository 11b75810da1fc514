"""The study ``facets``: rank the judged pools of a collection by facet, and score them (Mysore et al. 2021).

Systems are any engine, TF-IDF, best pairs of sentences, optimal transport and files of rankings. A judged pool is
ranked completely: candidates that an engine does not rank, or that have no text, are last, by falling row.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from pipeline.studies import kit
from pipeline.studies.facets import pools, scoring
from pipeline.studies.facets.pools import FACET, WHOLE
from pipeline.studies.kit import Artifact, InputError, Pool, Task, csfcube, required
from pipeline.studies.sentences import transport_score, transported

_LAST = float(np.finfo(np.float32).min)
"""Score of a candidate that a system does not rank."""

_FILE = re.compile(r"test-pid2pool-(?P<collection>[^-]+)-(?P<system>.+)-(?P<facet>[^-]+)-ranked\.json")

Scores = Iterable[Sequence[float] | npt.NDArray[np.floating]]
"""For each query of a pool, the scores of the candidates that it ranks (:func:`ranked_rows`)."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the study."""

    corpus: str = required("name of the corpus to make")
    input: str = required("folder of the collection")
    facets: tuple[str, ...] = required("which facets")
    systems: str = required("what ranks by the facet's sentences: any system, tfidf, or ot(ENCODER)")
    whole: str = required("what ranks by the whole query paper, with commas", systems="replaced")
    ranked: str = required("folder of ranked pools, such as csfcube/sample_ranked_pools; empty: none")
    baseline: str = required("the system that the others are compared with; empty: the first")
    relevant: int = required("the least relevant grade")
    measures: tuple[str, ...] = required("what is scored; csfcube-*: as the authors' script computes them")
    shown: tuple[str, ...] = required("measures of the table; the last is drawn and tested")
    seed: int = required("seed of the intervals, tests and random rankings")

    def __post_init__(self) -> None:
        for facet in self.facets:
            csfcube.checked_facet(facet, "the recipe")
        if not self.facets or not self.shown or not set(self.shown) <= set(self.measures):
            problem = "facets and shown must not be empty, and every measure of shown must be in measures"
            raise InputError(problem, "Correct the recipe")

    @property
    def release(self) -> csfcube.Csfcube:
        """The collection's files."""
        return csfcube.Csfcube(Path(self.input).expanduser())


NEEDS = "Its data are CSFCube's: git clone https://github.com/iesl/CSFCube csfcube, or give a folder with --input"


@kit.study("facets", "faceted query by example on judged pools (CSFCube)", Recipe, needs=NEEDS)
def facets(workspace: kit.Workspace, recipe: Recipe) -> kit.Steps:
    """Return scores, differences and agreement, and the ranked pools as files."""
    (corpus,) = yield [kit.corpus_task(recipe.corpus, recipe.release)]
    collection_task = pools.collection_task(corpus, recipe.release)
    systems = {FACET: recipe.systems, WHOLE: recipe.whole}
    ranked = rankings(workspace, corpus, collection_task, recipe.facets, systems, recipe.relevant)
    if recipe.ranked:
        ranked += file_rankings(corpus, Path(recipe.ranked).expanduser(), recipe.facets, recipe.relevant)
    names = list(dict.fromkeys(ranking.system for ranking in ranked))
    if not names:
        raise InputError("the study must have a system, got none", "Set systems, whole or ranked")
    baseline = kit.named_by(recipe.baseline, names) if recipe.baseline else names[0]
    problem = f"the baseline must be one of {', '.join(names)}, got {baseline!r}"
    kit.require_known(baseline, names, problem, "Set it to '' for the first")
    scores = [
        kit.score_task(each.ranking, each.pool, corpus, system=each.system, measures=recipe.measures) for each in ranked
    ]
    judged_tasks = [pools.facet_pool_task(corpus, facet, FACET, recipe.relevant) for facet in recipe.facets]
    tasks = [collection_task, *judged_tasks, *(task for each in ranked for task in (each.pool, each.ranking)), *scores]
    artifacts = yield tasks
    made = {task.id: artifact for task, artifact in zip(tasks, artifacts, strict=True)}
    collection = pools.read_collection(made[collection_task.id])
    opened = {task.id: kit.Pool(made[task.id], kit.Corpus(corpus)) for task in tasks if task.stage == "pool"}
    judged = {facet: opened[task.id] for facet, task in zip(recipe.facets, judged_tasks, strict=True)}

    values = pl.concat(
        scoring.values_of(made[score.id], opened[each.pool.id], each.form)
        for score, each in zip(scores, ranked, strict=True)
    )
    chance = pl.concat(scoring.chance_of(pool, recipe.measures, recipe.seed) for pool in judged.values())
    figures = scoring.summaries(pl.concat([values, chance]), collection["folds"], recipe.seed)
    measure = recipe.shown[-1]
    tables = [
        scoring.score_table(figures, recipe.shown, judged),
        scoring.published_table(figures, recipe.corpus),
        scoring.difference_table(scoring.differences(values, measure, baseline, recipe.seed), measure),
        scoring.agreement_table({facet: collection["annotations"][facet] for facet in recipe.facets}),
        scoring.collection_table(judged),
        scoring.grade_table(judged),
    ]
    files = {"queries.csv": kit.as_csv(values)}
    for each in ranked:
        slug = kit.file_name(each.system.casefold(), gap="_") + ("" if each.form == FACET else f"_{each.form}")
        files[f"test-pid2pool-{recipe.corpus}-{slug}-{each.facet}-ranked.json"] = ranked_json(
            opened[each.pool.id], kit.read_ranking(made[each.ranking.id])
        )
    return kit.Report(
        [table for table in tables if len(table.frame)], files=files,
        sources=[corpus.name, made[collection_task.id].name, *(pool.artifact.name for pool in opened.values())],
    )  # fmt: skip


class FacetRanking(NamedTuple):
    """One system on the pools of one facet, with queries of a ``form`` (:data:`FACET` or :data:`WHOLE`).

    A contextual encoder with the form :data:`FACET` ranks the pools of whole papers by the facet's sentences alone.
    """

    system: str
    form: str
    facet: str
    pool: Task
    ranking: Task


def rankings(
    workspace: kit.Workspace,
    corpus: Artifact,
    collection: Task,
    facets: Sequence[str],
    systems: Mapping[str, str],
    relevant: int,
) -> list[FacetRanking]:
    """Return the ranking of every system on every facet, facet by facet.

    ``systems`` has, by form, names separated by commas: any system, ``tfidf``, or ``ot(ENCODER)``.
    """
    facet_rankings = []
    for facet, (form, names) in itertools.product(facets, systems.items()):
        for parsed in kit.parse(names):
            pool, name = pools.facet_pool_task(corpus, facet, form, relevant), str(parsed)
            encoder = transported(parsed)
            system = None if name == "tfidf" else kit.parse_systems(encoder or name)[0]
            model = system.ranker if system and isinstance(system.ranker, kit.Model) else None
            if system is None:
                ranking = pairs_task(f"tfidf-{pool.slug}", "tfidf", corpus, pool, {}, _tfidf)
            elif model is not None and model.contextual and form == FACET:
                # It encodes the facet's sentences within their abstract, so its queries are papers.
                pool = pools.facet_pool_task(corpus, facet, WHOLE, relevant)
                ranking = _sentences_task(corpus, pool, model, bool(encoder), {"collection": collection})
            elif encoder:
                if model is None:
                    raise InputError(f"{name} must name an encoder, got {system.name}", "Write ot(sentences)")
                ranking = _sentences_task(corpus, pool, model, True, {})
            else:
                (evaluation,) = workspace.evaluations(pool, [name], depth=kit.MAX_DEPTH)
                name, inputs = evaluation.system.title, {"ranking": evaluation.ranking}
                slug = f"whole-{evaluation.ranking.slug}"
                ranking = pairs_task(slug, "completed", corpus, pool, inputs, _completed)
            facet_rankings.append(FacetRanking(name, form, facet, pool, ranking))
    return facet_rankings


def pairs_task(
    slug: str,
    method: str,
    corpus: Artifact,
    pool: Task,
    extra_inputs: Mapping[str, Task | Artifact],
    scores_of: Callable[[kit.Inputs, Pool], Scores],
    content: str = "",
) -> Task:
    """Return the task that ranks a pool by ``scores_of(inputs, pool)``, whose inputs include ``extra_inputs``.

    ``content`` is the checksum of a file that it reads. Ties are in the one total order.
    """

    def run(inputs: kit.Inputs, out: kit.Workdir, _resources: kit.Resources) -> kit.Counts:
        facet_pool, ranked = Pool(inputs["pool"], kit.Corpus(inputs["corpus"])), []
        textless = pools.without_text(facet_pool.corpus)
        for rows, scores in zip(pools.ranked_rows(facet_pool), scores_of(inputs, facet_pool), strict=True):
            final_scores = np.where(textless[rows], _LAST, scores).astype(np.float32)
            best = kit.best(final_scores, rows, len(rows))
            ranked.append((rows[best], final_scores[best]))
        rows, scores = map(np.concatenate, zip(*ranked, strict=True))
        ranking = kit.Ranking.from_counts(np.array([len(rows) for rows, _ in ranked], np.int64), rows, scores)
        return kit.write_ranking(ranking, facet_pool, kit.MAX_DEPTH, out)

    config = {"system": method, "content": content, "depth": kit.MAX_DEPTH}
    return Task("search", 2, kit.RANKINGS, slug, config, {"corpus": corpus, "pool": pool, **extra_inputs}, run)


def _completed(inputs: kit.Inputs, pool: Pool) -> Scores:
    """Yield the scores of a ranking of a judged pool; candidates that it does not rank are last."""
    ranking = kit.read_ranking(inputs["ranking"])
    pairs = zip(ranking.query.tolist(), ranking.row.tolist(), strict=True)
    score_of = dict(zip(pairs, ranking.score.tolist(), strict=True))
    for query, rows in enumerate(pools.ranked_rows(pool)):
        yield [score_of.get((query, row), _LAST) for row in rows.tolist()]


def _tfidf(_inputs: kit.Inputs, pool: Pool) -> Scores:
    """Yield cosines of TF-IDF vectors; document frequencies are those of the corpus."""
    papers = (text for block in pool.corpus.texts(np.arange(len(pool.corpus))) for text in block)
    similarity = kit.tfidf_similarities([text for block in pool.query_texts() for text in block], papers)
    for query, rows in enumerate(pools.ranked_rows(pool)):
        yield similarity[[query]].toarray()[0, rows]


def _sentences_task(
    corpus: Artifact, pool: Task, model: kit.Model, transport: bool, collection: Mapping[str, Task]
) -> Task:
    """Return the task that ranks pools by the sentence vectors of an encoder, by transport or by the best pair.

    With a collection, queries are papers, so their sentences are encoded within the abstract; the collection selects
    the sentences of the facet. Without one, the queries are the sentences of the facet alone.
    """
    if not model.multi_vector:
        problem = f"{model.name} must have several vectors per paper, got one"
        raise InputError(problem, "Write ot(sentences:encoder=minilm)")

    def score(query: npt.NDArray[np.floating], paper: npt.NDArray[np.floating]) -> float:
        if transport:
            return transport_score(query, paper)
        return float(kit.best_pair_score(query, paper, model.distance))

    def scores_of(inputs: kit.Inputs, pool: Pool) -> Scores:
        queries = _vectors(inputs.get("query", inputs["paper"]), pool.query_rows)
        papers = dict(zip(pool.candidates.tolist(), _vectors(inputs["paper"], pool.candidates), strict=True))
        if collection:
            sentences = pools.read_collection(inputs["collection"])["sentences"]
            for position, paper in enumerate(pools.query_papers(pool)):
                labels = [label in csfcube.FACETS[pools.facet_of(pool)] for label, _ in sentences[paper]]
                of_facet = np.array(labels, bool)[: len(queries[position])]
                if of_facet.any():
                    queries[position] = queries[position][of_facet]
        for query, rows in zip(queries, pools.ranked_rows(pool), strict=True):
            yield [score(query, papers[row]) for row in rows.tolist()]

    slug = f"{'ot' if transport else 'sentences'}-{model.slug}-{pool.slug}"
    method = "transport" if transport else "best pair"
    vectors = {str(role): task for role, task in kit.embed_tasks(corpus, pool, model.whole()).items()}
    return pairs_task(slug, method, corpus, pool, {**vectors, **collection}, scores_of)


def _vectors(store: Artifact, rows: npt.NDArray[np.integer]) -> list[npt.NDArray[np.floating]]:
    """Return the vectors of each paper, ``[sentences, dimension]``."""
    grouped = kit.store_of(store).grouped(rows)
    return [grouped.vectors[start:end] for start, end in itertools.pairwise(grouped.offsets)]


def file_rankings(corpus: Artifact, folder: Path, facets: Sequence[str], relevant: int) -> Iterator[FacetRanking]:
    """Yield the rankings of the ranked pools in a folder in the authors' layout (:data:`_FILE`)."""
    paths: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.glob("test-pid2pool-*-ranked.json")):
        if match := _FILE.fullmatch(path.name):
            paths.setdefault(match["system"], {})[csfcube.checked_facet(match["facet"], str(path))] = path
    if not paths:
        raise InputError(f"{folder} must hold ranked pools (test-pid2pool-*-ranked.json), got none", "Set ranked to ''")
    for facet, (system, by_facet) in itertools.product(facets, paths.items()):
        if facet not in by_facet:
            raise InputError(f"{folder} must rank facet {facet} by {system}", "Add the file")
        pool = pools.facet_pool_task(corpus, facet, WHOLE, relevant)
        yield FacetRanking(f"{system} (file)", WHOLE, facet, pool, file_task(corpus, pool, system, by_facet[facet]))


def file_task(corpus: Artifact, pool: Task, system: str, path: Path) -> Task:
    """Return the task that reads a ranking from a file of ranked pools; only the order of its lists is used.

    Raises:
        InputError: once run: the file has another layout, or does not rank exactly the judged candidates.
    """

    def scores_of(_inputs: kit.Inputs, pool: Pool) -> Scores:
        try:
            content = kit.given_json(path).items()
            lists = {query: [str(candidate) for candidate, _ in ranked] for query, ranked in content}
        except (AttributeError, TypeError, ValueError) as error:
            problem = f"{path} must be ranked pools, a list of [id, score] a query ({error})"
            raise InputError(problem, "Correct it") from error
        for paper, rows in zip(pools.query_papers(pool), pools.ranked_rows(pool), strict=True):
            kit.require_known(paper, lists, f"{path} must rank query {paper}, got nothing")
            ranked = [candidate for candidate in lists[paper] if candidate != paper]
            judged = pool.corpus.ids(rows)
            repeated = [candidate for candidate, count in Counter(ranked).items() if count > 1]
            for candidate in [*sorted({*ranked} ^ {*judged}), *repeated]:
                problem = "must be ranked once" if candidate in judged else "is not judged"
                raise InputError(f"candidate {candidate} of query {paper} of {path} {problem}", "Rank the judged pool")
            yield [-ranked.index(candidate) for candidate in judged]

    (content,) = kit.fingerprint([path], path.parent).values()
    return pairs_task(f"{pool.slug}-file", system, corpus, pool, {}, scores_of, content)


def ranked_json(pool: Pool, ranking: kit.Ranking) -> str:
    """Return a ranking as JSON in the authors' layout: for each query paper a list of [id, distance], nearest first."""
    papers = pools.query_papers(pool)
    lists: dict[str, list[tuple[str, float]]] = {paper: [] for paper in papers}
    entries = zip(ranking.query.tolist(), pool.corpus.ids(ranking.row), ranking.score.tolist(), strict=True)
    for query, candidate, score in entries:
        lists[papers[query]].append((candidate, -score))
    return json.dumps(lists)
