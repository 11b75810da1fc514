from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus import deduplicate
from pipeline.corpus.duplicates import DuplicatesConfig, find_duplicates, groups
from pipeline.corpus.reader import Corpus
from pipeline.sources.s2orc2020 import S2orc2020
from pipeline.stages.corpus import corpus_task, without_duplicates_task
from tests.corpus.oracle import papers_of
from tests.releases import random_s2orc, s2orc_record, write_s2orc

Record = dict[str, Any]


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
    doi = {r["paper_id"]: r["doi"] for r in reversed(records)}
    of_key: dict[object, set[str]] = defaultdict(set)
    for i, paper in papers.items():
        form = "".join(c for c in paper["title"].casefold() if c.isalnum())
        if "doi" in rules and doi[i]:
            of_key["doi", doi[i].lower()].add(i)
        if "title" in rules and len(paper["title"]) >= 20 and paper["year"] is not None:
            of_key["title", form, paper["year"]].add(i)
    beside: dict[str, set[str]] = defaultdict(set)
    for group in of_key.values():
        for i in group:
            beside[i] |= group
    found, seen = [], set[str]()
    for i in papers:
        if i not in seen and beside[i]:
            group, todo = {i}, [i]
            while todo:
                new = beside[todo.pop()] - group
                group |= new
                todo += new
            seen |= group
            found.append(sorted(group))
    return [group for group in found if len(group) > 1]


def best_of(group: list[str], papers: dict[str, Record]) -> str:
    return min(
        group, key=lambda i: (not papers[i]["abstract"], -len(papers[i]["out"]), -len(papers[i]["in"]), i.encode())
    )


def make(root: Path, records: list[Record], action: str | None = None, **config: Any) -> Artifact:
    task = corpus_task("c", S2orc2020(write_s2orc(root / "release", records, parts=2)))
    if action:
        task = without_duplicates_task(task, DuplicatesConfig(action, **config))  # type: ignore[arg-type]
    return Runner(root, Resources(2**30, 1)).make(task)


@pytest.mark.parametrize("rules", [("doi",), ("title",), ("doi", "title")])
@pytest.mark.parametrize("memory", [1_000, 2**30])
def test_groups_are_what_plain_python_says(tmp_path: Path, rules: tuple[str, ...], memory: int) -> None:
    records = random_records(300, seed=8)
    corpus = Corpus(make(tmp_path, records))
    found = find_duplicates(corpus.attributes, DuplicatesConfig("drop", rules), memory)
    papers = papers_of(records)
    expected = {i: best_of(group, papers) for group in groups_of(records, rules) for i in group}
    expected = {i: best for i, best in expected.items() if i != best}
    assert dict(zip(corpus.ids(found.rows), corpus.ids(found.kept), strict=True)) == expected
    assert len(expected) > 30
    for rule in rules:
        single = groups(corpus.attributes, rule, 20, memory)
        assert single.extra == sum(len(group) - 1 for group in groups_of(records, (rule,)))


@pytest.mark.parametrize("action", ["drop", "merge"])
def test_the_corpus_without_duplicates(tmp_path: Path, action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplicate, "SHARD_ROWS", 64)
    monkeypatch.setattr(deduplicate, "_BLOCK", 50)
    records = random_records(400, seed=9)
    papers = papers_of(records)
    artifact = make(tmp_path, records, action)
    corpus = Corpus(artifact)
    stands = {i: best_of(group, papers) for group in groups_of(records, ("doi", "title")) for i in group}
    kept = [i for i in papers if stands.get(i, i) == i]
    assert corpus.ids(np.arange(len(corpus))) == kept
    assert corpus.shards == -(-len(kept) // 64)
    into = {i: stands.get(i, i) if action == "merge" or i in kept else None for i in papers}
    edges = {(into[i], into[c]) for i, p in papers.items() for c in p["out"] if c in papers}
    edges = {(a, b) for a, b in edges if a and b and a != b}
    row = {i: n for n, i in enumerate(kept)}
    for graph, flip in ((corpus.outgoing, 1), (corpus.incoming, -1)):
        owner, neighbour = graph.of_many(np.arange(len(corpus)))
        pairs = list(zip(owner.tolist(), neighbour.tolist(), strict=True))
        assert pairs == sorted((row[a], row[b])[::flip] for a, b in edges)
    attributes = corpus.attributes
    texts = corpus.take(np.arange(len(corpus)), ["title", "abstract", "fields", "n_outbound"]).to_pylist()
    for n, i in enumerate(kept):
        group = [j for j in papers if into[j] == i] if action == "merge" else [i]
        out = max(*(len(papers[j]["out"]) for j in group), len(corpus.outgoing.of(n)) if action == "merge" else 0, 0)
        assert attributes["n_outbound"][n] == texts[n]["n_outbound"] == out
        assert sorted(texts[n]["fields"]) == sorted({f for j in group for f in papers[j]["fields"]})
        assert (texts[n]["title"], texts[n]["abstract"]) == (papers[i]["title"], papers[i]["abstract"])
        assert (attributes["title_chars"][n], attributes["abstract_chars"][n]) == (
            len(papers[i]["title"]),
            len(papers[i]["abstract"]),
        )
    counts = artifact.manifest.counts
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
    assert len(Corpus(make(tmp_path / "a", records, "drop"))) == 6
    assert len(Corpus(make(tmp_path / "b", [*records, s2orc_record("7", title=long)], "drop"))) == 6
    assert len(Corpus(make(tmp_path / "c", records, "drop", min_title_chars=5))) == 5


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="Choose keep, drop or merge"):
        DuplicatesConfig("dorp")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="by 'isbn'"):
        DuplicatesConfig("drop", ("isbn",))
