"""New forms of encoders through the stage: means, own encoders of queries, sentences, several processes, figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.cli.main import main
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.corpus.reader import Corpus
from pipeline.encode import kinds, registry
from pipeline.encode.model import Model
from pipeline.encode.shards import CorpusTexts
from pipeline.stages.embed import embed_tasks, query_model, store_of, stored_tasks
from pipeline.stages.systems import parse_systems
from tests.builders import make_corpus, make_pool
from tests.encode.tiny import save_bert, words
from tests.stages.making import HERE, make


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def corpus(tmp_path: Path) -> Artifact:
    return corpus_of(tmp_path)


def corpus_of(root: Path) -> Artifact:
    """Publish 12 papers in shards of 5; paper n has n sentences."""
    papers = [
        {
            "paper_id": f"{number:03d}",
            "title": words(2 + number, number),
            "abstract": " ".join(f"W{start} {words(5, start)}." for start in range(number)),
        }
        for number in range(12)
    ]
    return make_corpus(root, papers, shard_rows=5)


def embed(root: Path, corpus: Artifact, model: Model, *pool: list[int]) -> Artifact:
    return make(root, embed_tasks(corpus, make_pool(root, corpus, *(pool or ([0],))), model)["paper"])


def test_the_mean_of_two_systems(tmp_path: Path, corpus: Artifact, folder: Path) -> None:
    other = save_bert(tmp_path / "other", seed=4)
    system, *others = parse_systems(f"mean({folder},{other}:pooling=mean,max_length=64),bm25,lsa:dimension=8,seed=3")
    assert len(others) == 2
    mean = system.ranker
    assert isinstance(mean, Model)
    assert mean.name == f"mean({folder},{other}:max_length=64,pooling=mean)"
    stores = [store_of(embed(tmp_path, corpus, model)) for model in (mean, *mean.parts)]
    both, one, two = (store.grouped(np.arange(12)).vectors for store in stores)
    np.testing.assert_allclose(both, (one + two) / 2, atol=1e-6)
    for wrong in (f"mean({folder})", f"mean({folder},lsa)", f"mean({folder},minilm)"):
        with pytest.raises(InputError, match="must average"):
            registry.resolve(wrong)


def test_queries_have_their_own_encoder(tmp_path: Path, folder: Path) -> None:
    other = save_bert(tmp_path / "other", seed=4)
    own_entries = {"papers": {"folder": str(folder), "query": "asked"}, "asked": {"folder": str(other)}}

    @kinds.register
    class Folders(kinds.Transformer):
        kind, entries = "folders", own_entries

    try:
        model = registry.resolve("papers:max_length=64")
        assert model.query == "asked:max_length=64"
        assert query_model(model).identity == registry.resolve("asked:max_length=64").identity
        corpus = make_corpus(tmp_path, 4, query_texts={"a": "w1 w2"}, judgements=[("a", "00001", 1)])
        tasks = embed_tasks(corpus, make_pool(tmp_path, corpus), model)
        assert tasks["query"].config.encoder == query_model(model).identity
        assert tasks["paper"].config.encoder == model.identity
    finally:
        del kinds.KINDS["folders"]


def test_papers_that_ad_hoc_queries_search_have_their_own_prefix(tmp_path: Path, folder: Path) -> None:
    settings = {"folder": str(folder), "template": "title-space-abstract", "paper_prefix": "w1 "}
    resolve = kinds.find("transformer").of
    model, plain = resolve("like-e5", {**settings, "passage_prefix": "w2 "}), resolve("plain", settings)
    corpus = make_corpus(tmp_path, 4, query_texts={"a": "w1 w2"}, judgements=[("a", "00001", 1)])
    pools = make_pool(tmp_path, corpus, [0]), make_pool(tmp_path, corpus)
    for encoder, prefixes in ((model, ["w1 ", "w2 "]), (plain, ["w1 ", "w1 "])):
        tasks = [embed_tasks(corpus, pool, encoder)["paper"] for pool in pools]
        assert [task.config.encoder["paper_prefix"] for task in tasks] == prefixes
    for pool in pools:
        make(tmp_path, embed_tasks(corpus, pool, model)["paper"])
    assert len(stored_tasks(tmp_path, corpus, model)) == 2


def test_sentence_vectors_through_the_store(tmp_path: Path, corpus: Artifact, folder: Path) -> None:
    model = kinds.find("aspire").of("aspire", {"folder": str(folder), "storage": "float16"})
    store = store_of(embed(tmp_path, corpus, model, [3]))
    rows = np.array([0, 3, 7, 11])
    grouped = store.grouped(rows)
    assert np.diff(grouped.offsets).tolist() == [1, 3, 7, 11]
    assert grouped.vectors.shape == (22, 32)
    blocks = list(store.blocks(rows, 3))
    assert [block.rows.tolist() for block in blocks] == [[0] + [3] * 3 + [7] * 7, [11] * 11]
    assert store.grouped(np.array([], np.uint32)).offsets.tolist() == [0]
    exact = model.load(None, HERE).encode(CorpusTexts(Corpus(corpus), "paper")(rows))
    np.testing.assert_allclose(grouped.vectors, exact, rtol=2**-8)


def test_shards_are_divided_between_processes(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = []
    for devices in (["cpu"], ["cpu", "cpu"]):
        monkeypatch.setattr(Model, "devices", lambda *_, devices=devices: devices)
        root = tmp_path / str(len(devices))
        manifest = embed(root, corpus_of(root), registry.resolve(str(folder))).manifest
        outputs.append(manifest.outputs)
        assert manifest.provenance.get("processes", 1) == len(devices)
        assert manifest.provenance["tokens_per_second"] > 0
    assert outputs[0] == outputs[1]


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def test_models_are_listed_and_shown(empty_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    details = ("title-sep-abstract", "github.com/malteos/scincl")
    for words_typed, expected in ((["models"], ("aspire-cs",)), (["models", "scincl"], details)):
        assert main(words_typed) == 0
        printed = capsys.readouterr().out
        assert all(text in printed for text in expected)
