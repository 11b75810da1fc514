"""Writing the score file of a system."""

from __future__ import annotations

from pathlib import Path

from pipeline.api import Workspace
from pipeline.core.errors import InputError
from pipeline.studies.mdcr.evaluation import opened
from pipeline.studies.mdcr.layout import read_lists
from pipeline.studies.mdcr.scorefile import write_scores
from pipeline.studies.mdcr.scores import Recipe, batches, ranked


def export_scores(workspace: Workspace, recipe: Recipe, path: Path) -> None:
    """Make the rankings of one system and write their scores.

    A query of several fields has one score of a pair: that of the last field, should BM25 give it several.

    Raises:
        InputError: the recipe names several systems.
    """
    for batch in batches(workspace, recipe):
        workspace.make(list(batch))
    corpus, found = ranked(workspace, recipe)
    names = list(dict.fromkeys(each.system for each in found))
    if len(names) > 1:
        raise InputError(f"a score file must be of one system, got {', '.join(names)}", "Export one at a time")
    score_of: dict[tuple[str, str], float] = {}
    for each in found:
        lists, ranking = opened(workspace, corpus, each)
        queries = lists.pool.query_ids()
        candidates = lists.pool.corpus.ids(ranking.row)
        for query, candidate, score in zip(ranking.query.tolist(), candidates, ranking.score.tolist(), strict=True):
            score_of[queries[query], candidate] = score
    write_scores(path, read_lists(Path(recipe.input), recipe.split), score_of)
