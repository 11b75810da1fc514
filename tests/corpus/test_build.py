from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import CorruptError, StageError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.core.schema import NO_YEAR
from pipeline.core.text import id_keys
from pipeline.core.workdir import Workdir
from pipeline.corpus import build, joins, parts, shards
from pipeline.corpus.prefilter import PrefilterConfig, prefilter
from pipeline.corpus.reader import Corpus, Graph
from pipeline.sources import papers as buffer
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.stages.corpus import corpus_task
from tests.corpus.oracle import first_drop, papers_of
from tests.releases import random_s2orc, s2orc_record, write_s2orc


def corpus_of(root: Path, release: Path, workers: int = 1, memory: int = 2**30, **settings: Any) -> Artifact:
    return Runner(root, Resources(memory, workers)).make(corpus_task("c", S2orc2020(release, **settings)))


def contents(artifact: Artifact) -> dict[str, str]:
    return {output.path: output.sha256 for output in artifact.manifest.outputs}


def edges_of(graph: Graph, corpus: Corpus) -> list[tuple[int, int]]:
    """Return the edges of one direction in the order stored: row, then neighbour."""
    owner, neighbour = graph.of_many(np.arange(len(corpus)))
    return list(zip(owner.tolist(), neighbour.tolist(), strict=True))


def check_against_oracle(artifact: Artifact, records: list[dict[str, Any]]) -> None:
    corpus, papers = Corpus(artifact), papers_of(records)
    ids, rows = list(papers), np.arange(len(papers))
    assert corpus.ids(np.arange(len(corpus))) == ids
    taken = corpus.take(rows, ["title", "abstract", "year", "fields", "n_outbound", "n_inbound"])
    for paper, row in zip(papers.values(), taken.to_pylist(), strict=True):
        expected = {name: paper[name] for name in ("title", "abstract", "year", "fields")}
        expected |= {"n_outbound": len(paper["out"]), "n_inbound": len(paper["in"])}
        assert row | {"fields": sorted(row["fields"])} == expected
    row_of = {paper_id: row for row, paper_id in enumerate(ids)}
    edges = sorted((row_of[i], row_of[c]) for i, p in papers.items() for c in p["out"] if c in row_of)
    assert edges_of(corpus.outgoing, corpus) == edges  # the same order: rising within a paper
    assert edges_of(corpus.incoming, corpus) == sorted((cited, citing) for citing, cited in edges)
    counts = artifact.manifest.counts
    assert counts["read"] == counts["kept"] + sum(counts["dropped"].values())
    assert counts["references"] == sum(len(p["out"]) for p in papers.values())
    assert counts["references_in_corpus"] == len(edges)
    for direction in ("outbound", "inbound", "total"):
        kept, dropped = prefilter(corpus.attributes, PrefilterConfig(citation_direction=direction))
        reasons = Counter(first_drop(paper, direction) for paper in papers.values())
        assert dropped == {
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
    check_against_oracle(corpus_of(tmp_path, write_s2orc(tmp_path / "release", records, parts)), records)


def test_memory_shards_and_workers_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = random_s2orc(900, seed=3)
    release = write_s2orc(tmp_path / "release", records, parts=5)
    monkeypatch.setattr(build, "SHARD_ROWS", 128)
    whole = corpus_of(tmp_path / "a", release)
    assert len(whole.outputs("papers-*.arrow")) == 8
    parallel = corpus_of(tmp_path / "b", release, workers=2)
    monkeypatch.setattr(buffer, "BATCH_ROWS", 50)
    monkeypatch.setattr(parts, "_RUN_BYTES", 2_000)
    monkeypatch.setattr(parts, "_LEAST_RUN_BYTES", 0)
    monkeypatch.setattr(joins, "_STREAMED", 100)
    runs = set[str]()

    def write_run(scratch: Path, run: int, *arguments: Any, write: Any = parts._write_run) -> None:
        runs.add(f"{run}")
        write(scratch, run, *arguments)

    monkeypatch.setattr(parts, "_write_run", write_run)
    tight = corpus_of(tmp_path / "c", release, memory=2**26)
    assert len(runs) > 5
    assert contents(whole) == contents(parallel) == contents(tight)
    assert whole.manifest.counts == parallel.manifest.counts == tight.manifest.counts
    check_against_oracle(tight, records)


def test_a_shard_of_long_texts_is_written_in_blocks_with_the_same_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = random_s2orc(400, seed=21)
    release = write_s2orc(tmp_path / "release", [*records, *records[:30]], parts=3)
    monkeypatch.setattr(build, "SHARD_ROWS", 128)
    monkeypatch.setattr(shards, "_BLOCK_BYTES", 2_000)
    artifact = corpus_of(tmp_path, release)
    tables = [pa.ipc.open_file(artifact.file(output.path)) for output in artifact.outputs("papers-*.arrow")]
    assert sum(table.num_record_batches for table in tables) > 8
    assert artifact.manifest.counts["dropped"] == {"duplicate_id": 30}
    check_against_oracle(artifact, records)


def test_ids_are_ordered_as_trec_eval_compares_them(tmp_path: Path) -> None:
    ids = ["10", "9", "a b", "Z", "é", "\U0001f600", "\uffee", "x/1", "100"]
    corpus = Corpus(corpus_of(tmp_path, write_s2orc(tmp_path / "release", [s2orc_record(i) for i in ids])))
    assert corpus.ids(np.arange(len(ids))) == sorted(ids, key=lambda i: i.encode())
    assert corpus.rows_of(["9", "nothing", "10"]).tolist() == [2, -1, 0]
    assert corpus.ids(np.array([3, 0, 3])) == ["Z", "10", "Z"]


def test_a_build_that_was_stopped_goes_on_with_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = random_s2orc(600, seed=9)
    release = write_s2orc(tmp_path / "release", [*records, *records[:40]], parts=3)
    monkeypatch.setattr(build, "SHARD_ROWS", 128)
    whole = corpus_of(tmp_path / "a", release)
    read = S2orc2020.read
    stamps: dict[str, int] = {}

    def stop_reading(self: S2orc2020, part: str) -> Any:
        yield from itertools.islice(read(self, part), 1 if part == self.parts()[-1] else None)
        if part == self.parts()[-1]:
            raise KeyboardInterrupt

    def stop_joining(out: Workdir, name: str, *arguments: Any, write: Any = shards.write_graph) -> int:
        if name == "incoming":
            raise KeyboardInterrupt
        return write(out, name, *arguments)

    def stop_writing(self: Workdir, name: str, file: Any = Workdir.file) -> Any:
        if name == "papers-00003.arrow":
            raise KeyboardInterrupt
        return file(self, name)

    stops = ((S2orc2020, "read", stop_reading), (build, "write_graph", stop_joining), (Workdir, "file", stop_writing))
    for (owner, name, stop), pattern, count in zip(
        stops, ("part-*.json", "part-*.json", "papers-*.arrow"), (2, 3, 4), strict=True
    ):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(owner, name, stop)
            corpus_of(tmp_path / "b", release)
        finished = {path.name: path.stat().st_ino for path in (tmp_path / "b").rglob(pattern)}
        assert len(finished) == count
        assert {name: inode for name, inode in stamps.items() if name in finished}.items() <= finished.items()
        stamps = finished
    resumed = corpus_of(tmp_path / "b", release, workers=2)
    assert {name: (resumed.path / name).stat().st_ino for name in stamps} == stamps
    assert contents(resumed) == contents(whole)
    assert resumed.manifest.counts == whole.manifest.counts
    assert resumed.manifest.counts["dropped"] == {"duplicate_id": 40}


def test_two_papers_with_one_key_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "id_keys", lambda ids: id_keys(ids) % np.uint64(199))
    release = write_s2orc(tmp_path / "release", [s2orc_record(str(number)) for number in range(200)])
    with pytest.raises(StageError, match="two paper ids share one 64-bit key: '(0|199)' and '(0|199)'"):
        corpus_of(tmp_path, release)


def test_faults_are_counted_or_refused_and_the_rest_is_intact(tmp_path: Path) -> None:
    """Of papers with one id the first is kept, and its references."""
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
    other = "Another abstract, as long as is asked for."
    twice = [good[7], good[8] | {"abstract": other, "outbound_citations": ["3"]}]
    lines = [*good[:200], *odd[:3], *bad, *odd[3:], *twice, *good[200:]]
    release = write_s2orc(tmp_path / "release", lines, parts=2)
    first = release / "metadata_0.jsonl.gz"
    first.write_bytes(first.read_bytes() + gzip.compress(json.dumps(s2orc_record("member")).encode() + b"\n"))
    artifact = corpus_of(tmp_path, release)
    check_against_oracle(artifact, [*good, *odd, s2orc_record("member")])
    counts = artifact.manifest.counts
    reasons = ("bad_json", "bad_utf8", "line_too_long", "duplicate_id", "duplicate_id_other_text")
    assert counts["dropped"] == dict.fromkeys(reasons, 1)
    assert {example.split(": ")[0] for example in counts["examples"]} == set(reasons[:4])
    assert "bad_utf8: metadata_1.jsonl.gz:49: " in "".join(counts["examples"])
    assert counts["noted"]["impossible_year"] >= 2
    corpus = Corpus(artifact)
    rows = corpus.rows_of(["a b", "blank", "x/1", "y0", "y2999"])
    assert corpus.outgoing.of(rows[2]).tolist() == corpus.incoming.of(rows[2]).tolist() == [rows[0]]
    assert corpus.attributes["abstract_chars"][rows[1]] == 0
    assert set(corpus.attributes["year"][rows[3:]]) == {NO_YEAR}

    first.write_bytes(first.read_bytes()[:-30])
    with pytest.raises(CorruptError, match=r"metadata_0\.jsonl\.gz is a truncated gzip file.*gunzip -c"):
        corpus_of(tmp_path / "again", release)
