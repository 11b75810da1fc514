"""Rankings of the pools of facets: those of any engine, TF-IDF, best pairs of sentences and optimal transport.

A judged pool counts whole: a candidate that an engine does not find, or that has no text, stands last, highest row
first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.core import order
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.order import Rows, Scores
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.encode import kinds
from pipeline.encode.names import parse
from pipeline.encode.spec import Model
from pipeline.retrieve.base import MAX_DEPTH, Ranking
from pipeline.retrieve.canonical import canonical_scores
from pipeline.sources.csfcube import FACETS
from pipeline.stages.embed import embed_tasks, store_of
from pipeline.stages.search import open_pool, read_ranking, slug_of, write_ranking
from pipeline.stages.systems import Dense, parse_systems
from pipeline.studies.facets.collection import Collection
from pipeline.studies.facets.pools import FACET, WHOLE, facet_pool_task, ranked_rows, without_text

if TYPE_CHECKING:
    from pipeline.api import Workspace

_LAST = np.finfo(np.float32).min
"""Score of a candidate that a system does not rank."""

Method = Literal["best pair", "transport"]

Score = Callable[[int, Rows], Scores]
"""Scores of one query, by number, with some candidates, by row."""


@dataclass(frozen=True)
class PairConfig:
    """What decides a ranking of pairs: ``system`` names the method, ``content`` the checksum of a file."""

    system: str
    content: str = ""
    depth: int = MAX_DEPTH


class FacetRanking(NamedTuple):
    """One system on the pools of one facet, asked as ``form`` (:data:`FACET` or :data:`WHOLE`) says.

    A contextual encoder with the form :data:`FACET` ranks the pools of whole papers by the facet's sentences alone.
    """

    system: str
    form: str
    facet: str
    pool: Task
    ranking: Task


def rankings(
    workspace: Workspace,
    corpus: Artifact,
    collection: Task,
    facets: Sequence[str],
    systems: Mapping[str, str],
    relevant: int | None,
    depth: int | None = None,
) -> list[FacetRanking]:
    """Return every system on every facet, facet by facet.

    Args:
        workspace: where the rankings are made.
        corpus: the collection's papers.
        collection: says which sentences are of a facet, for contextual encoders.
        facets: which facets.
        systems: names with commas by form: any system, ``tfidf``, or ``ot(ENCODER)``.
        relevant: as :class:`pipeline.studies.facets.pools.FacetPool` has it.
        depth: entries of a query; None: the whole judged pool.

    Raises:
        InputError: a system is unknown.
    """
    found = []
    for facet, (form, names) in itertools.product(facets, systems.items()):
        for typed in parse(names):
            pool, name = facet_pool_task(corpus, facet, form, relevant), str(typed)
            transport = typed.base == "ot" and bool(typed.parts)
            inside = ",".join(map(str, typed.parts or ())) if transport else name
            system = None if name == "tfidf" else parse_systems(inside)[0]
            model = system.model if isinstance(system, Dense) else None
            if system is None:
                ranking = _tfidf_task(corpus, pool, depth or MAX_DEPTH)
            elif model is not None and kinds.find(model.spec.kind).contextual and form == FACET:
                # It reads the facet's sentences in their abstract, so its queries are papers.
                pool = facet_pool_task(corpus, facet, WHOLE, relevant)
                method: Method = "transport" if transport else "best pair"
                ranking = sentences_task(corpus, pool, model, method, collection, depth or MAX_DEPTH)
            elif transport:
                if model is None:
                    raise InputError(f"{name} must name an encoder, got {system.name}", "Write ot(sentences)")
                ranking = sentences_task(corpus, pool, model, "transport", depth=depth or MAX_DEPTH)
            else:
                (evaluation,) = workspace.evaluations(pool, [name], depth=depth or MAX_DEPTH)
                name, ranking = evaluation.system.title, evaluation.ranking
                if depth is None:
                    ranking = _completed_task(corpus, pool, ranking)
            found.append(FacetRanking(name, form, facet, pool, ranking))
    return found


def _completed_task(corpus: Artifact, pool: Task, ranking: Task) -> Task:
    """Return the task that completes the ranking of a judged pool: every judged candidate has a rank."""

    def score_of(inputs: Inputs, _pool: Pool) -> Score:
        found = read_ranking(inputs["ranking"])
        pairs = zip(found.query.tolist(), found.row.tolist(), strict=True)
        known = dict(zip(pairs, found.score.tolist(), strict=True))
        return lambda query, rows: np.array([known.get((query, row), _LAST) for row in rows.tolist()], np.float32)

    return pairs_task(f"whole-{ranking.slug}", PairConfig("completed"), corpus, pool, {"ranking": ranking}, score_of)


def _tfidf_task(corpus: Artifact, pool: Task, depth: int) -> Task:
    """Return the task that ranks pools by the cosine of TF-IDF weights, with the corpus's frequencies."""

    def score_of(_inputs: Inputs, pool: Pool) -> Score:
        from pipeline.encode.lsa import tfidf_similarities

        papers = (text for block in pool.corpus.texts(np.arange(len(pool.corpus))) for text in block)
        found = tfidf_similarities([text for block in pool.query_texts() for text in block], papers)
        return lambda query, rows: np.asarray(found[[query]].toarray()[0, rows], np.float32)

    return pairs_task(f"tfidf-{slug_of(pool)}", PairConfig("tfidf", depth=depth), corpus, pool, {}, score_of)


def sentences_task(
    corpus: Artifact,
    pool: Task,
    model: Model,
    method: Method,
    collection: Task | None = None,
    depth: int = MAX_DEPTH,
) -> Task:
    """Return the task that ranks pools by the sentence vectors of an encoder.

    ``transport`` is that of ASPIRE's released code (Mysore et al. 2022): entropic, of L2 distances, with regularisation
    0.05; a sentence weighs the softmax of its negated smallest distance. POT solves it.

    Args:
        corpus: the corpus of the pool.
        pool: the pools.
        model: the encoder.
        method: ``best pair`` (canonical scores) or ``transport``.
        collection: of queries that are papers: what says which of their sentences are of the facet. So a sentence is
            encoded in its abstract. None: the queries are the sentences alone.
        depth: entries of a query.

    Raises:
        InputError: the encoder has one vector a paper.
    """
    if not model.several:
        raise InputError(
            f"{model.name} must have several vectors a paper, got one", "Write ot(sentences:encoder=minilm)"
        )
    more: dict[str, Task | Artifact] = {str(role): task for role, task in embed_tasks(corpus, pool, model).items()}
    if collection is not None:
        more["collection"] = collection

    def score_of(inputs: Inputs, pool: Pool) -> Score:
        from pipeline.studies.facets.transport import transport_score

        queries = store_of(inputs.get("query", inputs["paper"])).grouped(pool.query_rows)
        papers = store_of(inputs["paper"]).grouped(pool.candidates)
        asked = [queries.vectors[start:end] for start, end in itertools.pairwise(queries.offsets)]
        if "collection" in inputs:
            kept = facet_sentences(pool, Collection(inputs["collection"]))
            asked = [
                own[mine[: len(own)]] if mine[: len(own)].any() else own for own, mine in zip(asked, kept, strict=True)
            ]

        def score(query: int, rows: Rows) -> Scores:
            places = np.searchsorted(pool.candidates, rows)
            others = (papers.vectors[papers.offsets[place] : papers.offsets[place + 1]] for place in places)
            if method == "transport":
                return np.array([transport_score(asked[query], other) for other in others], np.float32)
            pairs = ((canonical_scores(own, other, model.distance) for own in asked[query]) for other in others)
            return np.array([max(float(each.max()) for each in scores) for scores in pairs], np.float32)

        return score

    name = "ot" if method == "transport" else "sentences"
    return pairs_task(
        f"{name}-{model.slug}-{slug_of(pool)}", PairConfig(method, depth=depth), corpus, pool, more, score_of
    )


def facet_sentences(pool: Pool, collection: Collection) -> list[npt.NDArray[np.bool_]]:
    """Return which sentences of each query paper are of the pool's facet."""
    labels, sentences = FACETS[pool.artifact.manifest.config["field"]], collection.sentences
    return [np.array([label in labels for label, _ in sentences[paper]], bool) for paper in pool.query_ids()]


def pairs_task(
    slug: str,
    config: PairConfig,
    corpus: Artifact,
    pool: Task,
    more: Mapping[str, Task | Artifact],
    score_of: Callable[[Inputs, Pool], Score],
) -> Task:
    """Return the task that ranks a pool by scores of pairs.

    ``score_of``, given the inputs (``more`` among them) and the pool, returns the scores of a query with candidates.
    """

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened = open_pool(inputs)
        return write_ranking(_ranked(opened, score_of(inputs, opened), config.depth), opened, config.depth, out)

    return Task("search", 2, RANKINGS, slug, config, {"corpus": corpus, "pool": pool, **more}, run)


def _ranked(pool: Pool, score: Score, depth: int) -> Ranking:
    """Return the ranking of a pool by scores, in the one total order."""
    found = []
    for query, rows in enumerate(ranked_rows(pool)):
        scores = np.where(without_text(pool.corpus, rows), _LAST, score(query, rows)).astype(np.float32)
        chosen = order.best(scores, rows, min(depth, len(rows)))
        found.append((rows[chosen], scores[chosen]))
    counts = np.array([len(rows) for rows, _ in found], np.int64)
    return Ranking.from_counts(counts, np.concatenate([r for r, _ in found]), np.concatenate([s for _, s in found]))
