"""Distances between papers by their sentences: the best pair, and optimal transport."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.text import Sentences
from pipeline.corpus.reader import Text
from pipeline.encode import registry
from pipeline.studies.sentences import transport_score
from tests.cli.run import mdcr_json
from tests.encode.test_aspire import one_by_one
from tests.encode.tiny import save_in_cache
from tests.studies.facets.collection import write
from tests.studies.facets.test_study import METHOD, study


def test_contextual_sentences_are_those_of_the_facet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The method of query 100 is one sentence as given and two of the splitting rule: it is vector 1 of four."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    snapshot = save_in_cache(
        tmp_path / "cache", registry._entry("aspire-bm")["hub"], "0123456789abcdef0123456789abcdef01234567"
    )
    folder = write(tmp_path / "in")
    papers = [json.loads(line) for line in gzip.decompress((folder / "docs.jsonl.gz").read_bytes()).splitlines()]
    (query,) = (paper for paper in papers if paper["corpusid"] == 100)
    query["sents"][1] = "We w1 w2. They w3."
    (folder / "docs.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, papers)).encode()))
    (tmp_path / "workspace").mkdir()
    found = mdcr_json(tmp_path / "workspace", *study(folder, "aspire-bm,ot(aspire-bm)", "aspire-bm", METHOD))
    vectors = {
        str(paper["corpusid"]): one_by_one(snapshot, Text(paper["title"], Sentences(paper["sents"])))
        for paper in papers
    }
    assert len(vectors["100"]) == 4
    for system, kept in (("aspire_bm", slice(1, 2)), ("aspire_bm_whole", slice(0, 4)), ("ot_aspire_bm", slice(1, 2))):
        path = Path(found["folder"]) / f"test-pid2pool-mine-{system}-method-ranked.json"
        for paper, distance in json.loads(path.read_text())["100"][:-1]:
            own = vectors["100"][kept]
            pairs = ((own[:, None] - vectors[paper][None]) ** 2).sum(axis=2)
            expected = plain_transport(np.sqrt(pairs)) if system.startswith("ot") else pairs.min()
            assert distance == pytest.approx(expected, rel=1e-3)


def plain_transport(distances: np.ndarray) -> float:
    """Return what moving a query's sentences to a paper's costs, as the paper defines it."""
    import ot

    nearest = (distances.min(axis=1), distances.min(axis=0))
    one, other = (np.exp(-least) / np.exp(-least).sum() for least in nearest)
    plan = ot.sinkhorn(one, other, distances, 0.05, method="sinkhorn_stabilized", numItermax=5_000, stopThr=1e-6)
    exact = ot.emd2(one, other, distances)
    cost = float((plan * distances).sum())
    assert exact - 1e-6 <= cost <= exact + 0.05 * np.log(distances.size)
    return cost


def test_transport_of_single_sentences_is_their_distance() -> None:
    chance = np.random.default_rng(1)
    one, other = chance.normal(size=(1, 5)), chance.normal(size=(1, 5))
    assert transport_score(one, other) == pytest.approx(-np.linalg.norm(one - other))
    many = chance.normal(size=(4, 5))
    assert transport_score(many, many) == pytest.approx(0, abs=1e-3)
    assert transport_score(many, many + 1) < transport_score(many, many + 0.1) < transport_score(many, many)
