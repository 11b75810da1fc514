"""Vectors made elsewhere: every format gives the same segment, and bad input is named by file and place."""

from __future__ import annotations

import gzip
import json
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
from pipeline.encode.vectorfiles import VectorFile
from pipeline.stages import imported
from pipeline.stages.dense import dense_ranking_task
from pipeline.stages.embed import embed_tasks, store_of
from pipeline.stages.score import score_task
from pipeline.stages.search import read_ranking
from pipeline.stages.systems import encoder_names, parse_systems
from tests.builders import make_corpus, make_pool
from tests.encode.stub import stub
from tests.shared import real

__all__ = ["stub"]

PAPERS, DIMENSION = 40, 6
IDS = [f"{number:05d}" for number in range(PAPERS)]
VECTORS = np.random.default_rng(5).normal(size=(PAPERS, DIMENSION)).astype(np.float32)


def make(root: Path, task: Any, workers: int = 1) -> Artifact:
    return Runner(root, Resources(workers=workers, device="cpu")).make(task)


def imported_from(root: Path, place: Path, options: str = "", workers: int = 1, **corpus: Any) -> Artifact:
    """Import vectors into a corpus of 40 papers in shards of 15."""
    made = make_corpus(root, PAPERS, shard_rows=15, **corpus)
    pool = make_pool(root, made, [0])
    return make(root, embed_tasks(made, pool, registry.resolve(f"vectors:{place}{options}"))["paper"], workers)


def stored(segment: Artifact) -> tuple[list[int], np.ndarray]:
    store = store_of(segment)
    return store.rows.tolist(), store.grouped(store.rows).vectors


def columns(ids: Any = IDS, vectors: Any = None, kind: pa.DataType | None = None, key: str = "id") -> pa.Table:
    lists = VECTORS.tolist() if vectors is None else vectors
    return pa.table({key: ids, "vector": pa.array(lists, kind or pa.list_(pa.float32()))})


def lines(ids: Any = IDS, vectors: Any = VECTORS, key: str = "id", text: bool = False) -> bytes:
    pairs = zip(ids, np.asarray(vectors).tolist(), strict=True)
    made = ({key: each, "vector": json.dumps(vector) if text else vector} for each, vector in pairs)
    return "".join(json.dumps(each) + "\n" for each in made).encode()


def write_npy(folder: Path, array: Any = VECTORS, ids: list[str] = IDS) -> None:
    np.save(folder / "x.npy", array)
    (folder / "x.ids.txt").write_text("".join(f"{each}\n" for each in ids), encoding="utf-8")


def write_ipc(path: Path, table: pa.Table, new: Callable[..., Any] = pa.ipc.new_file) -> None:
    with new(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


FORMATS: dict[str, Callable[[Path], Any]] = {
    "parquet": lambda to: pq.write_table(columns(), to / "x.parquet", row_group_size=9),
    "parquet, fixed size": lambda to: pq.write_table(
        columns(kind=pa.list_(pa.float64(), DIMENSION), key="paper_id"), to / "x.parquet"
    ),
    "parquet, dictionary": lambda to: pq.write_table(columns(pa.array(IDS).dictionary_encode()), to / "x.parquet"),
    "arrow": lambda to: write_ipc(to / "x.arrow", columns()),
    "arrow stream": lambda to: write_ipc(to / "x.arrow", columns(kind=pa.large_list(pa.float32())), pa.ipc.new_stream),
    "npy": write_npy,
    "npy, big endian": lambda to: write_npy(to, VECTORS.astype(">f4")),
    "npy, float64": lambda to: write_npy(to, VECTORS.astype(np.float64)),
    "npz": lambda to: np.savez_compressed(to / "x.npz", ids=np.array(IDS), vectors=VECTORS),
    "jsonl": lambda to: (to / "x.jsonl").write_bytes(lines(key="_id")),
    "jsonl.gz, text": lambda to: (to / "x.jsonl.gz").write_bytes(gzip.compress(lines(key="corpusid", text=True))),
    "folder": lambda to: (
        (to / "a.jsonl").write_bytes(lines(IDS[7:20], VECTORS[7:20])),
        pq.write_table(columns(IDS[20:], VECTORS[20:].tolist()), to / "b.parquet"),
        np.savez(to / "c.npz", id=np.array(IDS[:9]), embedding=VECTORS[:9]),  # two papers are there twice
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_vectors(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported, "_BATCH_BYTES", 5 * 4 * DIMENSION)
    monkeypatch.setattr(precomputed, "_BLOCK_ROWS", 4)
    monkeypatch.setattr(precomputed, "_BLOCK_BYTES", 3 * 4 * DIMENSION)
    place = tmp_path / "in"
    place.mkdir()
    FORMATS[name](place)
    segment = imported_from(tmp_path, place)
    rows, vectors = stored(segment)
    assert rows == list(range(PAPERS))
    np.testing.assert_array_equal(vectors, VECTORS)
    twice = 2 if name == "folder" else 0
    assert segment.manifest.counts == {
        "vectors_read": PAPERS + twice,
        "of_unknown_papers": 0,
        "repeated": twice,
        "embedded": PAPERS,
        "without_vector": 0,
    }


def test_papers_come_in_any_order_from_several_processes(tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(PAPERS)
    place = tmp_path / "in"
    place.mkdir()
    for number, part in enumerate((order[:13], order[13:30])):
        ids = [IDS[each] for each in part] + [f"unknown{number}"]
        (place / f"{number}.jsonl").write_bytes(lines(ids, np.vstack([VECTORS[part], np.ones(DIMENSION)])))
    segment = imported_from(tmp_path, place, ":storage=float16", workers=2)
    rows, vectors = stored(segment)
    assert rows == sorted(order[:30].tolist())
    np.testing.assert_array_equal(vectors, VECTORS[rows].astype(np.float16))
    assert segment.manifest.counts["of_unknown_papers"] == 2
    assert segment.manifest.counts["without_vector"] == 10


def test_a_killed_import_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "in"
    place.mkdir()
    FORMATS["folder"](place)
    whole = imported_from(tmp_path / "whole", place)
    write, read = imported.write_shard, precomputed.read
    names: list[str] = []

    def fails(out: Any, number: int, *rest: Any) -> None:
        if number == 1:
            raise KeyboardInterrupt
        write(out, number, *rest)

    def counted(file: VectorFile, rows_of: precomputed.RowsOf) -> Any:
        names.append(file.path.name)
        if file.path.name == "b.parquet" and len(names) < 3:
            raise KeyboardInterrupt
        return read(file, rows_of)

    monkeypatch.setattr(precomputed, "read", counted)
    with monkeypatch.context() as patch:
        patch.setattr(imported, "write_shard", fails)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                imported_from(tmp_path / "killed", place)
    again = imported_from(tmp_path / "killed", place)
    assert names == ["a.jsonl", "b.parquet", "b.parquet", "c.npz"]
    assert again.manifest.outputs == whole.manifest.outputs
    assert again.manifest.counts == whole.manifest.counts


def test_identity_is_content(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
    write_npy(tmp_path / "a")
    write_npy(tmp_path / "b")
    write_npy(tmp_path / "c", ids=IDS[::-1])
    (tmp_path / "b/x.npy").rename(tmp_path / "b/y.npy")
    (tmp_path / "b/x.ids.txt").rename(tmp_path / "b/y.ids.txt")
    one, moved, other, file = (
        registry.resolve(f"vectors:{tmp_path}/{each}").spec for each in ("a", "b", "c", "a/x.npy")
    )
    assert one == moved == file != other


NAN = np.where(np.arange(PAPERS * DIMENSION).reshape(PAPERS, -1) == 20, np.nan, VECTORS)  # row 4

BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing": (lambda to: None, "holds no vectors"),
    "NaN in npy": (lambda to: write_npy(to, NAN), r"vector at .*x\.npy:4 must be finite float32 numbers, got nan"),
    "NaN in parquet": (lambda to: pq.write_table(columns(vectors=NAN.tolist()), to / "x.parquet"), r"parquet:4 must"),
    "NaN in JSON": (lambda to: (to / "x.jsonl").write_bytes(lines(vectors=NAN)), r"x\.jsonl:4 must be JSON"),
    "words": (lambda to: (to / "x.jsonl").write_bytes(b'{"id": "00001", "vector": ["a"]}\n'), "jsonl:1 must be a list"),
    "no id": (lambda to: (to / "x.jsonl").write_bytes(b'{"vector": [1]}\n'), "id at .*jsonl:1 must be text"),
    "id of a float": (lambda to: (to / "x.jsonl").write_bytes(b'{"id": 1.5, "vector": [1]}\n'), "jsonl:1 must be JSON"),
    "uneven JSON": (
        lambda to: (to / "x.jsonl").write_bytes(lines(IDS[:1], VECTORS[:1]) + lines(IDS[1:2], [[1.0]])),
        r"jsonl:2 must be 6 components, got 1",
    ),
    "uneven files": (
        lambda to: (write_npy(to), (to / "z.jsonl").write_bytes(lines(IDS[:1], [[1.0]]))),
        r"must have \d components as .*, got \d",
    ),
    "null component": (
        lambda to: pq.write_table(columns(vectors=[[1.0] * 6, [None] * 6], ids=IDS[:2]), to / "x.parquet"),
        "parquet:2 must be finite numbers, got null",
    ),
    "text vectors": (
        lambda to: pq.write_table(columns(vectors=[["a"]], ids=IDS[:1], kind=pa.list_(pa.string())), to / "x.parquet"),
        "must be lists of numbers",
    ),
    "no id column": (lambda to: pq.write_table(columns(key="name"), to / "x.parquet"), "must have id or .*got vector"),
    "objects": (lambda to: write_npy(to, np.array([["a", 1]], object)), "plain values, got Python objects"),
    "one axis": (lambda to: write_npy(to, VECTORS[0]), r"a matrix of numbers, got shape \(6,\)"),
    "Fortran order": (lambda to: write_npy(to, np.asfortranarray(VECTORS)), "must be in C order"),
    "no ids": (lambda to: np.save(to / "x.npy", VECTORS), r"must have its ids in x\.ids\.txt"),
    "too few ids": (lambda to: write_npy(to, ids=IDS[:-1]), "as many ids as vectors, got 39 and 40"),
    "an empty id": (lambda to: write_npy(to, ids=[*IDS[:3], "", *IDS[4:]]), r"ids\.txt:4 must be an id"),
    "cut npy": (
        lambda to: (write_npy(to), (to / "x.npy").write_bytes((to / "x.npy").read_bytes()[:-9])),
        "truncated",
    ),
    "not parquet": (lambda to: (to / "x.parquet").write_bytes(b"PAR1 something else"), "cannot be read"),
    "not npy": (lambda to: (write_npy(to), (to / "x.npy").write_bytes(b"something"))[0], "must be an array of NumPy"),
    "two vectors": (
        lambda to: (write_npy(to), (to / "z.jsonl").write_bytes(lines(["00009", "00007"], VECTORS[[9, 8]]))),
        r"00007 must have one vector, got different ones at .*x\.npy:8 and .*z\.jsonl:2",
    ),
    "two models": (
        lambda to: (to / "x.jsonl").write_text(
            "".join(json.dumps({"id": IDS[n], "vector": [1], "model": f"m{n}"}) + "\n" for n in range(2))
        ),
        "must hold one model's vectors, got m0, m1",
    ),
    "unknown papers": (
        lambda to: (to / "x.jsonl").write_bytes(lines(["p1"], VECTORS[:1])),
        "got none whose id is known .*'p1'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_by_place(tmp_path: Path, name: str) -> None:
    place = tmp_path / "in"
    place.mkdir()
    write, message = BAD[name]
    write(place)
    with pytest.raises(InputError, match=message) as refused:
        imported_from(tmp_path, place)
    assert refused.value.remedy
    assert "\n" not in str(refused.value)


def test_names_and_options(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    write_npy(tmp_path / "a=b")
    place = f"vectors:{tmp_path}/a=b/x.npy"
    text = f"bm25,{place}:distance=cosine,missing=skip,queries={tmp_path}/a=b,rrf(bm25,{place})"
    named = parse_systems(text)
    assert named[1].name == "vectors:x.npy:distance=cosine,missing=skip,queries=a=b"
    assert named[2].name == "rrf(bm25,vectors:x.npy)"
    assert len(encoder_names(text)) == 2
    model = registry.resolve(f"{place}:distance=l2")
    assert (model.name, model.distance, model.slug, model.several) == (place, "l2", "vectors", False)
    for wrong, message in {
        f"{place}:distance=cosin": "Did you mean 'cosine'",
        f"{place}:missing=ignore": "missing 'ignore' is unknown",
        f"{place}:pooling=cls": "no setting 'pooling'",
        f"{place}:place=x": "is not an option",
        f"vectors:{tmp_path}/none.npy": "nothing there",
        f"vectors:{tmp_path}/a=b/x.ids.txt": "the ending '.txt'",
        f"mean({place},{place})": "must average",
    }.items():
        with pytest.raises(InputError, match=re.escape(message)):
            registry.resolve(wrong)


def test_papers_without_a_vector(tmp_path: Path) -> None:
    """Skipped: the ranking is that of a pool without them, with the positions of the whole pool."""
    lacking = [3, 11, 25]
    left = [row for row in range(PAPERS) if row not in lacking]
    place = tmp_path / "x.jsonl"
    place.write_bytes(lines([IDS[row] for row in left], VECTORS[left]))
    corpus = make_corpus(tmp_path, PAPERS, citations=[(a, b) for a in IDS[:6] for b in IDS[20:30]], shard_rows=15)
    queries = [0, 2, 3, 5]
    whole = make_pool(tmp_path, corpus, queries, sample=1)
    part = make_pool(tmp_path, corpus, [0, 2, 5], left, slug="part", sample=1)
    rankings = []
    for pool, options in ((whole, ":missing=skip"), (part, "")):
        model = registry.resolve(f"vectors:{place}{options}")
        task = dense_ranking_task(corpus, pool, embed_tasks(corpus, pool, model), model, depth=30)
        rankings.append(make(tmp_path, task))
    skipped, expected = map(read_ranking, rankings)
    np.testing.assert_array_equal(skipped.query, np.array([0, 1, 3])[expected.query])
    for name in ("row", "score", "rank"):
        np.testing.assert_array_equal(getattr(skipped, name), getattr(expected, name))
    counts = rankings[0].manifest.counts
    assert (counts["queries"], counts["candidates"], counts["queries_without_results"]) == (4, PAPERS, 1)
    assert (counts["candidates_without_vector"], counts["queries_without_vector"]) == (3, 1)
    scores = make(tmp_path, score_task(rankings[0], whole, corpus, system="x", sample=1, measures=("map",)))
    assert scores.manifest.counts["queries_without_results"] == 1
    assert scores.manifest.provenance["parameters"] == "no vector for 3 of 40 candidates and 1 of 4 queries"
    strict = registry.resolve(f"vectors:{place}")
    task = dense_ranking_task(corpus, whole, embed_tasks(corpus, whole, strict), strict, depth=30)
    message = r"none for 3 of 40 candidates and 1 of 4 queries \(first: 00003, 00011, 00025\).*missing=skip"
    with pytest.raises(InputError, match=message):
        make(tmp_path, task)


def test_query_texts_have_vectors_of_their_own(tmp_path: Path) -> None:
    write_npy(tmp_path)
    (tmp_path / "q.jsonl").write_bytes(lines(["00007", "b"], VECTORS[[9, 30]]))  # a query has the id of a paper
    texts = {"00007": "some words", "b": "others"}
    corpus = make_corpus(tmp_path, PAPERS, query_texts=texts, judgements=[("b", "00001", 1)])
    pool = make_pool(tmp_path, corpus)
    model = registry.resolve(f"vectors:{tmp_path}/x.npy:queries={tmp_path}/q.jsonl")
    found = read_ranking(make(tmp_path, dense_ranking_task(corpus, pool, embed_tasks(corpus, pool, model), model)))
    assert found.row[found.rank == 1].tolist() == [9, 30]
    with pytest.raises(InputError, match="vectors of the query texts of tiny, got none.*:queries=FILE"):
        embed_tasks(corpus, pool, registry.resolve(f"vectors:{tmp_path}/x.npy"))


@pytest.mark.parametrize("name", ["out.parquet", "out.npy"])
def test_exported_and_imported_they_rank_the_same(tmp_path: Path, name: str) -> None:
    corpus = make_corpus(tmp_path, PAPERS, shard_rows=15)
    pool = make_pool(tmp_path, corpus, [1, 5, 39])
    rows = np.arange(PAPERS, dtype=np.uint32)
    own = registry.resolve("lsa:dimension=6,storage=float16")
    tasks = embed_tasks(corpus, pool, own)
    path = export_vectors(store_of(make(tmp_path, tasks["paper"])), rows, Corpus(corpus).ids, tmp_path / name)
    if name == "out.npy":
        ids, vectors = open_vectors(path)
        assert ids == IDS
        assert isinstance(vectors, np.memmap)
    files = []
    for model in (own, registry.resolve(f"vectors:{path}:distance={own.distance}")):
        ranking = make(tmp_path, dense_ranking_task(corpus, pool, embed_tasks(corpus, pool, model), model))
        files.append((ranking.path / "ranking.arrow").read_bytes())
    assert files[0] == files[1]


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
    vectors = {str(each["corpusid"]): json.loads(each["vector"]) for each in records}
    assert len(vectors) == 50
    corpus = make_corpus(tmp_path, [{"paper_id": each, "title": each} for each in [*vectors, "none"]])
    model = registry.resolve(f"vectors:{place}")
    segment = make(tmp_path, embed_tasks(corpus, make_pool(tmp_path, corpus, [0]), model)["paper"])
    rows, found = stored(segment)
    ids = Corpus(corpus).ids(np.array(rows))
    assert sorted(ids) == sorted(vectors)
    np.testing.assert_array_equal(found, np.array([vectors[each] for each in ids]).astype(np.float32))
    assert found.astype(np.float64).tolist() == [vectors[each] for each in ids], "the sample's numbers are float32"
    assert segment.manifest.provenance["recorded_model"] == "specter@v0.1.1"
    assert segment.manifest.provenance["distance"] == "l2"
