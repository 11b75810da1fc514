"""Embedding pool by pool into one store: nothing twice, nothing lost, the same bytes after kills and repairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, StageError
from pipeline.core.resources import Resources
from pipeline.core.workspace import VECTORS
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Text
from pipeline.encode import registry, transformer
from pipeline.encode.base import Encoded, Encoder
from pipeline.encode.model import Model
from pipeline.encode.store import VectorStore
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.embed import embed_tasks, store_folder, store_of, stored_tasks
from tests.builders import make_corpus, make_pool
from tests.encode.stub import StubEncoder, unit_vector
from tests.encode.tiny import save_bert, words
from tests.stages.making import flip, make

pytestmark = pytest.mark.usefixtures("stub")
PAPERS = 60


def embed(root: Path, corpus: Artifact, pool: Artifact, name: str = "stub") -> Artifact:
    return make(root, embed_tasks(corpus, pool, registry.resolve(name))["paper"])


def open_store(root: Path, corpus: Artifact, name: str = "stub") -> VectorStore:
    return VectorStore.open(root / VECTORS / store_folder(corpus, registry.resolve(name)))


def check_vectors(store: VectorStore, corpus: Artifact, rows: list[int], size: int = 16) -> None:
    """Check that a store has the vectors of the texts of rows, in blocks of a size."""
    texts = [text for block in Corpus(corpus).texts(np.array(rows)) for text in block]
    blocks = list(store.blocks(np.array(rows), size))
    assert np.concatenate([block.rows for block in blocks]).tolist() == rows
    np.testing.assert_array_equal(
        np.concatenate([block.vectors for block in blocks]), np.stack([unit_vector(text, 32) for text in texts])
    )


@pytest.mark.parametrize("shard_rows", [PAPERS, 23, 9])
def test_every_paper_has_its_own_vector(tmp_path: Path, shard_rows: int) -> None:
    corpus = make_corpus(tmp_path, PAPERS, shard_rows=shard_rows)
    segment = embed(tmp_path, corpus, make_pool(tmp_path, corpus, [0, 59], list(range(1, 50))))
    store, rows = store_of(segment), [*range(50), 59]
    assert not store.missing(np.array(rows)).size
    assert store.dimension == 32
    for size in (1, 7, 1000):
        check_vectors(store, corpus, rows, size)
    assert segment.manifest.counts["wanted"] == segment.manifest.counts["embedded"] == 51
    assert segment.manifest.counts["tokens"] > 51
    assert segment.manifest.provenance["model"] == "stub"


def test_a_second_pool_adds_only_what_is_missing(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, PAPERS, shard_rows=23)
    pools = [make_pool(tmp_path, corpus, [q], list(range(a, b))) for q, a, b in ((0, 1, 30), (50, 10, 40), (5, 5, 35))]
    segments = [embed(tmp_path, corpus, pool) for pool in pools]
    assert StubEncoder.encoded == 41
    assert [s.manifest.counts["embedded"] for s in segments] == [30, 11, 0]
    assert [s.manifest.counts["present"] for s in segments] == [0, 20, 30]
    assert [o.path for o in segments[1].outputs("vectors-*")] == ["vectors-00001.arrow", "vectors-00002.arrow"]
    assert not segments[2].outputs("vectors-*")
    check_vectors(open_store(tmp_path, corpus), corpus, [*range(40), 50], 8)


def test_storage_precision_and_encoder_have_stores_of_their_own(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 5)
    pool = make_pool(tmp_path, corpus, [0])
    for name in ("stub", "stub:storage=float16", "stub:dimension=8"):
        embed(tmp_path, corpus, pool, name)
    assert StubEncoder.encoded == 15
    whole, half = (
        next(open_store(tmp_path, corpus, name).blocks(np.arange(5), 5)).vectors
        for name in ("stub", "stub:storage=float16")
    )
    assert half.dtype == np.float32
    np.testing.assert_array_equal(half, whole.astype(np.float16))


def test_query_texts_have_a_store_of_their_own(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 5, query_texts={"b": "second", "a": "first"}, judgements=[("a", "00001", 1)])
    pool = make_pool(tmp_path, corpus)
    tasks = embed_tasks(corpus, pool, registry.resolve("stub"))
    assert set(tasks) == {"paper", "query"}
    paper, query = (store_of(make(tmp_path, tasks[role])) for role in ("paper", "query"))
    assert not paper.missing(np.arange(5)).size
    block = next(query.blocks(Pool(pool, Corpus(corpus)).query_rows, 10))
    assert block.rows.tolist() == [0, 1]
    np.testing.assert_array_equal(block.vectors[0], unit_vector(Text("first", ""), 32))


def test_missing_rows_are_counted_and_an_empty_pool_has_none(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 9)
    empty = embed(tmp_path, corpus, make_pool(tmp_path, corpus, [], []))
    assert empty.manifest.counts["wanted"] == 0
    store = store_of(empty)
    assert list(store.blocks(np.array([], np.uint32), 4)) == []
    with pytest.raises(StageError, match="holds no vectors"):
        _ = store.dimension
    segment = embed(tmp_path, corpus, make_pool(tmp_path, corpus, [0], [1]))
    with pytest.raises(StageError, match=r"2 of 3 papers have no vector in .* \(the first: row 4\).*mdcr embed"):
        next(store_of(segment).blocks(np.array([1, 4, 5]), 4))
    with pytest.raises(ValueError, match="must rise"):
        next(store_of(segment).blocks(np.array([1, 0]), 4))


def test_a_damaged_shard_is_named_and_rebuilt_alone(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, PAPERS, shard_rows=23)
    pools = [make_pool(tmp_path, corpus, [0], list(range(a, b))) for a, b in ((0, 40), (20, 60))]
    segment, _ = (embed(tmp_path, corpus, pool) for pool in pools)
    flip(segment.path / "vectors-00001.arrow")
    with pytest.raises(CorruptError, match=r"vectors-00001\.arrow.*--repair"):
        list(open_store(tmp_path, corpus).blocks(np.arange(60), 16))
    StubEncoder.encoded = 0
    for task in stored_tasks(tmp_path, corpus, registry.resolve("stub")):
        make(tmp_path, task, repair=True)
    assert StubEncoder.encoded == 40 - 23
    repaired = Artifact.open(segment.path).manifest
    assert repaired.outputs == segment.manifest.outputs
    assert repaired.counts == segment.manifest.counts
    check_vectors(open_store(tmp_path, corpus), corpus, list(range(60)))


def test_a_resumed_segment_keeps_to_its_plan(tmp_path: Path) -> None:
    """Whether or not another pool was embedded between the kill and the next run."""
    outputs = []
    for between in (False, True):
        root = tmp_path / str(between)
        corpus = make_corpus(root, PAPERS, shard_rows=23)
        first, second = (make_pool(root, corpus, [0], list(range(end))) for end in (60, 30))
        StubEncoder.encoded, StubEncoder.limit = 0, 30
        with pytest.raises(StageError, match="stops after 30"):
            embed(root, corpus, first)
        StubEncoder.limit = None
        if between:
            embed(root, corpus, second)
        StubEncoder.encoded = 0
        segment = embed(root, corpus, first)
        assert StubEncoder.encoded == 60 - 23
        outputs.append(segment.manifest.outputs)
        check_vectors(store_of(segment), corpus, list(range(60)), 60)
    assert outputs[0] == outputs[1]


def test_a_transformer_through_the_store(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "model")
    texts = [Text(words(3, number), words(90 * number)) for number in range(9)]
    papers = [{"paper_id": str(n), "title": text.title, "abstract": text.abstract} for n, text in enumerate(texts)]
    corpus = make_corpus(tmp_path, papers, shard_rows=4)
    segment = embed(tmp_path, corpus, make_pool(tmp_path, corpus, [0]), str(folder))
    encoder = registry.resolve(str(folder)).load(None, Resources(device="cpu"))
    stored = np.concatenate([block.vectors for block in store_of(segment).blocks(np.arange(9), 2)])
    np.testing.assert_allclose(stored, encoder.encode(texts), atol=1e-5)
    manifest = segment.manifest
    assert manifest.counts["truncated"] == 3
    assert manifest.counts["tokens"] == sum(min(512, 6 + 90 * number) for number in range(9))
    assert (manifest.provenance["device"], manifest.provenance["compute"]) == ("cpu", "float32")
    assert manifest.config["encoder"]["revision"].startswith("sha256:")
    assert str(tmp_path) not in str(manifest.config)


@pytest.mark.parametrize("budget", [1, 2_048])
def test_what_was_embedded_before_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    """Three orders of the same pools: the same rankings under the same identities, of the same vectors."""
    monkeypatch.setitem(transformer.BATCH_TOKENS, "cpu", budget)
    folder = save_bert(tmp_path / "model")
    model = registry.resolve(f"{folder}:pooling=mean")
    texts = [(words(1 + number % 9, number), words(number * 37 % 200)) for number in range(60)]
    papers = [
        {"paper_id": f"{n:02}", "title": title, "abstract": abstract} for n, (title, abstract) in enumerate(texts)
    ]
    seen: list[tuple[list[str], list[str], bytes]] = []
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        root = tmp_path / "".join(map(str, order))
        corpus = make_corpus(root, papers, shard_rows=23)
        ends = ((0, 20), (10, 35), (0, 60))
        pools = [make_pool(root, corpus, [0, 59], list(range(a, b)), slug=f"{a}-{b}") for a, b in ends]
        made = {}
        for number in order:
            vectors = embed_tasks(corpus, pools[number], model)
            made[number] = make(root, dense_ranking_task(corpus, pools[number], vectors, model, depth=50))
        rankings = [made[number] for number in range(3)]
        checksums = [ranking.manifest.outputs[0].sha256 for ranking in rankings]
        store = VectorStore.open(root / VECTORS / store_folder(corpus, model))
        seen.append(([r.id for r in rankings], checksums, store.grouped(store.rows).vectors.tobytes()))
    assert seen[0] == seen[1] == seen[2]


class BrokenEncoder(Encoder):
    """Gives one vector that is not a number, or too large for float16."""

    dimension = 4

    def __init__(self, value: float) -> None:
        self._value = value

    def prepare(self, texts, role="paper"):  # type: ignore[no-untyped-def]
        return texts

    def finish(self, prepared):  # type: ignore[no-untyped-def]
        vectors = np.ones((len(prepared), 4), np.float32)
        vectors[2, 1] = self._value
        yield Encoded(np.arange(len(prepared)), vectors, len(prepared))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, r"NaN or infinity for row 3 \(paper 00003\)"),
        (np.inf, r"NaN or infinity for row 3 \(paper 00003\)"),
        (1e6, "row 3 .*float16"),
    ],
)
def test_vectors_that_are_no_numbers_name_the_paper(tmp_path: Path, value: float, message: str) -> None:
    corpus = make_corpus(tmp_path, 6)

    class Broken(Model):
        kind = "broken"

        def load(self, fit: Any, resources: Any) -> Encoder:
            return BrokenEncoder(value)

    model = Broken(name="broken", storage="float16")
    with pytest.raises(StageError, match=message):
        make(tmp_path, embed_tasks(corpus, make_pool(tmp_path, corpus, [1], [2, 3]), model)["paper"])
    assert list((tmp_path / VECTORS).glob("*/pool-*")) == []


def test_queries_with_a_prompt_of_their_own_have_a_second_vector(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, PAPERS)
    pool = make_pool(tmp_path, corpus, [3, 7], list(range(20, 50)))
    folder = save_bert(tmp_path / "model")
    plain = registry.resolve(f"{folder}:storage=float32")
    asked = registry.resolve(f"{folder}:query_paper_prefix=w9 w8")
    assert list(embed_tasks(corpus, pool, plain)) == ["paper"]
    tasks = embed_tasks(corpus, pool, asked)
    papers, queries = (make(tmp_path, tasks[role]) for role in ("paper", "query"))
    assert papers.path.parent != queries.path.parent
    assert store_of(queries).rows.tolist() == [3, 7]
    assert queries.manifest.config["role"] == "query_paper"
    rows = np.array([3, 7])
    (texts,) = Corpus(corpus).texts(rows)
    encoder = plain.load(None, Resources(device="cpu"))
    prompted = [Text(f"w9 w8{text.title}", text.abstract) for text in texts]
    np.testing.assert_allclose(store_of(queries).grouped(rows).vectors, encoder.encode(prompted), atol=1e-6)
    np.testing.assert_allclose(store_of(papers).grouped(rows).vectors, encoder.encode(texts), atol=1e-6)
