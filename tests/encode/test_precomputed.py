"""Vectors made elsewhere: every format gives the same segment, and bad input is named by file and place."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.reader import Corpus
from pipeline.encode import precomputed, registry
from pipeline.encode.export import export_vectors, open_vectors
from pipeline.encode.model import Model
from pipeline.encode.precomputed import VectorFile
from pipeline.scores import store
from pipeline.scores.notes import notes_on_systems
from pipeline.stages import imported
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.embed import embed_tasks, store_of
from pipeline.stages.ranking_file import read_ranking
from pipeline.stages.score import score_task
from pipeline.stages.systems import parse_systems
from tests.builders import make_corpus, make_pool
from tests.shared import real

PAPERS, DIMENSION = 40, 6
IDS = [f"{number:05d}" for number in range(PAPERS)]
VECTORS = np.random.default_rng(5).normal(size=(PAPERS, DIMENSION)).astype(np.float32)

Write = Callable[[Path], Any]


def make(root: Path, task: Any, workers: int = 1) -> Artifact:
    return Runner(root, Resources(workers=workers, device="cpu")).make(task)


def rank(root: Path, corpus: Artifact, pool: Artifact, model: Model, **options: Any) -> Artifact:
    return make(root, dense_ranking_task(corpus, pool, embed_tasks(corpus, pool, model), model, **options))


def imported_from(root: Path, place: Path, options: str = "", workers: int = 1) -> Artifact:
    """Import vectors into a corpus of 40 papers in shards of 15."""
    corpus = make_corpus(root, PAPERS, shard_rows=15)
    model = registry.resolve(f"vectors:{place}{options}")
    return make(root, embed_tasks(corpus, make_pool(root, corpus, [0]), model)["paper"], workers)


def stored(segment: Artifact) -> tuple[list[int], np.ndarray]:
    store = store_of(segment)
    return store.rows.tolist(), store.grouped(store.rows).vectors


def columns(ids: Any = IDS, vectors: Any = VECTORS, kind: pa.DataType | None = None, key: str = "id") -> pa.Table:
    return pa.table({key: ids, "vector": pa.array(list(vectors), kind or pa.list_(pa.float32()))})


def lines(ids: Any = IDS, vectors: Any = VECTORS, key: str = "corpusid", text: bool = False) -> bytes:
    pairs = zip(ids, np.asarray(vectors).tolist(), strict=True)
    records = [{key: paper, "vector": json.dumps(vector) if text else vector} for paper, vector in pairs]
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def parquet(table: pa.Table, name: str = "x.parquet", **options: Any) -> Write:
    return lambda place: pq.write_table(table, place / name, **options)


def npy(array: Any = VECTORS, ids: list[str] = IDS) -> Write:
    def write(place: Path) -> None:
        np.save(place / "x.npy", array)
        (place / "x.ids.txt").write_text("".join(f"{paper}\n" for paper in ids), encoding="utf-8")

    return write


def raw(content: bytes, name: str = "x.jsonl") -> Write:
    return lambda place: (place / name).write_bytes(content)


def both(*writes: Write) -> Write:
    return lambda place: [write(place) for write in writes]


FORMATS: dict[str, Write] = {
    "parquet": parquet(columns(), row_group_size=9),
    "parquet, fixed size": parquet(columns(kind=pa.list_(pa.float64(), DIMENSION), key="paper_id")),
    "npy, Fortran order": npy(np.asfortranarray(VECTORS.astype(np.float64))),
    "jsonl.gz, text": raw(gzip.compress(lines(text=True)), "x.jsonl.gz"),
    "folder": both(
        raw(lines(IDS[7:20], VECTORS[7:20]), "a.jsonl"),
        parquet(columns(IDS[20:], VECTORS[20:]), "b.parquet"),
        parquet(columns(IDS[:9], VECTORS[:9]), "c.parquet"),  # two papers are there twice
    ),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_vectors(
    tmp_path: Path, place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imported, "_BATCH_BYTES", 5 * 4 * DIMENSION)
    monkeypatch.setattr(precomputed, "BLOCK_ROWS", 4)
    FORMATS[name](place)
    segment = imported_from(tmp_path, place)
    rows, vectors = stored(segment)
    assert rows == list(range(PAPERS))
    np.testing.assert_array_equal(vectors, VECTORS)
    repeated = 2 if name == "folder" else 0
    counts = {"vectors_read": PAPERS + repeated, "of_unknown_papers": 0, "repeated": repeated}
    assert segment.manifest.counts == {**counts, "embedded": PAPERS, "without_vector": 0}


def test_papers_come_in_any_order_from_several_processes(tmp_path: Path, place: Path) -> None:
    order = np.random.default_rng(1).permutation(PAPERS)
    for number, part in enumerate((order[:13], order[13:30])):
        ids = [IDS[row] for row in part] + [f"unknown{number}"]
        raw(lines(ids, np.vstack([VECTORS[part], np.ones(DIMENSION)])), f"{number}.jsonl")(place)
    segment = imported_from(tmp_path, place, ":storage=float16", workers=2)
    rows, vectors = stored(segment)
    assert rows == sorted(order[:30].tolist())
    np.testing.assert_array_equal(vectors, VECTORS[rows].astype(np.float16))
    assert segment.manifest.counts["of_unknown_papers"] == 2
    assert segment.manifest.counts["without_vector"] == 10


def test_a_killed_import_continues(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FORMATS["folder"](place)
    whole, read = imported_from(tmp_path / "whole", place), precomputed.read
    names: list[str] = []

    def counted(file: VectorFile, rows_of: precomputed.RowsOf) -> Any:
        names.append(file.path.name)
        if file.path.name == "b.parquet" and len(names) < 3:
            raise KeyboardInterrupt
        return read(file, rows_of)

    monkeypatch.setattr(precomputed, "read", counted)
    with pytest.raises(KeyboardInterrupt):
        imported_from(tmp_path / "killed", place)
    again = imported_from(tmp_path / "killed", place)
    assert names == ["a.jsonl", "b.parquet", "b.parquet", "c.parquet"]
    assert again.manifest.outputs == whole.manifest.outputs
    assert again.manifest.counts == whole.manifest.counts


def test_identity_is_content(tmp_path: Path) -> None:
    for folder, ids in (("plain", IDS), ("renamed", IDS), ("reversed", IDS[::-1])):
        (tmp_path / folder).mkdir()
        npy(ids=ids)(tmp_path / folder)
    for path in (tmp_path / "renamed").iterdir():
        path.rename(path.with_name(path.name.replace("x.", "y.")))
    places = ("plain", "plain/x.npy", "renamed", "reversed")
    plain, file, renamed, other = (registry.resolve(f"vectors:{tmp_path}/{name}").identity for name in places)
    assert plain == file == renamed != other


NAN = np.where(np.arange(PAPERS * DIMENSION).reshape(PAPERS, -1) == 20, np.nan, VECTORS)  # row 4
TWO_MODELS = [json.dumps({"corpusid": IDS[n], "vector": [1], "model": f"m{n}"}) for n in range(2)]

BAD: dict[str, tuple[Write, str]] = {
    "nothing": (both(), "holds no vectors"),
    "NaN": (npy(NAN), r"vector at .*x\.npy:4 must be finite float32 numbers, got nan"),
    "lines of others": (raw(b'{"id": "00001", "vector": [1]}\n'), "corpusid at .*jsonl:1 must be an id of S2AG"),
    "uneven JSON": (raw(lines(IDS[:1], VECTORS[:1]) + lines(IDS[1:2], [[1.0]])), "jsonl:2 must be 6 components"),
    "uneven files": (both(npy(), raw(lines(IDS[:1], [[1.0]]))), r"must have \d components as .*, got \d"),
    "null component": (parquet(columns(IDS[:2], [[1.0] * 6, [None] * 6])), "parquet:2 must be finite .*, got nan"),
    "null vector": (parquet(columns(IDS[:2], [[1.0] * 6, None])), "must have an id and a vector in every row"),
    "text vectors": (parquet(columns(IDS[:1], [["a"]], pa.list_(pa.string()))), "must be lists of numbers"),
    "no id column": (parquet(columns(key="name")), "must have id or .*got vector"),
    "too few ids": (npy(ids=IDS[:-1]), "as many ids as vectors, got 39 and 40"),
    "cut npy": (both(npy(), lambda place: os.truncate(place / "x.npy", 1_000)), "an array of numbers of NumPy"),
    "not parquet": (raw(b"PAR1 something else", "x.parquet"), "cannot be read"),
    "two vectors": (
        both(npy(), raw(lines(["00009", "00007"], VECTORS[[9, 8]]), "z.jsonl")),
        r"00007 must have one vector, got different ones at .*x\.npy:8 and .*z\.jsonl:2",
    ),
    "two models": (raw("\n".join(TWO_MODELS).encode()), "must hold one model's vectors, got m0, m1"),
    "unknown papers": (raw(lines(["p1"], VECTORS[:1])), "got none whose id is known .*'p1'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_by_place(tmp_path: Path, place: Path, name: str) -> None:
    write, message = BAD[name]
    write(place)
    with pytest.raises(InputError, match=message) as refused:
        imported_from(tmp_path, place)
    assert refused.value.remedy
    assert "\n" not in str(refused.value)


@pytest.fixture
def named(tmp_path: Path) -> str:
    (tmp_path / "a=b").mkdir()
    npy()(tmp_path / "a=b")
    return f"vectors:{tmp_path}/a=b"


def test_names_and_options(named: str) -> None:
    text = f"bm25,{named}:distance=cosine,missing=skip,queries={named[8:]},rrf(bm25,{named}/x.npy)"
    names = [system.name for system in parse_systems(text)]
    assert names[1:] == ["vectors:a=b:distance=cosine,missing=skip,queries=a=b", "rrf(bm25,vectors:x.npy)"]
    model = registry.resolve(f"{named}:distance=l2")
    assert (model.name, model.distance, model.slug, model.multi_vector) == (named, "l2", "vectors", False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("{}:missing=ignore", "missing must be error or skip, got 'ignore'"),
        ("{}/none.npy", "nothing there"),
        ("{}/x.ids.txt", "the ending '.txt'"),
        ("mean({0},{0})", "must average"),
    ],
)
def test_wrong_options(named: str, wrong: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        registry.resolve(wrong.format(named))


def test_papers_without_a_vector(tmp_path: Path) -> None:
    left = [row for row in range(PAPERS) if row not in (3, 11, 25)]
    place = tmp_path / "x.jsonl"
    place.write_bytes(lines([IDS[row] for row in left], VECTORS[left]))
    corpus = make_corpus(tmp_path, PAPERS, citations=[(a, b) for a in IDS[:6] for b in IDS[20:30]], shard_rows=15)
    whole = make_pool(tmp_path, corpus, [0, 2, 3, 5], sample=1)
    part = make_pool(tmp_path, corpus, [0, 2, 5], left, slug="part", sample=1)
    strict, skip = registry.resolve(f"vectors:{place}"), registry.resolve(f"vectors:{place}:missing=skip")
    ranking = rank(tmp_path, corpus, whole, skip, depth=30)
    skipped, expected = map(read_ranking, (ranking, rank(tmp_path, corpus, part, strict, depth=30)))
    np.testing.assert_array_equal(skipped.query, np.array([0, 1, 3])[expected.query])
    for name in ("row", "score", "rank"):
        np.testing.assert_array_equal(getattr(skipped, name), getattr(expected, name))
    counts = ranking.manifest.counts
    assert (counts["candidates_without_vector"], counts["queries_without_vector"]) == (3, 1)
    scores = make(tmp_path, score_task(ranking, whole, corpus, system="x", measures=("map",)))
    assert scores.manifest.counts["queries_without_results"] == 1
    without = "for 3 of 40 candidates and 1 of 4 queries"
    assert notes_on_systems(store.stored(tmp_path)) == (f"Parameters: x no vector {without}.",)
    with pytest.raises(InputError, match=rf"none {without} \(first: 00003, 00011, 00025\).*missing=skip"):
        rank(tmp_path, corpus, whole, strict, depth=30)


def test_query_texts_have_vectors_of_their_own(tmp_path: Path) -> None:
    npy()(tmp_path)
    raw(lines(["00007", "b"], VECTORS[[9, 30]]), "q.jsonl")(tmp_path)  # a query has the id of a paper
    texts = {"00007": "some words", "b": "others"}
    corpus = make_corpus(tmp_path, PAPERS, query_texts=texts, judgements=[("b", "00001", 1)])
    pool = make_pool(tmp_path, corpus)
    model = registry.resolve(f"vectors:{tmp_path}/x.npy:queries={tmp_path}/q.jsonl")
    ranking = read_ranking(rank(tmp_path, corpus, pool, model))
    assert ranking.row[ranking.rank == 1].tolist() == [9, 30]
    with pytest.raises(InputError, match="vectors of the query texts of tiny, got none.*:queries=FILE"):
        embed_tasks(corpus, pool, registry.resolve(f"vectors:{tmp_path}/x.npy"))


@pytest.mark.parametrize("name", ["out.parquet", "out.npy"])
def test_exported_and_imported_they_rank_the_same(tmp_path: Path, name: str) -> None:
    corpus = make_corpus(tmp_path, PAPERS, shard_rows=15)
    pool = make_pool(tmp_path, corpus, [1, 5, 39])
    encoder = registry.resolve("lsa:dimension=6,storage=float16")
    store = store_of(make(tmp_path, embed_tasks(corpus, pool, encoder)["paper"]))
    path = export_vectors(store, np.arange(PAPERS, dtype=np.uint32), Corpus(corpus).ids, tmp_path / name)
    if name == "out.npy":
        assert open_vectors(path)[0] == IDS
    models = (encoder, registry.resolve(f"vectors:{path}:distance={encoder.distance}"))
    rankings = [rank(tmp_path, corpus, pool, model) for model in models]
    assert len({(ranking.path / "ranking.arrow").read_bytes() for ranking in rankings}) == 1


def test_an_id_that_fits_on_no_line_is_not_exported(tmp_path: Path, stub: None) -> None:
    corpus = make_corpus(tmp_path, [{"paper_id": "a\nb", "title": "t"}])
    segment = make(tmp_path, embed_tasks(corpus, make_pool(tmp_path, corpus, [0]), registry.resolve("stub"))["paper"])
    rows = np.zeros(1, np.uint32)
    for name, message in (("x.npy", r"'a\\nb' must fit on a line"), ("x.csv", "must end in .parquet or .npy")):
        with pytest.raises(InputError, match=message):
            export_vectors(store_of(segment), rows, Corpus(corpus).ids, tmp_path / name)
    assert not list(tmp_path.glob("*x.*"))


@pytest.mark.realdata
def test_the_sample_of_s2ag_is_read_with_every_value(tmp_path: Path) -> None:
    place = real("s2ag-sample") / "embeddings-sample.jsonl.gz"
    with gzip.open(place) as handle:
        records = [json.loads(line) for line in handle]
    expected = {str(record["corpusid"]): json.loads(record["vector"]) for record in records}
    assert len(expected) == 50
    corpus = make_corpus(tmp_path, [{"paper_id": paper, "title": paper} for paper in [*expected, "none"]])
    model = registry.resolve(f"vectors:{place}")
    segment = make(tmp_path, embed_tasks(corpus, make_pool(tmp_path, corpus, [0]), model)["paper"])
    rows, vectors = stored(segment)
    ids = Corpus(corpus).ids(np.array(rows))
    assert sorted(ids) == sorted(expected)
    assert vectors.astype(np.float64).tolist() == [expected[paper] for paper in ids], "the sample's numbers are float32"
    assert segment.manifest.provenance["recorded_model"] == "specter@v0.1.1"
    assert segment.manifest.provenance["distance"] == "l2"
