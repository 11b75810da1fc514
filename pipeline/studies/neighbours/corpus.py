"""A corpus of the papers of another corpus (originals), their titles and their neighbours; and its pools.

The usual stages embed the corpus, and rank and score its pools. Ids tell the kind of a paper: ``ID`` is an original,
``ID#T`` its title alone, ``ID#T_ARot`` its neighbour of the class ``T_ARot``.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.studies import kit
from pipeline.studies.neighbours.operators import CLASSES, TOP_PHRASES, Paper
from pipeline.studies.neighbours.tagging import Words, draw_papers, tags_name, tags_task, top_phrases

TITLE = "T"
"""Class of the title of a paper alone."""

OUTCOMES = ("neighbours", "unchanged", "without_words")
"""Outcomes of applying a class to a paper."""

_PAPERS_A_PART = 256
"""Number of papers in one part of the release."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NeighboursConfig:
    """Settings of a corpus of neighbours: number of papers, names of classes, and the seed of all random choices."""

    papers: kit.Count = 2_000
    classes: tuple[str, ...] = tuple(CLASSES)
    seed: int = 13


def neighbours_task(corpus: kit.Artifact, config: NeighboursConfig) -> kit.Task:
    """Return the task that makes a corpus of originals, titles and neighbours, from the tags of its papers.

    Papers without a title or an abstract are left out. Those without an English abstract have no neighbours. A class
    that leaves a paper unchanged, or without a word, gives no neighbour. Each case is counted. Texts of the class
    T_A_WS have runs of spaces; all others are normalised.
    """
    all_tagged = config.papers == "all" or TOP_PHRASES in config.classes
    tags = tags_task(corpus) if all_tagged else tags_task(corpus, config.papers, config.seed)

    def run(inputs: kit.Inputs, out: kit.Workdir, resources: kit.Resources) -> kit.Counts:
        release = _Neighbours(corpus=inputs["corpus"].path, tags=inputs["tags"].path, config=config)
        reader = kit.Corpus(inputs["corpus"])
        originals, with_neighbours, not_english = _select(release.corpus, release.tags, config)
        if not len(with_neighbours):
            slug = inputs["corpus"].manifest.slug
            raise kit.InputError(f"no paper of {slug} has a title and an English abstract", "Leave this corpus out")
        noted = kit.build_corpus(release, out, resources)["noted"]
        titled = reader.attributes["title_chars"] > 0
        return {
            "read": len(reader),
            "kept": len(originals),
            "dropped": {"no_title": int((~titled).sum()), "no_abstract": int(titled.sum()) - len(originals)},
            "not_english": not_english,
            "papers": len(with_neighbours),
            **{outcome: {name: noted.get(f"{outcome} {name}", 0) for name in config.classes} for outcome in OUTCOMES},
        }

    slug = f"{corpus.manifest.slug}-neighbours"
    return kit.Task("neighbours", 2, kit.CORPORA, slug, config, {"corpus": corpus, "tags": tags}, run)


@functools.lru_cache(maxsize=1)
def _select(corpus: Path, tags: Path, config: NeighboursConfig) -> tuple[Rows, Rows, int]:
    """Return rising rows of the originals and of those that have neighbours, and how many originals are not English.

    Papers whose tags are not null have an English abstract.
    """
    reader, tags_artifact = kit.Corpus(kit.Artifact.open(corpus)), kit.Artifact.open(tags)
    attributes = reader.attributes
    originals = np.flatnonzero((attributes["title_chars"] > 0) & (attributes["abstract_chars"] > 0))
    is_english = [tags_artifact.arrow(tags_name(shard)).column("abstract").is_valid() for shard in range(reader.shards)]
    english = originals[np.concatenate([column.to_numpy() for column in is_english])[originals]]
    with_neighbours = np.sort(english[draw_papers(attributes["key"][english], config.papers, config.seed)])
    return originals, with_neighbours, len(originals) - len(english)


@dataclass(frozen=True)
class _Neighbours(kit.Release):
    """Originals, titles and neighbours of a corpus, as a release; each part holds those of some papers."""

    corpus: Path
    tags: Path
    config: NeighboursConfig
    source = "neighbours"

    def identity(self) -> Mapping[str, Any]:
        return {}

    def queries(self) -> None:
        return None

    def parts(self) -> list[str]:
        originals, *_ = _select(self.corpus, self.tags, self.config)
        return [str(start) for start in range(0, len(originals), _PAPERS_A_PART)]

    def read(self, part: str) -> Iterator[kit.PaperBatch]:
        corpus, tags = kit.Corpus(kit.Artifact.open(self.corpus)), kit.Artifact.open(self.tags)
        originals, rows_with_neighbours, _ = _select(self.corpus, self.tags, self.config)
        with_neighbours, noted = set(rows_with_neighbours.tolist()), Counter[str]()
        papers: list[tuple[int, str, str, str]] = []
        for shard, local in corpus.by_shard(originals[int(part) : int(part) + _PAPERS_A_PART]):
            texts = corpus.take(local + corpus.starts[shard], ["paper_id", "title", "abstract"])
            columns = [
                column.to_pylist() for column in (*texts.columns, *tags.arrow(tags_name(shard)).take(local).columns)
            ]
            rows = (local + corpus.starts[shard]).tolist()
            for row, paper_id, title, abstract, title_tags, abstract_tags in zip(rows, *columns, strict=True):
                if class_of(paper_id):
                    raise kit.InputError(f"the id {paper_id!r} must not end in # and the name of a class", "Rename it")
                papers += [(row, paper_id, title, abstract), (row, f"{paper_id}#{TITLE}", title, "")]
                if row in with_neighbours:
                    paper = Paper(Words(title, title_tags), Words(abstract, abstract_tags), top_phrases(self.tags))
                    for name, text in self._vary(paper, paper_id, noted):
                        papers.append((row, f"{paper_id}#{name}", *text))
        yield kit.PaperBatch(_batch(corpus, papers), read=len(papers), noted=noted)

    def _vary(self, paper: Paper, paper_id: str, noted: Counter[str]) -> Iterator[tuple[str, kit.Text]]:
        for name in self.config.classes:
            text = CLASSES[name].neighbour(paper, paper_id, self.config.seed)
            has_word = any(map(str.isalnum, text.title + text.abstract))
            outcome = "unchanged" if text == paper.text else "neighbours" if has_word else "without_words"
            noted[f"{outcome} {name}"] += 1
            if outcome == "neighbours":
                yield name, text


def _batch(corpus: kit.Corpus, papers: Sequence[tuple[int, str, str, str]]) -> pa.RecordBatch:
    """Return texts, each (row of the original, id, title, abstract), as papers without citations."""
    rows, ids, titles, abstracts = map(list, zip(*papers, strict=True))
    years, fields, dois = (corpus.attributes[name][rows] for name in ("year", "fields", "doi_key"))
    columns = [ids, titles, abstracts, years, fields, [[]] * len(rows), [0] * len(rows), dois]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, kit.RAW_PAPERS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=kit.RAW_PAPERS)


def class_of(paper_id: str) -> str:
    """Return the class of a title or neighbour; an empty string for an original."""
    _, _, name = paper_id.rpartition("#")
    return name if name == TITLE or name in CLASSES else ""


class Members(NamedTuple):
    """Rows of the papers of a corpus of neighbours: ``originals``, and ``rows`` of titles and neighbours, both rising.

    Each of the latter has the row of its original (``original_of``) and its class (``names``).
    """

    originals: Rows
    rows: Rows
    original_of: Rows
    names: npt.NDArray[np.str_]

    @classmethod
    def read(cls, artifact: kit.Artifact) -> Members:
        """Read the members of a corpus of neighbours."""
        corpus = kit.Corpus(artifact)
        ids = corpus.ids(np.arange(len(corpus)))
        names = np.array([class_of(paper_id) for paper_id in ids], str)
        originals, rows = np.flatnonzero(names == ""), np.flatnonzero(names != "")
        row_of = {ids[row]: row for row in originals.tolist()}
        original_of = np.array([row_of[ids[row].rpartition("#")[0]] for row in rows.tolist()], np.int64)
        return cls(originals, rows, original_of, names[rows])


PoolKind = Literal["titles", "titles-among-titles", "neighbours", "overlap"]


def pool_task(corpus: kit.Artifact, kind: PoolKind, queries: kit.Count, seed: int, name: str = "") -> kit.Task:
    """Return the task of a pool of a corpus of neighbours; the positive of a query is its original, or its neighbour.

    A query that is a candidate is excluded from its own ranking. Of the kinds, ``titles`` has titles as queries and
    originals as candidates (task I), ``titles-among-titles`` the titles of all other papers too (task II),
    ``neighbours`` neighbours of all classes as queries, whose field is the class, and ``overlap`` neighbours of the
    class ``name`` and their originals as queries, among all neighbours of that class and all originals. ``queries`` are
    titles, or neighbours of each class.

    Raises:
        InputError: once run: no paper has a neighbour of the class.
    """

    def build(inputs: kit.Inputs, out: kit.Workdir) -> kit.Counts:
        members = Members.read(inputs["corpus"])
        positions = _query_positions(members, kit.Corpus(inputs["corpus"]), kind, name, queries, seed)
        if not len(positions):
            raise kit.InputError(f"no paper has a neighbour of {name or 'any class'}", "Leave the class out")
        rows, originals = members.rows[positions], members.original_of[positions]
        fields = members.names[positions].astype(object)
        candidates = members.originals
        if kind == "overlap":
            candidates = np.union1d(candidates, members.rows[members.names == name])
            fields = np.concatenate([fields, [None] * len(rows)])
            rows, originals = np.concatenate([rows, originals]), np.concatenate([originals, rows])
        elif kind == "titles-among-titles":
            candidates = np.union1d(candidates, members.rows[members.names == TITLE])
        order = np.argsort(rows)
        rows, originals, fields, positives = rows[order], originals[order], fields[order], np.arange(len(rows))
        self_queries = np.flatnonzero(np.isin(rows, candidates))
        judgements, exclusions = (positives, originals, np.ones(len(rows))), (self_queries, rows[self_queries])
        kit.write_pool(out, (rows, fields), candidates, judgements, exclusions)
        return {
            "queries": len(rows),
            "queries_without_positive": 0,
            "positives": len(rows),
            "candidates": len(candidates),
            "excluded_self": len(self_queries),
            "excluded_same_title": 0,
        }

    slug = f"{corpus.manifest.slug}-{f'{kind}-{name}'.lower().replace('_', '-').strip('-')}"
    own = {"kind": kind, "name": name}
    return kit.own_pool(slug, build, {"corpus": corpus}, own=own, queries=queries, seed=seed)


def _query_positions(
    members: Members, corpus: kit.Corpus, kind: PoolKind, name: str, queries: kit.Count, seed: int
) -> Rows:
    """Return the positions of the queries among titles and neighbours."""
    keys = corpus.attributes["key"][members.original_of]
    if kind.startswith("titles"):
        titles = np.flatnonzero(members.names == TITLE)
        count = len(titles) if queries == "all" else queries
        return titles[kit.smallest(kit.priorities(keys[titles], seed, "title queries"), count)]
    names = [name] if kind == "overlap" else np.unique(members.names[members.names != TITLE])
    is_query = np.zeros(len(keys), bool)
    for of_class in names:
        positions = np.flatnonzero(members.names == of_class)
        is_query[positions[draw_papers(keys[positions], queries, seed)]] = True
    return np.flatnonzero(is_query)
