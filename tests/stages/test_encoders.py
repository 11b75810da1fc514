"""New forms of encoders through the stage: means, own encoders of queries, sentences, several processes, figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import BertConfig

from pipeline.cli.main import main
from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Task
from pipeline.corpus.reader import Corpus
from pipeline.encode import kinds, registry
from pipeline.encode.probe import Probe
from pipeline.encode.spec import TransformerSpec
from pipeline.stages.embed import CorpusTexts, describe_stores, embed_tasks, query_model, store_of, stored_tasks
from pipeline.stages.plan import plan, sample_texts
from pipeline.stages.systems import Dense, parse_systems
from tests.builders import make_corpus, make_pool
from tests.encode.stub import stub
from tests.encode.tiny import SMALL, SPECIAL, save_bert, words

pytestmark = pytest.mark.xdist_group("encoders")
"""One process makes what all of them look at."""

__all__ = ["stub"]

CPU = Resources(workers=1, device="cpu")


def make(root: Path, task: Task) -> Artifact:
    return Runner(root, CPU).make(task)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("models") / "tiny")


def corpus_of(root: Path, papers: int = 12, shard_rows: int = 5) -> Artifact:
    made = [
        {
            "paper_id": f"{number:03d}",
            "title": words(2 + number, number),
            "abstract": " ".join(f"W{each} {words(5, each)}." for each in range(number)),
        }
        for number in range(papers)
    ]
    return make_corpus(root, made, shard_rows=shard_rows)


def test_the_mean_of_two_systems(tmp_path: Path, folder: Path) -> None:
    other = save_bert(tmp_path / "other", seed=4)
    corpus = corpus_of(tmp_path)
    pool = make_pool(tmp_path, corpus, [0])
    systems = parse_systems(f"mean({folder},{other}:pooling=mean,max_length=64),bm25,lsa:dimension=8,seed=3")
    assert len(systems) == 3
    assert isinstance(systems[0], Dense)
    model = systems[0].model
    assert model.name == f"mean({folder},{other}:max_length=64,pooling=mean)"
    stores = [store_of(make(tmp_path, embed_tasks(corpus, pool, each)["paper"])) for each in (model, *model.parts)]
    both, one, two = (store.grouped(np.arange(12)).vectors for store in stores)
    np.testing.assert_allclose(both, (one + two) / 2, atol=1e-6)
    for wrong in (f"mean({folder})", f"mean({folder},lsa)", f"mean({folder},minilm)"):
        with pytest.raises(InputError, match="must average"):
            registry.resolve(wrong)


def test_queries_have_their_own_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    other = save_bert(tmp_path / "other", seed=4)
    entries = {"papers": {"folder": str(folder), "query": "asked"}, "asked": {"folder": str(other)}}
    for name, entry in entries.items():
        kind = kinds.Kind(
            f"kind of {name}",
            TransformerSpec,
            kinds.find("transformer").resolve,
            kinds.find("transformer").load,
            models={name: {**entry, "kind": f"kind of {name}"}},
        )
        kinds.register(kind)
    try:
        model = registry.resolve("papers:max_length=64")
        assert model.query == "asked:max_length=64"
        assert query_model(model).spec == registry.resolve("asked:max_length=64").spec
        texts = {"a": "w1 w2", "b": words(90)}
        corpus = make_corpus(tmp_path, 4, query_texts=texts, judgements=[("a", "00001", 1)])
        tasks = embed_tasks(corpus, make_pool(tmp_path, corpus), model)
        assert tasks["query"].config.encoder == query_model(model).spec
        assert tasks["paper"].config.encoder == model.spec
    finally:
        for name in entries:
            kinds.unregister(f"kind of {name}")


def test_papers_that_ad_hoc_queries_search_have_their_own_prefix(tmp_path: Path, folder: Path) -> None:
    settings = {"folder": str(folder), "template": "title-space-abstract", "paper_prefix": "w1 "}
    model = kinds.find("transformer").resolve("like-e5", {**settings, "passage_prefix": "w2 "})
    plain = kinds.find("transformer").resolve("plain", settings)
    corpus = make_corpus(tmp_path, 4, query_texts={"a": "w1 w2"}, judgements=[("a", "00001", 1)])
    papers, texts = make_pool(tmp_path, corpus, [0]), make_pool(tmp_path, corpus)
    prefix = {
        (each.name, pool.name): embed_tasks(corpus, pool, each)["paper"].config.encoder.paper_prefix
        for each in (model, plain)
        for pool in (papers, texts)
    }
    assert [prefix["like-e5", pool.name] for pool in (papers, texts)] == ["w1 ", "w2 "]
    assert [prefix["plain", pool.name] for pool in (papers, texts)] == ["w1 ", "w1 "]
    for pool in (papers, texts):
        make(tmp_path, embed_tasks(corpus, pool, model)["paper"])
    assert len(stored_tasks(tmp_path, corpus, model)) == 2


def test_sentence_vectors_through_the_store(tmp_path: Path, folder: Path) -> None:
    corpus = corpus_of(tmp_path)
    pool = make_pool(tmp_path, corpus, [3])
    model = kinds.find("aspire").resolve("aspire", {"folder": str(folder), "storage": "bfloat16"})
    store = store_of(make(tmp_path, embed_tasks(corpus, pool, model)["paper"]))
    rows = np.array([0, 3, 7, 11])
    found = store.grouped(rows)
    assert np.diff(found.offsets).tolist() == [1, 3, 7, 11]
    assert found.vectors.shape == (22, 32)
    blocks = list(store.blocks(rows, 3))
    assert [block.rows.tolist() for block in blocks] == [[0] + [3] * 3 + [7] * 7, [11] * 11]
    assert store.grouped(np.array([], np.uint32)).offsets.tolist() == [0]
    texts = CorpusTexts(Corpus(corpus), "paper")(rows)
    exact = kinds.find("aspire").load(model, None, CPU).encode(texts)
    np.testing.assert_allclose(found.vectors, exact, rtol=2**-8)


def test_shards_are_divided_between_processes(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = registry.resolve(str(folder))
    outputs = []
    for name, devices in (("one", ["cpu"]), ("two", ["cpu", "cpu"])):
        monkeypatch.setattr(kinds, "devices", lambda *_, devices=devices: devices)
        corpus = corpus_of(tmp_path / name)
        segment = make(tmp_path / name, embed_tasks(corpus, make_pool(tmp_path / name, corpus, [0]), model)["paper"])
        outputs.append(segment.manifest.outputs)
        assert segment.manifest.provenance.get("processes") == (None if name == "one" else 2)
        assert segment.manifest.provenance["tokens_per_second"] > 0
        assert set(segment.manifest.provenance["seconds"]) == {"tokenise", "wait_for_tokens", "compute", "write"}
    assert outputs[0] == outputs[1]


def test_stores_are_described(tmp_path: Path, folder: Path) -> None:
    corpus = corpus_of(tmp_path)
    pool = make_pool(tmp_path, corpus, [0], [1, 2, 3])
    segment = make(tmp_path, embed_tasks(corpus, pool, registry.resolve(f"{folder}:storage=float16"))["paper"])
    (found,) = describe_stores(tmp_path, corpus.id, 3, CPU)
    assert (found["papers"], found["coverage"], found["dimension"]) == (4, "33.3%", 32)
    assert (found["precision"], found["zeros"], found["vectors_a_paper"]) == ("float32/float16", 0, 1.0)
    assert found["spot_check"].startswith("3 papers: cosine 1.000000")
    vectors = store_of(segment).grouped(np.arange(4)).vectors
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[np.triu_indices(4, 1)]
    assert found["mean_cosine"] == pytest.approx(cosines.mean(), abs=1e-4)
    assert list(describe_stores(tmp_path, "another corpus", 0, CPU)) == []
    damaged = segment.path / "vectors-00000.arrow"
    content = bytearray(damaged.read_bytes())
    content[-300] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(CorruptError, match=r"vectors-00000\.arrow"):
        list(describe_stores(tmp_path, None, 0, CPU))


def test_a_model_that_changed_is_told(tmp_path: Path) -> None:
    saved = save_bert(tmp_path / "model")
    corpus = corpus_of(tmp_path)
    make(tmp_path, embed_tasks(corpus, make_pool(tmp_path, corpus, [0]), registry.resolve(str(saved)))["paper"])
    save_bert(saved, seed=9)
    (found,) = describe_stores(tmp_path, None, 2, CPU)
    assert found["spot_check"] == "the model of that name has changed"


def test_nan_names_paper_and_shard(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModel

    from pipeline.core.errors import StageError

    saved = save_bert(tmp_path / "broken")
    network = AutoModel.from_pretrained(saved)
    with torch.no_grad():
        network.embeddings.word_embeddings.weight[len(SPECIAL) + 31] = float("nan")  # the first paper with w31 is 3
    network.save_pretrained(saved)
    corpus = corpus_of(tmp_path)
    task = embed_tasks(corpus, make_pool(tmp_path, corpus, [0]), registry.resolve(str(saved)))["paper"]
    with pytest.raises(StageError, match=r"NaN or infinity for row 3 \(paper 003\) of shard 0"):
        make(tmp_path, task)


def test_plans(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = sample_texts(corpus_of(tmp_path))
    assert len(texts) == 11
    (row,) = plan([str(folder)], "bfloat16", [1_000_000], texts, CPU, 0.1)
    assert (row["papers"], row["note"]) == (1_000_000, "its own weights")
    assert row["disk_GB"] == pytest.approx(1e6 * (32 * 4 + 10) / 1e9, abs=0.02)
    assert row["hours"] == pytest.approx(1e6 / row["docs/s"] / 3600, rel=0.1)
    assert next(iter(plan(["lsa"], None, [5], texts, CPU, 0.1)))["note"].startswith("fitted")
    command = ["plan", "--root", str(tmp_path), "--model", f"bm25,mine={folder}", "--probe", "0.1", "--json"]
    for options, papers in (
        ("--size 6,12,2M --samples 1 --queries 2", [7, 12, 2_000_002]),
        ("--size 6 --queries 2", [11]),  # three samples, as of mdcr eval: 12 * (1 - (1/2)**3 * 5/6)
        ("--size 2M --field Art,Medicine", [12_000_400]),
        ("--size all", [12]),
    ):
        assert main([*command, *options.split()]) == 0
        assert [each["papers"] for each in json.loads(capsys.readouterr().out)["plan"]] == papers


def test_a_stand_in_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("pipeline.encode.probe.BertConfig", lambda: BertConfig(**SMALL))
    texts = sample_texts(corpus_of(tmp_path))
    for name in ("aspire-bm", "specter2_ensemble"):
        (row,) = plan([name], None, [1_000_000], texts, CPU, 0.1)
        assert row["note"] == "random weights of a BERT-base: not in the cache"
        assert row["disk_GB"] > 1e6 * 32 * 4 / 1e9
    one = Probe(10.0, 100.0, 1.0, 32, 4, 1_000)
    assert (one.times(2).documents_per_second, one.times(2).memory) == (5.0, 2_000)
    assert main(["plan", "--root", str(tmp_path), "--model", "bm25,scincl", "--size", "2M", "--probe", "0.1"]) == 0
    assert "not in the cache" in capsys.readouterr().out
    assert main(["plan", "--root", str(tmp_path), "--model", "bm25", "--size", "2M"]) == 2
    assert main(["plan", "--root", str(tmp_path), "--model", "rrf(bm25,scinkl)", "--size", "2M"]) == 2
    assert "Did you mean 'scincl'" in capsys.readouterr().err


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("pipeline.encode.lock.FILE", tmp_path / "models.lock")
    assert main(["models"]) == 0
    printed = capsys.readouterr().out
    assert "aspire-cs" in printed
    assert "fields.map 28.7" in printed
    assert main(["models", "scincl"]) == 0
    printed = capsys.readouterr().out
    for figure in ("dataset-2M.recall@30", "26.5", "scidocs-cite.ndcg", "97.3", "github.com/malteos/scincl"):
        assert figure in printed
    assert main(["models", "lock", "--json"]) == 1
    shown = capsys.readouterr()
    assert all(each["commit"] == "unknown" for each in json.loads(shown.out)["locked"])
    assert shown.err.splitlines()[-1].startswith(f"mdcr: {len(registry.repositories())} of ")
    assert str(tmp_path / "cache") in shown.err
    assert not (tmp_path / "models.lock").exists()
    assert main(["models", "lok"]) == 2
    assert "Did you mean 'lock'" in capsys.readouterr().err
    assert main(["show", "vectors", "--root", str(tmp_path)]) == 0
    assert "no vectors yet" in capsys.readouterr().out
