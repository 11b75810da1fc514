"""Tags, the corpus of neighbours and its pools, by their definitions on a small corpus."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.resources import Resources
from pipeline.core.runner import Runner
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Text
from pipeline.studies.neighbours.corpus import (
    Members,
    NeighbourPoolConfig,
    NeighboursConfig,
    neighbours_task,
    pool_task,
)
from pipeline.studies.neighbours.operators import CLASSES
from pipeline.studies.neighbours.tagging import Words, is_english, tag, tags_task, top_phrases
from tests.builders import make_corpus

PAPERS = [
    {
        "paper_id": "b",
        "title": "Deep models of text",
        "abstract": "We train the deep model. It is good. The end of it.",
    },
    {"paper_id": "a", "title": "A new network", "abstract": "A network is trained in this paper. We show the gains."},
    {"paper_id": "a#0", "title": "Protein folding", "abstract": "The folding of proteins is an old problem."},
    {"paper_id": "fr", "title": "Un modèle", "abstract": "Nous présentons un modèle profond."},
    {"paper_id": "x1", "title": "", "abstract": "The paper has no title."},
    {"paper_id": "x2", "title": "A title", "abstract": ""},
]


MORE = [
    {"paper_id": f"m{number}", "title": "A title", "abstract": f"We use a deep neural network for the {phrase} of it."}
    for number, phrase in enumerate(["old problem", "linear model", "large graph", "old problem", "new market"])
]


def made(
    root: Path, papers: int | str = "all", workers: int = 1, classes: tuple[str, ...] = tuple(CLASSES)
) -> Artifact:
    corpus = make_corpus(root, PAPERS, [("a", "b")], shard_rows=2)
    tags = tags_task(corpus)
    return Runner(root, Resources(workers=workers)).make(
        neighbours_task(corpus, tags, NeighboursConfig(papers, classes))  # type: ignore[arg-type]
    )


def test_the_corpus_holds_originals_titles_and_neighbours(tmp_path: Path) -> None:
    artifact = made(tmp_path)
    corpus, members = Corpus(artifact), Members.read(artifact)
    ids = corpus.ids(np.arange(len(corpus)))
    assert ids == sorted(ids)
    assert [ids[row] for row in members.originals] == ["a", "a#0", "b", "fr"]
    texts = [text for block in corpus.texts(np.arange(len(corpus))) for text in block]
    for row, original, name in zip(members.rows, members.of, members.names, strict=True):
        assert ids[row] == f"{ids[original]}#{name}"
        if name == "T":
            assert texts[row] == Text(texts[original].title, "")
        else:
            assert texts[row] != texts[original]
    assert sorted(ids[row] for row in members.of[members.names == "T"]) == ["a", "a#0", "b", "fr"]
    assert texts[ids.index("b#T_ARot")].abstract == "It is good. The end of it. We train the deep model."
    counts = artifact.manifest.counts
    assert counts["dropped"] == {"no_title": 1, "no_abstract": 1}
    assert (counts["read"], counts["kept"], counts["not_english"], counts["papers"]) == (6, 4, 1, 3)
    for name in CLASSES:
        assert sum(counts[reason][name] for reason in ("neighbours", "unchanged", "without_words")) == 3
        assert counts["neighbours"][name] == sum(members.names == name)
    assert counts["unchanged"]["T_ARot"] == 1
    assert counts["without_words"]["TDelNN"] == 1
    assert corpus.attributes["title_chars"].tolist() == [len(text.title) for text in texts]
    assert not len(corpus.outgoing.indices)


@pytest.mark.slow
def test_workers_change_no_byte(tmp_path: Path) -> None:
    alone, together = made(tmp_path / "1"), made(tmp_path / "2", workers=2)
    assert [(each.path, each.sha256) for each in alone.outputs()] == [(e.path, e.sha256) for e in together.outputs()]


def test_fewer_papers_are_a_subset_with_the_same_neighbours(tmp_path: Path) -> None:
    every, some = made(tmp_path), made(tmp_path, 2)
    texts = [dict(zip(Corpus(a).ids(np.arange(len(Corpus(a)))), _texts(a), strict=True)) for a in (every, some)]
    assert some.manifest.counts["papers"] == 2
    assert texts[1].items() <= texts[0].items()


def _texts(artifact: Artifact) -> list[Text]:
    corpus = Corpus(artifact)
    return [text for block in corpus.texts(np.arange(len(corpus))) for text in block]


@pytest.mark.parametrize("kind", ["titles", "titles-among-titles", "neighbours", "overlap"])
def test_pools(tmp_path: Path, kind: str) -> None:
    artifact = made(tmp_path)
    config = NeighbourPoolConfig(kind=kind, name="T_ARot" if kind == "overlap" else "")  # type: ignore[arg-type]
    corpus = Corpus(artifact)
    pool = Pool(Runner(tmp_path, Resources(workers=1)).make(pool_task(artifact, config)), corpus)
    queries, candidates = pool.query_ids(), set(corpus.ids(pool.candidates))
    originals, titles, rotated = {"a", "a#0", "b", "fr"}, {"a#T", "a#0#T", "b#T", "fr#T"}, {"a#T_ARot", "b#T_ARot"}
    expected = {
        "titles": (titles, originals),
        "titles-among-titles": (titles, originals | titles),
        "neighbours": (set(corpus.ids(np.arange(len(corpus)))) - originals - titles, originals),
        "overlap": (rotated | {"a", "b"}, originals | rotated),
    }
    assert (set(queries), candidates) == expected[kind]
    positives = dict(zip(queries, corpus.ids(pool.qrels.column("row").to_numpy()), strict=True))
    for query, positive in positives.items():
        other = f"{query}#T_ARot" if kind == "overlap" and query in originals else query.rpartition("#")[0]
        assert positive == other
    removed = {query: corpus.ids(pool.excluded(place)) for place, query in enumerate(queries)}
    assert removed == {query: [query] if query in candidates else [] for query in queries}
    fields = pool.artifact.arrow("queries.arrow").column("field").to_pylist()
    named = [query.rpartition("#")[2] if query not in originals else None for query in queries]
    assert fields == named


@pytest.mark.parametrize("queries", [1, 2])
def test_fewer_queries_of_an_overlap_leave_its_candidates(tmp_path: Path, queries: int) -> None:
    artifact, sampled = made(tmp_path), made(tmp_path, queries)
    runner = Runner(tmp_path, Resources(workers=1))

    def overlap(of: Artifact, queries: Any) -> tuple[list[str], set[str]]:
        task = pool_task(of, NeighbourPoolConfig(kind="overlap", name="T_ADelRand", queries=queries))
        pool = Pool(runner.make(task), Corpus(of))
        return pool.query_ids(), set(pool.corpus.ids(pool.candidates))

    every, candidates = overlap(artifact, "all")
    drawn, the_same = overlap(artifact, queries)
    assert candidates == the_same == {"a", "a#0", "b", "fr", *(f"{each}#T_ADelRand" for each in ("a", "a#0", "b"))}
    assert len(every) == 6
    assert len(drawn) == 2 * queries
    assert overlap(sampled, queries)[0] == overlap(sampled, "all")[0] == drawn, "the same papers are drawn"
    assert overlap(sampled, queries)[1] == {"a", "a#0", "b", "fr", *drawn}


def test_the_top_half_of_noun_phrases_is_by_frequency_and_rarity(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, PAPERS + MORE, shard_rows=2)
    tags = Runner(tmp_path, Resources(workers=1)).make(tags_task(corpus))
    abstracts = [text for text in (each["abstract"] for each in PAPERS + MORE) if is_english(text)]
    found = [[phrase for _, phrase in Words(text, tag(text)).phrases] for text in abstracts]
    scores = {}
    for phrase in {phrase for phrases in found for phrase in phrases}:
        having = sum(phrase in phrases for phrases in found)
        rarity = np.log2(1 + (len(found) - having + 0.5) / (having + 0.5))
        scores[phrase] = sum(phrases.count(phrase) for phrases in found) * rarity
    expected = sorted(scores, key=lambda phrase: (-scores[phrase], phrase))[: len(scores) // 2]
    assert len(expected) > 2
    assert "deep neural network" in expected
    assert top_phrases(tags.path) == set(expected)


def test_titles_are_drawn_by_seed(tmp_path: Path) -> None:
    artifact = made(tmp_path)
    runner = Runner(tmp_path, Resources(workers=1))
    drawn = [
        Pool(runner.make(pool_task(artifact, NeighbourPoolConfig(queries=2, seed=seed))), Corpus(artifact)).query_ids()
        for seed in range(6)
    ]
    assert all(len(each) == 2 for each in drawn)
    assert len(set(map(tuple, drawn))) > 1


def test_bad_input(tmp_path: Path) -> None:
    artifact = made(tmp_path, classes=("T_ARot",))
    runner = Runner(tmp_path, Resources(workers=1))
    with pytest.raises(InputError, match="no paper has a neighbour of T_AShuff"):
        runner.make(pool_task(artifact, NeighbourPoolConfig(kind="overlap", name="T_AShuff")))
    corpus = make_corpus(tmp_path, [{**PAPERS[0], "paper_id": "p#T"}], name="clash")
    with pytest.raises(InputError, match="'p#T' must not end in # and the name of a class"):
        runner.make(neighbours_task(corpus, tags_task(corpus), NeighboursConfig("all")))
    corpus = make_corpus(tmp_path, PAPERS[3:], name="foreign")
    with pytest.raises(InputError, match="no paper of foreign has a title and an English abstract"):
        runner.make(neighbours_task(corpus, tags_task(corpus), NeighboursConfig("all")))
