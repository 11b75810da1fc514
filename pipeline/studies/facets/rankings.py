"""Rankings of the pools of facets: any engine, TF-IDF, best pairs of sentences, optimal transport, files of rankings.

A judged pool is ranked completely: candidates that an engine does not rank, or that have no text, are last, by falling
row.
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

import msgspec
import numpy as np
import numpy.typing as npt

from pipeline.api import Workspace
from pipeline.core import files, order
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, require_known
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.encode.model import Model
from pipeline.encode.names import parse
from pipeline.retrieve.base import MAX_DEPTH, Ranking
from pipeline.sources.base import fingerprint
from pipeline.sources.csfcube import FACETS, checked_facet
from pipeline.stages.embed import embed_tasks, store_of
from pipeline.stages.ranking_file import open_pool, read_ranking, write_ranking
from pipeline.stages.systems import parse_systems
from pipeline.studies.facets import pools
from pipeline.studies.facets.pools import FACET, WHOLE
from pipeline.studies.sentences import transport_score, transported

_LAST = float(np.finfo(np.float32).min)
"""Score of a candidate that a system does not rank."""

_FILE = re.compile(r"test-pid2pool-(?P<collection>[^-]+)-(?P<system>.+)-(?P<facet>[^-]+)-ranked\.json")

Scores = Iterable[Sequence[float] | npt.NDArray[np.floating]]
"""For each query of a pool, the scores of the candidates that it ranks (:func:`ranked_rows`)."""


class FacetRanking(NamedTuple):
    """One system on the pools of one facet, with queries of a ``form`` (:data:`FACET` or :data:`WHOLE`).

    A contextual encoder with the form :data:`FACET` ranks the pools of whole papers by the facet's sentences alone.
    """

    system: str
    form: str
    facet: str
    pool: Task
    ranking: Task


@dataclass(frozen=True)
class PairConfig:
    """Settings of a ranking of pairs: ``system`` is the method, ``content`` the checksum of a file."""

    system: str
    content: str = ""
    depth: int = MAX_DEPTH


def rankings(
    workspace: Workspace,
    corpus: Artifact,
    collection: Task,
    facets: Sequence[str],
    systems: Mapping[str, str],
    relevant: int | None,
    depth: int | None = None,
) -> list[FacetRanking]:
    """Return the ranking of every system on every facet, facet by facet.

    ``systems`` has, by form, names separated by commas: any system, ``tfidf``, or ``ot(ENCODER)``. For contextual
    encoders, the collection has the sentences of a facet. ``relevant`` is that of
    :class:`pipeline.studies.facets.pools.FacetPool`. Without a ``depth``, the whole judged pool is ranked.
    """
    facet_rankings, entries = [], depth or MAX_DEPTH
    for facet, (form, names) in itertools.product(facets, systems.items()):
        for parsed in parse(names):
            pool, name = pools.facet_pool_task(corpus, facet, form, relevant), str(parsed)
            encoder = transported(parsed)
            is_transport = bool(encoder)
            system = None if name == "tfidf" else parse_systems(encoder or name)[0]
            model = system.ranker if system and isinstance(system.ranker, Model) else None
            if system is None:
                config = PairConfig("tfidf", depth=entries)
                ranking = pairs_task(f"tfidf-{pool.slug}", config, corpus, pool, {}, _tfidf)
            elif model is not None and model.contextual and form == FACET:
                # It encodes the facet's sentences within their abstract, so its queries are papers.
                pool = pools.facet_pool_task(corpus, facet, WHOLE, relevant)
                ranking = _sentences_task(corpus, pool, model, is_transport, entries, {"collection": collection})
            elif is_transport:
                if model is None:
                    raise InputError(f"{name} must name an encoder, got {system.name}", "Write ot(sentences)")
                ranking = _sentences_task(corpus, pool, model, is_transport, entries, {})
            else:
                (evaluation,) = workspace.evaluations(pool, [name], depth=entries)
                name, ranking = evaluation.system.title, evaluation.ranking
                if depth is None:
                    slug, inputs = f"whole-{ranking.slug}", {"ranking": ranking}
                    ranking = pairs_task(slug, PairConfig("completed"), corpus, pool, inputs, _completed)
            facet_rankings.append(FacetRanking(name, form, facet, pool, ranking))
    return facet_rankings


def pairs_task(
    slug: str,
    config: PairConfig,
    corpus: Artifact,
    pool: Task,
    extra_inputs: Mapping[str, Task | Artifact],
    scores_of: Callable[[Inputs, Pool], Scores],
) -> Task:
    """Return the task that ranks a pool by ``scores_of(inputs, pool)``, whose inputs include ``extra_inputs``.

    Ties are in the one total order.
    """

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        facet_pool, ranked = open_pool(inputs), []
        textless = pools.without_text(facet_pool.corpus)
        for rows, scores in zip(pools.ranked_rows(facet_pool), scores_of(inputs, facet_pool), strict=True):
            final_scores = np.where(textless[rows], _LAST, scores).astype(np.float32)
            best = order.best(final_scores, rows, min(config.depth, len(rows)))
            ranked.append((rows[best], final_scores[best]))
        rows, scores = map(np.concatenate, zip(*ranked, strict=True))
        ranking = Ranking.from_counts(np.array([len(rows) for rows, _ in ranked], np.int64), rows, scores)
        return write_ranking(ranking, facet_pool, config.depth, out)

    return Task("search", 2, RANKINGS, slug, config, {"corpus": corpus, "pool": pool, **extra_inputs}, run)


def _completed(inputs: Inputs, pool: Pool) -> Scores:
    """Yield the scores of a ranking of a judged pool; candidates that it does not rank are last."""
    ranking = read_ranking(inputs["ranking"])
    pairs = zip(ranking.query.tolist(), ranking.row.tolist(), strict=True)
    score_of = dict(zip(pairs, ranking.score.tolist(), strict=True))
    for query, rows in enumerate(pools.ranked_rows(pool)):
        yield [score_of.get((query, row), _LAST) for row in rows.tolist()]


def _tfidf(_inputs: Inputs, pool: Pool) -> Scores:
    """Yield cosines of TF-IDF vectors; document frequencies are those of the corpus."""
    from pipeline.encode.lsa import tfidf_similarities

    papers = (text for block in pool.corpus.texts(np.arange(len(pool.corpus))) for text in block)
    similarity = tfidf_similarities([text for block in pool.query_texts() for text in block], papers)
    for query, rows in enumerate(pools.ranked_rows(pool)):
        yield similarity[[query]].toarray()[0, rows]


def _sentences_task(
    corpus: Artifact, pool: Task, model: Model, transport: bool, depth: int, collection: Mapping[str, Task]
) -> Task:
    """Return the task that ranks pools by the sentence vectors of an encoder, by transport or by the best pair.

    With a collection, queries are papers, so their sentences are encoded within the abstract; the collection selects
    the sentences of the facet. Without one, the queries are the sentences of the facet alone.
    """
    if not model.multi_vector:
        raise InputError(
            f"{model.name} must have several vectors per paper, got one", "Write ot(sentences:encoder=minilm)"
        )

    from pipeline.retrieve.canonical import best_pair_score

    def score(query: npt.NDArray[np.floating], paper: npt.NDArray[np.floating]) -> float:
        if transport:
            return transport_score(query, paper)
        return float(best_pair_score(query, paper, model.distance))

    def scores_of(inputs: Inputs, pool: Pool) -> Scores:
        queries = _vectors(inputs.get("query", inputs["paper"]), pool.query_rows)
        papers = dict(zip(pool.candidates.tolist(), _vectors(inputs["paper"], pool.candidates), strict=True))
        if collection:
            sentences = pools.Collection.read(inputs["collection"]).sentences
            for position, paper in enumerate(pools.query_papers(pool)):
                labels = [label in FACETS[pools.facet_of(pool)] for label, _ in sentences[paper]]
                of_facet = np.array(labels, bool)[: len(queries[position])]
                if of_facet.any():
                    queries[position] = queries[position][of_facet]
        for query, rows in zip(queries, pools.ranked_rows(pool), strict=True):
            yield [score(query, papers[row]) for row in rows.tolist()]

    slug = f"{'ot' if transport else 'sentences'}-{model.slug}-{pool.slug}"
    config = PairConfig("transport" if transport else "best pair", depth=depth)
    vectors = {str(role): task for role, task in embed_tasks(corpus, pool, model.whole()).items()}
    return pairs_task(slug, config, corpus, pool, {**vectors, **collection}, scores_of)


def _vectors(store: Artifact, rows: npt.NDArray[np.integer]) -> list[npt.NDArray[np.floating]]:
    """Return the vectors of each paper, ``[sentences, dimension]``."""
    grouped = store_of(store).grouped(rows)
    return [grouped.vectors[start:end] for start, end in itertools.pairwise(grouped.offsets)]


def file_rankings(corpus: Artifact, folder: Path, facets: Sequence[str], relevant: int) -> Iterator[FacetRanking]:
    """Yield the rankings of the ranked pools in a folder in the authors' layout (:data:`_FILE`)."""
    paths: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.glob("test-pid2pool-*-ranked.json")):
        if match := _FILE.fullmatch(path.name):
            paths.setdefault(match["system"], {})[checked_facet(match["facet"], str(path))] = path
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

    def scores_of(_inputs: Inputs, pool: Pool) -> Scores:
        try:
            lists = msgspec.convert(files.given_json(path), dict[str, list[tuple[str | int, float]]])
        except msgspec.ValidationError as error:
            raise InputError(
                f"{path} must be ranked pools, a list of [id, score] a query ({error})", "Correct it"
            ) from error
        for paper, rows in zip(pools.query_papers(pool), pools.ranked_rows(pool), strict=True):
            require_known(paper, lists, f"{path} must rank query {paper}, got nothing")
            ranked = [str(candidate) for candidate, _ in lists[paper] if str(candidate) != paper]
            judged = pool.corpus.ids(rows)
            repeated = [candidate for candidate, count in Counter(ranked).items() if count > 1]
            for candidate in [*sorted({*ranked} ^ {*judged}), *repeated]:
                problem = "must be ranked once" if candidate in judged else "is not judged"
                raise InputError(f"candidate {candidate} of query {paper} of {path} {problem}", "Rank the judged pool")
            yield [-ranked.index(candidate) for candidate in judged]

    (content,) = fingerprint([path], path.parent).values()
    return pairs_task(f"{pool.slug}-file", PairConfig(system, content), corpus, pool, {}, scores_of)


def ranked_json(pool: Pool, ranking: Ranking) -> str:
    """Return a ranking as JSON in the authors' layout: for each query paper a list of [id, distance], nearest first."""
    papers = pools.query_papers(pool)
    lists: dict[str, list[tuple[str, float]]] = {paper: [] for paper in papers}
    entries = zip(ranking.query.tolist(), pool.corpus.ids(ranking.row), ranking.score.tolist(), strict=True)
    for query, candidate, score in entries:
        lists[papers[query]].append((candidate, -score))
    return json.dumps(lists)
