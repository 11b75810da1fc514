from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus import duplicates
from pipeline.corpus.duplicates import DuplicatesConfig, find_duplicates, groups
from pipeline.corpus.reader import Corpus
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.stages.corpus import corpus_task, without_duplicates_task
from tests.corpus.oracle import Record, papers_of, title_form
from tests.corpus.test_build import edges_of
from tests.releases import random_s2orc, s2orc_record, write_s2orc


def random_records(papers: int, seed: int) -> list[Record]:
    """Return papers of which many share a DOI or a title, as chains too."""
    rng = np.random.default_rng(seed)
    titles = [f"A title long enough, number {n}" for n in range(papers // 3)] + ["Editorial", "Too short"]
    return [
        record
        | {
            "title": str(rng.choice(titles)) if rng.random() < 0.6 else record["title"],
            "year": int(rng.choice([2018, 2019])) if rng.random() < 0.9 else None,
            "doi": f"10.1/{rng.integers(papers // 3)}" if rng.random() < 0.4 else None,
        }
        for record in random_s2orc(papers, seed)
    ]


def groups_of(records: list[Record], rules: tuple[str, ...]) -> list[list[str]]:
    """Return the groups of ids, by walking from paper to paper."""
    papers = papers_of(records)
    doi = {record["paper_id"]: record["doi"] for record in reversed(records)}
    of_key: dict[object, set[str]] = defaultdict(set)
    for i, paper in papers.items():
        if "doi" in rules and doi[i]:
            of_key["doi", doi[i].lower()].add(i)
        if "title" in rules and len(paper["title"]) >= 20 and paper["year"] is not None:
            of_key["title", title_form(paper), paper["year"]].add(i)
    merged: dict[str, set[str]] = {i: {i} for i in papers}
    for same in of_key.values():
        group = set.union(*(merged[i] for i in same))
        merged |= dict.fromkeys(group, group)
    return sorted({tuple(sorted(group)) for group in merged.values() if len(group) > 1})


def stands_for(records: list[Record], rules: tuple[str, ...] = ("doi", "title")) -> dict[str, str]:
    """Return the best paper of the group of each paper that has one."""
    papers = papers_of(records)

    def rank(i: str) -> tuple[Any, ...]:
        return not papers[i]["abstract"], -len(papers[i]["out"]), -len(papers[i]["in"]), i.encode()

    return {i: min(group, key=rank) for group in groups_of(records, rules) for i in group}


def make(root: Path, records: list[Record], rules: DuplicatesConfig | None = None) -> Artifact:
    task = corpus_task("c", S2orc2020(write_s2orc(root / "release", records, parts=2)))
    if rules:
        task = without_duplicates_task(task, rules)
    return Runner(root, Resources(2**30, 1)).make(task)


@pytest.mark.parametrize("rules", [("doi",), ("title",), ("doi", "title")])
def test_groups_are_what_plain_python_says(tmp_path: Path, rules: tuple[str, ...]) -> None:
    records = random_records(300, seed=8)
    corpus = Corpus(make(tmp_path, records))
    rows, kept, _ = find_duplicates(corpus.attributes, DuplicatesConfig(rules=rules), 2**28)
    expected = {i: best for i, best in stands_for(records, rules).items() if i != best}
    assert dict(zip(corpus.ids(rows), corpus.ids(kept), strict=True)) == expected
    assert len(expected) > 30
    for rule in rules:
        extra = sum(len(group) - 1 for group in groups_of(records, (rule,)))
        rows, lowest = groups(corpus.attributes, rule, 20, 2**28)
        assert np.count_nonzero(rows != lowest) == extra


def test_the_corpus_without_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "SHARD_ROWS", 64)
    monkeypatch.setattr(duplicates, "_BLOCK_PAPERS", 50)
    records = random_records(400, seed=9)
    papers, stands = papers_of(records), stands_for(records)
    artifact = make(tmp_path, records, DuplicatesConfig())
    corpus, counts = Corpus(artifact), artifact.manifest.counts
    kept = [i for i in papers if stands.get(i, i) == i]
    assert corpus.ids(np.arange(len(corpus))) == kept
    assert corpus.shards == -(-len(kept) // 64)
    row = {i: n for n, i in enumerate(kept)}
    edges = sorted((row[i], row[c]) for i in kept for c in papers[i]["out"] if c in row)
    assert edges_of(corpus.outgoing, corpus) == edges
    assert edges_of(corpus.incoming, corpus) == sorted((b, a) for a, b in edges)
    attributes = corpus.attributes
    texts = corpus.take(np.arange(len(corpus)), ["title", "abstract", "fields", "n_outbound"]).to_pylist()
    for n, i in enumerate(kept):
        assert attributes["n_outbound"][n] == texts[n]["n_outbound"] == len(papers[i]["out"])
        assert set(texts[n]["fields"]) == {*papers[i]["fields"]}
        for name in ("title", "abstract"):
            assert texts[n][name] == papers[i][name]
            assert attributes[f"{name}_chars"][n] == len(papers[i][name])
    assert counts["read"] == len(papers) == counts["kept"] + sum(counts["dropped"].values())
    assert counts["references_in_corpus"] == len(edges)
    assert counts["prefilter"]["read"] == len(kept)
    assert min(counts["dropped"].values()) > 0


def test_short_titles_missing_years_and_missing_dois_are_no_duplicates(tmp_path: Path) -> None:
    long = "The same title in full length"
    records = [
        s2orc_record("1", title="Editorial"),
        s2orc_record("2", title="Editorial"),
        s2orc_record("3", title=long, year=None),
        s2orc_record("4", title=long, year=None, doi=" "),
        s2orc_record("5", title=long, year=2018, doi=""),
        s2orc_record("6", title="THE SAME TITLE, in full length!", year=2019, doi="n/a"),
    ]
    assert len(Corpus(make(tmp_path / "a", records, DuplicatesConfig()))) == 6
    assert len(Corpus(make(tmp_path / "b", [*records, s2orc_record("7", title=long)], DuplicatesConfig()))) == 6
    assert len(Corpus(make(tmp_path / "c", records, DuplicatesConfig(min_title_chars=5)))) == 5
