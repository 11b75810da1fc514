"""Embedding pool by pool into one store: nothing twice, nothing lost, the same bytes after kills and repairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, StageError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Task
from pipeline.core.workspace import VECTORS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode import kinds, registry, shards
from pipeline.encode.base import Encoded, Encoder
from pipeline.encode.spec import Model
from pipeline.encode.store import VectorStore
from pipeline.stages.embed import embed_tasks, store_folder, store_of, stored_tasks
from tests.builders import make_corpus, make_pool
from tests.encode.stub import StubEncoder, StubSpec, stub, unit_vector
from tests.encode.tiny import save_bert, words

__all__ = ["stub"]

PAPERS = 60


def open_store(root: Path, corpus: Artifact, model: Model) -> VectorStore:
    return VectorStore.open(root / VECTORS / store_folder(corpus, model))


def make(root: Path, task: Task, *, repair: bool = False) -> Artifact:
    return Runner(root, Resources(workers=1, device="cpu"), repair=repair).make(task)


def expected(corpus: Artifact, rows: list[int], dimension: int = 32) -> np.ndarray:
    texts = [text for block in Corpus(corpus).texts(np.array(rows)) for text in block]
    return np.stack([unit_vector(text, dimension) for text in texts])


@pytest.mark.parametrize("shard_rows", [PAPERS, 23, 9])
def test_every_paper_has_its_own_vector(tmp_path: Path, stub: None, shard_rows: int) -> None:
    corpus = make_corpus(tmp_path, PAPERS, shard_rows=shard_rows)
    pool = make_pool(tmp_path, corpus, [0, 59], list(range(1, 50)))
    task = embed_tasks(corpus, pool, registry.resolve("stub"))["paper"]
    segment = make(tmp_path, task)
    rows = sorted({*range(50), 59})
    store = store_of(segment)
    assert store.covers(np.array(rows))
    assert store.dimension == 32
    for size in (1, 7, 1000):
        blocks = list(store.blocks(np.array(rows), size))
        assert np.concatenate([block.rows for block in blocks]).tolist() == rows
        np.testing.assert_array_equal(np.concatenate([block.vectors for block in blocks]), expected(corpus, rows))
    assert segment.manifest.counts["wanted"] == segment.manifest.counts["embedded"] == 51
    assert segment.manifest.counts["tokens"] > 51
    assert segment.manifest.provenance["model"] == "stub"


def test_progress_counts_what_is_left(
    tmp_path: Path, stub: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.core.progress._PLAIN_EVERY", 0.0)
    corpus = make_corpus(tmp_path, PAPERS)
    make(tmp_path, embed_tasks(corpus, make_pool(tmp_path, corpus, [0]), registry.resolve("stub"))["paper"])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  embed stub: ")]
    assert len(lines) == 4
    assert "characters (100%" in lines[-1]
    assert "60 docs, " in lines[-1]
    assert "tokens/s" in lines[-1]


def test_a_second_pool_adds_only_what_is_missing(tmp_path: Path, stub: None) -> None:
    corpus = make_corpus(tmp_path, PAPERS, shard_rows=23)
    model = registry.resolve("stub")
    pools = [make_pool(tmp_path, corpus, [q], list(range(a, b))) for q, a, b in ((0, 1, 30), (50, 10, 40), (5, 5, 35))]
    segments = [make(tmp_path, embed_tasks(corpus, pool, model)["paper"]) for pool in pools]
    assert StubEncoder.encoded == 41
    assert [s.manifest.counts["embedded"] for s in segments] == [30, 11, 0]
    assert [s.manifest.counts["present"] for s in segments] == [0, 20, 30]
    assert [o.path for o in segments[1].outputs("vectors-*")] == ["vectors-00001.arrow", "vectors-00002.arrow"]
    assert not segments[2].outputs("vectors-*")
    store = open_store(tmp_path, corpus, model)
    rows = [*range(40), 50]
    blocks = list(store.blocks(np.array(rows), 8))
    np.testing.assert_array_equal(np.concatenate([block.vectors for block in blocks]), expected(corpus, rows))
    assert segments[0].path.parent == tmp_path / VECTORS / store_folder(corpus, model)


def test_storage_precision_and_encoder_have_stores_of_their_own(tmp_path: Path, stub: None) -> None:
    corpus = make_corpus(tmp_path, 5)
    pool = make_pool(tmp_path, corpus, [0])
    for name in ("stub", "stub:storage=float16", "stub:dimension=8"):
        make(tmp_path, embed_tasks(corpus, pool, registry.resolve(name))["paper"])
    assert StubEncoder.encoded == 15
    half = open_store(tmp_path, corpus, registry.resolve("stub:storage=float16"))
    block = next(half.blocks(np.arange(5), 5))
    assert block.vectors.dtype == np.float32
    np.testing.assert_array_equal(block.vectors, expected(corpus, [0, 1, 2, 3, 4]).astype(np.float16))


def test_the_distance_makes_no_other_store(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 3)
    folder = save_bert(tmp_path / "model")
    plain, cosine = (registry.resolve(f"{folder}{options}") for options in ("", ":distance=cosine"))
    assert (plain.distance, cosine.distance) == ("l2", "cosine")
    assert store_folder(corpus, plain) == store_folder(corpus, cosine)
    assert store_folder(corpus, plain) != store_folder(corpus, registry.resolve(f"{folder}:max_length=9"))


def test_query_texts_have_a_store_of_their_own(tmp_path: Path, stub: None) -> None:
    corpus = make_corpus(tmp_path, 5, query_texts={"b": "second", "a": "first"}, judgements=[("a", "00001", 1)])
    pool = make_pool(tmp_path, corpus)
    tasks = embed_tasks(corpus, pool, registry.resolve("stub"))
    assert set(tasks) == {"paper", "query"}
    paper, query = (store_of(make(tmp_path, tasks[role])) for role in ("paper", "query"))
    assert paper.covers(np.arange(5))
    block = next(query.blocks(Pool(pool, Corpus(corpus)).query_rows, 10))
    assert block.rows.tolist() == [0, 1]
    np.testing.assert_array_equal(block.vectors[0], unit_vector(Text("first", ""), 32))


def test_an_empty_pool_makes_an_empty_segment(tmp_path: Path, stub: None) -> None:
    corpus = make_corpus(tmp_path, 3)
    segment = make(
        tmp_path, embed_tasks(corpus, make_pool(tmp_path, corpus, [], []), registry.resolve("stub"))["paper"]
    )
    assert segment.manifest.counts["wanted"] == 0
    store = store_of(segment)
    assert list(store.blocks(np.array([], np.uint32), 4)) == []
    with pytest.raises(StageError, match="holds no vectors"):
        _ = store.dimension


def test_missing_rows_are_counted(tmp_path: Path, stub: None) -> None:
    corpus = make_corpus(tmp_path, 9)
    segment = make(
        tmp_path, embed_tasks(corpus, make_pool(tmp_path, corpus, [0], [1]), registry.resolve("stub"))["paper"]
    )
    with pytest.raises(StageError, match=r"2 of 3 papers have no vector in .* \(the first: row 4\).*mdcr embed"):
        next(store_of(segment).blocks(np.array([1, 4, 5]), 4))
    with pytest.raises(ValueError, match="must rise"):
        next(store_of(segment).blocks(np.array([1, 0]), 4))


def test_a_damaged_shard_is_named_and_rebuilt_alone(tmp_path: Path, stub: None) -> None:
    corpus = make_corpus(tmp_path, PAPERS, shard_rows=23)
    model = registry.resolve("stub")
    first = make_pool(tmp_path, corpus, [0], list(range(40)))
    second = make_pool(tmp_path, corpus, [0], list(range(20, 60)))
    segments = [make(tmp_path, embed_tasks(corpus, pool, model)["paper"]) for pool in (first, second)]
    before = {output.path: output.sha256 for output in segments[0].manifest.outputs}
    damaged = segments[0].path / "vectors-00001.arrow"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(CorruptError, match=r"vectors-00001\.arrow.*--repair"):
        list(open_store(tmp_path, corpus, model).blocks(np.arange(60), 16))
    StubEncoder.encoded = 0
    for task in stored_tasks(tmp_path, corpus, model):
        make(tmp_path, task, repair=True)
    assert StubEncoder.encoded == 40 - 23
    repaired = Artifact.open(segments[0].path)
    assert {output.path: output.sha256 for output in repaired.manifest.outputs} == before
    assert repaired.manifest.provenance["repaired"] == ["vectors-00001.arrow"]
    assert repaired.manifest.provenance["rebuilt_with_other_bytes"] == []
    assert repaired.manifest.counts == segments[0].manifest.counts
    assert sum(len(block.rows) for block in open_store(tmp_path, corpus, model).blocks(np.arange(60), 16)) == 60


def test_a_resumed_segment_keeps_to_its_plan(tmp_path: Path, stub: None) -> None:
    model = registry.resolve("stub")
    outputs = []
    for root, between in ((tmp_path / "alone", False), (tmp_path / "between", True)):
        corpus = make_corpus(root, PAPERS, shard_rows=23)
        first, second = (make_pool(root, corpus, [0], list(range(end))) for end in (60, 30))
        StubEncoder.encoded, StubEncoder.limit = 0, 30
        with pytest.raises(StageError, match="stops after 30"):
            make(root, embed_tasks(corpus, first, model)["paper"])
        StubEncoder.encoded, StubEncoder.limit = 0, None
        if between:
            make(root, embed_tasks(corpus, second, model)["paper"])
            StubEncoder.encoded = 0
        segment = make(root, embed_tasks(corpus, first, model)["paper"])
        assert StubEncoder.encoded == 60 - 23
        outputs.append(segment.manifest.outputs)
        rows = np.arange(60)
        np.testing.assert_array_equal(next(store_of(segment).blocks(rows, 60)).vectors, expected(corpus, rows.tolist()))
    assert outputs[0] == outputs[1]


def test_a_transformer_through_the_store(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "model")
    papers = [
        {"paper_id": str(number), "title": words(3, number), "abstract": words(90 * number)} for number in range(9)
    ]
    corpus = make_corpus(tmp_path, papers, shard_rows=4)
    pool = make_pool(tmp_path, corpus, [0])
    model = registry.resolve(str(folder))
    segment = make(tmp_path, embed_tasks(corpus, pool, model)["paper"])
    texts = [Text(paper["title"], paper["abstract"]) for paper in papers]
    encoder = kinds.find("transformer").load(model, None, Resources(device="cpu"))
    stored = np.concatenate([block.vectors for block in store_of(segment).blocks(np.arange(9), 2)])
    np.testing.assert_allclose(stored, encoder.encode(texts), atol=1e-5)
    assert segment.manifest.counts["truncated"] == 3
    assert segment.manifest.counts["tokens"] == sum(min(512, 6 + 90 * number) for number in range(9))
    assert segment.manifest.provenance["device"] == "cpu"
    assert segment.manifest.provenance["compute"] == "float32"
    assert segment.manifest.config["encoder"]["revision"].startswith("sha256:")
    assert str(tmp_path) not in str(segment.manifest.config)


class _Broken(Encoder):
    """Gives one vector that is not a number, or too large for float16."""

    def __init__(self, value: float) -> None:
        self._value = value

    @property
    def dimension(self) -> int:
        return 4

    def prepare(self, texts, role="paper"):  # type: ignore[no-untyped-def]
        return texts

    def finish(self, prepared):  # type: ignore[no-untyped-def]
        texts = prepared
        vectors = np.ones((len(texts), 4), np.float32)
        vectors[2, 1] = self._value
        yield Encoded(np.arange(len(texts)), vectors, len(texts))


@pytest.mark.parametrize(("value", "message"), [(np.nan, "row 3"), (np.inf, "row 3"), (1e6, "row 3 .*float16")])
def test_vectors_that_are_no_numbers_name_the_paper(tmp_path: Path, value: float, message: str) -> None:
    corpus = make_corpus(tmp_path, 6)
    pool = make_pool(tmp_path, corpus, [1], [2, 3])
    model = Model("broken", StubSpec(kind="broken", storage="float16"), "l2")
    kinds.register(kinds.Kind("broken", StubSpec, lambda *_: model, lambda *_: _Broken(value)))
    try:
        with pytest.raises(StageError, match=message):
            make(tmp_path, embed_tasks(corpus, pool, model)["paper"])
    finally:
        kinds.unregister("broken")
    assert list((tmp_path / VECTORS).glob("*/pool-*")) == []


def test_a_kill_after_the_last_part_of_a_shard_costs_nothing(
    tmp_path: Path, stub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = make_corpus(tmp_path, 40)
    task = embed_tasks(corpus, make_pool(tmp_path, corpus, [0]), registry.resolve("stub"))["paper"]

    def killed(*_: Any, **__: Any) -> None:
        raise StageError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(shards, "PART_PAPERS", 16)
        patch.setattr(shards, "write_shard", killed)
        with pytest.raises(StageError, match="killed"):
            make(tmp_path, task)
        StubEncoder.encoded = 0
        patch.undo()
        patch.setattr(shards, "PART_PAPERS", 16)
        segment = make(tmp_path, task)
    assert StubEncoder.encoded == 0
    np.testing.assert_array_equal(
        next(store_of(segment).blocks(np.arange(40), 40)).vectors, expected(corpus, list(range(40)))
    )
