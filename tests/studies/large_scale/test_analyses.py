"""The analyses against plain references."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.corpus.pool import Pool
from pipeline.corpus.prefilter import count_marks, describe_gaps
from pipeline.corpus.reader import Corpus
from pipeline.measure.inputs import Qrels
from tests.builders import made_up_paper, make_corpus, make_pool

QUERIES, PAPERS = 12, 60


def test_marks_are_counted_once_a_paper(tmp_path: Path) -> None:
    """Of 12 queries and 60 papers, of which every fourth lacks its abstract."""
    random = np.random.default_rng(3)
    papers = [
        made_up_paper(number) | {"year": 2019 if number < QUERIES else 2010 + number % 12} for number in range(PAPERS)
    ]
    for paper in papers[QUERIES::4]:
        paper["abstract"] = ""
    papers[21]["year"] = None
    ids = [paper["paper_id"] for paper in papers]
    cited = [
        (ids[q], ids[p]) for q in range(QUERIES) for p in random.choice(np.arange(QUERIES, PAPERS), 7, replace=False)
    ]
    corpus = Corpus(make_corpus(tmp_path, papers, cited))
    pool = Pool(make_pool(tmp_path, corpus.artifact, queries=ids[:QUERIES]), corpus)
    own = np.unique(Qrels.from_table(pool.qrels, QUERIES).rows)
    found = count_marks(corpus.attributes, own, pool.candidates)
    abstracts = corpus.take(np.arange(PAPERS), ["abstract"]).column(0).to_pylist()
    assert found["positives"]["papers"] + found["negatives"]["papers"] == PAPERS
    assert found["positives"]["without_abstract"] == sum(not abstracts[row] for row in own)
    assert found["positives"]["few_references"] == sum(int(row) >= QUERIES for row in own)
    assert found["positives"]["without_year"] == 1
    lacking = found["positives"]["without_abstract"] / len(own)
    assert f"without abstract {lacking:.1%} and " in describe_gaps([found, found])
    assert describe_gaps([]) == ""
