from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus import join
from pipeline.corpus.partition import PartitionWriter, partition_of, read_partition
from pipeline.sources.base import RAW_PAPERS
from pipeline.sources.s2ag import S2ag
from pipeline.stages.corpus import corpus_task
from tests.corpus.test_build import check_against_oracle, contents
from tests.releases import s2ag_abstract, s2ag_citation, s2ag_paper, s2orc_record, write_s2ag

Tables = dict[str, list[dict[str, Any]]]


def random_tables(papers: int, seed: int) -> tuple[Tables, list[dict[str, Any]]]:
    """Return S2AG tables and the same papers as records of S2ORC, for the oracle."""
    rng = np.random.default_rng(seed)
    ids = [int(i) for i in rng.choice(10**6, papers, replace=False)]
    made: Tables = {"papers": [], "abstracts": [], "citations": []}
    edges = []
    for _ in range(papers * 6):
        citing = int(rng.choice(ids)) if rng.random() < 0.95 else 2_000_000
        cited = int(rng.choice([*ids, citing, 3_000_000]))
        edges += [(citing, cited)] * int(rng.integers(1, 3))
    rng.shuffle(edges)
    made["citations"] = [s2ag_citation(str(a), str(b)) for a, b in edges]
    made["citations"][::50] = [s2ag_citation("5", None)] * len(made["citations"][::50])
    edges = [edge for number, edge in enumerate(edges) if number % 50]
    records = []
    for paper in ids:
        text = [None, "", " \t", f"The  abstract of {paper}, which is long enough to stay."][
            rng.choice(4, p=[0.3, 0.1, 0.1, 0.5])
        ]
        year = [None, 2018, 2019, 2999][rng.choice(4)]
        field = [[], ["Physics"], ["Physics", "Art"]][rng.choice(3)]
        listed = [{"category": name, "source": "s2-fos-model"} for name in field]
        made["papers"].append(s2ag_paper(paper, year=year, s2fieldsofstudy=listed or None))
        if text is not None:
            made["abstracts"].append(s2ag_abstract(paper, text))
        records.append(
            s2orc_record(
                str(paper),
                abstract=text,
                year=year,
                mag_field_of_study=field,
                outbound_citations=[str(b) for a, b in edges if a == paper],
                inbound_citations=[str(a) for a, b in edges if b == paper],
            )
        )
    made["abstracts"] += [s2ag_abstract(9_999_999, "The abstract of no paper of the release, it seems.")]
    rng.shuffle(made["abstracts"])
    return made, records


def build(root: Path, folder: Path, memory: int = 2**30, workers: int = 1) -> Any:
    return Runner(root, Resources(memory, workers)).make(corpus_task("c", S2ag(folder)))


def test_joined_tables_are_what_plain_python_says(tmp_path: Path) -> None:
    made, records = random_tables(300, seed=4)
    artifact = build(tmp_path, write_s2ag(tmp_path / "release", parts=3, **made))
    check_against_oracle(artifact, records)
    noted = Counter(artifact.manifest.counts["noted"])
    for table in ("abstracts", "citations"):
        read = noted[f"{table}: read"]
        assert read == len(made[table])
        dropped = {name: count for name, count in noted.items() if name.startswith(f"{table}: dropped")}
        assert read == noted[f"{table}: kept"] + sum(dropped.values())
        assert all(dropped.values())
    assert noted["abstracts: dropped, of_no_paper"] == 1
    assert noted["citations: dropped, null_cited_id"] == -(-len(made["citations"]) // 50)
    assert noted["papers_without_abstract"] == sum(not (r["abstract"] or "").strip() for r in records)


def test_partitions_memory_and_workers_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, records = random_tables(400, seed=5)
    folder = write_s2ag(tmp_path / "release", parts=4, **made)
    whole = build(tmp_path / "a", folder)
    parallel = build(tmp_path / "b", folder, workers=2)
    tight = build(tmp_path / "c", folder, memory=10_000)
    assert contents(whole) == contents(parallel) == contents(tight)
    assert whole.manifest.counts == parallel.manifest.counts == tight.manifest.counts
    check_against_oracle(tight, records)


def test_a_killed_join_resumes_with_its_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = random_tables(200, seed=6)
    folder = write_s2ag(tmp_path / "release", parts=3, **made)
    whole = build(tmp_path / "a", folder)
    read_table = S2ag.read_table

    def breaking(self: S2ag, part: str) -> Any:
        for batch in read_table(self, part):
            yield batch
            if part.startswith("citations") and "00001" in part:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(S2ag, "read_table", breaking)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "b", folder, memory=20_000)
    resumed = build(tmp_path / "b", folder)
    assert contents(resumed) == contents(whole)
    assert resumed.manifest.counts == whole.manifest.counts


def test_the_first_of_several_records_of_a_paper_counts(tmp_path: Path) -> None:
    papers = [s2ag_paper(1), s2ag_paper(2), s2ag_paper(1, title="Another title")]
    abstracts = [
        s2ag_abstract(1, "first " * 9),
        s2ag_abstract(1, "first " * 9),
        s2ag_abstract(1, "second " * 9),
        s2ag_abstract(2, None),
    ]
    citations = [s2ag_citation("1", "2"), s2ag_citation(1, 2), s2ag_citation("2", "1")]
    folder = write_s2ag(tmp_path / "r", papers=papers, abstracts=abstracts, citations=citations)
    artifact = build(tmp_path, folder, memory=1_000)
    check_against_oracle(
        artifact,
        [
            s2orc_record("1", abstract="first " * 9, outbound_citations=["2"], inbound_citations=["2"]),
            s2orc_record("2", abstract=None, outbound_citations=["1"], inbound_citations=["1"]),
        ],
    )
    counts = artifact.manifest.counts
    assert counts["dropped"] == {"duplicate_id_other_text": 1}
    assert counts["noted"]["abstracts: dropped, repeated"] == 1
    assert counts["noted"]["abstracts: dropped, repeated_other_text"] == 1
    assert counts["noted"]["abstracts: dropped, withheld"] == 1
    assert counts["noted"]["citations: dropped, repeated"] == 1


@pytest.mark.parametrize("held", [1, 10**9])
def test_partitions_hold_every_row_once_and_in_order(tmp_path: Path, held: int) -> None:
    keys = np.arange(1000, dtype=np.uint64) % 300
    schema = join._TABLES["outgoing"]
    stems = [tmp_path / "a"]
    with PartitionWriter(stems[0], join._TABLES, 7, held) as writer:
        for start in range(0, 1000, 250):
            part = slice(start, start + 250)
            batch = {"key": keys[part], "other": np.arange(1000, dtype=np.uint64)[part]}
            writer.add("outgoing", join.pa.RecordBatch.from_pydict(batch, schema=schema), keys[part])
    found = [read_partition(stems, "outgoing", schema, number) for number in range(7)]
    for number, table in enumerate(found):
        assert np.all(partition_of(table.column("key").to_numpy(), 7) == number)
        assert np.all(np.diff(table.column("other").to_numpy().astype(int)) > 0)
    assert sorted(i for table in found for i in table.column("other").to_pylist()) == list(range(1000))
    assert read_partition(stems, "papers", RAW_PAPERS, 0).schema == RAW_PAPERS
