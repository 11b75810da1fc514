"""Rankings of whole judged pools: completed ones of any engine, TF-IDF, optimal transport, and the authors' files.

A pool counts whole: a candidate that an engine does not find, or that has no text, stands last, highest row first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from pipeline.core import order
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, nearest
from pipeline.core.manifest import Counts
from pipeline.core.order import Rows, Scores
from pipeline.core.resources import Resources
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import RANKINGS
from pipeline.corpus.pool import Pool
from pipeline.encode.spec import Model
from pipeline.retrieve.base import MAX_DEPTH, Ranking
from pipeline.sources.base import fingerprint
from pipeline.sources.csfcube import checked_facet
from pipeline.stages.embed import embed_tasks, store_of
from pipeline.stages.search import open_pool, read_ranking, slug_of, write_ranking
from pipeline.studies.facets.pools import facet_query_ids, judged_rows, without_text

_LAST = np.finfo(np.float32).min
"""Score of a candidate that a system does not rank."""

_FILE = re.compile(r"test-pid2pool-(?P<collection>[^-]+)-(?P<system>.+)-(?P<facet>[^-]+)-ranked\.json")

Score = Callable[[int, Rows], Scores]
"""Scores of one query, by number, with some candidates, by row."""


@dataclass(frozen=True)
class PairConfig:
    """What decides a ranking of pairs: ``system`` names the method, ``content`` the checksum of a file."""

    system: str
    content: str = ""


def completed_task(corpus: Artifact, pool: Task, ranking: Task) -> Task:
    """Return the task that completes the ranking of a judged pool: every judged candidate has a rank."""

    def score_of(inputs: Inputs, _pool: Pool) -> Score:
        found = read_ranking(inputs["ranking"])
        pairs = zip(found.query.tolist(), found.row.tolist(), strict=True)
        known = dict(zip(pairs, found.score.tolist(), strict=True))
        return lambda query, rows: np.array([known.get((query, row), _LAST) for row in rows.tolist()], np.float32)

    return _task(f"whole-{ranking.slug}", PairConfig("completed"), corpus, pool, {"ranking": ranking}, score_of)


def tfidf_task(corpus: Artifact, pool: Task) -> Task:
    """Return the task that ranks judged pools by the cosine of TF-IDF weights, with the corpus's frequencies."""

    def score_of(_inputs: Inputs, pool: Pool) -> Score:
        from pipeline.encode.tfidf import similarities

        papers = (text for block in pool.corpus.texts(np.arange(len(pool.corpus))) for text in block)
        found = similarities([text for block in pool.query_texts() for text in block], papers)
        return lambda query, rows: np.asarray(found[[query]].toarray()[0, rows], np.float32)

    return _task(f"tfidf-{slug_of(pool)}", PairConfig("tfidf"), corpus, pool, {}, score_of)


def transport_task(corpus: Artifact, pool: Task, model: Model) -> Task:
    """Return the task that ranks judged pools by the optimal transport of sentence vectors (Mysore et al. 2022).

    As in ASPIRE's released code: entropic transport of L2 distances with regularisation 0.05; a sentence weighs the
    softmax of its negated smallest distance. POT solves it.

    Raises:
        InputError: the encoder has one vector a paper.
    """
    if not model.several:
        raise InputError(
            f"{model.name} must have several vectors a paper, got one", "Write ot(sentences:encoder=minilm)"
        )
    vectors: dict[str, Task | Artifact] = {str(role): task for role, task in embed_tasks(corpus, pool, model).items()}

    def score_of(inputs: Inputs, pool: Pool) -> Score:
        from pipeline.studies.facets.transport import transport_score

        queries = store_of(inputs.get("query", inputs["paper"])).grouped(pool.query_rows)
        papers = store_of(inputs["paper"]).grouped(pool.candidates)

        def score(query: int, rows: Rows) -> Scores:
            own = queries.vectors[queries.offsets[query] : queries.offsets[query + 1]]
            places = np.searchsorted(pool.candidates, rows)
            others = (papers.vectors[papers.offsets[place] : papers.offsets[place + 1]] for place in places)
            return np.array([transport_score(own, other) for other in others], np.float32)

        return score

    return _task(f"ot-{model.slug}-{slug_of(pool)}", PairConfig("transport"), corpus, pool, vectors, score_of)


def file_task(corpus: Artifact, pool: Task, system: str, path: Path) -> Task:
    """Return the task that takes a ranking over from a file of ranked pools; the order of its lists counts.

    Raises:
        InputError: once run: the file is not of the layout, or does not rank exactly the judged candidates.
    """
    (content,) = fingerprint([path], path.parent).values()
    config = PairConfig(system, content)
    return _task(f"{slug_of(pool)}-file", config, corpus, pool, {}, lambda _, opened: _file_scores(opened, path))


def _task(
    slug: str,
    config: PairConfig,
    corpus: Artifact,
    pool: Task,
    more: Mapping[str, Task | Artifact],
    score_of: Callable[[Inputs, Pool], Score],
) -> Task:
    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        opened = open_pool(inputs)
        return write_ranking(_ranked(opened, score_of(inputs, opened)), opened, MAX_DEPTH, out)

    return Task("search", 2, RANKINGS, slug, config, {"corpus": corpus, "pool": pool, **more}, run)


def _ranked(pool: Pool, score: Score) -> Ranking:
    """Return the ranking of all judged candidates by their scores, in the one total order."""
    found = []
    for query, rows in enumerate(judged_rows(pool)):
        scores = np.where(without_text(pool.corpus, rows), _LAST, score(query, rows)).astype(np.float32)
        chosen = order.best(scores, rows, len(rows))
        found.append((rows[chosen], scores[chosen]))
    counts = np.array([len(rows) for rows, _ in found], np.int64)
    return Ranking.from_counts(counts, np.concatenate([r for r, _ in found]), np.concatenate([s for _, s in found]))


def ranked_files(folder: Path) -> dict[str, dict[str, Path]]:
    """Return the ranked pools of a folder, ``test-pid2pool-COLLECTION-SYSTEM-FACET-ranked.json``, by system and facet.

    Raises:
        InputError: there is none, or one is of no facet.
    """
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.glob("test-pid2pool-*-ranked.json")):
        if match := _FILE.fullmatch(path.name):
            found.setdefault(match["system"], {})[checked_facet(match["facet"], str(path))] = path
    if not found:
        raise InputError(f"{folder} must hold ranked pools (test-pid2pool-*-ranked.json), got none", "Set ranked to ''")
    return found


def _file_scores(pool: Pool, path: Path) -> Score:
    try:
        lists = msgspec.json.decode(path.read_bytes(), type=dict[str, list[tuple[str | int, float]]])
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise InputError(f"{path} must be ranked pools, a list of [id, score] a query ({error})", "Mend it") from error
    places: list[dict[int, int]] = []
    for query, rows in zip(facet_query_ids(pool), judged_rows(pool), strict=True):
        paper = query.rpartition("_")[0]
        if paper not in lists:
            raise InputError(f"{path} must rank query {paper}, got nothing", nearest(paper, lists))
        ids = [str(each) for each, _ in lists[paper] if str(each) != paper]
        judged = dict(zip(pool.corpus.ids(rows), rows.tolist(), strict=True))
        wrong = sorted(set(ids) ^ set(judged)) + [each for each in ids if ids.count(each) > 1]
        if wrong:
            state = "is not judged" if wrong[0] not in judged else "must be ranked once"
            raise InputError(f"candidate {wrong[0]} of query {paper} of {path} {state}", "Rank the judged pool")
        places.append({judged[each]: place for place, each in enumerate(ids)})

    def score(query: int, rows: Rows) -> Scores:
        return np.array([-places[query][row] for row in rows.tolist()], np.float32)

    return score


def ranked_json(pool: Pool, ranking: Artifact) -> str:
    """Return a ranking in the authors' layout: by query paper a list of [id, distance], nearest first."""
    found = read_ranking(ranking)
    ids = pool.corpus.ids(found.row)
    queries = [each.rpartition("_")[0] for each in facet_query_ids(pool)]
    lists: Mapping[str, list[Sequence[str | float]]] = {query: [] for query in queries}
    for query, paper, score in zip(found.query.tolist(), ids, found.score.tolist(), strict=True):
        lists[queries[query]].append([paper, -score])
    return json.dumps(lists)
