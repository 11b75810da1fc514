"""BM25 stages: each paper is analysed once, both engines give one ranking, kills and repairs change no byte."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.task import Task
from pipeline.core.workdir import Workdir
from pipeline.retrieve.bm25 import forward_index
from pipeline.stages.bm25 import bm25_ranking_task, index_of, lucene_task, stored_terms_tasks, terms_tasks
from tests.builders import make_corpus, make_pool
from tests.retrieve.bm25 import pairs_of

pytestmark = pytest.mark.java
PAPERS = 60


def make(root: Path, task: Task, *, repair: bool = False, workers: int = 2) -> Artifact:
    return Runner(root, Resources(memory=1 << 30, workers=workers, device="cpu"), repair=repair).make(task)


def terms_of_rows(segment: Artifact, rows: list[int]) -> dict[int, list[str]]:
    """Return the terms of papers, by row."""
    found = {}
    for part in index_of(segment).parts(np.array(rows, np.uint32)):
        spelled = part.block.vocabulary.to_pylist()
        for row, member in zip(part.rows.tolist(), part.positions.tolist(), strict=True):
            found[row] = sorted(spelled[term] for term, times in pairs_of(part.block, member) for _ in range(times))
            assert part.block.lengths[member] == len(found[row])
    return found


@pytest.mark.parametrize("shard_rows", [PAPERS, 23])
def test_every_paper_has_its_own_terms(tmp_path: Path, shard_rows: int) -> None:
    papers = [{"paper_id": f"{n:03d}", "title": f"kiwi{n}", "abstract": f"plum{n} plum{n} the"} for n in range(PAPERS)]
    corpus = make_corpus(tmp_path, papers, shard_rows=shard_rows)
    pool = make_pool(tmp_path, corpus, [0, 59], list(range(1, 50)))
    segment = make(tmp_path, terms_tasks(corpus, pool)["paper"])
    rows = [*range(50), 59]
    assert terms_of_rows(segment, rows) == {n: [f"kiwi{n}", f"plum{n}", f"plum{n}"] for n in rows}
    assert segment.manifest.counts == {"wanted": 51, "present": 0, "analysed": 51, "tokens": 153}


def test_a_second_pool_adds_only_what_is_missing(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, PAPERS)
    pools = [make_pool(tmp_path, corpus, [q], list(range(a, b))) for q, a, b in ((0, 1, 30), (50, 10, 40), (5, 5, 35))]
    segments = [make(tmp_path, terms_tasks(corpus, pool)["paper"]) for pool in pools]
    assert [s.manifest.counts["analysed"] for s in segments] == [30, 11, 0]
    assert [s.manifest.counts["present"] for s in segments] == [0, 20, 30]
    assert len({segment.path.parent for segment in segments}) == 1
    assert not segments[2].outputs("terms-*")


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
    found = make(tmp_path, bm25_ranking_task(corpus, pool, tasks, k1=0.9, b=0.4))
    lucene = make(tmp_path, bm25_ranking_task(corpus, pool, {"lucene": lucene_task(corpus, pool)}, k1=0.9, b=0.4))
    assert found.arrow("ranking.arrow").equals(lucene.arrow("ranking.arrow"))
    assert found.arrow("ranking.arrow").column("row").to_pylist() == [1, 2]
    assert found.manifest.counts == lucene.manifest.counts


def test_an_empty_pool_makes_an_empty_segment(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 3)
    pool = make_pool(tmp_path, corpus, [], [])
    tasks = terms_tasks(corpus, pool)
    assert make(tmp_path, tasks["paper"]).manifest.counts == {"wanted": 0, "present": 0, "analysed": 0, "tokens": 0}
    ranking = make(tmp_path, bm25_ranking_task(corpus, pool, tasks, k1=0.9, b=0.4))
    assert ranking.manifest.counts["entries"] == 0


def test_both_engines_give_one_ranking_under_one_name(tmp_path: Path) -> None:
    made = []
    for engine in ("terms", "lucene"):
        root = tmp_path / engine
        corpus = make_corpus(root, PAPERS, shard_rows=25)
        pool = make_pool(root, corpus, list(range(0, PAPERS, 2)))
        index = {"lucene": lucene_task(corpus, pool)} if engine == "lucene" else terms_tasks(corpus, pool)
        made.append(make(root, bm25_ranking_task(corpus, pool, index, k1=1.2, b=0.75, depth=30)))
    assert made[0].name == made[1].name
    assert made[0].manifest.outputs == made[1].manifest.outputs
    assert set(made[0].manifest.inputs) == {"corpus", "pool"}
    assert made[0].manifest.config["analyzer"].endswith("DefaultEnglishAnalyzer")


def test_long_texts_end_blocks_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_index, "BLOCK_CHARACTERS", 100)
    papers = [{"paper_id": f"{n:02d}", "title": f"kiwi{n}", "abstract": "plum " * (n * 8)} for n in range(6)]
    corpus = make_corpus(tmp_path, papers)
    segment = make(tmp_path, terms_tasks(corpus, make_pool(tmp_path, corpus, [0]))["paper"])
    assert [output.rows for output in segment.outputs("terms-*")] == [2, 1, 1, 1, 1]
    assert terms_of_rows(segment, [1, 2, 5]) == {n: sorted([f"kiwi{n}", *["plum"] * (n * 8)]) for n in (1, 2, 5)}


def test_workers_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_index, "BLOCK_PAPERS", 7)
    made = []
    for workers in (1, 3):
        root = tmp_path / str(workers)
        corpus = make_corpus(root, PAPERS, shard_rows=25)
        made.append(make(root, terms_tasks(corpus, make_pool(root, corpus, [0]))["paper"], workers=workers))
    assert made[0].id == made[1].id
    assert made[0].manifest.outputs == made[1].manifest.outputs


@pytest.mark.parametrize("name", ["terms-00001.arrow", "vocabulary-00001.arrow", "rows.arrow"])
def test_a_damaged_file_is_named_and_its_block_rebuilt_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A file that another pool needs: repairing the store reaches it."""
    monkeypatch.setattr(forward_index, "BLOCK_PAPERS", 20)
    corpus = make_corpus(tmp_path, PAPERS)
    pools = [make_pool(tmp_path, corpus, [0], list(range(a, b)), slug=f"p{a}") for a, b in ((0, 50), (30, 60))]
    segments = [make(tmp_path, terms_tasks(corpus, pool)["paper"]) for pool in pools]
    ranking = bm25_ranking_task(corpus, pools[1], terms_tasks(corpus, pools[1]), k1=0.9, b=0.4)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in segments[0].path.glob("*.arrow")}
    victim = segments[0].path / name
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    with pytest.raises(CorruptError, match=f"{name} does not match"):
        make(tmp_path, ranking)
    tasks = stored_terms_tasks(tmp_path, corpus)
    assert [task.id for task in tasks] == [segment.id for segment in segments]
    for task in tasks:
        make(tmp_path, task, repair=True)
    assert {path: path.read_bytes() for path in before} == {path: content for path, (content, _) in before.items()}
    others = {path: time for path, (_, time) in before.items() if "00001" not in path.name and path != victim}
    assert len(others) >= 4
    assert {path: path.stat().st_mtime_ns for path in others} == others
    make(tmp_path, ranking)


def test_a_block_of_other_papers_is_refused(tmp_path: Path) -> None:
    """As many bags as papers, or nothing: positions would mean other papers."""
    corpus = make_corpus(tmp_path, PAPERS)
    segment = make(tmp_path, terms_tasks(corpus, make_pool(tmp_path, corpus, [0], list(range(10))))["paper"])
    index = index_of(segment)
    index._segments[0].rows, index._segments[0].edges = np.arange(11, dtype=np.uint32), np.array([0, 11])
    with pytest.raises(CorruptError, match=r"terms-00000\.arrow of .* does not hold the terms of its 11 papers"):
        list(index.parts(np.arange(3, dtype=np.uint32)))


def test_numbers_that_mean_no_terms_are_refused_whatever_the_checksum_says(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, PAPERS)
    segment = make(tmp_path, terms_tasks(corpus, make_pool(tmp_path, corpus, [0], list(range(10))))["paper"])
    entries = segment.arrow("terms-00000.arrow").column("terms").chunk(0).values.to_numpy()
    victim = segment.path / "terms-00000.arrow"
    whole = victim.read_bytes()
    assert whole.count(entries.tobytes()) == 1
    wrong = np.where(entries == entries[5], 0xFFFFFFFF, entries).astype(np.uint32)
    victim.write_bytes(whole.replace(entries.tobytes(), wrong.tobytes()))
    changed = [
        dataclasses.replace(output, sha256=files.sha256(victim)) if output.path == victim.name else output
        for output in segment.manifest.outputs
    ]
    dataclasses.replace(segment.manifest, outputs=tuple(changed)).write(segment.path)
    with pytest.raises(CorruptError, match=r"terms-00000\.arrow of .* does not hold the terms of its 10 papers"):
        list(index_of(Artifact.open(segment.path)).parts(np.arange(3, dtype=np.uint32)))


def test_bm25_counts_what_it_could_not_rank(tmp_path: Path) -> None:
    papers = [
        {"paper_id": "a", "title": "Graph kernels", "abstract": "Kernels of graphs."},
        {"paper_id": "b", "title": "", "abstract": ""},
        {"paper_id": "c", "title": "The of and", "abstract": ""},
        {"paper_id": "d", "title": "Graph", "abstract": "Trees."},
    ]
    corpus = make_corpus(tmp_path, papers)
    pool = make_pool(tmp_path, corpus, ["a", "b", "c"])
    index = lucene_task(corpus, pool)
    assert make(tmp_path, index).manifest.counts == {"documents": 4, "blank": 1}
    artifact = make(tmp_path, bm25_ranking_task(corpus, pool, {"lucene": index}, k1=0.9, b=0.4))
    assert artifact.arrow("ranking.arrow").select(["query", "row", "rank"]).to_pylist() == [
        {"query": 0, "row": 3, "rank": 1}
    ]
    assert artifact.manifest.counts["queries_without_results"] == 2
    assert artifact.manifest.counts["excluded"] == 3


def test_a_damaged_index_is_rebuilt(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 20)
    pool = make_pool(tmp_path, corpus, [1, 2])
    task = lucene_task(corpus, pool)
    before = make(tmp_path, bm25_ranking_task(corpus, pool, {"lucene": task}, k1=0.9, b=0.4))
    artifact = make(tmp_path, task)
    victim = next(artifact.path.glob("index/*.doc"))
    victim.write_bytes(bytes(victim.stat().st_size))
    repaired = make(tmp_path, task, repair=True)
    assert not repaired.damaged()
    again = bm25_ranking_task(corpus, pool, {"lucene": repaired}, k1=0.9, b=0.4)
    assert make(tmp_path, again).path == before.path
    assert sorted(path.name for path in artifact.path.glob("index/*") if path.suffix in (".arrow", ".json")) == [
        "description.json",
        "rows.arrow",
    ]


def test_the_index_of_another_pool_is_refused(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 9)
    one, other = make_pool(tmp_path, corpus, [1]), make_pool(tmp_path, corpus, [1], [2, 3], slug="other")
    task = bm25_ranking_task(corpus, one, {"lucene": make(tmp_path, lucene_task(corpus, other))}, k1=0.9, b=0.4)
    with pytest.raises(InputError, match="is the index of another pool"):
        make(tmp_path, task)


def test_depth_is_checked_before_anything_runs(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, 3)
    pool = make_pool(tmp_path, corpus, [1])
    with pytest.raises(InputError, match="depth 0 is out of range"):
        bm25_ranking_task(corpus, pool, {"lucene": lucene_task(corpus, pool)}, k1=0.9, b=0.4, depth=0)


def test_a_segment_that_was_stopped_goes_on_after_its_last_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward_index, "BLOCK_PAPERS", 7)
    made, write = [], forward_index.write_block
    numbers: list[int] = []

    def stop(out: Workdir, number: int, block: forward_index.Block) -> None:
        if len(numbers) == 4:
            numbers.append(-1)
            raise KeyboardInterrupt
        numbers.append(number)
        write(out, number, block)

    for name in ("whole", "stopped"):
        corpus = make_corpus(tmp_path / name, PAPERS)
        task = terms_tasks(corpus, make_pool(tmp_path / name, corpus, [0]))["paper"]
        if name == "stopped":
            monkeypatch.setattr(forward_index, "write_block", stop)
            with pytest.raises(KeyboardInterrupt):
                make(tmp_path / name, task, workers=1)
        made.append(make(tmp_path / name, task, workers=1))
    assert sorted(numbers) == [-1, *range(9)]
    assert made[0].manifest.outputs == made[1].manifest.outputs
    assert made[0].manifest.counts == made[1].manifest.counts
