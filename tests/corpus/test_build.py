from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.schema import NO_YEAR
from pipeline.corpus import build, extract, graph, merge, order
from pipeline.corpus.prefilter import PrefilterConfig, prefilter
from pipeline.corpus.reader import Corpus
from pipeline.sources import papers as buffer
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.stages.corpus import corpus_task
from tests.corpus.oracle import first_drop, papers_of
from tests.releases import random_s2orc, s2orc_record, write_s2orc
from tests.shared import real


def corpus_of(root: Path, release: Path, workers: int = 1) -> Artifact:
    return Runner(root, Resources(2**30, workers)).make(corpus_task("c", S2orc2020(release)))


def contents(artifact: Artifact) -> dict[str, str]:
    return {output.path: output.sha256 for output in artifact.manifest.outputs}


class Counted:
    """A function that knows how often it was called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return self.function(*arguments)


def check_against_oracle(artifact: Artifact, records: list[dict[str, Any]]) -> None:
    corpus = Corpus(artifact)
    papers = papers_of(records)
    ids = list(papers)
    assert corpus.ids(np.arange(len(corpus))) == ids
    taken = corpus.take(np.arange(len(corpus)), ["title", "abstract", "year", "fields", "n_outbound", "n_inbound"])
    for paper, row in zip(papers.values(), taken.to_pylist(), strict=True):
        assert [row[name] for name in ("title", "abstract", "year")] == [
            paper[name] for name in ("title", "abstract", "year")
        ]
        assert sorted(row["fields"]) == paper["fields"]
        assert (row["n_outbound"], row["n_inbound"]) == (len(paper["out"]), len(paper["in"]))
    row_of = {paper_id: row for row, paper_id in enumerate(ids)}
    edges = {(row_of[i], row_of[c]) for i, p in papers.items() for c in p["out"] if c in row_of}
    for direction, flip in ((corpus.outgoing, 1), (corpus.incoming, -1)):
        owner, neighbour = direction.of_many(np.arange(len(corpus)))
        assert sorted((row, n)[::flip] for row, n in zip(owner.tolist(), neighbour.tolist(), strict=True)) == sorted(
            edges
        )
        assert all(np.all(np.diff(direction.of(row).astype(int)) > 0) for row in range(len(corpus)))
    counts = artifact.manifest.counts
    assert counts["read"] == counts["kept"] + sum(counts["dropped"].values())
    assert counts["references"] == sum(len(p["out"]) for p in papers.values())
    assert counts["references_in_corpus"] == len(edges)
    for direction in ("outbound", "inbound", "total"):
        kept, found = prefilter(corpus.attributes, PrefilterConfig(citation_direction=direction))
        reasons = Counter(first_drop(paper, direction) for paper in papers.values())
        assert found == {
            "read": len(papers),
            **{f"dropped_{r}": reasons[r] for r in ("no_year", "no_title", "short_abstract", "few_citations")},
            "kept": reasons[None],
        }
        assert [ids[row] for row in np.flatnonzero(kept)] == [
            i for i in ids if first_drop(papers[i], direction) is None
        ]


@pytest.mark.parametrize(("papers", "parts"), [(1, 1), (400, 3)])
def test_a_corpus_is_what_plain_python_says(tmp_path: Path, papers: int, parts: int) -> None:
    records = random_s2orc(papers, seed=papers)
    release = write_s2orc(tmp_path / "release", records, parts)
    check_against_oracle(corpus_of(tmp_path, release), records)


def test_memory_shards_and_workers_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = random_s2orc(900, seed=3)
    release = write_s2orc(tmp_path / "release", records, parts=5)
    monkeypatch.setattr(build, "SHARD_ROWS", 128)
    whole = corpus_of(tmp_path / "a", release)
    assert len(whole.outputs("papers-*.arrow")) == 8
    parallel = corpus_of(tmp_path / "b", release, workers=2)
    monkeypatch.setattr(buffer, "BATCH_ROWS", 50)
    monkeypatch.setattr(build, "_RUN_BYTES", 20_000)
    monkeypatch.setattr(order, "_SMALLEST_WINDOW", 3)
    monkeypatch.setattr(graph, "_BLOCK_BITS", 5)
    tables, ranges = Counted(graph.CitationGraph._index), Counted(graph.CitationGraph._incoming)
    runs, windows = Counted(extract._write_run), Counted(order._is_first)
    monkeypatch.setattr(extract, "_write_run", runs)
    monkeypatch.setattr(order, "_is_first", windows)
    monkeypatch.setattr(graph.CitationGraph, "_index", lambda *arguments: tables(*arguments))
    monkeypatch.setattr(graph.CitationGraph, "_incoming", lambda *arguments: ranges(*arguments))
    tight = Runner(tmp_path / "c", Resources(12_000, 1)).make(corpus_task("c", S2orc2020(release)))
    assert min(runs.calls, windows.calls, tables.calls, ranges.calls) > 6
    assert contents(whole) == contents(parallel) == contents(tight)
    assert whole.manifest.counts == parallel.manifest.counts == tight.manifest.counts
    check_against_oracle(tight, records)


def test_of_papers_with_one_id_the_first_is_kept_and_the_rest_counted(tmp_path: Path) -> None:
    records = [
        s2orc_record("5", title="First", outbound_citations=["3"]),
        s2orc_record("3"),
        s2orc_record("5", title="First", outbound_citations=["4"]),
        s2orc_record("4"),
        s2orc_record("5", title="Another", outbound_citations=["4"]),
    ]
    artifact = corpus_of(tmp_path, write_s2orc(tmp_path / "release", records, parts=3))
    assert artifact.manifest.counts["dropped"] == {"duplicate_id": 1, "duplicate_id_other_text": 1}
    check_against_oracle(artifact, records)


def test_ids_are_ordered_as_trec_eval_compares_them(tmp_path: Path) -> None:
    ids = ["10", "9", "a b", "Z", "é", "\U0001f600", "\uffee", "x/1", "100"]
    records = [s2orc_record(i) for i in ids]
    corpus = Corpus(corpus_of(tmp_path, write_s2orc(tmp_path / "release", records)))
    assert corpus.ids(np.arange(len(ids))) == sorted(ids, key=lambda i: i.encode())
    assert corpus.rows_of(["9", "nothing", "10"]).tolist() == [2, -1, 0]
    assert corpus.ids(np.array([3, 0, 3])) == ["Z", "10", "Z"]


def test_an_empty_release_gives_an_empty_corpus(tmp_path: Path) -> None:
    release = S2orc2020(write_s2orc(tmp_path / "release", [b"{}\n"]), allow_empty=True)
    artifact = Runner(tmp_path, Resources(2**30, 1)).make(corpus_task("c", release))
    assert len(Corpus(artifact)) == 0
    assert artifact.manifest.counts["dropped"] == {"wrong_type": 1}
    assert Corpus(artifact).outgoing.indptr.tolist() == [0]


def test_a_build_that_was_stopped_goes_on_with_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = random_s2orc(600, seed=9)
    release = write_s2orc(tmp_path / "release", [*records, *records[:40]], parts=3)
    monkeypatch.setattr(build, "SHARD_ROWS", 128)
    whole = corpus_of(tmp_path / "a", release)
    monkeypatch.setattr(build, "_RUN_BYTES", 50_000)
    resolve, write = graph.CitationGraph._resolve, merge.Merge._write
    for step, owner, name in ((write, merge.Merge, "_write"), (resolve, graph.CitationGraph, "_resolve")):
        calls = Counted(step)

        def stop(*arguments: Any, calls: Counted = calls) -> Any:
            if calls.calls == (3 if calls.function is write else 0):
                raise KeyboardInterrupt
            return calls(*arguments)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(owner, name, stop)
            corpus_of(tmp_path / "b", release)
    written = Counted(merge._count_repeated)
    monkeypatch.setattr(merge, "_count_repeated", written)
    resumed = corpus_of(tmp_path / "b", release, workers=2)
    assert written.calls == 0
    assert contents(resumed) == contents(whole)
    assert resumed.manifest.counts == whole.manifest.counts
    assert resumed.manifest.counts["dropped"] == {"duplicate_id": 40}


def test_faults_are_counted_or_refused_and_the_rest_is_intact(tmp_path: Path) -> None:
    good = random_s2orc(300, seed=12)
    odd = [
        s2orc_record("x/1", outbound_citations=["x/1", "a b", "nowhere"], title="An id with a slash"),
        s2orc_record("a b", outbound_citations=["x/1", "a b"], title="An id with a space"),
        s2orc_record("y0", year=0),
        s2orc_record("y2999", year=2999),
        s2orc_record("blank", abstract=" \t\n \u2003 "),
    ]
    bad = [
        b'{"paper_id": "6", "title": "a bad \xff byte"}\n',
        b'{"paper_id": "7", "abstract": "' + b"z" * 50 * 2**20 + b'"}\n',
        b'{"paper_id": "8", "title": "cut off\n',
    ]
    twice = [good[7], good[8] | {"abstract": "Another abstract, as long as is asked for."}]
    lines = [*good[:200], *odd[:3], *bad, *odd[3:], *twice, *good[200:]]
    release = write_s2orc(tmp_path / "release", lines, parts=2)
    first = release / "metadata_0.jsonl.gz"
    first.write_bytes(first.read_bytes() + gzip.compress(json.dumps(s2orc_record("member")).encode() + b"\n"))
    artifact = corpus_of(tmp_path, release)
    check_against_oracle(artifact, [*good, *odd, s2orc_record("member")])
    counts = artifact.manifest.counts
    assert counts["dropped"] == {
        "bad_json": 1,
        "bad_utf8": 1,
        "line_too_long": 1,
        "duplicate_id": 1,
        "duplicate_id_other_text": 1,
    }
    assert {example.split(": ")[0] for example in counts["examples"]} == {
        "bad_json",
        "bad_utf8",
        "line_too_long",
        "duplicate_id",
    }
    assert "bad_utf8: metadata_1.jsonl.gz:49: " in "".join(counts["examples"])
    assert counts["noted"]["impossible_year"] >= 2
    corpus = Corpus(artifact)
    rows = corpus.rows_of(["a b", "blank", "x/1", "y0", "y2999"])
    assert corpus.outgoing.of(rows[2]).tolist() == [rows[0]]
    assert corpus.incoming.of(rows[2]).tolist() == [rows[0]]
    assert corpus.attributes["abstract_chars"][rows[1]] == 0
    assert set(corpus.attributes["year"][rows[3:]]) == {NO_YEAR}

    first.write_bytes(first.read_bytes()[:-30])
    with pytest.raises(CorruptError, match=r"metadata_0\.jsonl\.gz breaks off.*--allow-truncated"):
        corpus_of(tmp_path / "again", release)


@pytest.mark.realdata
def test_the_official_sample_keeps_every_record(tmp_path: Path) -> None:
    folder = real("s2orc-2020-sample")
    with gzip.open(folder / "metadata_0.jsonl.gz", "rt", encoding="utf-8") as handle:
        records = [json.loads(line) for line in handle]
    check_against_oracle(corpus_of(tmp_path, folder), records)


def test_a_shard_of_long_texts_is_written_in_blocks_with_the_same_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = random_s2orc(400, seed=21)
    release = write_s2orc(tmp_path / "release", [*records, *records[:30]], parts=3)
    monkeypatch.setattr(build, "SHARD_ROWS", 128)
    monkeypatch.setattr(merge, "_BLOCK_BYTES", 2_000)
    blocks = Counted(merge._distinct)
    monkeypatch.setattr(merge, "_distinct", blocks)
    artifact = corpus_of(tmp_path, release)
    assert blocks.calls > 8
    assert artifact.manifest.counts["dropped"] == {"duplicate_id": 30}
    check_against_oracle(artifact, records)
