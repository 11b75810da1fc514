"""What is exported, read by the tools it is for: trec_eval, ranx, ir_measures, mteb; and by ourselves."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import polars as pl
import pytest
import pytrec_eval

from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.pool import Pool
from pipeline.corpus.poolconfig import PoolConfig
from pipeline.corpus.reader import Corpus
from pipeline.exchange.export import unjudged, write_frame, write_pool, write_ranking
from pipeline.exchange.views import PoolView
from pipeline.measure.engines import evaluate
from pipeline.measure.inputs import Qrels, RankedRun
from pipeline.measure.measures import parse_measures
from pipeline.sources.beir import Beir
from pipeline.stages.corpus import corpus_task
from pipeline.stages.pool import pool_task
from tests.builders import made_up_paper, make_corpus, make_pool
from tests.measure.cases import of_pool, random_case, ranking_table

QUERIES = 12
NAMES = "map,ndcg,mrr,p@1,r@30"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """Queries that are papers, some of them candidates; ids with zeros in front and with white space."""
    root = tmp_path_factory.mktemp("pool")
    ids = [f"{n:05d}" for n in range(QUERIES)] + [f"id {n} %20" if n % 2 else f"NA!{n}" for n in range(60)] + ["null"]
    papers = [{**made_up_paper(n), "paper_id": paper_id} for n, paper_id in enumerate(ids)]
    rng = np.random.default_rng(5)
    cited = [(ids[q], ids[int(r)]) for q in range(QUERIES) for r in rng.choice(np.arange(QUERIES, 70), 5, False)]
    corpus = make_corpus(root, papers, cited, shard_rows=20)
    exclusions = [(query, query) for query in ids[:4]] + [(ids[0], "null")]
    settings = {"exclusions": exclusions, "field": "Physics"}
    return Pool(make_pool(root, corpus, ids[:QUERIES], [*ids[:4], *ids[QUERIES:]], **settings), Corpus(corpus))


def ranked(pool: Pool, levels: int) -> tuple[list[dict[int, float]], dict[str, np.ndarray]]:
    """Return a run with many ties, without excluded papers, and our scores of it."""
    run, _ = random_case(levels, queries=QUERIES, rows=len(pool.candidates), depth=50, positives=3, score_levels=levels)
    run = of_pool(pool, run)
    measures = parse_measures(NAMES)
    qrels, ours = Qrels.from_table(pool.qrels, QUERIES), RankedRun.from_table(ranking_table(run), QUERIES)
    return run, dict(zip(map(str, measures), evaluate(qrels, ours, measures), strict=True))


@pytest.fixture(scope="module")
def beir(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("beir") / "given"
    write_pool(folder, pool)
    return folder


def plain_qrels(pool: Pool) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    ids, queries = pool.corpus.ids(np.arange(len(pool.corpus))), pool.query_ids()
    for judgement in pool.qrels.to_pylist():
        grades[queries[judgement["query"]]][ids[judgement["row"]]] = judgement["grade"]
    return dict(grades)


@pytest.mark.parametrize("levels", [1, 4, 10_000])
def test_trec_eval_ir_measures_and_ranx_give_our_figures(
    pool: Pool, tmp_path: Path, plain_ranx: Any, levels: int
) -> None:
    run, ours = ranked(pool, levels)
    ranking, means = ranking_table(run), {name: values.mean() for name, values in ours.items()}
    write_pool(tmp_path, pool, "trec")
    for output in ("trec", "json"):
        write_ranking(tmp_path / f"run.{output}", ranking, pool, "ours", output)

    with (tmp_path / "qrels.txt").open() as file, (tmp_path / "run.trec").open() as lines:
        judged, theirs = pytrec_eval.parse_qrel(file), pytrec_eval.parse_run(lines)
    names = {"map": "map", "ndcg": "ndcg", "recip_rank": "mrr", "P_1": "precision@1", "recall_30": "recall@30"}
    by_trec_eval = pytrec_eval.RelevanceEvaluator(judged, set(names)).evaluate(theirs)
    for place, query in enumerate(pool.query_ids()):
        if run[place]:
            expected = {name: ours[measure][place] for name, measure in names.items()}
            assert {name: by_trec_eval[query][name] for name in names} == pytest.approx(expected, abs=1e-9)

    names = {"AP": "map", "nDCG": "ndcg", "RR": "mrr", "P@1": "precision@1", "R@30": "recall@30"}
    measures = {ir_measures.parse_measure(name): measure for name, measure in names.items()}
    given = ir_measures.read_trec_qrels(str(tmp_path / "qrels.txt")), ir_measures.read_trec_run(f"{tmp_path}/run.trec")
    values = ir_measures.calc_aggregate(list(measures), *map(list, given))
    assert {measures[measure]: value for measure, value in values.items()} == pytest.approx(means, abs=1e-9)

    qrels_of_ranx = plain_ranx.Qrels.from_dict(plain_qrels(pool))
    given = plain_ranx.Run.from_file(str(tmp_path / "run.json"))
    by_ranx = plain_ranx.evaluate(qrels_of_ranx, given, list(means), make_comparable=True)
    assert dict(by_ranx) == pytest.approx(means, abs=1e-9)


def test_an_exported_pool_is_built_again_as_it_was(pool: Pool, beir: Path, tmp_path: Path) -> None:
    runner = Runner(tmp_path, Resources(2**30, 1))
    corpus = runner.make(corpus_task("again", Beir(beir)))
    config = PoolConfig(queries_are="texts", year=None, size="all", queries="all")
    again = Pool(runner.make(pool_task(corpus, config)), Corpus(corpus))

    def content(of: Pool) -> tuple[Any, ...]:
        texts = [text for block in of.candidate_texts() for text in block]
        asked = [" ".join(text).strip() for block in of.query_texts() for text in block]
        excluded = [sorted(of.corpus.ids(of.excluded(query))) for query in range(QUERIES)]
        return of.query_ids(), asked, of.corpus.ids(of.candidates), texts, plain_qrels(of), excluded

    assert content(again) == content(pool)
    assert again.artifact.manifest.counts["excluded_given"] == 1
    run, _ = ranked(pool, 4)
    write_ranking(tmp_path / "run.json", ranking_table(run), pool, "x", "json")
    written = json.loads((tmp_path / "run.json").read_text())
    assert {document for documents in written.values() for document in documents} <= {*content(again)[2]}
    assert [len(written[query]) for query in again.query_ids()] == [len(scores) for scores in run]


@pytest.mark.parametrize("paper", ["a\tb", '"quoted', "line\n"])
def test_ids_that_a_beir_folder_cannot_hold(tmp_path: Path, paper: str) -> None:
    corpus = make_corpus(tmp_path, [{"paper_id": paper}, {"paper_id": "q"}])
    pool = Pool(make_pool(tmp_path, corpus, ["q"], qrels=[("q", paper, 1)]), Corpus(corpus))
    with pytest.raises(InputError, match="must be without tabs.*--format=trec"):
        write_pool(tmp_path / "out", pool)


def test_queries_without_a_judgement_and_texts_that_are_no_papers(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 5, query_texts={"q1": "one", "q2": "two"}, judgements=[("q1", "00001", 2)])
    pool = Pool(make_pool(tmp_path, corpus), Corpus(corpus))
    assert unjudged(pool) == 1
    queries = PoolView(pool, pool_task(corpus, PoolConfig())).queries
    assert queries.rows() == [("q1", "one", "", None), ("q2", "two", "", None)]
    assert not (write_pool(tmp_path / "beir", pool)[0].parent / "exclusions.tsv").exists()


def test_exclusions_that_cannot_be_read_are_named(beir: Path, tmp_path: Path) -> None:
    (tmp_path / "exclusions.tsv").write_text("query-id\tcorpus-id\nonly\n")
    for name in ("corpus.jsonl", "queries.jsonl", "qrels"):
        (tmp_path / name).symlink_to(beir / name)
    with pytest.raises(InputError, match=r"exclusions.tsv:2 must be query-id and corpus-id"):
        Beir(tmp_path).queries()


def test_a_frame_of_formulas_is_text(tmp_path: Path) -> None:
    frame = pl.DataFrame({"system": ["=1+1", "a\nb"], "query_id": ["=q", "-1"], "value": [-0.5, 1.0]})
    write_frame(tmp_path / "x.csv", frame)
    assert (tmp_path / "x.csv").read_text() == "system,query_id,value\n'=1+1,=q,-0.5\na\\nb,-1,1.0\n"
    write_frame(tmp_path / "x.parquet", frame, "parquet")
    assert pl.read_parquet(tmp_path / "x.parquet").equals(frame)
