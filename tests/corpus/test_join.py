from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus import parts
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
        texts = [None, "", " \t", f"The  abstract of {paper}, which is long enough to stay."]
        text = texts[rng.choice(4, p=[0.3, 0.1, 0.1, 0.5])]
        year = [None, 2018, 2019, 2999][rng.choice(4)]
        fields = [[], ["Physics"], ["Physics", "Art"]][rng.choice(3)]
        listed = [{"category": name, "source": "s2-fos-model"} for name in fields]
        made["papers"].append(s2ag_paper(paper, year=year, s2fieldsofstudy=listed or None))
        if text is not None:
            made["abstracts"].append(s2ag_abstract(paper, text))
        record = s2orc_record(str(paper), abstract=text, year=year, mag_field_of_study=fields)
        record["outbound_citations"] = [str(b) for a, b in edges if a == paper]
        record["inbound_citations"] = [str(a) for a, b in edges if b == paper]
        records.append(record)
    made["abstracts"] += [s2ag_abstract(9_999_999, "The abstract of no paper of the release, it seems.")]
    rng.shuffle(made["abstracts"])
    return made, records


def build(root: Path, folder: Path, memory: int = 2**30, workers: int = 1) -> Artifact:
    return Runner(root, Resources(memory, workers)).make(corpus_task("c", S2ag(folder)))


def test_joined_tables_are_what_plain_python_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, memory and workers change no byte."""
    made, records = random_tables(200, seed=5)
    folder = write_s2ag(tmp_path / "release", parts=4, **made)
    whole = build(tmp_path / "a", folder)
    for name, limits in (("b", {"workers": 2}), ("c", {"memory": 2**26})):
        monkeypatch.setattr(parts, "_RUN_BYTES", 2_000)
        monkeypatch.setattr(parts, "_LEAST_RUN_BYTES", 0)
        other = build(tmp_path / name, folder, **limits)
        assert contents(other) == contents(whole)
        assert other.manifest.counts == whole.manifest.counts
    check_against_oracle(whole, records)
    noted = Counter(whole.manifest.counts["noted"])
    for table in ("abstracts", "citations"):
        dropped = {name: count for name, count in noted.items() if name.startswith(f"{table}: dropped")}
        assert noted[f"{table}: read"] == len(made[table]) == noted[f"{table}: kept"] + sum(dropped.values())
        assert all(dropped.values())
    assert noted["abstracts: dropped, of_no_paper"] == 1
    assert noted["citations: dropped, null_cited_id"] == -(-len(made["citations"]) // 50)
    assert noted["papers_without_abstract"] == sum(not (r["abstract"] or "").strip() for r in records)


def test_the_first_of_several_records_of_a_paper_counts(tmp_path: Path) -> None:
    papers = [s2ag_paper(1), s2ag_paper(2), s2ag_paper(1, title="Another title")]
    first, second = "first " * 9, "second " * 9
    abstracts = [s2ag_abstract(paper, text) for paper, text in ((1, first), (1, first), (1, second), (2, None))]
    citations = [s2ag_citation("1", "2"), s2ag_citation(1, 2), s2ag_citation("2", "1")]
    folder = write_s2ag(tmp_path / "r", papers=papers, abstracts=abstracts, citations=citations)
    artifact = build(tmp_path, folder)
    records = [
        s2orc_record("1", abstract=first, outbound_citations=["2"], inbound_citations=["2"]),
        s2orc_record("2", abstract=None, outbound_citations=["1"], inbound_citations=["1"]),
    ]
    check_against_oracle(artifact, records)
    assert artifact.manifest.counts["dropped"] == {"duplicate_id_other_text": 1}
    reasons = ("abstracts: dropped, repeated", "abstracts: dropped, repeated_other_text")
    reasons += ("abstracts: dropped, withheld", "citations: dropped, repeated")
    assert [artifact.manifest.counts["noted"][reason] for reason in reasons] == [1, 1, 1, 1]
