"""FacetRanking pools in the authors' layout, in and out: ``test-pid2pool-COLLECTION-SYSTEM-FACET-ranked.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError, nearest
from pipeline.core.order import Rows, Scores
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.sources.base import fingerprint
from pipeline.sources.csfcube import checked_facet
from pipeline.stages.search import read_ranking, slug_of
from pipeline.studies.facets.pools import facet_query_ids, ranked_rows
from pipeline.studies.facets.ranked import PairConfig, Score, pairs_task

_FILE = re.compile(r"test-pid2pool-(?P<collection>[^-]+)-(?P<system>.+)-(?P<facet>[^-]+)-ranked\.json")


def file_task(corpus: Artifact, pool: Task, system: str, path: Path) -> Task:
    """Return the task that takes a ranking over from a file of ranked pools; the order of its lists counts.

    Raises:
        InputError: once run: the file is not of the layout, or does not rank exactly the judged candidates.
    """
    (content,) = fingerprint([path], path.parent).values()
    config = PairConfig(system, content)
    return pairs_task(f"{slug_of(pool)}-file", config, corpus, pool, {}, lambda _, opened: _file_scores(opened, path))


def ranked_files(folder: Path) -> dict[str, dict[str, Path]]:
    """Return the ranked pools of a folder, by system and facet.

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
        lists = msgspec.convert(files.given_json(path), dict[str, list[tuple[str | int, float]]])
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path} must be ranked pools, a list of [id, score] a query ({error})", "Correct it"
        ) from error
    places: list[dict[int, int]] = []
    for query, rows in zip(facet_query_ids(pool), ranked_rows(pool), strict=True):
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
