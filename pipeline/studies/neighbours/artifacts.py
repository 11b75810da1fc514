"""The artifacts of the study: tags of a corpus, and a corpus of its papers, their titles and their neighbours.

The second is a corpus like any other, so encoders embed it and pools of it are ranked and scored by the usual stages.
Its ids say what a paper is: ``ID`` an original, ``ID#T`` its title alone, ``ID#T_ARot`` its neighbour of that class.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pipeline.core import files
from pipeline.core.artifact import Artifact
from pipeline.core.errors import InputError
from pipeline.core.manifest import Counts
from pipeline.core.parallel import unordered
from pipeline.core.progress import Progress
from pipeline.core.resources import Resources
from pipeline.core.rng import priorities, smallest
from pipeline.core.schema import ATTRIBUTES, INDICES, INDPTR, NO_YEAR, PAPERS, SHARD_ROWS
from pipeline.core.task import Inputs, Task
from pipeline.core.text import id_keys, title_keys
from pipeline.core.workdir import Workdir
from pipeline.core.workspace import CORPORA
from pipeline.corpus.arrays import write_arrays
from pipeline.corpus.merge import field_lists
from pipeline.corpus.reader import Corpus
from pipeline.studies.neighbours.operators import CLASSES
from pipeline.studies.neighbours.tagging import tag_papers
from pipeline.studies.neighbours.words import Paper, Words

ROOM = "corpora/tags"
TITLE = "T"
"""The class of a paper's title alone."""

TAGS = pa.schema([pa.field("title", pa.large_string()), pa.field("abstract", pa.large_string())])
"""Tags of a corpus shard, ``tags-00000.arrow``, in row order; null for a paper without an English abstract."""

PHRASES = pa.schema(
    [pa.field("phrase", pa.large_string(), nullable=False), pa.field("count", pa.int64(), nullable=False)]
)
"""Noun phrases that occur at least twice in the abstracts of a corpus, ``phrases.arrow``, sorted by phrase."""

NEIGHBOURS = pa.schema(
    [
        pa.field("row", pa.uint32(), nullable=False),
        pa.field("original", pa.uint32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
    ]
)
"""Titles and neighbours of a corpus, ``neighbours.arrow``, rising by ``row``: each with the row of its original and the
name of its class. All other papers are originals."""

_TEXTS = ("paper_id", "title", "abstract")
_MADE = {"row": pl.Int64, "name": pl.String, "title": pl.String, "abstract": pl.String}
_TAGGED_TOGETHER, _MADE_TOGETHER = 1_024, 256


Block = npt.NDArray[np.int64]
"""Rising rows of a corpus that are worked on together."""


@dataclass(frozen=True)
class TagsConfig:
    """What decides tags beside the corpus: tagger and version, and the version of our rules for tokens and classes."""

    tagger: str
    rules: int = 1


def tags_task(corpus: Artifact) -> Task:
    """Return the task that tags titles and abstracts of a corpus, once for all studies of it.

    Raises:
        InputError: the tagger is not installed.
    """
    try:
        version = importlib.metadata.version("HanTa")
    except importlib.metadata.PackageNotFoundError as error:
        raise InputError("the tagger HanTa must be installed", "pip install mdcr-pipeline[neighbours]") from error

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        opened = Corpus(inputs["corpus"])
        with Progress(len(opened), "tag", "papers") as progress:
            for shard, (start, end) in enumerate(zip(opened.starts[:-1], opened.starts[1:], strict=True)):
                if not out.done(_tags_name(shard)):
                    blocks = _blocks(np.arange(start, end), _TAGGED_TOGETHER)
                    tag_block = functools.partial(_tag_block, inputs["corpus"].path)
                    found = {}
                    for rows, tags in unordered(tag_block, blocks, resources.workers):
                        found[int(rows[0])] = tags
                        progress.add(len(rows))
                    tagged = [each or (None, None) for first in sorted(found) for each in found[first]]
                    out.arrow(_tags_name(shard), _table(tagged, TAGS), TAGS)
        return _count_phrases(opened, out)

    config = TagsConfig(f"HanTa {version}")
    return Task("tags", 1, ROOM, corpus.manifest.slug, config, {"corpus": corpus}, run)


def _tag_block(corpus: Path, rows: Block) -> list[tuple[str, str] | None]:
    return tag_papers([text for texts in Corpus(Artifact.open(corpus)).texts(rows) for text in texts])


def _count_phrases(corpus: Corpus, out: Workdir) -> Counts:
    counts: Counter[str] = Counter()
    tagged = 0
    for shard in range(corpus.shards):
        abstracts = corpus.shard(shard).column("abstract")
        tags = files.read_arrow(out.path / _tags_name(shard)).column("abstract")
        for text, tag in zip(abstracts.to_pylist(), tags.to_pylist(), strict=True):
            if tag is not None:
                tagged += 1
                counts.update(phrase for _, phrase in Words(text, tag).phrases)
    repeated = sorted((phrase, count) for phrase, count in counts.items() if count > 1)
    out.arrow("phrases.arrow", _table(repeated, PHRASES), PHRASES)
    return {"read": len(corpus), "tagged": tagged, "not_english": len(corpus) - tagged, "phrases": len(counts)}


@dataclass(frozen=True)
class NeighboursConfig:
    """Settings of a corpus of neighbours.

    Attributes:
        papers: papers whose neighbours are made, or ``all``.
        classes: names of the classes.
        seed: of the choice of papers, and of every random edit.
    """

    papers: int | Literal["all"] = 2_000
    classes: tuple[str, ...] = tuple(CLASSES)
    seed: int = 13


def neighbours_task(corpus: Artifact, tags: Task | Artifact, config: NeighboursConfig) -> Task:
    """Return the task that makes a corpus of originals, titles and neighbours.

    Papers without a title or an abstract take no part. Those without an English abstract are originals with a title,
    but have no neighbours. A class that leaves a paper unchanged, or without a word, gives no neighbour. Each case is
    counted. Texts of the class T_A_WS have runs of spaces; all others are normalised.

    Holds all texts in memory, about 50 kB a paper with neighbours.
    """

    def run(inputs: Inputs, out: Workdir, resources: Resources) -> Counts:
        opened = Corpus(inputs["corpus"])
        attributes = opened.attributes
        titled, described = attributes["title_chars"] > 0, attributes["abstract_chars"] > 0
        kept = np.flatnonzero(titled & described)
        english = kept[_tagged(opened, inputs["tags"])[kept]]
        wanted = len(english) if config.papers == "all" else int(config.papers)
        chosen = english[smallest(priorities(attributes["key"][english], config.seed, "neighbours"), wanted)]
        make = functools.partial(_make_block, inputs["corpus"].path, inputs["tags"].path, config)
        made: list[_Made] = []
        counts: dict[str, Counter[str]] = {name: Counter() for name in ("neighbours", "unchanged", "without_words")}
        with Progress(len(chosen), "neighbours", "papers") as progress:
            for rows, (found, left_out) in unordered(make, _blocks(np.sort(chosen), _MADE_TOGETHER), resources.workers):
                made += found
                counts["neighbours"].update(each.name for each in found)
                for reason, names in left_out.items():
                    counts[reason].update(names)
                progress.add(len(rows))
        _write(opened, kept, made, out)
        return {
            "read": len(opened),
            "kept": len(kept),
            "dropped": {"no_title": int((~titled).sum()), "no_abstract": int((titled & ~described).sum())},
            "not_english": len(kept) - len(english),
            "papers": len(chosen),
            **{name: {each: count[each] for each in config.classes} for name, count in counts.items()},
        }

    slug = f"{corpus.manifest.slug}-neighbours"
    return Task("neighbours", 1, CORPORA, slug, config, {"corpus": corpus, "tags": tags}, run)


class _Made(NamedTuple):
    row: int
    name: str
    title: str
    abstract: str


def _make_block(
    corpus: Path, tags: Path, config: NeighboursConfig, rows: Block
) -> tuple[list[_Made], dict[str, list[str]]]:
    """Return the neighbours of some papers, and the classes that gave none, by reason."""
    opened, tagged = Corpus(Artifact.open(corpus)), Artifact.open(tags)
    frequency = _frequency(tags)
    found: list[_Made] = []
    left_out: dict[str, list[str]] = {"unchanged": [], "without_words": []}
    for shard, local in opened.by_shard(rows):
        papers = opened.shard(shard).select(["paper_id", "title", "abstract"]).take(local)
        letters = tagged.arrow(_tags_name(shard)).take(local)
        columns = [*papers.columns, *letters.columns]
        for row, paper_id, title, abstract, title_tags, abstract_tags in zip(
            local + opened.starts[shard], *(column.to_pylist() for column in columns), strict=True
        ):
            paper = Paper(Words(title, title_tags), Words(abstract, abstract_tags), frequency)
            for name in config.classes:
                text = CLASSES[name].neighbour(paper, paper_id, config.seed)
                if text == paper.text:
                    left_out["unchanged"].append(name)
                elif not any(map(str.isalnum, text.title + text.abstract)):
                    left_out["without_words"].append(name)
                else:
                    found.append(_Made(int(row), name, *text))
    return found, left_out


@functools.lru_cache(maxsize=1)
def _frequency(tags: Path) -> Mapping[str, int]:
    table = Artifact.open(tags).arrow("phrases.arrow")
    return dict(zip(table.column("phrase").to_pylist(), table.column("count").to_pylist(), strict=True))


def _tagged(corpus: Corpus, tags: Artifact) -> npt.NDArray[np.bool_]:
    """Return which papers have tags."""
    valid = [tags.arrow(_tags_name(shard)).column("abstract").is_valid() for shard in range(corpus.shards)]
    return np.concatenate([each.to_numpy() for each in valid])


def _write(corpus: Corpus, kept: npt.NDArray[np.int64], made: Sequence[_Made], out: Workdir) -> None:
    """Write originals, titles and neighbours as a corpus without citations, sorted by id."""
    texts: Any = pl.from_arrow(corpus.take(kept, ["paper_id", "title", "abstract"]))
    texts = texts.with_columns(row=pl.Series(kept), name=pl.lit(""))
    own = texts.select("row", id="paper_id")
    neighbours = pl.DataFrame(made, _MADE, orient="row").join(own, on="row", maintain_order="left")
    titles = texts.with_columns(paper_id=pl.col("paper_id") + f"#{TITLE}", abstract=pl.lit(""), name=pl.lit(TITLE))
    papers = pl.concat(
        [
            texts,
            titles,
            neighbours.select(
                pl.concat_str("id", pl.lit("#"), "name").alias("paper_id"), "title", "abstract", "row", "name"
            ),
        ]
    ).sort("paper_id")
    keys = id_keys(papers["paper_id"].to_list())
    if len(np.unique(keys)) < len(keys):
        raise InputError("the ids of papers must not end in # and the name of a class", "Rename these papers")
    source, originals = papers["row"].to_numpy(), np.flatnonzero(papers["name"] == "")
    old = {name: values[source] for name, values in corpus.attributes.items()}
    zeros = np.zeros(len(papers), np.int32)
    new = {
        **old,
        "key": keys,
        "title_key": title_keys(pa.array(papers["title"].to_list(), pa.large_string())),
        "n_outbound": zeros,
        "n_inbound": zeros,
        "title_chars": papers["title"].str.len_chars().to_numpy().astype(np.int32),
        "abstract_chars": papers["abstract"].str.len_chars().to_numpy().astype(np.int32),
    }
    write_arrays(out, "attributes.arrow", ATTRIBUTES, [new[name] for name in ATTRIBUTES.names])
    for direction in ("outgoing", "incoming"):
        write_arrays(out, f"{direction}-indptr.arrow", INDPTR, [np.zeros(len(papers) + 1, np.int64)])
        write_arrays(out, f"{direction}-indices.arrow", INDICES, [np.zeros(0, np.uint32)])
    for shard, start in enumerate(range(0, max(len(papers), 1), SHARD_ROWS)):
        part = slice(start, start + SHARD_ROWS)
        year = new["year"][part]
        columns = {name: pa.array(papers[name][part].to_list(), pa.large_string()) for name in _TEXTS}
        columns |= {name: pa.array(zeros[part]) for name in ("n_outbound", "n_inbound")}
        columns["year"] = pa.array(year, mask=year == NO_YEAR)
        columns["fields"] = field_lists(new["fields"][part])
        out.arrow(f"papers-{shard:05d}.arrow", pa.table([columns[f.name] for f in PAPERS], schema=PAPERS), PAPERS)
    rows = np.flatnonzero(papers["name"] != "")
    places = originals[np.searchsorted(source[originals], source[rows])]
    names = papers["name"].gather(rows).to_list()
    out.arrow("neighbours.arrow", pa.table([rows, places, names], schema=NEIGHBOURS), NEIGHBOURS)


def _tags_name(shard: int) -> str:
    return f"tags-{shard:05d}.arrow"


def _blocks(rows: Block, size: int) -> list[Block]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
