"""Systems on a benchmark in the published layout, against pytrec_eval and plain definitions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pipeline as interface
from pipeline.core.artifact import Artifact
from pipeline.core.csr import pack
from pipeline.core.errors import InputError
from pipeline.core.schema import RANKING
from pipeline.core.task import Task
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus
from pipeline.stages.ranking_file import read_ranking
from pipeline.stages.systems import parse_systems
from pipeline.studies.mdcr.lists import TRUE, Lists, read_lists
from pipeline.studies.mdcr.scores import (
    OF_SYSTEMS,
    benchmark_pools,
    complete_task,
    evaluations_of_lists,
    read_evaluation,
)
from tests.builders import make_corpus
from tests.cli.run import mdcr, mdcr_json, one_line_error
from tests.studies.mdcr.conftest import (
    MEASURES,
    TYPES,
    by_pytrec_eval,
    close,
    evaluate,
    export_scores,
    random_lists,
    study_lists,
    write_split,
)


def corpus_of(workspace: Path) -> Artifact:
    (folder,) = (workspace / "corpora").glob("published*-test-*")
    return Artifact.open(folder)


def test_types_are_measured_alone(workspace: Path, folder: Path) -> None:
    """The restriction to a type equals trec_eval on lists of the positives and that type."""
    tables = study_lists(workspace, folder, "bm25,lsa")["tables"]
    here, corpus, lists = interface.open(workspace), corpus_of(workspace), read_lists(folder, "test")
    expected: dict[tuple[str, str], list[dict[str, float]]] = {}
    pools = benchmark_pools(corpus, "test", lists)
    for evaluation in evaluations_of_lists(here, corpus, pools, "bm25,lsa"):
        of_field, ranking = read_evaluation(here, evaluation)
        names, papers = of_field.pool.query_ids(), of_field.pool.corpus.ids(ranking.row)
        entries = zip(ranking.query.tolist(), papers, ranking.score.tolist(), strict=True)
        scores = {f"{names[query]}_{paper}": score for query, paper, score in entries}
        for kind in TYPES:
            part = {q: {t: types[t] for t in (kind, TRUE)} for q, types in lists[of_field.field].items()}
            values = by_pytrec_eval({of_field.field: part}, scores)["AVG"]
            means = of_field.values(ranking, tuple(MEASURES.values()), {kind}).mean(axis=1)
            assert means == pytest.approx(list(values.values()), abs=5e-7)
            expected.setdefault((evaluation.system.title, kind), []).append(values)
    for kind in TYPES:
        pairs = zip(expected["bm25", kind], expected["lsa", kind], strict=True)
        expected[OF_SYSTEMS, kind] = [{name: (one[name] + other[name]) / 2 for name in one} for one, other in pairs]
    assert len(tables["types"]) == 3 * len(expected) == 27
    for row in tables["types"]:
        values_of_fields = [values[row["measure"]] for values in expected[row["system"], row["type"]]]
        assert row["value"] == pytest.approx(np.mean(values_of_fields), abs=5e-7)


@pytest.mark.parametrize(
    ("name", "fails"), [("bm25", False), ("rrf(bm25,bm25:k1=2,b=1)", False), ("lsa", True), ("rrf(bm25,lsa)", True)]
)
def test_a_pair_without_a_score(tmp_path: Path, name: str, fails: bool) -> None:
    corpus, here = make_corpus(tmp_path, 60), interface.open(tmp_path)
    (pool,) = benchmark_pools(corpus, "test", {"Art": random_lists(3)["Art"]})
    lists = Lists(Pool(here.runner.make(pool), Corpus(corpus)))
    kept, last = lists.pairs()[:-1], lists.pairs()[-1:]

    def write(_inputs: Any, out: Any, _resources: Any) -> dict[str, Any]:
        query, row = (kept >> np.uint64(32)).astype(np.uint32), kept.astype(np.uint32)
        rank = np.arange(len(kept)) - np.searchsorted(query, query) + 1
        table = pa.table([query, row, 1 / rank.astype(np.float32), rank.astype(np.uint16)], RANKING)
        out.arrow("ranking.arrow", table, RANKING)
        return {}

    ranking = Task("search", 1, "runs/rankings", "some", {"name": name}, {"pool": pool}, write)
    (system,) = parse_systems(name)
    task = complete_task(corpus, pool, ranking, system)
    query, (paper,) = lists.pool.query_ids()[-1], lists.pool.corpus.ids(last.astype(np.uint32))
    if fails:
        with pytest.raises(InputError, match=f"query {query} and candidate {paper} of Art"):
            here.runner.make(task)
        return
    complete = read_ranking(here.runner.make(task))
    assert pack(complete.query[-1:], complete.row[-1:]) == last
    assert complete.score[-1] == 0


@pytest.mark.parametrize("longest", [4, 5])
def test_recall_of_lists_that_fit_in_five_is_scored(workspace: Path, tmp_path: Path, longest: int) -> None:
    """As the authors' evaluation has it, which takes such a field into the mean; a note says that it is 1."""
    lists, folder, system = random_lists(1), tmp_path / f"short{longest}", "lsa:dimension=8"
    for by_type in lists["Art"].values():
        by_type.update(bm25=[], graph=[], random=by_type["random"][: longest - 1], true=by_type[TRUE][:1])
    write_split(folder, "test", lists)
    expected = by_pytrec_eval(lists, export_scores(workspace, folder, system))
    assert evaluate(workspace, folder, system) == close(expected)
    assert expected["Art"]["recall@5"] == 1
    (report,) = (workspace / "runs" / "reports").glob("mdcr_eval/fields.md")
    assert "recall@5 is 1 by construction in Art" in report.read_text()


def test_the_corpus_of_a_study_has_a_name(folder: Path, tmp_path: Path) -> None:
    evaluate(tmp_path, folder, "lsa")
    (row,) = mdcr_json(tmp_path, "show", "corpora")["corpora"]
    assert row["artifact"].startswith(f"{row['corpus']}-")
    assert row["papers"] == 60
    for manifest in tmp_path.rglob("manifest.json"):
        os.utime(manifest, (0, 0))
    assert mdcr_json(tmp_path, "gc", "--delete")["unused"] == []
    evaluate(tmp_path, folder, "lsa")
    assert mdcr_json(tmp_path, "show", "corpora")["corpora"] == [row]
    assert "there is no corpus" in one_line_error(mdcr(tmp_path, "pool"))  # it is not the only corpus of a user
    (tmp_path / "corpora" / f"{row['corpus']}.name").unlink()
    assert mdcr_json(tmp_path, "gc", "--delete")["unused"]
    assert not list(tmp_path.glob("corpora/*/manifest.json"))
