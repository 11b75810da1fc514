"""A corpus of the papers of another corpus, their titles and their neighbours; and its pools.

It is a corpus like any other, so encoders embed it and pools of it are ranked and scored by the usual stages. Its ids
say what a paper is: ``ID`` an original, ``ID#T`` its title alone, ``ID#T_ARot`` its neighbour of that class.
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

from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.resources import Resources
from pipeline.core.rng import priorities, smallest
from pipeline.core.settings import Count
from pipeline.core.task import Inputs, Task
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import CORPORA, POOLS
from pipeline.corpus.build import build_corpus
from pipeline.corpus.pools import write_pool
from pipeline.corpus.reader import Corpus, Text
from pipeline.sources.base import RAW_PAPERS, PaperBatch, Release
from pipeline.studies.common import ExternalPoolConfig
from pipeline.studies.neighbours.operators import CLASSES, TOP_PHRASES, Paper
from pipeline.studies.neighbours.tagging import Words, drawn, tags_name, tags_task, top_phrases

TITLE = "T"
"""The class of a paper's title alone."""

OUTCOMES = ("neighbours", "unchanged", "without_words")
"""What a class makes of a paper."""

_TOGETHER = 256
"""Papers whose neighbours a worker makes at a time."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NeighboursConfig:
    """Settings of a corpus of neighbours: of how many papers, classes by name, and the seed of every random choice."""

    papers: Count = 2_000
    classes: tuple[str, ...] = tuple(CLASSES)
    seed: int = 13


def neighbours_task(corpus: Artifact, config: NeighboursConfig) -> Task:
    """Return the task that makes a corpus of originals, titles and neighbours, from tags of the papers it needs.

    Papers without a title or an abstract take no part. Those without an English abstract are originals with a title,
    but have no neighbours. A class that leaves a paper unchanged, or without a word, gives no neighbour. Each case is
    counted. Texts of the class T_A_WS have runs of spaces; all others are normalised.

    Raises:
        InputError: the tagger is not installed; or once run: no paper has an English abstract, or an id could be that
            of a title or neighbour.
    """
    every = config.papers == "all" or TOP_PHRASES in config.classes
    tags = tags_task(corpus) if every else tags_task(corpus, config.papers, config.seed)

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        release = _Neighbours(corpus=inputs["corpus"].path, tags=inputs["tags"].path, config=config)
        opened, chosen = Corpus(inputs["corpus"]), _choose(release.corpus, release.tags, config)
        if not len(chosen.varied):
            slug = inputs["corpus"].manifest.slug
            raise InputError(f"no paper of {slug} has a title and an English abstract", "Leave this corpus out")
        counted = build_corpus(release, out, resources)["noted"]
        titled = opened.attributes["title_chars"] > 0
        return {
            "read": len(opened),
            "kept": len(chosen.kept),
            "dropped": {"no_title": int((~titled).sum()), "no_abstract": int(titled.sum()) - len(chosen.kept)},
            "not_english": chosen.not_english,
            "papers": len(chosen.varied),
            **{outcome: {name: counted.get(f"{outcome} {name}", 0) for name in config.classes} for outcome in OUTCOMES},
        }

    slug = f"{corpus.manifest.slug}-neighbours"
    return Task("neighbours", 2, CORPORA, slug, config, {"corpus": corpus, "tags": tags}, run)


class _Chosen(NamedTuple):
    """Rows of the papers that take part, and of those whose neighbours are made, both rising."""

    kept: Rows
    varied: Rows
    not_english: int


@functools.lru_cache(maxsize=1)
def _choose(corpus: Path, tags: Path, config: NeighboursConfig) -> _Chosen:
    """Return what takes part; papers whose tags are not null have an English abstract."""
    opened, tagged = Corpus(Artifact.open(corpus)), Artifact.open(tags)
    attributes = opened.attributes
    kept = np.flatnonzero((attributes["title_chars"] > 0) & (attributes["abstract_chars"] > 0))
    valid = [tagged.arrow(tags_name(shard)).column("abstract").is_valid() for shard in range(opened.shards)]
    english = kept[np.concatenate([of_shard.to_numpy() for of_shard in valid])[kept]]
    varied = np.sort(english[drawn(attributes["key"][english], config.papers, config.seed)])
    return _Chosen(kept, varied, len(kept) - len(english))


@dataclass(frozen=True)
class _Neighbours(Release):
    """Originals, titles and neighbours of a corpus, as a release; a part holds those of some papers."""

    corpus: Path
    tags: Path
    config: NeighboursConfig
    source = "neighbours"

    def identity(self) -> Mapping[str, Any]:
        return {}

    def queries(self) -> None:
        return None

    def parts(self) -> list[str]:
        kept = _choose(self.corpus, self.tags, self.config).kept
        return [str(start) for start in range(0, len(kept), _TOGETHER)]

    def read(self, part: str) -> Iterator[PaperBatch]:
        corpus, tags = Corpus(Artifact.open(self.corpus)), Artifact.open(self.tags)
        chosen = _choose(self.corpus, self.tags, self.config)
        varied, noted = set(chosen.varied.tolist()), Counter[str]()
        papers: list[tuple[int, str, str, str]] = []
        for shard, local in corpus.by_shard(chosen.kept[int(part) : int(part) + _TOGETHER]):
            texts = corpus.take(local + corpus.starts[shard], ["paper_id", "title", "abstract"])
            columns = [*texts.columns, *tags.arrow(tags_name(shard)).take(local).columns]
            rows = (local + corpus.starts[shard]).tolist()
            for row, paper_id, title, abstract, *letters in zip(rows, *(c.to_pylist() for c in columns), strict=True):
                if class_of(paper_id):
                    raise InputError(f"the id {paper_id!r} must not end in # and the name of a class", "Rename it")
                papers += [(row, paper_id, title, abstract), (row, f"{paper_id}#{TITLE}", title, "")]
                if row in varied:
                    paper = Paper(Words(title, letters[0]), Words(abstract, letters[1]), top_phrases(self.tags))
                    for name, text in self._vary(paper, paper_id, noted):
                        papers.append((row, f"{paper_id}#{name}", *text))
        yield PaperBatch(_batch(corpus, papers), read=len(papers), noted=noted)

    def _vary(self, paper: Paper, paper_id: str, noted: Counter[str]) -> Iterator[tuple[str, Text]]:
        for name in self.config.classes:
            text = CLASSES[name].neighbour(paper, paper_id, self.config.seed)
            worded = any(map(str.isalnum, text.title + text.abstract))
            outcome = "unchanged" if text == paper.text else "neighbours" if worded else "without_words"
            noted[f"{outcome} {name}"] += 1
            if outcome == "neighbours":
                yield name, text


def _batch(corpus: Corpus, papers: Sequence[tuple[int, str, str, str]]) -> pa.RecordBatch:
    """Return (row of the original, id, title, abstract) of some texts as papers without citations."""
    rows, ids, titles, abstracts = map(list, zip(*papers, strict=True))
    years, fields, dois = (corpus.attributes[name][rows] for name in ("year", "fields", "doi_key"))
    columns = [ids, titles, abstracts, years, fields, [[]] * len(rows), [0] * len(rows), dois]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW_PAPERS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_PAPERS)


def class_of(paper_id: str) -> str:
    """Return the class of a title or neighbour; an empty text for an original."""
    _, _, name = paper_id.rpartition("#")
    return name if name == TITLE or name in CLASSES else ""


class Members(NamedTuple):
    """Rising rows of a corpus of neighbours: of originals; of titles and neighbours, each with original and class."""

    originals: Rows
    rows: Rows
    of: Rows
    names: npt.NDArray[np.str_]

    @classmethod
    def read(cls, artifact: Artifact) -> Members:
        """Read what the papers of a corpus of neighbours are, by their ids."""
        corpus = Corpus(artifact)
        ids = corpus.ids(np.arange(len(corpus)))
        names = np.array([class_of(paper_id) for paper_id in ids], str)
        originals, rows = np.flatnonzero(names == ""), np.flatnonzero(names != "")
        place = {ids[row]: row for row in originals.tolist()}
        of = np.array([place[ids[row].rpartition("#")[0]] for row in rows.tolist()], np.int64)
        return cls(originals, rows, of, names[rows])


Kind = Literal["titles", "titles-among-titles", "neighbours", "overlap"]


@dataclass(frozen=True)
class NeighbourPoolConfig(ExternalPoolConfig):
    """Settings of a pool of a corpus of neighbours.

    Attributes:
        kind: ``titles``: titles as queries, originals as candidates (task I). ``titles-among-titles``: the titles of
            all other papers are candidates too (task II). ``neighbours``: neighbours of all classes as queries,
            originals as candidates; a query's field is its class. ``overlap``: neighbours of one class and their
            originals as queries; all neighbours of that class and all originals as candidates.
        name: the class, of ``overlap``.
        queries: titles that are queries; neighbours of each class that are, all where a class has fewer.
    """

    kind: Kind = "titles"
    name: str = ""

    @property
    def slug(self) -> str:
        """Readable name: ``overlap-t-arot``."""
        return f"{self.kind}-{self.name}".lower().replace("_", "-").strip("-")


def pool_task(corpus: Artifact, config: NeighbourPoolConfig) -> Task:
    """Return the task that makes a pool. The positive of a query is its original, or the original's neighbour.

    A query that is a candidate is removed from its own ranking.

    Raises:
        InputError: once run: no paper has a neighbour of the class.
    """

    def run(inputs: Inputs, out: Workdir, _resources: Resources) -> Counts:
        members = Members.read(inputs["corpus"])
        chosen = _chosen(members, Corpus(inputs["corpus"]), config)
        if not len(chosen):
            raise InputError(f"no paper has a neighbour of {config.name or 'any class'}", "Leave the class out")
        rows, of, fields = members.rows[chosen], members.of[chosen], members.names[chosen].astype(object)
        candidates = members.originals
        if config.kind == "overlap":
            candidates = np.union1d(candidates, members.rows[members.names == config.name])
            fields = np.concatenate([fields, [None] * len(rows)])
            rows, of = np.concatenate([rows, of]), np.concatenate([of, rows])
        elif config.kind == "titles-among-titles":
            candidates = np.union1d(candidates, members.rows[members.names == TITLE])
        order = np.argsort(rows)
        rows, of, fields, places = rows[order], of[order], fields[order], np.arange(len(rows))
        itself = np.flatnonzero(np.isin(rows, candidates))
        write_pool(out, (rows, fields), candidates, (places, of, np.ones(len(rows))), (itself, rows[itself]))
        return {
            "queries": len(rows),
            "queries_without_positive": 0,
            "positives": len(rows),
            "candidates": len(candidates),
            "excluded_self": len(itself),
            "excluded_same_title": 0,
        }

    return Task("pool", 1, POOLS, f"{corpus.manifest.slug}-{config.slug}", config, {"corpus": corpus}, run)


def _chosen(members: Members, corpus: Corpus, config: NeighbourPoolConfig) -> Rows:
    """Return the places, among titles and neighbours, of the queries."""
    keys = corpus.attributes["key"][members.of]
    if config.kind.startswith("titles"):
        titles = np.flatnonzero(members.names == TITLE)
        count = len(titles) if config.queries == "all" else config.queries
        return titles[smallest(priorities(keys[titles], config.seed, "title queries"), count)]
    names = [config.name] if config.kind == "overlap" else np.unique(members.names[members.names != TITLE])
    chosen = np.zeros(len(keys), bool)
    for name in names:
        places = np.flatnonzero(members.names == name)
        chosen[places[drawn(keys[places], config.queries, config.seed)]] = True
    return np.flatnonzero(chosen)
