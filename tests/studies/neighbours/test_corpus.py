"""Tags, the corpus of neighbours and its pools, by their definitions on a small corpus."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.runner import Runner
from pipeline.corpus.pool import Pool
from pipeline.corpus.reader import Corpus, Text
from pipeline.studies.neighbours.corpus import (
    Members,
    NeighboursConfig,
    neighbours_task,
    pool_task,
)
from pipeline.studies.neighbours.operators import CLASSES
from pipeline.studies.neighbours.tagging import Words, is_english, tag, tags_task, top_phrases
from tests.builders import make_corpus
from tests.studies.neighbours.conftest import ORIGINALS, PAPERS, made

PHRASES = ["old problem", "linear model", "large graph", "old problem", "new market"]
MORE = [
    {"paper_id": f"m{number}", "title": "A title", "abstract": f"We use a deep neural network for the {phrase} of it."}
    for number, phrase in enumerate(PHRASES)
]


def texts_of(artifact: Artifact) -> dict[str, Text]:
    corpus = Corpus(artifact)
    rows = np.arange(len(corpus))
    return dict(zip(corpus.ids(rows), (text for block in corpus.texts(rows) for text in block), strict=True))


def pool_of(runner: Runner, artifact: Artifact, **settings: Any) -> Pool:
    return Pool(
        runner.make(pool_task(artifact, **{"kind": "titles", "queries": "all", "seed": 13} | settings)),
        Corpus(artifact),
    )


def test_the_corpus_holds_originals_titles_and_neighbours(corpus: Artifact) -> None:
    opened, members, texts = Corpus(corpus), Members.read(corpus), texts_of(corpus)
    ids = list(texts)
    assert ids == sorted(ids)
    assert {ids[row] for row in members.originals} == ORIGINALS
    for row, of, name in zip(members.rows, members.original_of, members.names, strict=True):
        text, original = texts[ids[row]], texts[ids[of]]
        assert ids[row] == f"{ids[of]}#{name}"
        assert text == Text(original.title, "") if name == "T" else text != original
    assert {ids[row] for row in members.original_of[members.names == "T"]} == ORIGINALS
    assert texts["b#T_ARot"].abstract == "It is good. The end of it. We train the deep model."
    counts = corpus.manifest.counts
    assert counts["dropped"] == {"no_title": 1, "no_abstract": 1}
    assert (counts["read"], counts["kept"], counts["not_english"], counts["papers"]) == (6, 4, 1, 3)
    for name in CLASSES:
        assert sum(counts[reason][name] for reason in ("neighbours", "unchanged", "without_words")) == 3
        assert counts["neighbours"][name] == sum(members.names == name)
    assert counts["unchanged"]["T_ARot"] == counts["without_words"]["TDelNN"] == 1
    assert opened.attributes["title_chars"].tolist() == [len(text.title) for text in texts.values()]
    assert not len(opened.outgoing.indices)


@pytest.mark.slow
def test_workers_change_no_byte(corpus: Artifact, tmp_path: Path) -> None:
    together = made(tmp_path, workers=2)
    assert [(file.path, file.sha256) for file in together.outputs()] == [(f.path, f.sha256) for f in corpus.outputs()]


@pytest.mark.parametrize("kind", ["titles", "titles-among-titles", "neighbours", "overlap"])
def test_pools(runner: Runner, corpus: Artifact, kind: str) -> None:
    pool = pool_of(runner, corpus, kind=kind, name="T_ARot" if kind == "overlap" else "")
    queries, candidates = pool.query_ids(), set(pool.corpus.ids(pool.candidates))
    titles, rotated = {f"{paper}#T" for paper in ORIGINALS}, {"a#T_ARot", "b#T_ARot"}
    expected = {
        "titles": (titles, ORIGINALS),
        "titles-among-titles": (titles, ORIGINALS | titles),
        "neighbours": (set(texts_of(corpus)) - ORIGINALS - titles, ORIGINALS),
        "overlap": (rotated | {"a", "b"}, ORIGINALS | rotated),
    }
    assert (set(queries), candidates) == expected[kind]
    for query, positive in zip(queries, pool.corpus.ids(pool.qrels.column("row").to_numpy()), strict=True):
        assert positive == (f"{query}#T_ARot" if query in ORIGINALS else query.rpartition("#")[0])
    removed = {query: pool.corpus.ids(pool.excluded(place)) for place, query in enumerate(queries)}
    assert removed == {query: [query] if query in candidates else [] for query in queries}
    fields = pool.artifact.arrow("queries.arrow").column("field").to_pylist()
    assert fields == [None if query in ORIGINALS else query.rpartition("#")[2] for query in queries]


@pytest.mark.parametrize("queries", [1, 2])
def test_fewer_papers_are_a_subset_and_fewer_queries_leave_the_candidates(
    runner: Runner, corpus: Artifact, tmp_path: Path, queries: int
) -> None:
    def overlap(of: Artifact, queries: Any) -> tuple[list[str], set[str]]:
        pool = pool_of(runner, of, kind="overlap", name="T_ADelRand", queries=queries)
        return pool.query_ids(), set(pool.corpus.ids(pool.candidates))

    every, candidates = overlap(corpus, "all")
    drawn, of_drawn = overlap(corpus, queries)
    assert candidates == of_drawn == ORIGINALS | {f"{paper}#T_ADelRand" for paper in ("a", "a#0", "b")}
    assert (len(every), len(drawn)) == (6, 2 * queries)
    classes = tuple(name for name in CLASSES if name != "T_ADelTopNNPH")
    sampled = made(tmp_path, queries, classes=classes)
    (tags,) = (Artifact.open(path.parent) for path in tmp_path.glob("corpora/tags/*/manifest.json"))
    counts = {"read": 6, "tagged": queries, "not_drawn": 4 - queries, "not_english": 2, "phrases": 0}
    assert tags.manifest.counts == counts
    for name in ("read", "kept", "dropped", "not_english"):
        assert sampled.manifest.counts[name] == corpus.manifest.counts[name]
    assert sampled.manifest.counts["papers"] == queries
    assert texts_of(sampled).items() <= texts_of(corpus).items()
    for count in (queries, "all"):
        assert overlap(sampled, count) == (drawn, ORIGINALS | set(drawn)), "the same papers are drawn"


def test_the_top_half_of_noun_phrases_is_by_frequency_and_rarity(tmp_path: Path, runner: Runner) -> None:
    tags = runner.make(tags_task(make_corpus(tmp_path, PAPERS + MORE, shard_rows=2)))
    abstracts = [paper["abstract"] for paper in PAPERS + MORE if is_english(paper["abstract"])]
    phrases_of = [[phrase for _, phrase in Words(text, tag(text)).phrases] for text in abstracts]
    scores = {}
    for phrase in {phrase for phrases in phrases_of for phrase in phrases}:
        having = sum(phrase in phrases for phrases in phrases_of)
        rarity = np.log2(1 + (len(abstracts) - having + 0.5) / (having + 0.5))
        scores[phrase] = sum(phrases.count(phrase) for phrases in phrases_of) * rarity
    expected = sorted(scores, key=lambda phrase: (-scores[phrase], phrase))[: len(scores) // 2]
    assert len(expected) > 2
    assert "deep neural network" in expected
    assert top_phrases(tags.path) == set(expected)


def test_bad_input(runner: Runner, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no paper has a neighbour of T_AShuff"):
        pool_of(runner, made(tmp_path, classes=("T_ARot",)), kind="overlap", name="T_AShuff")
    clash = [{**PAPERS[0], "paper_id": "p#T"}]
    for papers, name, message in (
        (clash, "clash", "'p#T' must not end in # and the name of a class"),
        (PAPERS[3:], "foreign", "no paper of foreign has a title and an English abstract"),
    ):
        corpus = make_corpus(tmp_path, papers, name=name)
        with pytest.raises(InputError, match=message):
            runner.make(neighbours_task(corpus, NeighboursConfig("all")))
