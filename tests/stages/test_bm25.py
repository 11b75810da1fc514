"""BM25 stages: each paper is analysed once, both engines give one ranking, kills and repairs change no byte."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.resources import Resources
from pipeline.core.schema import CANDIDATES
from pipeline.core.task import Task
from pipeline.core.workdir import Workdir
from pipeline.retrieve.bm25 import forward_index
from pipeline.stages.bm25 import bm25_ranking_task, index_of, lucene_task, stored_terms_tasks, terms_tasks
from tests.builders import make_corpus, make_pool
from tests.retrieve.bm25 import pairs_of
from tests.stages.making import flip, make

pytestmark = pytest.mark.java
PAPERS = 60


def terms(root: Path, corpus: Artifact, pool: Artifact, workers: int = 2) -> Artifact:
    return make(root, terms_tasks(corpus, pool)["paper"], resources=Resources(2**30, workers, "cpu"))


def ranking(corpus: Artifact, pool: Artifact, engine: str, **settings: float) -> Task:
    index = {"lucene": lucene_task(corpus, pool)} if engine == "lucene" else terms_tasks(corpus, pool)
    return bm25_ranking_task(corpus, pool, index, **{"k1": 0.9, "b": 0.4, **settings})  # type: ignore[arg-type]


def terms_of_rows(segment: Artifact, rows: list[int]) -> dict[int, list[str]]:
    """Return the terms of papers, by row."""
    by_row = {}
    for part in index_of(segment).parts(np.array(rows, np.uint32)):
        spelled = part.block.vocabulary.to_pylist()
        for row, member in zip(part.rows.tolist(), part.positions.tolist(), strict=True):
            by_row[row] = sorted(spelled[term] for term, times in pairs_of(part.block, member) for _ in range(times))
            assert part.block.lengths[member] == len(by_row[row])
    return by_row


@pytest.mark.parametrize("shard_rows", [PAPERS, 23])
def test_every_paper_has_its_own_terms(tmp_path: Path, shard_rows: int) -> None:
    papers = [{"paper_id": f"{n:03d}", "title": f"kiwi{n}", "abstract": f"plum{n} plum{n} the"} for n in range(PAPERS)]
    corpus = make_corpus(tmp_path, papers, shard_rows=shard_rows)
    segment = terms(tmp_path, corpus, make_pool(tmp_path, corpus, [0, 59], list(range(1, 50))))
    rows = [*range(50), 59]
    assert terms_of_rows(segment, rows) == {n: [f"kiwi{n}", f"plum{n}", f"plum{n}"] for n in rows}
    assert segment.manifest.counts == {"wanted": 51, "present": 0, "analysed": 51, "tokens": 153}


def test_query_texts_have_a_store_of_their_own(tmp_path: Path) -> None:
    corpus = make_corpus(
        tmp_path,
        [{"paper_id": str(n), "title": word} for n, word in enumerate(("kiwi", "melon", "plum"))],
        query_texts={"q2": "plum", "q1": "melon melon"},
        judgements=[("q1", "1", 1), ("q2", "2", 1)],
    )
    pool = make_pool(tmp_path, corpus)
    tasks = terms_tasks(corpus, pool)
    assert set(tasks) == {"paper", "query"}
    assert terms_of_rows(make(tmp_path, tasks["query"]), [0, 1]) == {0: ["melon", "melon"], 1: ["plum"]}
    ours, lucene = (make(tmp_path, ranking(corpus, pool, engine)) for engine in ("terms", "lucene"))
    assert ours.arrow("ranking.arrow").equals(lucene.arrow("ranking.arrow"))
    assert ours.arrow("ranking.arrow").column("row").to_pylist() == [1, 2]
    assert ours.manifest.counts == lucene.manifest.counts


def test_both_engines_give_one_ranking_under_one_name(tmp_path: Path) -> None:
    made = []
    for engine in ("terms", "lucene"):
        corpus = make_corpus(tmp_path / engine, PAPERS, shard_rows=25)
        pool = make_pool(tmp_path / engine, corpus, list(range(0, PAPERS, 2)))
        made.append(make(tmp_path / engine, ranking(corpus, pool, engine, k1=1.2, b=0.75, depth=30)))
    ours, lucene = made
    assert (ours.name, ours.manifest.outputs) == (lucene.name, lucene.manifest.outputs)
    assert set(ours.manifest.inputs) == {"corpus", "pool"}
    assert ours.manifest.config["analyzer"].endswith("DefaultEnglishAnalyzer")


def test_workers_and_a_kill_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that was stopped goes on after its last block."""
    monkeypatch.setattr(forward_index, "BLOCK_PAPERS", 7)
    write, written = forward_index.write_block, list[int]()

    def stop(out: Workdir, number: int, block: forward_index.TermsBlock) -> None:
        written.append(number if len(written) != 4 else -1)
        if written[-1] == -1:
            raise KeyboardInterrupt
        write(out, number, block)

    made = []
    for name, workers in (("one", 1), ("three", 3), ("stopped", 1)):
        root = tmp_path / name
        corpus = make_corpus(root, PAPERS, shard_rows=25)
        pool = make_pool(root, corpus, [0])
        if name == "stopped":
            monkeypatch.setattr(forward_index, "write_block", stop)
            with pytest.raises(KeyboardInterrupt):
                terms(root, corpus, pool, workers)
        made.append(terms(root, corpus, pool, workers))
    assert sorted(written) == [-1, *range(9)]
    assert len({artifact.id for artifact in made}) == 1
    assert all(artifact.manifest.outputs == made[0].manifest.outputs for artifact in made)
    assert all(artifact.manifest.counts == made[0].manifest.counts for artifact in made)


@pytest.mark.parametrize("name", ["terms-00001.arrow", "vocabulary-00001.arrow", "rows.arrow"])
def test_a_damaged_file_is_named_and_its_block_rebuilt_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A file that another pool needs: repairing the store reaches it."""
    monkeypatch.setattr(forward_index, "BLOCK_PAPERS", 20)
    corpus = make_corpus(tmp_path, PAPERS)
    pools = [make_pool(tmp_path, corpus, [0], list(range(a, b)), slug=f"p{a}") for a, b in ((0, 50), (30, 60))]
    segments = [terms(tmp_path, corpus, pool) for pool in pools]
    task = ranking(corpus, pools[1], "terms")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in segments[0].path.glob("*.arrow")}
    flip(segments[0].path / name)
    with pytest.raises(CorruptError, match=f"{name} does not match"):
        make(tmp_path, task)
    tasks = stored_terms_tasks(tmp_path, corpus)
    assert [task.id for task in tasks] == [segment.id for segment in segments]
    for stored in tasks:
        make(tmp_path, stored, repair=True)
    assert {path: path.read_bytes() for path in before} == {path: content for path, (content, _) in before.items()}
    others = {path: time for path, (_, time) in before.items() if "00001" not in path.name and path.name != name}
    assert len(others) >= 4
    assert {path: path.stat().st_mtime_ns for path in others} == others
    make(tmp_path, task)


def of_eleven_papers(segment: Artifact) -> dict[str, int]:
    rows = pa.table([np.arange(11, dtype=np.uint32)], schema=CANDIDATES)
    files.write_arrow(segment.path / "rows.arrow", rows.to_batches(), CANDIDATES)
    return {"rows.arrow": 11, "terms-00000.arrow": 11}


def of_unknown_terms(segment: Artifact) -> dict[str, int]:
    path = segment.path / "terms-00000.arrow"
    entries = segment.arrow(path.name).column("terms").chunk(0).values.to_numpy()
    whole = path.read_bytes()
    assert whole.count(entries.tobytes()) == 1
    wrong = np.where(entries == entries[5], 0xFFFFFFFF, entries).astype(np.uint32)
    path.write_bytes(whole.replace(entries.tobytes(), wrong.tobytes()))
    return {path.name: 10}


@pytest.mark.parametrize(("change", "papers"), [(of_eleven_papers, 11), (of_unknown_terms, 10)])
def test_terms_that_do_not_fit_are_refused_whatever_the_checksums_say(
    tmp_path: Path, change: Callable[[Artifact], dict[str, int]], papers: int
) -> None:
    """Positions would mean other papers, or numbers no term; compiled kernels rely on both."""
    corpus = make_corpus(tmp_path, PAPERS)
    segment = terms(tmp_path, corpus, make_pool(tmp_path, corpus, [0], list(range(10))))
    rows = change(segment)
    outputs = [
        dataclasses.replace(o, rows=rows[o.path], sha256=files.sha256(path), bytes=path.stat().st_size)
        if (path := segment.path / o.path) and o.path in rows
        else o
        for o in segment.manifest.outputs
    ]
    dataclasses.replace(segment.manifest, outputs=tuple(outputs)).write(segment.path)
    with pytest.raises(CorruptError, match=rf"terms-00000\.arrow of .* does not hold the terms of its {papers} papers"):
        list(index_of(Artifact.open(segment.path)).parts(np.arange(3, dtype=np.uint32)))


def test_bm25_counts_what_it_could_not_rank(tmp_path: Path) -> None:
    texts = {
        "a": ("Graph kernels", "Kernels of graphs."),
        "b": ("", ""),
        "c": ("The of and", ""),
        "d": ("Graph", "Trees."),
    }
    corpus = make_corpus(tmp_path, [{"paper_id": i, "title": t, "abstract": a} for i, (t, a) in texts.items()])
    pool = make_pool(tmp_path, corpus, ["a", "b", "c"])
    assert make(tmp_path, lucene_task(corpus, pool)).manifest.counts == {"documents": 4, "blank": 1}
    artifact = make(tmp_path, ranking(corpus, pool, "lucene"))
    assert artifact.arrow("ranking.arrow").select(["query", "row", "rank"]).to_pylist() == [
        {"query": 0, "row": 3, "rank": 1}
    ]
    assert artifact.manifest.counts["queries_without_results"] == 2
    assert artifact.manifest.counts["excluded"] == 3


def test_what_cannot_be_searched_is_refused(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 9)
    one, other = make_pool(tmp_path, corpus, [1]), make_pool(tmp_path, corpus, [1], [2, 3], slug="other")
    task = bm25_ranking_task(corpus, one, {"lucene": make(tmp_path, lucene_task(corpus, other))}, k1=0.9, b=0.4)
    with pytest.raises(InputError, match="is the index of another pool"):
        make(tmp_path, task)
    with pytest.raises(InputError, match="depth 0 is out of range"):
        ranking(corpus, one, "lucene", depth=0)
